"""Batches of the log as rows, one each: what their headers say, without reading the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from kwire.errors import RecordError
from kwire.records.batch import BatchHeader, RecordBatch
from kwire.records.compression import Codec

from .columns import NO_TIMESTAMP_TYPE, is_dense
from .logs import topic_id
from .records import SliceReader
from .slices import OffsetSlice
from .walk import BatchWalk, FoundBatch

#: Rows of an Arrow batch.
_ROWS = 1 << 14


class BatchRow(NamedTuple):
    """One batch, or the part of it within the offsets that are read."""

    found: FoundBatch
    first: int | None
    last: int | None
    records: int
    """Number of data records between first and last; 0 in control batches."""


_Value = Callable[[str, OffsetSlice, int, BatchRow, BatchHeader | None], Any]


def _from_header(value: Callable[[BatchHeader], Any]) -> _Value:
    return lambda _path, _cut, _position, _row, header: None if header is None else value(header)


def _codec(header: BatchHeader) -> str:
    known = header.codec <= Codec.ZSTD
    return Codec(header.codec).config_name if known else str(header.codec)


def _timestamp(header: BatchHeader) -> int:
    return max(min(header.max_timestamp, 1 << 52), -(1 << 52)) * 1000


def _timestamp_type(header: BatchHeader) -> int:
    return int(header.timestamp_type) if header.magic else NO_TIMESTAMP_TYPE


@lru_cache(maxsize=1000)
def _topic_id(directory: str, inode: int) -> str | None:
    """`topic_id`, once for each segment, because another topic can come to be in the same directory."""
    return topic_id(directory)


_COLUMNS: dict[str, tuple[Any, _Value]] = {
    "topic": (pa.string(), lambda path, cut, position, row, header: cut.topic),
    "topicId": (
        pa.string(),
        lambda path, cut, position, row, header: _topic_id(cut.directory, cut.inode),
    ),
    "partition": (pa.int32(), lambda path, cut, position, row, header: cut.partition),
    "firstOffset": (pa.int64(), lambda path, cut, position, row, header: row.first),
    "lastOffset": (pa.int64(), lambda path, cut, position, row, header: row.last),
    "records": (pa.int64(), lambda path, cut, position, row, header: row.records),
    "bytes": (pa.int64(), lambda path, cut, position, row, header: row.found.size),
    "maxTimestamp": (pa.timestamp("us", "UTC"), _from_header(_timestamp)),
    "timestampType": (pa.int32(), _from_header(_timestamp_type)),
    "magic": (pa.int32(), _from_header(lambda header: header.magic)),
    "codec": (pa.string(), _from_header(_codec)),
    "leaderEpoch": (pa.int32(), _from_header(lambda header: header.partition_leader_epoch)),
    "producerId": (pa.int64(), _from_header(lambda header: header.producer_id)),
    "producerEpoch": (pa.int32(), _from_header(lambda header: header.producer_epoch)),
    "baseSequence": (pa.int32(), _from_header(lambda header: header.base_sequence)),
    "transactional": (pa.bool_(), _from_header(lambda header: header.is_transactional)),
    "control": (pa.bool_(), _from_header(lambda header: header.is_control)),
    "file": (pa.string(), lambda path, cut, position, row, header: path),
    "position": (
        pa.int64(),
        lambda path, cut, position, row, header: position + row.found.at,
    ),
    "valid": (pa.bool_(), lambda path, cut, position, row, header: row.found.problem is None),
    "problem": (pa.string(), lambda path, cut, position, row, header: row.found.problem),
}
BATCH_COLUMNS: dict[str, Any] = {name: kind for name, (kind, _) in _COLUMNS.items()}
#: Columns for which the bodies must be checked.
CHECKED_COLUMNS = frozenset({"valid", "problem"})


class BatchReader(SliceReader):
    """The batches of one slice."""

    def rows_of_batches(self, path: str, *, check: bool, control: bool) -> Iterator[Any]:
        """Yield Arrow batches. Errors: SegmentError, OSError."""
        walk = BatchWalk(self._descriptor, self._cut, self._damage, whole=check)
        columns: list[list[Any]] = [[] for _ in self._wanted.columns]
        values = [_COLUMNS[name][1] for name in self._wanted.columns]
        for window in walk.windows():
            self._place = window.position
            for found in window.batches:
                row = self._row(found, control)
                if row is None or not self._is_asked(found.header):
                    continue
                for column, value in zip(columns, values, strict=True):
                    column.append(value(path, self._cut, window.position, row, found.header))
            if columns and len(columns[0]) >= _ROWS:
                yield self._batch(columns)
                columns = [[] for _ in self._wanted.columns]
        if columns and columns[0]:
            yield self._batch(columns)

    def _is_asked(self, header: BatchHeader | None) -> bool:
        codecs = self._wanted.pushed.codecs
        return codecs is None or (header is not None and _codec(header) in codecs)

    def _batch(self, columns: Sequence[list[Any]]) -> Any:
        names = self._wanted.columns
        arrays = [
            pa.array(column, BATCH_COLUMNS[name])
            for name, column in zip(names, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, list(names))

    def _row(self, found: FoundBatch, control: bool) -> BatchRow | None:
        header = found.header
        if header is None or found.problem is not None:
            if not CHECKED_COLUMNS.isdisjoint(self._wanted.columns):
                if header is None:
                    return BatchRow(found, None, None, 0)
                return BatchRow(found, header.base_offset, header.last_offset, 0)
            return None
        start, end = self._cut.start, self._cut.end
        if header.is_control:
            return BatchRow(found, header.base_offset, header.last_offset, 0) if control else None
        if self.is_hidden(header):
            return None
        if is_dense(header):
            first = max(header.base_offset, start)
            last = min(header.last_offset, end - 1)
            return BatchRow(found, first, last, last - first + 1)
        if header.magic == 2 and start <= header.base_offset and header.last_offset < end:
            return BatchRow(found, header.base_offset, header.last_offset, header.records_count)
        return self._counted(found)

    def _counted(self, found: FoundBatch) -> BatchRow | None:
        """A row that needs the records: for compressed messages, or for a batch that is read only in part."""
        (moved,), buffer = self._load([found])
        try:
            offsets = [
                record.offset
                for record in RecordBatch(buffer, moved.at).records()
                if self._cut.start <= record.offset < self._cut.end
            ]
        except RecordError as error:
            self.damaged(found, error)
            return None
        return BatchRow(found, offsets[0], offsets[-1], len(offsets)) if offsets else None
