"""The values exchanged with the compaction worker; all can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_LIMIT = float("inf")


class Uncleanable(Exception):
    """A log cannot be compacted; the message says where and why."""


class RoundLost(Exception):
    """The round was begun in a process that no longer exists; it has to be started again."""


class LastRecord(NamedTuple):
    """Where a known producer wrote last; data_offset is -1 if only markers are left."""

    data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's log.cleaner.* settings that the worker needs. Unit: bytes."""

    dedupe_buffer_size: int = 128 << 20
    dedupe_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 << 10
    io_max_bytes_per_second: float = NO_LIMIT


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A sealed segment: its base offset and the number of valid bytes in it."""

    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """One round over one log.

    Shape: `segments` are all those from the log's start to round_end_offset (exclusive; the base
    offset of a segment); keys are read from first_dirty_offset on.
    """

    number: int
    directory: str
    segments: tuple[SegmentFile, ...]
    first_dirty_offset: int
    round_end_offset: int
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    index_bytes: int
    settings: CleanerSettings


@dataclass(frozen=True, slots=True)
class KeysRead:
    """The result of reading the keys; end_offset (exclusive) is how far they were read."""

    end_offset: int
    keys: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class CleanGroup:
    """Adjacent segments to merge into one, and the last records of producers that must be kept."""

    plan_number: int
    sources: tuple[SegmentFile, ...]
    last_records: dict[int, LastRecord]


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """The result of cleaning a group, whose `.cleaned` files are complete and on the device."""

    base_offset: int
    size: int
    bytes_read: int
    records_read: int
    records_kept: int


def group_segments(
    segments: tuple[SegmentFile, ...], end_offset: int, max_bytes: int, max_count: int
) -> list[tuple[SegmentFile, ...]]:
    """Group adjacent segments that together fit into one.

    Shape: end_offset is where the last one ends. max_count bounds the renames of one swap.
    Source: Cleaner.groupSegmentsBySize.
    """
    groups: list[tuple[SegmentFile, ...]] = []
    group: list[SegmentFile] = []
    size = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if group and (
            size + segment.size > max_bytes
            or len(group) == max_count
            or end - 1 - group[0].base_offset > 0x7FFFFFFF
        ):
            groups.append(tuple(group))
            group = []
            size = 0
        group.append(segment)
        size += segment.size
    if group:
        groups.append(tuple(group))
    return groups
