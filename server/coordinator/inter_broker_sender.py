"""Sends requests of coordinators and leaders to other brokers, at most one at a time to each broker.

Items that arrive while a request is in flight are sent together in the next one. This module does not retry: the caller
learns of the failure and then decides which broker to ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Sends a request message in the given version to a broker, and returns its response. Errors: OSError.
Send = Callable[[int, Any, int], Awaitable[Any]]


class InterBrokerSender(Generic[T]):
    """A queue for each broker of the items to be sent to it.

    Shape: `send(broker_id, items)` returns when the items are answered. `failed(items)` is called otherwise: after an
    OSError, or when the broker is gone.
    """

    def __init__(
        self, send: Callable[[int, list[T]], Awaitable[None]], failed: Callable[[list[T]], None]
    ) -> None:
        self._send = send
        self._failed = failed
        self._waiting: dict[int, list[T]] = {}
        self._sent: dict[int, list[T]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, broker_id: int, item: T) -> None:
        """Send an item with the next request to a broker."""
        self._waiting.setdefault(broker_id, []).append(item)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._run(broker_id))

    def keep(self, broker_ids: Container[int]) -> None:
        """Fail the items for brokers that are gone, instead of waiting for an answer."""
        for broker_id in [each for each in self._tasks if each not in broker_ids]:
            self._tasks.pop(broker_id).cancel()
            lost = self._sent.pop(broker_id, []) + self._waiting.pop(broker_id, [])
            if lost:
                self._fail(lost)

    def close(self) -> None:
        """Stop sending, and drop all items."""
        self.keep(())

    async def _run(self, broker_id: int) -> None:
        while batch := self._waiting.pop(broker_id, None):
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

    def _fail(self, items: list[T]) -> None:
        try:
            self._failed(items)
        except Exception:  # later items for the broker must still be sent
            logger.exception("a failed request to another broker could not be processed")
