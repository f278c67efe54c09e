"""The search for the first record at or after a time, in the loop or in a worker process.

The indexes say where to begin; from there on headers are read, and the records of each batch whose
header promises one. A header may lie (its timestamp is the producer's word), so a search may have
to decompress batch after batch. Therefore the loop makes only a small effort, and hands over the
rest. Pure apart from reading files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import RecordError, TooLarge
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, BatchHeader, RecordBatch
from kwire.records.record import find_by_time

if TYPE_CHECKING:
    from .file_layer import FileLayer
    from .segment import LogSegment

#: (offset, timestamp, leader epoch) of a record.
Found = tuple[int, int, int]


class Effort:
    """The remaining effort of a search: headers and records to read, and bytes of records."""

    __slots__ = ("bytes", "headers", "records")

    def __init__(self, *, headers: int, records: int, bytes: int) -> None:
        self.headers = headers
        self.records = records
        self.bytes = bytes


class TimeSearch(NamedTuple):
    """A search that begins at a position of the first segment; can be sent to another process.

    Shape: `segments` are (base offset, size). With `in_largest_only`, only batches count whose
    largest timestamp is this one.
    """

    layer: FileLayer
    directory: str
    segments: tuple[tuple[int, int], ...]
    position: int
    timestamp: int
    start_offset: int
    in_largest_only: bool

    @classmethod
    def of(
        cls,
        layer: FileLayer,
        segments: Sequence[LogSegment],
        position: int,
        timestamp: int,
        start_offset: int,
        *,
        in_largest_only: bool = False,
    ) -> TimeSearch:
        """The search through these segments of a log."""
        directory = segments[0].log.path.rpartition("/")[0]
        sizes = tuple((segment.base_offset, segment.size) for segment in segments)
        return cls(layer, directory, sizes, position, timestamp, start_offset, in_largest_only)

    def wants(self, header: BatchHeader) -> bool:
        """Whether the batch's header promises a matching record."""
        if self.in_largest_only:
            return header.max_timestamp == self.timestamp
        return header.max_timestamp >= self.timestamp and header.last_offset >= self.start_offset


class _TooMuch(Exception):
    """The effort is used up."""


def first_record(
    segment: LogSegment,
    position: int,
    search: TimeSearch,
    effort: Effort | None = None,
    *,
    believe: Callable[[], bool] = bool,
) -> Found | TimeSearch | None:
    """Find the first record in a segment, from a position on.

    Shape: the search itself if it takes more than the effort. Once `believe()` is true, headers are
    taken at their word.
    """
    try:
        for at, header in segment.headers(position):
            if effort is not None:
                effort.headers -= 1
                if effort.headers < 0:
                    return search
            if search.wants(header):
                found = _in_batch(segment, at, header, search, effort, believe())
                if found is not None:
                    return (*found, header.partition_leader_epoch)
    except _TooMuch:
        return search
    return None


def _in_batch(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    search: TimeSearch,
    effort: Effort | None,
    believe: bool,
) -> tuple[int, int] | None:
    if not header.records_count:  # compaction has emptied it
        return None
    as_stated = max(header.base_offset, search.start_offset), header.max_timestamp
    if believe:
        return as_stated
    max_bytes = MAX_DECOMPRESSED_BYTES
    if effort is not None:
        effort.records -= max(header.records_count, 1)
        max_bytes = effort.bytes
        if effort.records < 0 or header.size > max_bytes:
            raise _TooMuch
    batch = RecordBatch(memoryview(segment.log.read_at(header.size, position)))
    timestamp, start_offset = search.timestamp, search.start_offset
    try:
        if header.magic == 2 and not header.is_log_append_time:
            body = batch.body(max_bytes)
            if effort is not None:
                effort.bytes -= len(body)
            return find_by_time(
                body,
                header.records_count,
                header.base_offset,
                header.base_timestamp,
                timestamp,
                start_offset,
            )
        if effort is not None:
            effort.bytes -= header.size
        for record in batch.records(max_bytes):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.offset, record.timestamp
    except RecordError as error:
        if effort is not None and isinstance(error, TooLarge):
            raise _TooMuch from None
        # A body that lies (validation=standard lets it in) must not hide the rest of the log.
        return as_stated
    return None
