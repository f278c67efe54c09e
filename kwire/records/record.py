"""Reads and writes the single records in the uncompressed body of a magic 2 batch.

Record: varint length of the rest, int8 attributes (0), varlong timestamp delta, varint offset delta, varint key length
(-1: null) and key, varint value length (-1: null) and value, varint header count, and each header as varint length and
UTF-8 key, varint length (-1: null) and value. Varints are zig-zag. Source: DefaultRecord, ByteUtils.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from kwire import native
from kwire.errors import CorruptRecord

Header = tuple[str, bytes | None]
"""Key and value. Keys that are not UTF-8 keep their bytes as lone surrogates (surrogateescape)."""

MIN_RECORD_SIZE = 7
"""Size in bytes of the shortest record: null key, null value, no headers."""
MAX_VARINT_SIZE = 5
MIN_INT64 = -0x8000000000000000
MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_MAX_DELTA = 0x80000000
MAX_VARLONG_SIZE = 10


class TimestampType(IntEnum):
    """The origin of a batch's timestamps; the value is the attribute bit."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """One record as a consumer sees it.

    Shape: timestamp in ms since the epoch, -1 for none; the batch's if the broker set it.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


ZIGZAG = tuple((raw >> 1) ^ -(raw & 1) for raw in range(128))
"""The values of all varints of one byte."""

_new_record = tuple.__new__

#: Below the first number, records of a batch are read one by one; the same above the second, to limit memory.
FEW_RECORDS = 8
MANY_RECORDS = 10_000


def wrap_int64(value: int) -> int:
    """Return the value wrapped to a signed 64-bit integer."""
    return ((value + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, next position) of the zig-zag varint of at most 32 bits at position."""
    raw = shift = 0
    for index in range(position, position + MAX_VARINT_SIZE):
        byte = data[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise CorruptRecord("varint does not end within 5 bytes", offset=position)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, next position) of the zig-zag varint of at most 64 bits at position."""
    raw = shift = 0
    for index in range(position, position + MAX_VARLONG_SIZE):
        byte = data[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise CorruptRecord("varint does not end within 10 bytes", offset=position)


def check_count(count: int, size: int) -> None:
    """Refuse a record count that is negative or that `size` bytes of records cannot hold."""
    if count < 0:
        raise CorruptRecord(f"records count {count} is negative")
    if count * MIN_RECORD_SIZE > size:
        raise CorruptRecord(f"records count {count} does not fit into {size} bytes")


def record_heads(  # noqa: C901 - the hot loop: a call per field would double its time
    data: bytes, count: int
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    """Yield where `count` records of a decompressed body are, and what is in them up to the headers, one at a time.

    Shape: (start, end, timestamp delta, offset delta, position and length of the key, and of the value). A length below 0
    is that of null; its position is where the next field begins.
    Errors: CorruptRecord, with the byte position in data, for lengths that leave the record or the body, varints that
    do not end, and bytes left over after the last record.
    """
    size = len(data)
    check_count(count, size)
    position = 0
    try:
        for _ in range(count):
            # Short varints are read in place, because calls would cost more than the rest.
            start = position
            byte = data[position]
            if byte < 0x80:
                length = ZIGZAG[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                length = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                length, position = read_varint(data, position)
            end = position + length
            if length < MIN_RECORD_SIZE - 1 or end > size:
                raise CorruptRecord(
                    f"record of {length} bytes where {size - position} remain", offset=start
                )
            position += 1
            byte = data[position]
            if byte < 0x80:
                timestamp_delta = ZIGZAG[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                timestamp_delta = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                timestamp_delta, position = read_varlong(data, position)
            byte = data[position]
            if byte < 0x80:
                offset_delta = ZIGZAG[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                offset_delta = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte < 0x80:
                key_size = ZIGZAG[byte]
                position += 1
            else:
                key_size, position = read_varint(data, position)
            key_at = position
            if key_size > 0:
                position += key_size
            byte = data[position]
            if byte < 0x80:
                value_size = ZIGZAG[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                value_size = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                value_size, position = read_varint(data, position)
            if (position + value_size if value_size > 0 else position) >= end:
                raise CorruptRecord(
                    f"record of {end - start} bytes has fields beyond its end", offset=start
                )
            yield start, end, timestamp_delta, offset_delta, key_at, key_size, position, value_size
            position = end
    except IndexError:
        raise CorruptRecord("record is cut short", offset=position) from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record", offset=position)


def read_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None = None,
) -> Iterator[Record]:
    """Yield `count` records from a decompressed body, one at a time.

    Errors: CorruptRecord, as `record_heads`, and for headers that leave the record or do not fill it.
    """
    check_count(count, len(data))
    if not MIN_INT64 + _MAX_DELTA <= base_offset <= MAX_INT64 - _MAX_DELTA:
        raise CorruptRecord(f"base offset {base_offset} leaves no room for records")
    rows = _rows(data, count)
    if rows is not None:
        for timestamp, delta, key_at, key_size, value_at, value_size in rows:
            timestamp += base_timestamp
            if log_append_time is not None:
                timestamp = log_append_time
            elif not MIN_INT64 <= timestamp <= MAX_INT64:
                timestamp = wrap_int64(timestamp)
            found = (
                base_offset + delta,
                timestamp,
                None if key_size < 0 else data[key_at : key_at + key_size],
                None if value_size < 0 else data[value_at : value_at + value_size],
                (),
            )
            yield _new_record(Record, found)
        return
    for start, end, timestamp, delta, key_at, key_size, value_at, value_size in record_heads(
        data, count
    ):
        timestamp += base_timestamp
        if log_append_time is not None:
            timestamp = log_append_time
        elif not MIN_INT64 <= timestamp <= MAX_INT64:
            timestamp = wrap_int64(timestamp)
        key = None if key_size < 0 else data[key_at : key_at + key_size]
        position = value_at
        value = None
        if value_size >= 0:
            position += value_size
            value = data[value_at:position]
        headers: Sequence[Header] = ()
        if data[position]:
            headers, position = _read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise _not_filled(start, position, end)
        yield _new_record(Record, (base_offset + delta, timestamp, key, value, headers))


def _rows(data: bytes, count: int) -> Iterator[tuple[int, ...]] | None:
    """The position of all parts in each record, found natively; None if not worthwhile, or for unusual parts (headers).

    Shape: timestamp and offset deltas, position and length (-1: null) of the key, and of the value.
    """
    if not FEW_RECORDS <= count <= MANY_RECORDS:
        return None
    read_fields = native.read_fields
    if read_fields is None:
        return None
    table = array("q", bytes(8 * 8 * count))
    if not read_fields(data, array("q", (0, len(data), count)), table):
        return None
    columns = [table[first : first + count] for first in range(0, 7 * count, count)]
    if any(data[position] for position in columns.pop()):
        return None
    return zip(*columns, strict=True)


def read_values(data: bytes, count: int, null: bytes = b"") -> list[bytes]:
    """Return the values of `count` records from a decompressed body, and skip everything else.

    Shape: `null` replaces null values. Header keys and values are not examined.
    Errors: CorruptRecord as `read_records`, for lengths that leave the record or the body, and bytes left over.
    """
    size = len(data)
    check_count(count, size)
    values: list[bytes] = []
    append = values.append
    position = 0
    try:
        for _ in range(count):
            start = position
            byte = data[position]
            if byte < 0x80:
                end = position + 1 + ZIGZAG[byte]
                position += 2
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                end = position + 2 + ((raw >> 1) ^ -(raw & 1))
                position += 3
            else:
                length, position = read_varint(data, position)
                end = position + length
                position += 1
            if end - position < MIN_RECORD_SIZE - 2 or end > size:
                raise CorruptRecord(f"record leaves the body of {size} bytes", offset=start)
            # The deltas of timestamp and offset.
            while data[position] > 0x7F:
                position += 1
            position += 1
            while data[position] > 0x7F:
                position += 1
            position += 1
            if data[position] == 1:
                position += 1
            else:
                length, position = read_varint(data, position)
                position += max(length, 0)
            byte = data[position]
            if byte < 0x80:
                length = ZIGZAG[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                length = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                length, position = read_varint(data, position)
            if length < 0:
                append(null)
            else:
                append(data[position : position + length])
                position += length
            if position >= end:
                raise CorruptRecord("the fields of a record leave it", offset=start)
            position = end
    except IndexError:
        raise CorruptRecord("record is cut short", offset=position) from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record", offset=position)
    return values


def find_by_time(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    timestamp: int,
    start_offset: int,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first of `count` records that is not before either.

    Shape: only the first fields of each record are read, so that most damage goes unnoticed.
    Errors: CorruptRecord as `read_records`, for lengths that leave the body, and bytes left over.
    """
    size = len(data)
    check_count(count, size)
    position = 0
    wanted = timestamp - base_timestamp
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                end = position + 1 + ZIGZAG[byte]
                position += 2
            else:
                length, position = read_varint(data, position)
                end = position + length
                position += 1
            byte = data[position]
            if byte < 0x80:
                delta = ZIGZAG[byte]
            else:
                delta, _ = read_varlong(data, position)
            if delta >= wanted or not MIN_INT64 <= base_timestamp + delta <= MAX_INT64:
                delta, position = read_varlong(data, position)
                offset, _ = read_varint(data, position)
                found = wrap_int64(base_timestamp + delta)
                if found >= timestamp and base_offset + offset >= start_offset:
                    return base_offset + offset, found
            if end < position or end > size:
                raise CorruptRecord(f"record leaves the body of {size} bytes", offset=position)
            position = end
    except IndexError:
        raise CorruptRecord("record is cut short", offset=position) from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record", offset=position)
    return None


def check_headers(data: bytes, position: int, start: int, end: int) -> None:
    """Refuse a record whose headers, which begin at this position, do not end where the record does."""
    if data[position]:
        _, position = _read_headers(data, position, end)
    else:
        position += 1
    if position != end:
        raise _not_filled(start, position, end)


def _not_filled(start: int, position: int, end: int) -> CorruptRecord:
    return CorruptRecord(
        f"record of {end - start} bytes has fields of {position - start}", offset=start
    )


def _read_headers(data: bytes, position: int, end: int) -> tuple[list[Header], int]:
    start = position
    headers: list[Header] = []
    try:
        count, position = read_varint(data, position)
        # A header has at least its two lengths.
        if not 0 <= count * 2 <= end - position:
            raise CorruptRecord(
                f"{count} record headers do not fit into {end - position} bytes", offset=start
            )
        for _ in range(count):
            start = position
            length, position = read_varint(data, position)
            if not 0 <= length <= end - position:
                raise CorruptRecord(f"record header key of {length} bytes", offset=start)
            key = data[position : position + length].decode("utf-8", "surrogateescape")
            position += length
            start = position
            length, position = read_varint(data, position)
            if length < 0:
                headers.append((key, None))
                continue
            if length > end - position:
                raise CorruptRecord(f"record header value of {length} bytes", offset=start)
            headers.append((key, data[position : position + length]))
            position += length
    except IndexError:
        raise CorruptRecord("record is cut short", offset=position) from None
    return headers, position


def _varint(value: int) -> bytes:
    if not MIN_INT64 <= value <= MAX_INT64:
        # The difference of two timestamps: it also wraps in Java's long, and wraps back when added.
        value = wrap_int64(value)
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Most varints of a record are small lengths and deltas, for which a table is four times as fast as arithmetic.
_TABLE_SIZE = 2048
_VARINTS = tuple(_varint(value) for value in range(_TABLE_SIZE))
_NULL = _varint(-1)


def write_varint(value: int) -> bytes:
    """Return a signed integer of at most 64 bits as zig-zag varint."""
    if 0 <= value < _TABLE_SIZE:
        return _VARINTS[value]
    return _varint(value)


def write_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """Return one record of magic 2, preceded by its length."""
    if key is None:
        key_length = _NULL
        key = b""
    else:
        key_length = write_varint(len(key))
    if value is None:
        value_length = _NULL
        value = b""
    else:
        value_length = write_varint(len(value))
    body = b"".join(
        (
            b"\x00",
            write_varint(timestamp_delta),
            write_varint(offset_delta),
            key_length,
            key,
            value_length,
            value,
            _write_headers(headers) if headers else b"\x00",
        )
    )
    return write_varint(len(body)) + body


def _write_headers(headers: Sequence[Header]) -> bytes:
    parts = [write_varint(len(headers))]
    for key, value in headers:
        encoded = key.encode("utf-8", "surrogateescape")
        parts.append(write_varint(len(encoded)))
        parts.append(encoded)
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(write_varint(len(value)))
            parts.append(value)
    return b"".join(parts)
