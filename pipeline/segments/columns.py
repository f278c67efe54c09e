"""Turns chunks of batches into Arrow columns; only what a column needs is decompressed and decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwire.records.batch import BatchHeader
from kwire.records.record import Record

from .decode import Bytes, Longs, Spans, read_bodies, read_headers

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
#: The columns of Spark's kafka source.
RECORD_COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER),
}
#: Columns that batch headers alone provide, if no record was compacted away.
HEADER_COLUMNS = frozenset({"topic", "partition", "offset", "timestampType"})

#: The timestamp type shown for magic 0, which has no timestamps.
NO_TIMESTAMP_TYPE = -1
_MAX_MS = ((1 << 63) - 1) // 1000


class Rows(Protocol):
    """Consecutive records of one partition, as arrays of the same length."""

    def __len__(self) -> int: ...

    @property
    def offsets(self) -> Longs: ...
    @property
    def timestamps(self) -> Longs:
        """Milliseconds since 1970."""

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]: ...
    def keys(self) -> Any:
        """An Arrow array of binary, like `values`."""

    def values(self) -> Any: ...
    def headers(self) -> Any: ...


def is_dense(header: BatchHeader) -> bool:
    """Whether the batch has a record for each of its offsets."""
    return header.magic == 2 and header.records_count == header.last_offset_delta + 1


def record_batch(
    rows: Any,
    names: Sequence[str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    keys: Any = None,
) -> Any:
    """The rows between two offsets, and with one of these keys (an Arrow array), as an Arrow batch with these columns.

    `rows` are Rows, or HeaderRows if no column and no key needs more.
    """
    kept = rows.offsets if len(rows) else np.zeros(0, np.int64)
    selection = None
    if len(rows) and (keys is not None or kept.min() < start or kept.max() >= end):
        chosen = (kept >= start) & (kept < end)
        if keys is not None:
            assert type(rows) is not HeaderRows
            chosen &= pc.is_in(rows.keys(), keys).to_numpy(zero_copy_only=False)
        selection = pa.array(np.flatnonzero(chosen))
    count = len(rows) if selection is None else len(selection)
    columns = []
    for name in names:
        if name == "topic":
            columns.append(pa.repeat(pa.scalar(topic), count))
        elif name == "partition":
            columns.append(pa.array(np.full(count, partition, np.int32)))
        else:
            column = _COLUMNS[name](rows)
            columns.append(column if selection is None else column.take(selection))
    return pa.RecordBatch.from_arrays(columns, list(names))


def _timestamps(rows: Rows) -> Any:
    micros = np.clip(rows.timestamps, -_MAX_MS, _MAX_MS) * 1000
    return pa.Array.from_buffers(
        RECORD_COLUMNS["timestamp"], len(rows), [None, pa.py_buffer(micros)]
    )


_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "key": lambda rows: rows.keys(),
    "value": lambda rows: rows.values(),
    "offset": lambda rows: pa.array(rows.offsets),
    "timestamp": _timestamps,
    "timestampType": lambda rows: pa.array(rows.timestamp_types),
    "headers": lambda rows: rows.headers(),
}


def binary(buffer: Any, spans: Spans) -> Any:
    """The bytes at these positions of an Arrow buffer, as an array of binary: copied, but not by Python.

    Shape: positions increase and spans do not overlap. So the buffer is cut at each beginning and each end, into wanted pieces
    and what lies between them, and every second piece is taken.
    """
    at, length = spans
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    cuts = np.empty(2 * count, np.int32)
    cuts[0::2] = at
    cuts[1::2] = at + np.maximum(length, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), buffer])
    null = length < 0
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(wanted, mask=null) if null.any() else pa.array(wanted))


class HeaderRows:
    """The header data of the records of dense batches: offsets and timestamp types."""

    def __init__(self, headers: Sequence[BatchHeader]) -> None:
        self._headers = headers
        self._counts = np.array([header.records_count for header in headers], np.int64)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def _repeat(self, values: list[int]) -> Longs:
        return np.repeat(np.array(values, np.int64), self._counts)

    @cached_property
    def offsets(self) -> Longs:
        before = np.cumsum(self._counts) - self._counts
        numbers = np.arange(len(self), dtype=np.int64) - np.repeat(before, self._counts)
        return self._repeat([header.base_offset for header in self._headers]) + numbers

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]:
        return self._repeat([int(header.timestamp_type) for header in self._headers]).astype(
            np.int32
        )


class BatchRows(HeaderRows):
    """The records of magic 2 batches whose decompressed bodies are in one buffer.

    Errors: CorruptRecord, at first use of any part, for bodies that do not match their headers.
    """

    def __init__(
        self,
        headers: Sequence[BatchHeader],
        buffer: bytes | bytearray,
        bodies: Sequence[tuple[int, int]],
    ) -> None:
        """`bodies` are (begin, end) in the buffer, for each header."""
        super().__init__(headers)
        self._buffer = buffer
        self._data: Bytes = np.frombuffer(buffer, np.uint8)
        self._fields, self._ends = read_bodies(buffer, bodies, self._counts)

    @cached_property
    def offsets(self) -> Longs:
        base = self._repeat([header.base_offset for header in self._headers])
        return base + self._fields.offset_delta

    @property
    def timestamps(self) -> Longs:
        headers = self._headers
        found = (
            self._repeat([header.base_timestamp for header in headers])
            + self._fields.timestamp_delta
        )
        if any(header.is_log_append_time for header in headers):
            appended = self._repeat([header.is_log_append_time for header in headers])
            latest = self._repeat([header.max_timestamp for header in headers])
            found = np.where(appended, latest, found)
        return found

    def keys(self) -> Any:
        return binary(pa.py_buffer(self._buffer), self._fields.key)

    def values(self) -> Any:
        return binary(pa.py_buffer(self._buffer), self._fields.value)

    def headers(self) -> Any:
        """The headers of the records; null if a record has none, as in Spark's kafka source."""
        at = self._fields.headers_at
        having = np.flatnonzero(self._data[at])
        if not having.size:
            return pa.nulls(len(self), RECORD_COLUMNS["headers"])
        found = read_headers(self._data, at[having], self._ends[having])
        buffer = pa.py_buffer(self._buffer)
        pairs = pa.StructArray.from_arrays(
            [_text(binary(buffer, found.key)), binary(buffer, found.value)],
            fields=list(HEADER),
        )
        offsets = np.zeros(len(self) + 1, np.int32)
        offsets[having + 1] = np.diff(found.first)
        np.cumsum(offsets, out=offsets)
        empty = np.diff(offsets) == 0
        return pa.ListArray.from_arrays(
            pa.array(offsets), pairs, type=RECORD_COLUMNS["headers"], mask=pa.array(empty)
        )


def _text(keys: Any) -> Any:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # Bytes that are not UTF-8 are replaced, as in Java.
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


class RecordRows:
    """Records that were read one by one: those of magic 0 and 1, and in comparing tests all records."""

    def __init__(self, records: Sequence[Record], timestamp_types: Sequence[int]) -> None:
        self._records = records
        self._types = timestamp_types

    def __len__(self) -> int:
        return len(self._records)

    @property
    def offsets(self) -> Longs:
        return np.array([record.offset for record in self._records], np.int64)

    @property
    def timestamps(self) -> Longs:
        return np.array([record.timestamp for record in self._records], np.int64)

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]:
        return np.array(self._types, np.int32)

    def keys(self) -> Any:
        return pa.array([record.key for record in self._records], pa.binary())

    def values(self) -> Any:
        return pa.array([record.value for record in self._records], pa.binary())

    def headers(self) -> Any:
        rows = [
            [{"key": _as_java_reads(key), "value": value} for key, value in record.headers] or None
            for record in self._records
        ]
        return pa.array(rows, RECORD_COLUMNS["headers"])


def _as_java_reads(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
