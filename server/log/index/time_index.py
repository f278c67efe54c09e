"""Time index (`.timeindex`): maps a timestamp to an offset before which nothing is later.

    off size field
      0    8 timestamp         largest timestamp in the segment so far, ms
      8    4 relative_offset   LAST offset of the batch that has it, minus the base offset

Timestamps strictly increase. An entry is added together with an offset index entry, and once more
when the segment is sealed or closed; one slot is reserved for that. There is no checksum; after a
crash the index is rebuilt from the segment.
Source: TimeIndex, LogSegment.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import ClassVar

from .index_entries import IndexEntries

ENTRY = Struct(">qi")
ENTRY_SIZE = 12
_TIMESTAMP = Struct(">q").unpack_from


class TimeIndex(IndexEntries):
    """The time index of one segment."""

    WIDTH: ClassVar[int] = ENTRY_SIZE
    SUFFIX: ClassVar[str] = ".timeindex"

    __slots__ = ()

    def is_filler(self, number: int) -> bool:
        timestamp, relative = ENTRY.unpack(self.raw(number))
        return timestamp == 0 and (relative == 0 or number > 0)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is larger than the last entry's."""
        data = self._data
        last = _TIMESTAMP(data, len(data) - ENTRY_SIZE)[0] if data else self.last()[0]
        if timestamp > last:
            self._add(ENTRY.pack(timestamp, offset - self.base_offset))

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset) of an entry; the first has number 0."""
        timestamp, relative = ENTRY.unpack(self.raw(number))
        return timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (-1, self.base_offset)

    def _timestamp(self, number: int) -> int:
        return int.from_bytes(self.raw(number)[:8], "big", signed=True)

    def _offset(self, number: int) -> int:
        return self.entry(number)[1]

    def lookup(self, timestamp: int) -> int:
        """The offset in the last entry with a timestamp at or below this one; the base if none."""
        number = bisect_right(range(len(self)), timestamp, key=self._timestamp)
        return self.entry(number - 1)[1] if number else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets at or above the given one."""
        self.truncate(bisect_right(range(len(self)), offset - 1, key=self._offset))
