"""Transaction index (`.txnindex`): the aborted transactions whose marker lies in this segment.

    off size field
      0    2 version              0
      2    8 producer_id
     10    8 first_offset         of the transaction; may be in an earlier segment
     18    8 last_offset          of the abort marker, in this segment
     26    8 last_stable_offset   after the abort

Sorted by last_offset. The file is created with the first entry. Each entry is written at once, or if there are no
descriptors, before the segment is flushed, sealed or closed. After a crash the file is rebuilt together with the other
indexes. Source: TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

import os
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from ..file_layer import OUT_OF_DESCRIPTORS, FileLayer

ENTRY = Struct(">hqqqq")
ENTRY_SIZE = 34
VERSION = 0
SUFFIX = ".txnindex"


class AbortedTransaction(NamedTuple):
    """One entry; first_offset and last_offset inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CorruptIndex(Exception):
    """The content of an index file is invalid; it has to be rebuilt from its segment."""


def parse(data: bytes, path: str = "") -> list[AbortedTransaction]:
    """The entries of a whole file. Errors: CorruptIndex: incomplete entry, unknown version."""
    if len(data) % ENTRY_SIZE:
        raise CorruptIndex(f"{path}: {len(data)} bytes are not a multiple of {ENTRY_SIZE}")
    entries = []
    for version, *rest in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptIndex(f"{path}: unknown entry version {version}")
        entries.append(AbortedTransaction(*rest))
    return entries


class TransactionIndex:
    """The transaction index of one segment.

    Shape: `_stored` are the entries in the file, None if it has not been read; `_unwritten` come after these.
    """

    __slots__ = ("_layer", "_stored", "_unwritten", "path")

    def __init__(self, layer: FileLayer, stem: str, *, new: bool = False) -> None:
        self._layer = layer
        self.path = stem + SUFFIX
        self._stored: list[AbortedTransaction] | None = [] if new else None
        self._unwritten: list[AbortedTransaction] = []

    def move_to(self, stem: str) -> None:
        """Note that the file is elsewhere now, since its directory was renamed."""
        self.path = stem + SUFFIX

    def entries(self) -> list[AbortedTransaction]:
        """All entries, by last_offset. Errors: OSError, CorruptIndex."""
        stored = self._read()
        return [*stored, *self._unwritten] if self._unwritten else stored

    def _read(self) -> list[AbortedTransaction]:
        if self._stored is None:
            try:
                self._stored = parse(self._layer.read_file(self.path), self.path)
            except FileNotFoundError:
                self._stored = []
        return self._stored

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry and write it; a lack of descriptors only delays the write, see `save`.

        Errors: OSError, CorruptIndex; ValueError if last_offset does not increase.
        """
        self._unwritten.append(entry)
        try:
            self.save()
        except Exception as error:
            if not isinstance(error, OSError) or error.errno not in OUT_OF_DESCRIPTORS:
                self._unwritten.pop()
                raise

    def save(self) -> None:
        """Write the entries that are in memory only. Errors: those of `append`."""
        unwritten = self._unwritten
        if not unwritten:
            return
        stored = self._read()
        for before, entry in pairwise([*stored[-1:], *unwritten]):
            if before.last_offset >= entry.last_offset:
                raise ValueError(f"{self.path}: {entry} does not follow {before}")
        data = b"".join(ENTRY.pack(VERSION, *entry) for entry in unwritten)
        fd = self._layer.open_path(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            self._layer.write_all(fd, data, len(stored) * ENTRY_SIZE)
        finally:
            os.close(fd)
        stored += unwritten
        self._unwritten = []

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions that overlap [start_offset, end_offset).

        Shape: (entries, complete); complete is False if later segments may have more of them.
        Source: TransactionIndex.collectAbortedTxns.
        """
        found = []
        for entry in self.entries():
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replace all entries by those that recovery found; without any, the file is removed.

        Shape: the whole file is replaced and forced to the device, because recovery trusts what it
        says about offsets below the recovery point.
        """
        if entries:
            data = b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
            self._layer.replace_file(self.path, data)
        else:
            self._layer.unlink(self.path)
        self._stored = list(entries)
        self._unwritten = []

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at or above the given offset."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            self.replace(kept)
