"""What is sent to the worker that compacts, and what comes back; all of it plain and picklable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_LIMIT = float("inf")


class Uncleanable(Exception):
    """A log cannot be compacted; the message says where and why."""


class RoundLost(Exception):
    """The round was begun in a process that is no more; it has to be begun again."""


class LastRecord(NamedTuple):
    """Where a producer that is still known wrote last; data_offset -1 if only markers are left."""

    data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's log.cleaner.* settings, as far as the worker needs them. Unit: bytes."""

    dedupe_buffer_size: int = 128 << 20
    dedupe_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 << 10
    io_max_bytes_per_second: float = NO_LIMIT


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A sealed segment: its base offset and the bytes in it that count."""

    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """One round over one log.

    Shape: segments are all from the log's start to round_end_offset (exclusive, a segment's
    beginning); keys are read from first_dirty_offset on.
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
    """The keys are known; end_offset (exclusive) is how far they reach."""

    end_offset: int
    keys: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class CleanGroup:
    """Neighbouring segments that become one, and the producers that must not be forgotten."""

    plan_number: int
    sources: tuple[SegmentFile, ...]
    last_records: dict[int, LastRecord]


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """The `.cleaned` files of a group are complete and on the device."""

    base_offset: int
    size: int
    bytes_read: int
    records_read: int
    records_kept: int


def group_segments(
    segments: tuple[SegmentFile, ...], end_offset: int, max_bytes: int, max_count: int
) -> list[tuple[SegmentFile, ...]]:
    """Neighbours that together fit into one segment.

    Shape: end_offset is where the last one ends. max_count bounds what one swap has to rename.
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
