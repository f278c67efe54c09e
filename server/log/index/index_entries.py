"""Fixed-size index entries: in memory while the segment is active, in the file once it is sealed.

Apache Kafka maps its active index files into memory, preallocated to `segment.index.bytes` and
zero filled. Here the entries of the active segment are a bytearray in the file's own format, and
the file is written at roll and at close: an index entry costs no system call. That loses nothing,
since an index is only trusted below the recovery point or after a clean stop, and is rebuilt from
the segment otherwise. So our active index files are not preallocated, and reading drops the zero
tail that Apache Kafka's have.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import ClassVar

from ..file_layer import FileLayer, LogFile


class IndexEntries(ABC):
    """Entries of one width, read by number. Subclasses know what an entry means."""

    WIDTH: ClassVar[int]
    SUFFIX: ClassVar[str]

    __slots__ = ("_count", "_data", "_file", "_layer", "_saved", "base_offset", "path")

    def __init__(self, layer: FileLayer, stem: str, base_offset: int, *, new: bool = False) -> None:
        """Stem is the segment's path without a suffix; new means that no file is to be read."""
        self._layer = layer
        self.path = stem + self.SUFFIX
        self.base_offset = base_offset
        self._file: LogFile | None = None
        self._data: bytearray | None = bytearray() if new else None
        self._saved = 0  # leading bytes of _data that the file has, too; -1: file may be longer
        if new:
            self._saved = -1
        self._count = 0 if new else -1  # -1: not looked at yet

    @abstractmethod
    def is_filler(self, number: int) -> bool:
        """True where the entry can only be part of a preallocated file's zero tail."""

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
        """Take all entries into memory, as appending needs; no-op if they are there."""
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
        """Write to the file what it does not have yet, and cut off what it has too much.

        Shape: returns whether anything was written.
        """
        data = self._data
        if data is None or self._saved == len(data):
            return False
        if self._saved < 0:
            self._layer.write_file(self.path, data)
        else:
            fd = self._layer.open_fd(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                self._layer.write_all(fd, memoryview(data)[self._saved :], self._saved)
            finally:
                os.close(fd)
        self._saved = len(data)
        return True

    @property
    def is_saved(self) -> bool:
        """True where the file has every entry, so that memory holds nothing of its own."""
        return self._data is None or self._saved == len(self._data)

    def seal(self) -> bool:
        """Save, then give the memory back; later reads go to the file."""
        written = self.save()
        self._data = None
        return written

    def close(self) -> bool:
        """Save, give memory and descriptor back; return whether the file was written."""
        written = self.seal()
        self.close_file()
        return written

    def close_file(self) -> None:
        """Give the descriptor back, and write nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
