"""The partitions of an internal topic as a coordinator's log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import closing

from kwire.errors import ErrorCode

from ..log.log import AppendError, AppendOrigin, LogSlice
from ..replication.purgatory import CommitWaiter
from ..replication.replica_manager import ReplicaManager

READ_BYTES = 1 << 20


class InternalTopicLog:
    """A CoordinatorLog over the replicas of this broker."""

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self.topic = topic
        self._replicas = replicas

    def append(self, partition: int, batch: bytes, now_ms: int) -> Awaitable[ErrorCode] | ErrorCode:
        """Append as leader with acks=-1; see CoordinatorLog.append."""
        replica = self._replicas.get(self.topic, partition)
        if replica is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        appended = replica.append_as_leader(
            memoryview(bytearray(batch)), acks=-1, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )
        if isinstance(appended, AppendError):
            return appended.error
        if replica.is_committed(appended.last_offset + 1):
            return ErrorCode.NONE
        # Begun now, since what is returned may be awaited only after it was committed.
        end = [(0, replica, appended.last_offset + 1)]
        return self._wait(CommitWaiter(asyncio.get_running_loop(), end, timeout_ms=None))

    async def _wait(self, waiter: CommitWaiter) -> ErrorCode:
        return (await waiter.future).get(0, ErrorCode.NONE)

    def read_all(self, partition: int) -> Iterator[memoryview]:
        """Yield stored batches up to the log's end; see CoordinatorLog.read_all.

        Errors: OSError where the log cannot be read.
        """
        replica = self._replicas.get(self.topic, partition)
        if replica is None:
            return
        log = replica.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, READ_BYTES, log.log_end_offset)
            if not isinstance(found, LogSlice):
                raise OSError(f"{replica.tp} cannot be read at offset {offset}: {found.name}")
            if not found.size:
                return
            data = found.data
            if not isinstance(data, bytes):
                with closing(data) as stored:
                    data = stored.read()
            yield memoryview(data)
            offset = found.next_offset
