"""Producer ids from blocks that the coordination store reserved for this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol


class ReservedIds(Protocol):
    """A reserved range of ids, both ends inclusive."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


class ProducerIds:
    """Hands out ids; requests the next block only when the current one is used up.

    The rest of a block is lost when the broker stops, which is harmless, since there are 2**63 ids.
    Source: ZkProducerIdManager.
    """

    def __init__(self, allocate: Callable[[], Awaitable[ReservedIds]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    def next_now(self) -> int | None:
        """The next id; None if a block must be reserved first."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """The next id. Errors: those of the coordination store."""
        async with self._lock:
            if self._next >= self._end:
                block = await self._allocate()
                self._next, self._end = block.first, block.last + 1
            self._next += 1
            return self._next - 1
