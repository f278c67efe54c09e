"""Data read from the log for a share partition: where its batches are, and which of them were aborted.

Only headers are read, and only as far as records can be acquired. The records stay in the file and are sent from there.
Pure, except that the headers of a file slice are read from the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from kwire.records.batch import BatchHeader, RecordBatch, read_header
from kwire.records.control import ControlType, control_type
from kwire.records.layout import HEADER_SIZE

#: The number of bytes of a file that are read at once to find headers; with small batches, one read covers many of
#: them.
CHUNK = 4096

_BASE_OFFSET = attrgetter("base_offset")


class FetchedSlice(Protocol):
    """A part of a file. Source: `FileSlice`."""

    def __len__(self) -> int: ...

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to the given number of bytes at a position."""
        ...

    def narrow(self, start: int, size: int) -> None:
        """Keep only a part of the slice."""
        ...


class FetchedBatch(NamedTuple):
    """A stored batch.

    Shape: `last_offset` is inclusive; `position` is relative to the start of the data read.
    """

    base_offset: int
    last_offset: int
    position: int
    size: int
    header: BatchHeader


class Fetched:
    """Batches that were read together, at least one.

    Shape: `aborted` has (producer id, first offset) for each aborted transaction among them; None if these are not
    needed.
    """

    __slots__ = ("aborted", "batches", "data")

    def __init__(
        self,
        data: bytes | FetchedSlice,
        batches: list[FetchedBatch],
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.data = data
        self.batches = batches
        self.aborted = aborted

    @property
    def first_offset(self) -> int:
        """The first offset of the first batch."""
        return self.batches[0].base_offset

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch (inclusive)."""
        return self.batches[-1].last_offset

    def end_of_batch_with(self, offset: int) -> int:
        """The last offset of the batch that contains an offset, or the offset itself if it lies between batches."""
        place = bisect_right(self.batches, offset, key=_BASE_OFFSET) - 1
        return max(offset, self.batches[place].last_offset) if place >= 0 else offset

    def cut(self, first_offset: int, last_offset: int) -> bytes | FetchedSlice:
        """The stored batches from the one with the first offset through the one with the last.

        Source: ShareFetchUtils.maybeSliceFetchRecords.
        """
        batches = self.batches
        begin = max(bisect_right(batches, first_offset, key=_BASE_OFFSET) - 1, 0)
        end = max(bisect_right(batches, last_offset, key=_BASE_OFFSET), begin + 1)
        start = batches[begin].position
        size = batches[end - 1].position + batches[end - 1].size - start
        data = self.data
        if isinstance(data, bytes):
            return data if size == len(data) else data[start : start + size]
        data.narrow(start, size)
        return data

    def aborted_batches(self) -> list[tuple[int, int]]:
        """The first and last offset of each batch whose transaction was aborted.

        Source: SharePartition.fetchAbortedTransactionRecordBatches.
        """
        if not self.aborted:
            return []
        waiting = sorted(self.aborted, key=lambda each: each[1], reverse=True)
        aborted: set[int] = set()
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            header = batch.header
            if not header.has_producer_id:
                continue
            while waiting and waiting[-1][1] <= batch.last_offset:
                aborted.add(waiting.pop()[0])
            if header.is_control:
                if header.producer_id in aborted and self._is_abort(batch):
                    aborted.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborted:
                found.append((batch.base_offset, batch.last_offset))
        return found

    def _is_abort(self, batch: FetchedBatch) -> bool:
        marker = RecordBatch(_bytes_at(self.data, batch.position, batch.size))
        return any(control_type(record.key) is ControlType.ABORT for record in marker.records())


def _bytes_at(data: bytes | FetchedSlice, position: int, size: int) -> bytes:
    if isinstance(data, bytes):
        return data[position : position + size]
    return data.read_at(size, position)


def fetched(
    data: bytes | FetchedSlice,
    fetch_offset: int,
    until_offset: int,
    aborted: Sequence[tuple[int, int]] | None = None,
) -> Fetched | None:
    """Find the batches in the data read, up to the one that contains `until_offset`; None if there is no data.

    Errors: CorruptRecord for a damaged header, OSError if the file cannot be read.
    """
    batches: list[FetchedBatch] = []
    position, size = 0, len(data)
    chunk, chunk_at = data if isinstance(data, bytes) else b"", 0
    next_offset = fetch_offset
    while position < size and next_offset <= until_offset:
        at = position - chunk_at
        if chunk is not data and at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _bytes_at(data, position, CHUNK), position, 0
        header = read_header(chunk, at)
        if position + header.size > size:
            break
        base_offset = header.base_offset
        if header.magic < 2 and header.codec:  # only the records contain the first offset
            base_offset = min(next_offset, base_offset)
        last_offset = header.last_offset
        batches.append(FetchedBatch(base_offset, last_offset, position, header.size, header))
        position += header.size
        next_offset = last_offset + 1
    return Fetched(data, batches, aborted) if batches else None
