"""Cuts off the end of a log.

Recovery rule: a crash may happen at any step, so the checkpoints are lowered first (`Log.on_truncation`), then snapshots of
producers are removed, and only then segments. A log that was cut in part has its recovery point at or below the cut, and is
recovered from there. While the broker runs, it can be used only if all steps succeed: a lack of descriptors before the
first step changes nothing, and later counts as a failure of the disk.
Source: UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from .file_layer import OUT_OF_DESCRIPTORS
from .producer_updates import load_producers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..metadata.topic_partition import TopicPartition
    from .file_layer import FileLayer
    from .flush_state import FlushState
    from .leader_epoch_cache import LeaderEpochCache
    from .log_config import LogConfig
    from .log_segments import LogSegments
    from .producer_snapshots import ProducerSnapshots
    from .producer_state import ProducerStateManager
    from .segment import LogSegment

logger = logging.getLogger(__name__)


class TruncatableLog(Protocol):
    """What truncation reads and sets of a `Log`."""

    tp: TopicPartition
    dir: str
    layer: FileLayer
    config: LogConfig
    segments: list[LogSegment]
    active_segment: LogSegment
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epoch_cache: LeaderEpochCache
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    flush_state: FlushState
    offline: bool
    on_truncation: Callable[..., None] | None

    @property
    def recovery_point(self) -> int: ...

    def update_config(self, config: LogConfig) -> None: ...


def truncate_to(log: TruncatableLog, segments: LogSegments, offset: int, now_ms: int) -> None:
    """Remove all batches at and after offset.

    Errors: OSError, CorruptIndex; with a lack of descriptors, nothing is removed.
    """
    if offset < 0:
        raise ValueError(f"cannot truncate {log.tp} to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epoch_cache.truncate_from_end(log.log_end_offset)
        return
    if log.segments[0].base_offset > offset:
        start_at(log, segments, offset, now_ms)
        return
    segments.prepare_to_cut(offset)
    with _must_finish(log):
        _begin(log, offset, offset)
        segment = log.active_segment = segments.cut(offset)
        end_offset = max(min(segment.next_offset(), offset), segment.base_offset)
        log.log_end_offset = end_offset
        log.flush_state.recovery_point = min(log.recovery_point, end_offset)
        log.log_start_offset = min(log.log_start_offset, end_offset)
        log.leader_epoch_cache.truncate_from_end(end_offset)
        _reload_producers(log, now_ms)
    if log.high_watermark > end_offset:
        log.high_watermark = end_offset


def start_at(log: TruncatableLog, segments: LogSegments, offset: int, now_ms: int) -> None:
    """Remove everything and continue at offset. Errors: OSError."""
    with _must_finish(log):
        _begin(log, 0, offset)
        log.active_segment = segments.start_at(offset, now_ms)
    log.log_end_offset = log.log_start_offset = offset
    log.flush_state.recovery_point = offset
    log.leader_epoch_cache.clear()
    log.producers.clear(offset)
    log.high_watermark = offset
    log.update_config(log.config)


def close_gap(log: TruncatableLog, segments: LogSegments, now_ms: int) -> None:
    """Truncate an unflushed log, opened after a crash, at the first gap in its offsets. Errors: OSError.

    Shape: only for logs that are not compacted. A power cut may take the end of a segment just after a batch, and leave the
    next one.
    """
    gap = segments.first_gap(log.recovery_point, log.log_start_offset)
    if gap is None:
        return
    end_offset, next_offset = gap
    logger.warning(
        "%s: offsets %d to %d are missing; the log ends there",
        log.dir,
        end_offset,
        next_offset - 1,
    )
    if end_offset < log.log_start_offset:
        start_at(log, segments, log.log_start_offset, now_ms)
    else:
        truncate_to(log, segments, end_offset, now_ms)


@contextmanager
def _must_finish(log: TruncatableLog) -> Iterator[None]:
    """Report a lack of descriptors as a disk failure: a log that is cut in part cannot be used until it is recovered."""
    try:
        yield
    except OSError as error:
        if error.errno not in OUT_OF_DESCRIPTORS:
            raise
        raise OSError(errno.EIO, f"the log is cut in part: {error.strerror}", log.dir) from error


def _begin(log: TruncatableLog, offset: int, start_offset: int) -> None:
    lowered = offset < log.recovery_point or start_offset < log.log_start_offset
    log.flush_state.cut(offset)
    log.log_start_offset = min(log.log_start_offset, start_offset)
    if log.on_truncation is not None:
        log.on_truncation(offset, lowered=lowered)
        if log.offline:
            raise OSError(
                errno.EIO, "the checkpoints cannot be written, so nothing is cut", log.dir
            )
    # Before the segments: no snapshot may outlive what it describes.
    log.snapshots.remove_above(offset)


def _reload_producers(log: TruncatableLog, now_ms: int) -> None:
    log.snapshots.remove_above(log.log_end_offset)
    log.producers.clear(log.log_start_offset)
    load_producers(
        log.layer,
        log.dir,
        log.segments,
        log.snapshots.offsets,
        log.producers,
        log.log_start_offset,
        log.log_end_offset,
        now_ms,
    )
