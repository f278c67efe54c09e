"""Which segments retention may delete, by time, by size and by the log start offset. Pure.

A log always keeps one segment. Only segments that end at or below the high watermark go, oldest
first, and the walk ends at the first that has to stay. Source: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .log_config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What retention looks at. Shape: end_offset is exclusive: the next segment's base offset, or
    for the last segment the log end offset."""

    size: int
    end_offset: int
    largest_timestamp: int
    is_last: bool


def start_offset_breached(
    segments: Iterable[SegmentInfo], high_watermark: int, log_start_offset: int
) -> int:
    """How many of the oldest segments lie wholly below the log start offset."""

    def breached(segment: SegmentInfo) -> bool:
        return not segment.is_last and segment.end_offset <= log_start_offset

    return _count(segments, high_watermark, breached)


def size_breached(segments: Sequence[SegmentInfo], high_watermark: int, config: LogConfig) -> int:
    """How many of the oldest segments can go without the log getting below retention.bytes."""
    if config.retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes

    def breached(segment: SegmentInfo) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return _count(segments, high_watermark, breached)


def time_breached(
    segments: Iterable[SegmentInfo], high_watermark: int, config: LogConfig, now_ms: int
) -> int:
    """How many of the oldest segments have nothing younger than retention.ms."""
    if config.retention_ms < 0:
        return 0

    def breached(segment: SegmentInfo) -> bool:
        return now_ms - segment.largest_timestamp > config.retention_ms

    return _count(segments, high_watermark, breached)


def _count(
    segments: Iterable[SegmentInfo],
    high_watermark: int,
    breached: Callable[[SegmentInfo], bool],
) -> int:
    count = 0
    for segment in segments:
        empty_and_last = segment.is_last and segment.size == 0
        if empty_and_last or segment.end_offset > high_watermark or not breached(segment):
            break
        count += 1
    return count
