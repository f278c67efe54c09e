"""Logs and batches for tests."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

from kwire.records.batch import BatchBuilder, RecordBatch, iter_batches
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from server.log.delayed_delete import DelayedDeletes
from server.log.file_layer import FileLayer, FileSlice
from server.log.log import AppendError, AppendInfo, AppendOrigin, Log, LogSlice
from server.log.log_config import LogConfig
from server.log.recovery.loader import load_log
from server.metadata.topic_partition import TopicPartition

NOW = 1_700_000_000_000
TP = TopicPartition("topic", 0)


class ScarceFileLayer(FileLayer):
    """Has no descriptors for files whose names have one of these endings."""

    endings: tuple[str, ...] = ()

    def open_fd(self, path: str, flags: int) -> int:
        """Open a file. Errors: OSError."""
        if path.endswith(self.endings):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open_fd(path, flags)


def config(**changes: Any) -> LogConfig:
    """The default settings with some changes."""
    return replace(LogConfig(), **changes)


def open_log(
    folder: Path,
    settings: LogConfig | None = None,
    *,
    clean: bool = False,
    layer: FileLayer | None = None,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    now_ms: int = NOW,
) -> Log:
    """Open the log in a folder as the log manager would, with everything committed."""
    layer = layer or FileLayer()
    settings = settings or LogConfig()
    path = folder / str(TP)
    path.mkdir(exist_ok=True)
    loaded = load_log(
        layer,
        str(path),
        settings,
        clean=clean,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        now_ms=now_ms,
    )
    log = Log(TP, str(path), settings, layer, loaded, DelayedDeletes(layer), now_ms=now_ms)
    log.high_watermark = log.log_end_offset
    return log


def batch(
    *values: bytes,
    timestamp: int = NOW,
    key: bytes | None = b"k",
    codec: int = 0,
    magic: int = 2,
    pid: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """One batch with a record per value, in its own writable buffer."""
    builder = BatchBuilder(
        magic,
        codec,
        producer_id=pid,
        producer_epoch=epoch if pid >= 0 else -1,
        base_sequence=sequence if pid >= 0 else -1,
        is_transactional=transactional,
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
    )
    for number, value in enumerate(values or (b"value",)):
        builder.append(timestamp + number, key, value)
    return memoryview(bytearray(builder.build()))


def marker(pid: int, epoch: int = 0, *, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    """A control batch that ends a transaction."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return memoryview(
        bytearray(
            end_transaction_batch(
                EndTransactionMarker(kind, coordinator_epoch),
                producer_id=pid,
                producer_epoch=epoch,
                timestamp=NOW,
            )
        )
    )


def append(log: Log, records: memoryview, *, epoch: int = 0, now_ms: int = NOW) -> AppendInfo:
    """Append as a client, and commit; the append must succeed."""
    info = log.append_as_leader(records, epoch, now_ms)
    assert isinstance(info, AppendInfo), info
    log.high_watermark = log.log_end_offset
    return info


def end_transaction(log: Log, pid: int, *, commit: bool, epoch: int = 0) -> AppendInfo:
    """Append a marker in this leader epoch, as the coordinator does, and commit."""
    info = log.append_as_leader(
        marker(pid, commit=commit), epoch, NOW, origin=AppendOrigin.COORDINATOR
    )
    assert isinstance(info, AppendInfo), info
    log.high_watermark = log.log_end_offset
    return info


def refusal(log: Log, records: memoryview, **options: Any) -> AppendError:
    """Append; the append must be refused without changing anything."""
    before = (log.log_end_offset, log.size_bytes)
    answer = log.append_as_leader(records, 0, options.pop("now_ms", NOW), **options)
    assert isinstance(answer, AppendError), answer
    assert (log.log_end_offset, log.size_bytes) == before
    return answer


def read_bytes(log: Log, offset: int, max_bytes: int = 1 << 20, end: int | None = None) -> bytes:
    """The stored bytes that a fetch returns; the fetch must succeed."""
    found = log.read(offset, max_bytes, log.high_watermark if end is None else end)
    assert isinstance(found, LogSlice), found
    data = found.data.read() if isinstance(found.data, FileSlice) else found.data
    assert len(data) == found.size
    return data


def read_batches(log: Log, offset: int = 0, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    """All batches from an offset to the high watermark, fetch by fetch."""
    found: list[RecordBatch] = []
    while offset < log.high_watermark:
        data = read_bytes(log, offset, max_bytes)
        if not data:
            break
        found += iter_batches(data)
        offset = found[-1].header.next_offset
    return found


def values(log: Log, offset: int | None = None) -> list[bytes | None]:
    """The values of all data records from an offset on."""
    start = log.log_start_offset if offset is None else offset
    return [
        record.value
        for each in read_batches(log, start)
        if not each.is_control
        for record in each.records()
    ]
