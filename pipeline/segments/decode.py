"""Reads magic 2 records many at a time: one walk finds where each ends, then numpy reads their fields.

`kwire.records.record` has the layout, and reads one record after another; this module reads thousands with a few dozen
array operations. The bytes of keys and values are never touched, only their positions are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kwire import native
from kwire.errors import CorruptRecord
from kwire.records.record import MAX_VARINT_SIZE, MAX_VARLONG_SIZE, MIN_RECORD_SIZE, read_varint

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

#: The number of records that are walked before checking whether the following ones have the same size: at first, and
#: later.
_FIRST = 4
_STEPS = 64
#: Distance to the next record, by the first byte of the length (a zig-zag varint): the length plus its own size.
_STEP_BY = (*((byte >> 1) + 1 for byte in range(128)), *((byte >> 1) + 2 for byte in range(128)))
#: From this many records on, comparing them all at once is quicker than walking.
_RUN = 48


class Spans(NamedTuple):
    """Byte ranges of a buffer: where each begins, and its length, -1 for null."""

    at: Longs
    length: Longs


class Fields(NamedTuple):
    """The fields of records, one element per record."""

    timestamp_delta: Longs
    offset_delta: Longs
    key: Spans
    value: Spans
    headers_at: Longs
    """The position of the number of headers."""


class Headers(NamedTuple):
    """All headers of some records, in their order: record n has those from first[n] to first[n + 1]."""

    first: Longs
    key: Spans
    value: Spans


def read_bodies(
    buffer: bytes | bytearray, bodies: Sequence[tuple[int, int]], counts: Longs
) -> tuple[Fields, Longs]:
    """Read the records of some bodies, given where each body begins and ends, and the number of its records.

    Shape: returns their fields and their ends, one body after the other. Errors: CorruptRecord if a body does not have that
    many records, or for a field that extends beyond its record.
    """
    data: Bytes = np.frombuffer(buffer, np.uint8)
    natively = native.read_fields
    places = np.array(bodies, np.int64).reshape(-1, 2)
    possible = (counts >= 0) & (counts * MIN_RECORD_SIZE <= places[:, 1] - places[:, 0])
    if natively is not None and possible.all():
        table = np.empty((8, int(counts.sum())), np.int64)
        if natively(data, np.column_stack((places, counts)), table):
            timestamp, offset, key_at, key_length, value_at, value_length, at, found_ends = table
            return (
                Fields(
                    timestamp, offset, Spans(key_at, key_length), Spans(value_at, value_length), at
                ),
                found_ends,
            )
    ends: list[int] = []
    starts: list[int] = []
    for (begin, end), count in zip(bodies, counts.tolist(), strict=True):
        first = len(ends)
        append_record_ends(buffer, begin, end, count, ends)
        starts += [begin, *ends[first:-1]][:count]
    every = np.array(ends, np.int64)
    return read_fields(data, np.array(starts, np.int64), every), every


def append_record_ends(
    data: bytes | bytearray, at: int, end: int, count: int, ends: list[int]
) -> None:
    """Append the end positions of the `count` records between `at` and `end`.

    Errors: CorruptRecord if their lengths do not lead from `at` to `end`. Whether each length is possible is checked by
    `read_fields`, so that this walk costs as little per record as it can.
    """
    append = ends.append
    steps_by = _STEP_BY
    left = count
    steps = _FIRST
    try:
        while left > 0:
            for _ in range(min(steps, left)):
                byte = data[at]
                if byte < 0x80:
                    at += steps_by[byte]
                elif (second := data[at + 1]) < 0x80:
                    at += steps_by[byte] + (second << 6)
                else:
                    length, after = read_varint(data, at)  # type: ignore[arg-type]
                    at = after + length
                append(at)
            left -= steps
            if left >= _RUN and at < end and ends[-1] - ends[-2] == ends[-2] - ends[-3]:
                size = ends[-1] - ends[-2]
                same = (
                    _same_size(data, at - size, size, min(left, (end - at) // size))
                    if size > 0
                    else 0
                )
                ends.extend(range(at + size, at + same * size + 1, size))
                at += same * size
                left -= same
            steps = _STEPS
    except IndexError:
        raise CorruptRecord("record is cut short", offset=at) from None
    if at != end:
        raise CorruptRecord(
            f"records end {at - end:+} bytes from where their batch does", offset=at
        )


def _same_size(data: bytes | bytearray, start: int, size: int, limit: int) -> int:
    """How many records after the one at start (at most limit) begin with the same length and so have the same size."""
    if limit <= 0:
        return 0
    after = read_varint(data, start)[1]  # type: ignore[arg-type]
    table = np.frombuffer(data, np.uint8, limit * size, start + size).reshape(limit, size)
    same = table[:, 0] == data[start]
    for column in range(1, after - start):
        same &= table[:, column] == data[start + column]
    return limit if same.all() else int(same.argmin())


def varints(data: Bytes, at: Longs, max_size: int = MAX_VARINT_SIZE) -> tuple[Longs, Longs]:
    """Read the zig-zag varints at these positions; return them and the positions after them.

    Errors: CorruptRecord for one that does not end within max_size bytes, IndexError beyond the buffer.
    """
    byte = data[at]
    raw = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while more.size:
        if shift >= 7 * max_size:
            raise CorruptRecord(
                f"varint does not end within {max_size} bytes", offset=int(at[more[0]])
            )
        byte = data[after[more]]
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    if max_size == MAX_VARINT_SIZE:
        raw &= np.uint64(0xFFFFFFFF)
    value = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
    return value, after


def read_fields(data: Bytes, starts: Longs, ends: Longs) -> Fields:
    """Read the records that lie between starts and ends.

    Shape: negative lengths of keys and values mean null, as in Apache Kafka. Errors: CorruptRecord for a field that extends
    beyond its record.
    """
    if not len(starts):
        return Fields(*(starts,) * 2, Spans(starts, starts), Spans(starts, starts), starts)
    wrong = (ends - starts < MIN_RECORD_SIZE) | (data[starts] & 1 != 0)
    if wrong.any():
        raise CorruptRecord("impossible record length", offset=int(starts[wrong.argmax()]))
    try:
        _, at = varints(data, starts)
        timestamp, at = varints(data, at + 1, MAX_VARLONG_SIZE)
        offset, at = varints(data, at)
        length, key_at = varints(data, at)
        key = Spans(key_at, np.maximum(length, -1))
        at = key_at + np.maximum(length, 0)
        _within(at, ends)
        length, value_at = varints(data, at)
        value = Spans(value_at, np.maximum(length, -1))
        at = value_at + np.maximum(length, 0)
        _within(at, ends)
        plain = data[at] == 0
    except IndexError:
        raise CorruptRecord("record is cut short") from None
    if (plain & (at + 1 != ends)).any():
        first = int((plain & (at + 1 != ends)).argmax())
        raise CorruptRecord("record is longer than its fields", offset=int(starts[first]))
    return Fields(timestamp, offset, key, value, at)


def _within(at: Longs, ends: Longs) -> None:
    beyond = at >= ends
    if beyond.any():
        raise CorruptRecord("field leaves its record", offset=int(at[beyond.argmax()]))


def read_headers(data: Bytes, at: Longs, ends: Longs) -> Headers:
    """Read the headers of records, given the positions of the numbers of headers and the ends of the records.

    Shape: the first header of every record is read, then the second of those that have one, and so on. Errors:
    CorruptRecord if they do not end with their record.
    """
    try:
        counts, at = varints(data, at)
        if (counts < 0).any() or (counts * 2 > ends - at).any():
            raise CorruptRecord("impossible number of record headers")
        first = np.zeros(len(at) + 1, np.int64)
        np.cumsum(counts, out=first[1:])
        total = int(first[-1])
        key = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
        value = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
        number = 0
        having = np.flatnonzero(counts)
        while having.size:
            place = first[having] + number
            length, start = varints(data, at[having])
            if (length < 0).any():
                raise CorruptRecord("record header without a key")
            key.at[place] = start
            key.length[place] = length
            _within(start + length, ends[having])
            length, start = varints(data, start + length)
            value.at[place] = start
            value.length[place] = np.maximum(length, -1)
            at[having] = start + np.maximum(length, 0)
            number += 1
            having = having[counts[having] > number]
    except IndexError:
        raise CorruptRecord("record is cut short") from None
    if (at != ends).any():
        raise CorruptRecord("record headers do not end with their record")
    return Headers(first, key, value)
