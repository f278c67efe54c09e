"""Locates the records in a magic 2 body, and reads the fields that compaction needs.

A record that is kept is copied unchanged, so only its head is read: lengths, deltas and key.
"""

from __future__ import annotations

from operator import lt

from kwire.errors import CorruptRecord
from kwire.records.record import (
    ZIGZAG,
    read_varint,
    read_varlong,
    record_heads,
    write_varint,
)

RecordSpan = tuple[int, int, int, int, bytes | None, bool]
"""(start, end, timestamp delta, offset delta, key, has a value); positions are in the body."""
Heads = tuple[list[int], list[bytes | None], list[int], list[int]]
"""The ends, keys and offset deltas of records, and the numbers of those without a value."""


NULL_LENGTH = 1  # the varint of -1


def record_spans(body: bytes, count: int, last_offset_delta: int) -> list[RecordSpan]:
    """The records of a decompressed body, in order.

    Errors: CorruptRecord, with the position in the body, if a length reaches beyond the record or
    the body, if bytes are left over, or if offsets do not increase within the batch.
    """
    spans: list[RecordSpan] = []
    previous = -1
    for start, end, timestamp_delta, offset_delta, key_at, key_size, _, value_size in record_heads(
        body, count
    ):
        if not previous < offset_delta <= last_offset_delta:
            raise CorruptRecord(
                f"offset delta {offset_delta} after {previous} in a batch whose last is "
                f"{last_offset_delta}",
                offset=start,
            )
        previous = offset_delta
        key = None if key_size < 0 else body[key_at : key_at + key_size]
        spans.append((start, end, timestamp_delta, offset_delta, key, value_size >= 0))
    return spans


def keys_and_ends(  # noqa: C901 - one loop without calls
    body: bytes, count: int, last_offset_delta: int
) -> Heads | None:
    """The ends, keys and offset deltas of the records, and the numbers of those without a value.

    Shape: None if anything is unusual; `record_spans` then reads it or reports what is wrong. This
    function does less work per record than `record_spans`, because it reads the whole log twice.
    """
    ends: list[int] = []
    keys: list[bytes | None] = []
    deltas: list[int] = []
    nulls: list[int] = []
    add_end, add_key, add_delta = ends.append, keys.append, deltas.append
    position = 0
    try:
        for number in range(count):
            # The lowest bit of a zigzag number is its sign.
            byte = body[position]
            if byte < 0x80:
                if byte & 1:
                    return None
                end = position + 1 + (byte >> 1)
                position += 3
            elif (second := body[position + 1]) < 0x80:
                if byte & 1:
                    return None
                end = position + 2 + ((byte & 0x7F) >> 1 | second << 6)
                position += 4
            else:
                length, position = read_varint(body, position)
                end = position + length
                position += 2
            if body[position - 1] > 0x7F:  # the first byte of the timestamp, after the attributes
                while body[position] > 0x7F:
                    position += 1
                position += 1
            byte = body[position]
            if byte < 0x80:
                add_delta(ZIGZAG[byte])
                position += 1
            elif (second := body[position + 1]) < 0x80 and not byte & 1:
                add_delta((byte & 0x7F) >> 1 | second << 6)
                position += 2
            else:
                delta, position = read_varint(body, position)
                add_delta(delta)
            byte = body[position]
            if byte < 0x80 and not byte & 1:
                position += 1
                start = position
                position += byte >> 1
                add_key(body[start:position])
            else:
                length, position = read_varint(body, position)
                if length < 0:
                    add_key(None)
                else:
                    add_key(body[position : position + length])
                    position += length
            byte = body[position]
            if byte < 0x80:
                if byte & 1:
                    if byte != NULL_LENGTH:
                        return None
                    nulls.append(number)
                    position += 1
                else:
                    position += 1 + (byte >> 1)
            elif (second := body[position + 1]) < 0x80 and not byte & 1:
                position += 2 + ((byte & 0x7F) >> 1 | second << 6)
            else:
                length, position = read_varint(body, position)
                if length < 0:
                    return None
                position += length
            if position >= end:
                return None
            position = end
            add_end(end)
    except (IndexError, CorruptRecord):
        return None
    if position != len(body):
        return None
    if deltas != list(range(count)) and not (
        deltas[0] >= 0 and deltas[-1] <= last_offset_delta and all(map(lt, deltas, deltas[1:]))
    ):
        return None
    return (ends, keys, deltas, nulls) if count - 1 <= last_offset_delta else None


def some_records(body: bytes, numbers: list[int]) -> list[RecordSpan] | None:
    """The records with these ascending numbers, without their keys; None as in `keys_and_ends`.

    Shape: the caller knows that offset deltas equal the numbers. Other records are skipped.
    """
    spans: list[RecordSpan] = []
    position = number = 0
    try:
        for wanted in numbers:
            while True:
                start = position
                byte = body[position]
                if byte & 1:
                    return None
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                elif (second := body[position + 1]) < 0x80:
                    position += 2 + ((byte & 0x7F) >> 1 | second << 6)
                else:
                    length, position = read_varint(body, position)
                    position += length
                if number == wanted:
                    break
                number += 1
            at = timestamp_at(body, start)
            timestamp = body[at]
            if timestamp < 0x80:
                delta = ZIGZAG[timestamp]
            else:
                delta, at = read_varlong(body, at)
                at -= 1
            at += 1
            while body[at] > 0x7F:  # the offset delta
                at += 1
            key = body[at + 1]
            if key < 0x80 and not key & 1:
                at += 2 + (key >> 1)
            else:
                length, at = read_varint(body, at + 1)
                at += max(length, 0)
            value = body[at]
            if value & 1 and value != NULL_LENGTH:
                return None
            spans.append((start, position, delta, wanted, None, value != NULL_LENGTH))
            number += 1
    except (IndexError, CorruptRecord):
        return None
    return spans if position <= len(body) else None


def timestamp_at(body: bytes, start: int) -> int:
    """The position of a record's timestamp delta, after its length and attributes."""
    while body[start] > 0x7F:
        start += 1
    return start + 2


def timestamp_delta(body: bytes, start: int) -> int:
    """The timestamp delta of the record at body[start]."""
    at = timestamp_at(body, start)
    byte = body[at]
    return ZIGZAG[byte] if byte < 0x80 else read_varlong(body, at)[0]


def with_timestamp_delta(body: bytes, start: int, end: int, delta: int) -> bytes:
    """The record at body[start:end] with another timestamp delta."""
    _, attributes = read_varint(body, start)
    _, rest = read_varlong(body, attributes + 1)
    content = b"".join((body[attributes : attributes + 1], write_varint(delta), body[rest:end]))
    return write_varint(len(content)) + content
