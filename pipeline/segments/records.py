"""Reads the records of one slice as Arrow batches, each from many batches of the log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kwire.errors import RecordError
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, BatchHeader, RecordBatch
from kwire.records.compression import decompress
from kwire.records.layout import CODEC_MASK, CONTROL_MASK, RECORDS_AT, TRANSACTIONAL_MASK

from .columns import (
    HEADER_COLUMNS,
    NO_TIMESTAMP_TYPE,
    BatchRows,
    HeaderRows,
    RecordRows,
    Rows,
    is_dense,
    record_batch,
)
from .damage import Damage
from .pushdown import Pushed
from .slices import OffsetSlice
from .walk import BatchWalk, FileWindow, FoundBatch

#: Bytes and rows of batches that are combined into one Arrow batch.
CHUNK_BYTES = 8 << 20
CHUNK_ROWS = 1 << 17
#: Number of batches combined if their headers suffice.
HEADERS_TOGETHER = 4096

HEADERS, PLAIN, PACKED, OLD = range(4)
_CONTROL_OR_TRANSACTIONAL = CONTROL_MASK | TRANSACTIONAL_MASK


@dataclass(frozen=True)
class WantedColumns:
    """The content that a reader has to return."""

    columns: tuple[str, ...]
    check_crc: bool = False
    """Whether to check bodies even if they need not be read."""
    pushed: Pushed = field(default_factory=Pushed)

    @property
    def from_headers(self) -> bool:
        """Whether batch headers provide everything asked for, if no record was compacted away."""
        return HEADER_COLUMNS.issuperset(self.columns) and self.pushed.keys is None


class SliceReader:
    """The records of one slice."""

    def __init__(
        self, descriptor: int, cut: OffsetSlice, wanted: WantedColumns, damage: Damage
    ) -> None:
        self._descriptor = descriptor
        self._cut = cut
        self._wanted = wanted
        self._damage = damage
        self._from_headers = wanted.from_headers
        self._since_ms = wanted.pushed.since_ms
        keys = wanted.pushed.keys
        self._keys = None if keys is None else pa.array(sorted(keys), pa.binary())
        self._place = 0

    def is_hidden(self, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction."""
        aborted = self._cut.aborted
        if not aborted or not header.is_transactional:
            return False
        spans = aborted.get(header.producer_id, ())
        return any(first <= header.base_offset <= last for first, last in spans)

    def damaged(self, found: FoundBatch, reason: object) -> None:
        """Note an unusable batch. Errors: SegmentError, unless damage is to be skipped."""
        assert found.header is not None
        offsets = f"offsets {found.header.base_offset} to {found.header.last_offset}"
        self._damage.batch(self._place + found.at, found.size, offsets, reason)

    def batches(self) -> Iterator[Any]:
        """Yield Arrow batches of the wanted columns. Errors: SegmentError, OSError."""
        whole = self._wanted.check_crc or not self._from_headers
        walk = BatchWalk(self._descriptor, self._cut, self._damage, whole=whole)
        for window in walk.windows() if whole else _together(walk.windows()):
            yield from self.of_window(window)

    def of_window(self, window: FileWindow) -> Iterator[Any]:
        """Yield Arrow batches of the records in a window. Errors: SegmentError."""
        self._place = window.position
        for kind, chunk in _chunks(window.batches, self._kind):
            for batch in self._arrow(kind, chunk, window.buffer):
                if batch.num_rows:
                    yield batch

    def _kind(self, found: FoundBatch) -> int | None:
        """How to read a batch; None to skip it."""
        header = found.header
        if header is None or found.problem is not None or not header.records_count:
            return None
        if self._since_ms is not None and header.magic and header.max_timestamp < self._since_ms:
            return None
        if header.magic < 2:
            return OLD
        attributes = header.attributes
        if attributes & _CONTROL_OR_TRANSACTIONAL and (
            attributes & CONTROL_MASK or self.is_hidden(header)
        ):
            return None
        if self._from_headers and is_dense(header):
            return HEADERS
        return PACKED if attributes & CODEC_MASK else PLAIN

    def _arrow(
        self, kind: int, chunk: Sequence[FoundBatch], buffer: bytes | bytearray
    ) -> Iterator[Any]:
        cut = self._cut
        try:
            rows = self._decode(kind, chunk, buffer)
            batch = record_batch(
                rows, self._wanted.columns, cut.topic, cut.partition, cut.start, cut.end, self._keys
            )
        except RecordError as error:
            if len(chunk) == 1:
                self.damaged(chunk[0], error)
                return
            for found in chunk:
                yield from self._arrow(kind, [found], buffer)
            return
        yield batch

    def _decode(
        self, kind: int, chunk: Sequence[FoundBatch], buffer: bytes | bytearray
    ) -> Rows | HeaderRows:
        headers = [found.header for found in chunk if found.header is not None]
        if kind == HEADERS:
            return HeaderRows(headers)
        if self._from_headers and not self._wanted.check_crc:
            # The walk has not read the bodies.
            chunk, buffer = self._load(chunk)
        if kind == OLD:
            return _old_rows(chunk, buffer)
        if kind == PLAIN:
            return BatchRows(
                headers, buffer, [(found.at + RECORDS_AT, found.at + found.size) for found in chunk]
            )
        view = memoryview(buffer)
        bodies = []
        spans = []
        begin = 0
        for found, header in zip(chunk, headers, strict=True):
            packed = view[found.at + RECORDS_AT : found.at + found.size]
            body = decompress(header.codec, header.magic, packed, MAX_DECOMPRESSED_BYTES)
            bodies.append(body)
            spans.append((begin, begin + len(body)))
            begin += len(body)
        return BatchRows(headers, b"".join(bodies), spans)

    def _load(self, chunk: Sequence[FoundBatch]) -> tuple[list[FoundBatch], bytearray]:
        buffer = bytearray()
        moved = []
        for found in chunk:
            moved.append(found._replace(at=len(buffer)))
            buffer += os.pread(self._descriptor, found.size, self._place + found.at)
            RecordBatch(buffer, moved[-1].at).verify_crc()
        return moved, buffer


def _old_rows(chunk: Sequence[FoundBatch], buffer: bytes | bytearray) -> Rows:
    records = []
    types = []
    for found in chunk:
        batch = RecordBatch(buffer, found.at)
        read = list(batch.records())
        records += read
        types += [int(batch.timestamp_type) if batch.magic else NO_TIMESTAMP_TYPE] * len(read)
    return RecordRows(records, types)


def _together(windows: Iterable[FileWindow]) -> Iterator[FileWindow]:
    """Combine windows of which only headers are used into one for thousands of batches."""
    batches: list[FoundBatch] = []
    for window in windows:
        at = window.position
        batches.extend(found._replace(at=at + found.at) for found in window.batches)
        if len(batches) >= HEADERS_TOGETHER:
            yield FileWindow(bytearray(), 0, batches)
            batches = []
    if batches:
        yield FileWindow(bytearray(), 0, batches)


def _chunks(batches: Sequence[FoundBatch], kind_of: Any) -> Iterator[tuple[int, list[FoundBatch]]]:
    """Yield runs of batches of the same kind, as many as make an Arrow batch of a good size."""
    chunk: list[FoundBatch] = []
    current = rows = size = 0
    for found in batches:
        kind = kind_of(found)
        if kind is None:
            continue
        if chunk and (kind != current or rows >= CHUNK_ROWS or size >= CHUNK_BYTES):
            yield current, chunk
            chunk = []
            rows = size = 0
        current = kind
        chunk.append(found)
        assert found.header is not None
        rows += max(found.header.records_count, 1)
        # Decompressed, it is likely to be several times as large.
        if kind != HEADERS:
            size += found.size * 4 if kind == PACKED else found.size
    if chunk:
        yield current, chunk
