"""The topics of the schedules, and their batches."""

from __future__ import annotations

from kwire.records.batch import BatchBuilder
from server.log.log_config import LogConfig

from ..logs import config

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

TOPICS: dict[str, LogConfig] = {
    "plain": config(segment_bytes=700, index_interval_bytes=150),
    "flushed": config(segment_bytes=900, index_interval_bytes=100, flush_messages=1),
    "tenth": config(
        segment_bytes=600, index_interval_bytes=200, flush_messages=10, flush_ms=20_000
    ),
    "bounded": config(
        segment_bytes=400,
        index_interval_bytes=100,
        retention_bytes=1200,
        retention_ms=HOUR_MS,
        file_delete_delay_ms=60_000,
    ),
    "compacted": config(
        segment_bytes=500,
        index_interval_bytes=100,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=HOUR_MS,
        file_delete_delay_ms=60_000,
    ),
}
NAMES = tuple(TOPICS)

KEYS = tuple(b"key-%d" % n for n in range(7))


def batch_of(
    records: tuple[tuple[bytes | None, bytes | None], ...], now_ms: int, **options: object
) -> memoryview:
    """A batch of these keys and values, with one timestamp for all."""
    pid = int(options.pop("pid", -1))  # type: ignore[call-overload]
    builder = BatchBuilder(
        2,
        options.pop("codec", 0),  # type: ignore[arg-type]
        producer_id=pid,
        producer_epoch=options.pop("epoch", 0) if pid >= 0 else -1,  # type: ignore[arg-type]
        base_sequence=options.pop("sequence", 0) if pid >= 0 else -1,  # type: ignore[arg-type]
        is_transactional=bool(options.pop("transactional", False)),
        base_offset=options.pop("base_offset", 0),  # type: ignore[arg-type]
        partition_leader_epoch=options.pop("leader_epoch", -1),  # type: ignore[arg-type]
    )
    for key, value in records:
        builder.append(now_ms, key, value)
    return memoryview(bytearray(builder.build()))
