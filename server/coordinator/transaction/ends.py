"""The second phase of all transactions of a broker: markers to be written, and outcomes to be recorded.

Thousands of transactions may end at one moment: a common timeout, a broker that comes back, a follower that commits what
many have waited for. All of it is one piece of the broker's long work, in which clients take turns. Within a client's
turn, one of its transactions gets a few markers, so that a transaction with few partitions ends soon beside others with
many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from ...cause import Own
from ...fair_queue import FairQueue
from ...turns import Steps, Turns

logger = logging.getLogger(__name__)

OWNER = Own("transactions that end")

#: The number of steps, with one marker each, that a transaction gets before the next one.
STEPS_IN_TURN = 8


class TransactionEnds:
    """Runs the work that ends transactions, in turns.

    Shape: outcomes come first: they end transactions, while markers only begin more work.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._outcomes: FairQueue[Callable[[], None]] = FairQueue()
        self._sending: FairQueue[Steps[None]] = FairQueue()
        self._is_running = False

    def send(self, client: Hashable, steps: Steps[None]) -> None:
        """Have a transaction's markers written; the first of them now, if little else waits."""
        self._sending.put(client, steps)
        self._go_on()

    def tell(self, client: Hashable, record: Callable[[], None]) -> None:
        """Have an outcome recorded, now or soon."""
        self._outcomes.put(client, record)
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._turns.start(self._run(), OWNER)

    def _run(self) -> Steps[None]:
        try:
            while self._outcomes or self._sending:
                try:
                    if self._outcomes:
                        self._outcomes.take()[1]()
                    else:
                        client, steps = self._sending.take()
                        if not ends_in(steps, STEPS_IN_TURN):
                            self._sending.put(client, steps)
                except Exception:  # a bug of ours must not keep other transactions open
                    logger.exception("the end of a transaction failed")
                if self._outcomes or self._sending:
                    yield
        finally:
            self._is_running = False


def ends_in(steps: Steps[None], number: int) -> bool:
    """Take so many steps; True if the work has ended."""
    for _ in range(number):
        try:
            next(steps)
        except StopIteration:
            return True
    return False
