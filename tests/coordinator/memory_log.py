"""A CoordinatorLog in memory, whose writes are committed immediately or at the test's request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from kwire.errors import ErrorCode
from kwire.records.batch import RecordBatch
from server.coordinator.common.internal_topic import verified_body


class MemoryLog:
    """Batches by partition.

    Shape: with `hold` set, an append returns a future that `settle` resolves; a batch is in the log from
    the start, as on disk, unless it fails.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.hold = False
        self.held: list[tuple[int, bytes, asyncio.Future[ErrorCode]]] = []
        self.answer = ErrorCode.NONE

    def append(self, partition: int, batch: bytes, now_ms: int) -> Awaitable[ErrorCode] | ErrorCode:
        if not self.hold:
            if self.answer is ErrorCode.NONE:
                self.batches.setdefault(partition, []).append(batch)
            return self.answer
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.held.append((partition, batch, future))
        return future

    def settle(self, number: int = 0, error: ErrorCode = ErrorCode.NONE) -> None:
        """Resolve one held append."""
        partition, batch, future = self.held.pop(number)
        if error is ErrorCode.NONE:
            self.batches.setdefault(partition, []).append(batch)
        future.set_result(error)

    def read_all(self, partition: int) -> Iterator[memoryview]:
        for batch in self.batches.get(partition, []):
            yield memoryview(batch)

    async def inflated(self, batch: RecordBatch) -> bytes:
        return verified_body(batch)
