"""Reading a log: from an offset to a slice of stored batches, and from a timestamp to an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from .file_layer import FileLayer, FileSlice
from .segment import LOG_SUFFIX, LogSegment, stem_of
from .time_search import Effort, Found, TimeSearch, first_record

SMALL_READ_BYTES = 16 * 1024
"""Up to this size a read is copied into the reply; sendfile costs more than so few bytes."""

HINTS = 16

_BASE_OFFSET = attrgetter("base_offset")


class LogSlice(NamedTuple):
    """Whole stored batches, contiguous in one segment.

    Shape: `next_offset` (exclusive) bounds the offsets in data, and is a batch's beginning. data is
    empty where nothing is below the end offset asked for.
    """

    first_offset: int
    data: bytes | FileSlice
    next_offset: int
    size: int


#: `LogSlice` of a tuple of its fields, without a call in Python, because every read makes one.
_log_slice = partial(tuple.__new__, LogSlice)


def floor_index(segments: list[LogSegment], offset: int) -> int:
    """Index of the last segment whose base offset is not above offset; -1 if there is none."""
    if segments and segments[-1].base_offset <= offset:
        return len(segments) - 1
    return bisect_right(segments, offset, key=_BASE_OFFSET) - 1


class LogReader:
    """Finds stored batches; remembers the positions that the next reads will ask for.

    A consumer at the log's end, or one that reads on where its last slice ended, needs no index and
    no scan: appends and reads leave (offset -> segment, position, size of the batch) behind.
    """

    __slots__ = ("_layer", "hints", "segments")

    def __init__(self, layer: FileLayer, segments: list[LogSegment]) -> None:
        self._layer = layer
        self.segments = segments
        self.hints: dict[int, tuple[LogSegment, int, int]] = {}

    def remember(self, offset: int, segment: LogSegment, position: int, size: int = 0) -> None:
        """Note that the batch with this base offset begins, or will begin, at position. Shape: a size of 0 is not known."""
        hints = self.hints
        if len(hints) >= HINTS and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position, size)

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        end_offset: int,
        log_end_offset: int,
        *,
        min_one_batch: bool,
    ) -> LogSlice:
        """Stored batches from the one that holds start_offset; start < end <= log end offset."""
        hint = self.hints.get(start_offset)
        if hint is not None:
            segment, position, size = hint
            if position >= segment.size:  # remembered before the segment was sealed
                hint = None
        if hint is None:
            hint = self._locate(start_offset)
            if hint is None:
                return LogSlice(start_offset, b"", start_offset, 0)
            segment, position, size = hint
        if size > max_bytes and not min_one_batch:  # others have left it too few bytes
            return LogSlice(start_offset, b"", start_offset, 0)
        if end_offset >= log_end_offset:
            limit = segment.size
            is_active = segment is self.segments[-1]
            next_offset = log_end_offset if is_active else self._end_of(segment)
        else:
            limit, next_offset = self._limit(segment, end_offset)
        if limit <= position:
            return LogSlice(start_offset, b"", start_offset, 0)
        batch_bytes = 0
        size = limit - position
        if size > max_bytes:
            cut, base_offset, batch_bytes = segment.boundary(position, position + max(max_bytes, 0))
            if cut <= position:
                if not min_one_batch:
                    self.remember(start_offset, segment, position, batch_bytes)
                    return LogSlice(start_offset, b"", start_offset, 0)
                cut, base_offset, batch_bytes = segment.boundary(position, position + batch_bytes)
            size = cut - position
            if size <= 0:
                return LogSlice(start_offset, b"", start_offset, 0)
            if batch_bytes:
                next_offset = base_offset
        self.remember(next_offset, segment, position + size, batch_bytes)
        data: bytes | FileSlice
        if size <= SMALL_READ_BYTES:
            data = segment.log.read_at(size, position)
        else:
            data = self._layer.slice(segment.log, position, size)
        return _log_slice((start_offset, data, next_offset, size))

    def _locate(self, offset: int) -> tuple[LogSegment, int, int] | None:
        # Remembered, because a partition that gets no bytes is requested again.
        segments = self.segments
        for index in range(max(floor_index(segments, offset), 0), len(segments)):
            found = segments[index].locate(offset)
            if found is not None:
                self.remember(offset, segments[index], found[0], found[2])
                return segments[index], found[0], found[2]
        return None

    def _end_of(self, segment: LogSegment) -> int:
        index = floor_index(self.segments, segment.base_offset)
        return self.segments[index + 1].base_offset

    def _limit(self, segment: LogSegment, end_offset: int) -> tuple[int, int]:
        # Where in the segment the batches below end_offset end, and the offset there.
        if segment is not self.segments[-1]:
            end_of_segment = self._end_of(segment)
            if end_of_segment <= end_offset:
                return segment.size, end_of_segment
        hint = self.hints.get(end_offset)
        if hint is not None and hint[0] is segment:
            return hint[1], end_offset
        found = segment.locate(end_offset)
        if found is None:
            return segment.size, end_offset
        self.remember(end_offset, segment, found[0], found[2])
        return found[0], end_offset

    def forget(self) -> None:
        """Drop all remembered positions, as truncation and deletion demand."""
        self.hints.clear()

    # -- timestamps --------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, log_start_offset: int, effort: Effort | None = None
    ) -> Found | TimeSearch | None:
        """The first record at or after log_start_offset whose timestamp is not below the given one.

        Shape: returns a search to run elsewhere if it takes more than the effort. Source:
        LogSegment.findOffsetByTimestamp.
        """
        candidates = [
            segment
            for segment in self.segments
            if segment.size and segment.max_timestamp >= timestamp
        ]
        for index, segment in enumerate(candidates):
            start = max(segment.time_index.lookup(timestamp), log_start_offset)
            search = TimeSearch.of(
                self._layer,
                candidates[index:],
                segment.offset_index.lookup(start),
                timestamp,
                log_start_offset,
            )
            found = first_record(segment, search.position, search, effort)
            if found is not None:
                return found
        return None

    def max_timestamp_offset(self, effort: Effort | None = None) -> Found | TimeSearch | None:
        """First record that has the log's largest timestamp.

        Shape: as above; records without a timestamp (-1) count where there are no others. Source:
        UnifiedLog.fetchOffsetByTimestamp.
        """
        best: LogSegment | None = None
        for segment in self.segments:
            if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
                best = segment
        if best is None:
            return None
        position = best.offset_index.lookup(best.max_timestamp_offset)
        search = TimeSearch.of(
            self._layer, [best], position, best.max_timestamp, 0, in_largest_only=True
        )
        return first_record(best, position, search, effort)


def search_files(search: TimeSearch, believe: Callable[[], bool] = bool) -> Found | None:
    """Carry out a search elsewhere; `believe` as for `first_record`.

    Errors: OSError, FileNotFoundError if the log has changed.
    """
    position = search.position
    for base_offset, size in search.segments:
        segment = LogSegment(search.layer, search.directory, base_offset, size, created_ms=0)
        path = stem_of(search.directory, base_offset) + LOG_SUFFIX
        segment.log = search.layer.open_read_only(path)
        try:
            found = first_record(segment, position, search, believe=believe)
        finally:
            segment.log.close()
        if found is not None:
            assert not isinstance(found, TimeSearch), "without effort there is no limit"
            return found
        position = 0
    return None
