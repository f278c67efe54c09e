"""Sends requests of coordinators and leaders to other brokers, at most one at a time to each broker.

Items that arrive while a request is in flight are sent together in the next ones, each with a limited number of items, in
which clients take turns. This module does not retry: the caller learns of the failure and then decides which broker to
ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Hashable
from typing import Any, Generic, TypeVar

from ...fair_queue import FairQueue

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Sends a request message in the given version to a broker, and returns its response. Errors: OSError.
Send = Callable[[int, Any, int], Awaitable[Any]]

#: The number of items in one request, whose message is made in one turn of the loop.
MAX_ITEMS = 256


class InterBrokerSender(Generic[T]):
    """A queue for each broker of the items to be sent to it.

    Shape: `send(broker_id, items)` returns when the items are answered, at most `most_items` of them. `failed(items)` is
    called otherwise: after an OSError, or when the broker is gone.
    """

    def __init__(
        self,
        send: Callable[[int, list[T]], Awaitable[None]],
        failed: Callable[[list[T]], None],
        *,
        most_items: int = MAX_ITEMS,
    ) -> None:
        self._send = send
        self._failed = failed
        self._most_items = most_items
        self._waiting: dict[int, FairQueue[T]] = {}
        self._sent: dict[int, list[T]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, broker_id: int, item: T, client: Hashable = None) -> None:
        """Send an item, on behalf of a client, with the next request to a broker that has room for it."""
        waiting = self._waiting.get(broker_id)
        if waiting is None:
            waiting = self._waiting[broker_id] = FairQueue()
        waiting.put(client, item)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._run(broker_id))

    def keep(self, broker_ids: Container[int]) -> None:
        """Fail the items for brokers that are gone, instead of waiting for an answer."""
        for broker_id in [each for each in self._tasks if each not in broker_ids]:
            self._tasks.pop(broker_id).cancel()
            lost = self._sent.pop(broker_id, [])
            if (waiting := self._waiting.pop(broker_id, None)) is not None:
                lost += waiting.take_all()
            if lost:
                self._fail(lost)

    def close(self) -> None:
        """Stop sending, and drop all items."""
        self.keep(())

    async def _run(self, broker_id: int) -> None:
        while batch := self._next_batch(broker_id):
            self._sent[broker_id] = batch
            error: Exception | None = None
            try:
                await self._send(broker_id, batch)
            except Exception as caught:  # noqa: BLE001 - a task's root; nobody may wait for ever
                error = caught
            if self._tasks.get(broker_id) is not asyncio.current_task():
                return  # closed in the meantime; every caller has its failure
            self._sent.pop(broker_id, None)
            if isinstance(error, OSError):
                logger.debug("cannot reach broker %d: %s", broker_id, error)
            elif error is not None:
                logger.error(
                    "the answer of broker %d could not be processed", broker_id, exc_info=error
                )
            if error is not None:
                self._fail(batch)
        del self._tasks[broker_id]

    def _next_batch(self, broker_id: int) -> list[T]:
        """Take items for the next request to a broker; none if nothing waits."""
        waiting = self._waiting.get(broker_id)
        batch: list[T] = []
        while waiting and len(batch) < self._most_items:
            batch.append(waiting.take()[1])
        if not waiting:
            self._waiting.pop(broker_id, None)
        return batch

    def _fail(self, items: list[T]) -> None:
        try:
            self._failed(items)
        except Exception:  # later items for the broker must still be sent
            logger.exception("a failed request to another broker could not be processed")
