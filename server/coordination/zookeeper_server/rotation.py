"""Which client's request is handled next: short ones first, and one long one at a time with a rest after it.

A request is handled in one turn, or in a turn for each of its steps. A transaction with thousands of ops takes some 10 ms,
since no other request may see a part of its changes. So clients whose requests took long queue apart from the others: each turn of the loop
handles short requests for a while, and at most one that may be long. After it, the long ones rest for as long as it took,
so that several clients with nothing but long requests leave half of the time to the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

#: How long short requests are handled in one turn of the loop.
SLICE_US = 3_000
#: A client whose requests take longer is queued with the long ones.
LONG_US = 2_000


class WaitingClient(Protocol):
    """A client with requests. Shape: `cost_us` belongs to the rotation; 0 at first. A step counts as a request here."""

    cost_us: float

    def handle_next(self) -> bool:
        """Handle a request; False if there is no further one that could be handled now."""
        ...


class RequestRotation:
    """Gives the clients their turns.

    Shape: `cpu_us` is the CPU time of this thread, and decides what is long, because short requests may take long by the clock
    on a busy machine. A client is added once, and again after its `handle_next` has returned False.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, cpu_us: Callable[[], int]) -> None:
        self._loop = loop
        self._cpu_us = cpu_us
        self._short: deque[WaitingClient] = deque()
        self._long: deque[WaitingClient] = deque()
        self._scheduled = False
        self._resting = False

    def add(self, client: WaitingClient) -> None:
        """Queue a client that has requests."""
        (self._long if client.cost_us > LONG_US else self._short).append(client)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and (self._short or (self._long and not self._resting)):
            self._scheduled = True
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """One turn of the loop."""
        self._scheduled = False
        end_us = self._cpu_us() + SLICE_US
        longest_us = 0
        while self._short and self._cpu_us() < end_us:
            longest_us = max(longest_us, self._handle(self._short.popleft()))
        if self._long and not self._resting and longest_us <= LONG_US:
            longest_us = self._handle(self._long.popleft())
        if longest_us > LONG_US:
            self._resting = True
            self._loop.call_later(longest_us / 1e6, self._rested)
        self._schedule()

    def _handle(self, client: WaitingClient) -> int:
        """Handle one request; return the time it took."""
        began_us = self._cpu_us()
        more = client.handle_next()
        took_us = self._cpu_us() - began_us
        # Short requests between long ones do not make a client's requests short at once.
        client.cost_us = max(took_us, client.cost_us / 2)
        if more:
            (self._long if client.cost_us > LONG_US else self._short).append(client)
        return took_us

    def _rested(self) -> None:
        self._resting = False
        self._schedule()
