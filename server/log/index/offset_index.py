"""Offset index (`.index`): maps an offset to the file position from which to search for it.

    off size field
      0    4 relative_offset   offset minus the segment's base offset: the LAST offset of an append
      4    4 position          file position where that append STARTS; never 0

The index is sparse: an append gets an entry if more than index.interval.bytes were written between
the last entry and this append, so a segment's first append never has one. There is no checksum;
after a crash the index is rebuilt from the segment. Source: OffsetIndex, LogSegment.append.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import ClassVar

from .index_entries import IndexEntries

ENTRY = Struct(">ii")
ENTRY_SIZE = 8
_INT32 = Struct(">i").unpack_from
#: How many entries before and after the expected one are looked at first.
NEAR = 4


class OffsetIndex(IndexEntries):
    """The offset index of one segment."""

    WIDTH: ClassVar[int] = ENTRY_SIZE
    SUFFIX: ClassVar[str] = ".index"

    __slots__ = ()

    def is_filler(self, number: int) -> bool:
        return self._position(number) == 0

    def append(self, offset: int, position: int) -> None:
        """Add an entry; both offset and position must be larger than the last entry's."""
        self._add(ENTRY.pack(offset - self.base_offset, position))

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of an entry; the first has number 0."""
        relative, position = ENTRY.unpack(self.raw(number))
        return self.base_offset + relative, position

    def _relative(self, number: int) -> int:
        data = self._data
        if data is not None:
            return _INT32(data, number * 8)[0]  # type: ignore[no-any-return]
        return _INT32(self.raw(number), 0)[0]  # type: ignore[no-any-return]

    def _position(self, number: int) -> int:
        data = self._data
        if data is not None:
            return _INT32(data, number * 8 + 4)[0]  # type: ignore[no-any-return]
        return _INT32(self.raw(number), 4)[0]  # type: ignore[no-any-return]

    def lookup(self, offset: int) -> int:
        """The position in the last entry with an offset at or below the given one; 0 if none."""
        number = bisect_right(range(len(self)), offset - self.base_offset, key=self._relative)
        return self._position(number - 1) if number else 0

    def floor_position(self, position: int, size: int = 0) -> int:
        """The largest indexed position at or below the given one; 0 if none.

        Shape: in a segment of a `size` that is given, entries lie about evenly: it is looked for where it should be, then
        everywhere. Each entry of a sealed segment that is looked at is read from its file.
        """
        low, high = 0, len(self)
        if size > 0:
            near = high * position // size
            first, last = near - NEAR, near + NEAR
            if (
                first > 0
                and last < high
                and self._position(first) <= position < self._position(last)
            ):
                low, high = first, last
        number = bisect_right(range(high), position, low, key=self._position)
        return self._position(number - 1) if number else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets at or above the given one."""
        numbers = range(len(self))
        self.truncate(bisect_right(numbers, offset - self.base_offset - 1, key=self._relative))
