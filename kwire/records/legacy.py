"""Messages of magic 0 and 1: one record each, or a wrapper whose value is a compressed set.

    off size field
      0    8 offset       of the last record, in a wrapper
      8    4 size         bytes after this field
     12    4 crc          CRC-32 of everything from `magic` on
     16    1 magic        0 or 1
     17    1 attributes   bits 0-2 codec, 3 timestamp type (magic 1)
     18    8 timestamp    magic 1 only
      .    4 key length   -1: null
      .    . key
      .    4 value length -1: null
      .    . value

Inside a wrapper of magic 1 the offsets are relative, and the last one corresponds to the wrapper's
(KIP-31). Inside magic 0 they are absolute. Wrappers do not nest.
Source: LegacyRecord, AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.records.compression import decompress
from kwire.records.crc import crc32
from kwire.records.layout import (
    CODEC_MASK,
    INT32,
    LEGACY_CRC_AT,
    LEGACY_HEAD,
    LEGACY_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kwire.records.record import Record, wrap_int64

Buffer = bytes | bytearray | memoryview

_MESSAGE_V1 = Struct(">qiIbbq")


class LegacyMessage(NamedTuple):
    """One message as stored; crc_ok is set only if the check was requested."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: Buffer | None
    end: int
    crc_ok: bool


def read_message(data: Buffer, position: int, *, check_crc: bool = False) -> LegacyMessage:
    """Read the message at position; `end` is the position of the next one.

    Errors: CorruptRecord for a message that is cut short or whose lengths do not add up.
    """
    start = position
    if len(data) - position < LOG_OVERHEAD + LEGACY_OVERHEAD[0]:
        raise CorruptRecord("message is cut short", offset=start)
    offset, size, crc, magic, attributes = LEGACY_HEAD.unpack_from(data, position)
    if magic not in (0, 1):
        raise CorruptRecord(f"magic {magic} in a set of old messages", offset=start + MAGIC_AT)
    end = start + LOG_OVERHEAD + size
    if size < LEGACY_OVERHEAD[magic] or end > len(data):
        raise CorruptRecord(
            f"message of {size} bytes where {len(data) - start - LOG_OVERHEAD} remain",
            offset=start,
        )
    timestamp = NO_TIMESTAMP
    position += LEGACY_HEAD.size
    if magic == 1:
        timestamp = _MESSAGE_V1.unpack_from(data, start)[5]
        position += 8
    key, position = _read_bytes(data, position, end, start)
    value, position = _read_bytes(data, position, end, start)
    if position != end:
        raise CorruptRecord(f"{end - position} bytes after the value", offset=position)
    crc_ok = not check_crc or crc32(memoryview(data)[start + MAGIC_AT : end]) == crc
    return LegacyMessage(
        offset,
        magic,
        attributes & 0xFF,
        timestamp,
        None if key is None else bytes(key),
        value,
        end,
        crc_ok,
    )


def _read_bytes(data: Buffer, position: int, end: int, start: int) -> tuple[Buffer | None, int]:
    if end - position < 4:
        raise CorruptRecord("message is too short for its fields", offset=start)
    (length,) = INT32.unpack_from(data, position)
    position += 4
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptRecord(
            f"field of {length} bytes where {end - position} remain", offset=position - 4
        )
    return data[position : position + length], position + length


def inner_messages(
    wrapper: LegacyMessage, limit: int, *, check_crc: bool = False
) -> list[LegacyMessage]:
    """Return the messages of a compressed wrapper, with offsets as stored.

    Errors: as `compression.decompress`; CorruptRecord for an empty or nested set.
    """
    if wrapper.value is None:
        raise CorruptRecord("compressed message has a null value")
    data = decompress(wrapper.attributes & CODEC_MASK, wrapper.magic, wrapper.value, limit)
    messages = []
    position = 0
    while position < len(data):
        message = read_message(data, position, check_crc=check_crc)
        if message.attributes & CODEC_MASK:
            raise CorruptRecord("compressed message inside a compressed message", offset=position)
        messages.append(message)
        position = message.end
    if not messages:
        raise CorruptRecord("compressed message holds no messages")
    return messages


def base_offset_of(wrapper: LegacyMessage, messages: list[LegacyMessage]) -> int:
    """Return the number to add to the stored offsets of a wrapper's messages.

    Shape: also 0 for a magic 1 wrapper at offset 0, which some librdkafka versions produce.
    """
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    last = messages[-1].offset
    if wrapper.offset < last:
        raise CorruptRecord(f"wrapper offset {wrapper.offset} is below its last inner one, {last}")
    return wrapper.offset - last


def read_legacy(data: Buffer, position: int, limit: int) -> Iterator[Record]:
    """Yield the records of the message at position, decompressing at most limit bytes."""
    wrapper = read_message(data, position)
    if not wrapper.attributes & CODEC_MASK:
        value = wrapper.value
        yield Record(
            wrapper.offset,
            wrapper.timestamp,
            wrapper.key,
            None if value is None else bytes(value),
        )
        return
    messages = inner_messages(wrapper, limit)
    base = base_offset_of(wrapper, messages)
    # The broker's append time is only in the wrapper and applies to every message in it (KIP-32).
    append_time = wrapper.magic == 1 and bool(wrapper.attributes & TIMESTAMP_TYPE_MASK)
    for message in messages:
        value = message.value
        yield Record(
            wrap_int64(base + message.offset),
            wrapper.timestamp if append_time and message.magic == 1 else message.timestamp,
            message.key,
            None if value is None else bytes(value),
        )


def write_message(
    magic: int,
    offset: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> bytes:
    """Return one message, plain or a wrapper; magic 0 has no timestamp, so the argument is ignored."""
    size = LEGACY_OVERHEAD[magic] + (len(key) if key else 0) + (len(value) if value else 0)
    out = bytearray(LOG_OVERHEAD + LEGACY_OVERHEAD[magic] - 8)
    if magic == 0:
        LEGACY_HEAD.pack_into(out, 0, offset, size, 0, 0, attributes)
    else:
        _MESSAGE_V1.pack_into(out, 0, offset, size, 0, 1, attributes, timestamp)
    for field in (key, value):
        out += INT32.pack(-1 if field is None else len(field))
        if field is not None:
            out += field
    out[LEGACY_CRC_AT:MAGIC_AT] = crc32(memoryview(out)[MAGIC_AT:]).to_bytes(4, "big")
    return bytes(out)
