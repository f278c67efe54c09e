"""Limits the requests that one turn of the loop handles, when many connections send many at once, and the answers that
it gives, when many that have waited are ready at once.

Up to `max_batch` requests of a connection are handled in one turn. Once all connections together have reached
`TURN_REQUESTS`, each of the others gets one, so that clients that send single requests are served in the turn in which
these arrive. Connections with more requests wait in rotation. A request that arrives alone costs nothing here.

Thousands of answers may become ready in one turn: those of a group's members when it has rebalanced, of consumers that
wait for the same partition, of producers whose records a follower has fetched. After `TURN_ANSWERS`, the others wait, and
client addresses take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from ..fair_queue import FairQueue

#: One or two milliseconds of small requests.
TURN_REQUESTS = 64
#: The number of requests that may be counted over several turns, which saves the call that begins a turn.
FEW_REQUESTS = 16
#: The number of answers that have waited in one turn: a few milliseconds.
TURN_ANSWERS = 64


class Rotation:
    """The connections of a broker that have more requests than one turn allows.

    Shape: `taken` is about how many requests were taken up in this turn by connections that sent several. `answers` has
    the answers that have become ready after a wait.
    """

    __slots__ = ("_scheduled", "_waiting", "answers", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.answers = Answers()
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def took(self, count: int) -> None:
        """Note that several requests of a connection were taken up."""
        self.taken += count
        if self.taken >= FEW_REQUESTS and not self._scheduled:
            self._schedule()

    def wait(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` in one of the next turns, after the connections that are waiting already."""
        self._waiting.append(go_on)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a turn: let waiting connections continue, as far as its limit allows."""
        self._scheduled = False
        self.taken = 0
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self.taken >= TURN_REQUESTS:
                break
            waiting.popleft()()
        if waiting and not self._scheduled:
            self._schedule()


class Answers:
    """The answers that have become ready after a wait, and have yet to be made and sent."""

    __slots__ = ("_given", "_scheduled", "_waiting")

    def __init__(self) -> None:
        self._given = 0
        self._waiting: FairQueue[Callable[[], object]] = FairQueue()
        self._scheduled = False

    def give(self, client: Hashable, answer: Callable[[], object]) -> None:
        """Call `answer`, in this turn or in one of the next."""
        if self._given >= TURN_ANSWERS:
            self._waiting.put(client, answer)
            return
        self._given += 1
        if not self._scheduled:
            self._schedule()
        answer()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a turn: give waiting answers, as far as its limit allows."""
        self._scheduled = False
        self._given = 0
        waiting = self._waiting
        while waiting and self._given < TURN_ANSWERS:
            self._given += 1
            if not self._scheduled:
                self._schedule()
            waiting.take()[1]()
