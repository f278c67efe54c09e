"""Reads a segment file as windows of whole batches; distinguishes damage from unwritten data.

Files are read, not mapped: a follower may truncate its newest segment, and an access to mapped bytes beyond the end
kills the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchHeader, read_header, verify_crc
from kwire.records.crc import crc32c
from kwire.records.layout import ATTRIBUTES_AT, HEADER_SIZE
from kwire.server.log.file_layer import FileLayer
from kwire.server.log.index.offset_index import OffsetIndex
from kwire.server.log.segment import stem_of

from .damage import Damage
from .slices import OffsetSlice

#: Bytes read at once if bodies are wanted, and if only headers are.
WINDOW = 2 << 20
HEADER_WINDOW = 4096


class FoundBatch(NamedTuple):
    """A batch, or what damage has left of one."""

    at: int
    """Position in the window."""
    size: int
    header: BatchHeader | None
    """The header; None if not even that can be read."""
    problem: str | None = None


class FileWindow(NamedTuple):
    """Bytes of a file and the batches in them; the buffer is reused for the next window."""

    buffer: bytes | bytearray
    position: int
    """Position of the buffer's first byte in the file."""
    batches: list[FoundBatch]


class BatchWalk:
    """The batches of one slice, in order, from those that hold its first offset to those that hold its last."""

    def __init__(self, descriptor: int, cut: OffsetSlice, damage: Damage, *, whole: bool) -> None:
        """`whole` means that bodies are wanted, and are therefore checked; else only headers are read."""
        self._descriptor = descriptor
        self._cut = cut
        self._damage = damage
        self._whole = whole
        self._position = cut.position
        size = os.fstat(descriptor).st_size
        self._limit = size if cut.limit is None else min(cut.limit, size)
        self._suspect: int | None = None
        """Where the previous batch begins, if it was damaged: its length may be what is wrong."""
        self._lowest = cut.base_offset
        """The lowest offset that the next batch can have."""
        self._ended = False

    def windows(self) -> Iterator[FileWindow]:
        """Yield windows with at least one batch. Errors: SegmentError, OSError."""
        buffer = bytearray(WINDOW if self._whole else HEADER_WINDOW)
        while not self._ended and self._position < self._limit:
            begin = self._position
            filled = self._read(buffer)
            batches: list[FoundBatch] = []
            needed = self._step(buffer, filled, batches)
            if batches:
                yield FileWindow(buffer, begin, batches)
            if self._position == begin and not self._ended:
                if needed <= filled or filled < min(len(buffer), self._limit - begin):
                    break  # the file was truncated in the meantime
                buffer = bytearray(needed)
        if self._cut.reaches_end and not self._ended:
            self._damage.missing(
                self._cut.end - 1, "its newest segment ends before it, though it was committed"
            )

    def _read(self, buffer: bytearray) -> int:
        view = memoryview(buffer)[: self._limit - self._position]
        filled = 0
        while filled < len(view):
            got = os.preadv(self._descriptor, [view[filled:]], self._position + filled)
            if not got:
                break
            filled += got
        return filled

    def _step(self, buffer: bytearray, filled: int, batches: list[FoundBatch]) -> int:
        """Walk over the bytes in the buffer; return how many bytes the next batch needs in one piece."""
        start, end = self._cut.start, self._cut.end
        whole = self._whole
        view = memoryview(buffer)
        at = 0
        left = self._limit - self._position
        try:
            while left > at:
                if filled - at < min(HEADER_SIZE, left - at):
                    return HEADER_SIZE
                try:
                    header = read_header(buffer, at)
                    size = header.size
                    if size > left - at:
                        raise CorruptRecord(f"batch of {size} bytes where {left - at} remain")
                    if header.last_offset_delta < 0:
                        raise CorruptRecord(f"last offset delta {header.last_offset_delta}")
                    self._check_offsets(header, at)
                except CorruptRecord as error:
                    at = self._lost(at, error, batches)
                    return 0
                if header.base_offset >= end:
                    self._ended = True
                    return 0
                last = header.base_offset + header.last_offset_delta
                problem = None
                if last >= start:
                    if whole:
                        if size > filled - at:
                            return size
                        problem = self._problem(view, at, header)
                        batches.append(FoundBatch(at, size, header, problem))
                    else:
                        batches.append(FoundBatch(at, size, header))
                at += size
                if problem is None:
                    self._lowest = last + 1
                    if last + 1 >= end:
                        # Later data may be half written, so it is not read.
                        self._ended = True
                        return 0
            return 0
        finally:
            self._position += at

    def _check_offsets(self, header: BatchHeader, at: int) -> None:
        """Raises CorruptRecord for a batch whose offsets cannot be right, which its CRC does not cover."""
        first = header.base_offset
        after = self._cut.next_offset
        if first < self._lowest:
            raise CorruptRecord(f"offset {first} after offset {self._lowest - 1}")
        if after is not None and first >= after:
            raise CorruptRecord(f"offset {first} where offset {after} is to follow")
        if first >= self._cut.end and after is None:
            # It ends the slice, unless what follows shows that it is from before the slice's end.
            data = os.pread(self._descriptor, HEADER_SIZE, self._position + at + header.size)
            try:
                following = read_header(data, 0).base_offset
            except CorruptRecord:
                return
            if following <= first:
                raise CorruptRecord(f"offset {first} before offset {following}")

    def _problem(self, view: memoryview, at: int, header: BatchHeader) -> str | None:
        end = at + header.size
        after = self._cut.next_offset
        is_within = after is None or header.last_offset < after
        # Most batches leave here.
        if is_within and header.magic == 2 and crc32c(view[at + ATTRIBUTES_AT : end]) == header.crc:
            self._suspect = None
            return None
        try:
            verify_crc(view, at, header)
            if not is_within:
                raise CorruptRecord(f"offset {after} is to follow")
        except CorruptRecord as error:
            self._suspect = self._position + at
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            self._damage.batch(self._suspect, header.size, offsets, error)
            return str(error)
        self._suspect = None
        return None

    def _lost(self, at: int, error: CorruptRecord, batches: list[FoundBatch]) -> int:
        """The position where a batch may begin after one whose length cannot be trusted; counted like `at`."""
        begin = self._position + at
        resume = self._next_indexed(begin if self._suspect is None else self._suspect)
        resume = max(resume, begin + 1)
        self._suspect = None
        self._damage.batch(begin, resume - begin, "unknown offsets", error)
        batches.append(FoundBatch(at, resume - begin, None, str(error)))
        return resume - self._position

    def _next_indexed(self, position: int) -> int:
        """The next position at which a batch begins according to the index; else the limit."""
        index = OffsetIndex(
            FileLayer(),
            stem_of(self._cut.directory, self._cut.base_offset),
            self._cut.base_offset,
        )
        for number in range(len(index)):
            found: int = index.entry(number)[1]
            if found > position:
                return min(found, self._limit)
        return self._limit
