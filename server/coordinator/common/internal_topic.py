"""The partitions of an internal topic as a coordinator's log."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import closing

from kwire.errors import ErrorCode
from kwire.records.batch import RecordBatch

from ...log.log import AppendError, AppendOrigin, LogSlice
from ...replication.append import AppendResult
from ...replication.replica_manager import ReplicaManager

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
        appended = self._replicas.appends.append_records(
            [(replica, memoryview(bytearray(batch)))],
            acks=-1,
            timeout_ms=None,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )
        return error_of(appended[0]) if isinstance(appended, list) else _error_later(appended)

    def read_all(self, partition: int) -> Iterator[memoryview]:
        """Yield stored batches up to the log's end; see CoordinatorLog.read_all.

        Errors: OSError if the log cannot be read.
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

    def inflated(self, batch: RecordBatch) -> Awaitable[bytes]:
        """Verify and decompress in a thread; see CoordinatorLog.inflated."""
        return self._replicas.appends.executor.in_thread(verified_body, batch)


def verified_body(batch: RecordBatch) -> bytes:
    """The records of a batch, after its checksum is verified. Errors: WireError."""
    batch.verify_crc()
    return batch.body()


def error_of(result: AppendResult) -> ErrorCode:
    """The outcome of an append, without its offsets."""
    return result.error if isinstance(result, AppendError) else ErrorCode.NONE


async def _error_later(appended: Awaitable[list[AppendResult]]) -> ErrorCode:
    return error_of((await appended)[0])
