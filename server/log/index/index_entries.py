"""Fixed-size index entries: kept in memory while the segment is active, then read from the file.

Apache Kafka maps its active index files into memory, preallocated to `segment.index.bytes` and
filled with zeros. Here the entries of the active segment are a bytearray in the format of the file,
which is written when the segment is rolled or closed, so adding an entry costs no system call.
Nothing is lost by that: an index is trusted only below the recovery point or after a clean stop,
and is rebuilt from the segment otherwise. Our active index files are therefore not preallocated;
the zeros at the end of Apache Kafka's files are ignored when they are read.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import ClassVar

from ..file_layer import FileLayer, LogFile


class IndexEntries(ABC):
    """Entries of one width, read by number. Subclasses define what an entry means."""

    WIDTH: ClassVar[int]
    SUFFIX: ClassVar[str]

    __slots__ = ("_count", "_data", "_file", "_layer", "_saved", "base_offset", "path")

    def __init__(self, layer: FileLayer, stem: str, base_offset: int, *, new: bool = False) -> None:
        """`stem` is the segment's path without a suffix; with `new` there is no file to read."""
        self._layer = layer
        self.path = stem + self.SUFFIX
        self.base_offset = base_offset
        self._file: LogFile | None = None
        self._data: bytearray | None = bytearray() if new else None
        self._saved = 0  # leading bytes of _data that are in the file; -1: the file may be longer
        if new:
            self._saved = -1
        self._count = 0 if new else -1  # -1: not known yet

    def move_to(self, stem: str) -> None:
        """Note that the file is elsewhere now, since its directory was renamed."""
        self.path = stem + self.SUFFIX
        if self._file is not None:
            self._file.path = self.path

    @abstractmethod
    def is_filler(self, number: int) -> bool:
        """True if the entry can only belong to the zeros at the end of a preallocated file."""

    def __len__(self) -> int:
        if self._count < 0:
            self._count = self._file_size() // self.WIDTH
            if self._count and self.is_filler(self._count - 1):
                numbers = range(self._count)
                self._count = bisect_left(numbers, True, key=self.is_filler)
        return self._count

    def _file_size(self) -> int:
        return self._layer.file_size(self.path) or 0

    def raw(self, number: int) -> bytes | bytearray:
        """The bytes of one entry."""
        start = number * self.WIDTH
        if self._data is not None:
            return self._data[start : start + self.WIDTH]
        if self._file is None:
            self._file = LogFile(self._layer, self.path)
        return self._file.read_at(self.WIDTH, start)

    def load(self) -> None:
        """Read all entries into memory, which appending requires; a no-op if they are there."""
        if self._data is not None:
            return
        count = len(self)
        size = count * self.WIDTH
        data = bytearray()
        if count:
            data += self._layer.read_file(self.path)
            self._saved = size if len(data) == size else -1
            del data[size:]
        else:
            self._saved = -1
        self._data = data
        self.close_file()

    def content(self) -> bytes:
        """The bytes of all entries."""
        self.load()
        assert self._data is not None
        return bytes(self._data)

    def _add(self, entry: bytes) -> None:
        data = self._data
        if data is None:
            self.load()
            data = self._data
            assert data is not None
        data += entry
        self._count += 1

    def truncate(self, count: int) -> None:
        """Keep the first count entries."""
        self.load()
        assert self._data is not None
        if count < self._count:
            del self._data[count * self.WIDTH :]
            self._count = count
            self._saved = -1

    def save(self) -> bool:
        """Bring the file up to date: write missing entries and cut off what no longer belongs.

        Shape: returns whether anything was written.
        """
        data = self._data
        if data is None or self._saved == len(data):
            return False
        if self._saved < 0:
            self._layer.write_file(self.path, data)
        else:
            fd = self._layer.open_path(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                self._layer.write_all(fd, memoryview(data)[self._saved :], self._saved)
            finally:
                os.close(fd)
        self._saved = len(data)
        return True

    @property
    def is_saved(self) -> bool:
        """True if every entry is in the file, so that freeing the memory loses nothing."""
        return self._data is None or self._saved == len(self._data)

    def seal(self) -> bool:
        """Save, then free the memory; later reads go to the file."""
        written = self.save()
        self._data = None
        return written

    def close(self) -> bool:
        """Save, free the memory and close the descriptor; return whether the file was written."""
        written = self.seal()
        self.close_file()
        return written

    def close_file(self) -> None:
        """Close the descriptor without writing anything."""
        if self._file is not None:
            self._file.close()
            self._file = None
