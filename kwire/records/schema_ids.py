"""What serializers of a schema registry write before a record's key or value: which schema it was written by.

    00 | schema id, uint32 | Protobuf only: a count and that many message indexes, zig-zag varints | the data

Source: Confluent's wire format. The indexes lead from the messages of a file to those inside them; a count of 0 stands for
the single index 0.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kwire.errors import CorruptRecord, WireError
from kwire.varint import read_varint

MAGIC = 0
_PREFIX = Struct(">BI")
#: The number of bytes before the data, or before the message indexes.
PREFIX_BYTES = _PREFIX.size
#: Deeper than any message that people write inside others.
MAX_INDEXES = 64


def schema_id(data: bytes) -> int | None:
    """The id of the schema that the data was written by; None if no prefix is there."""
    if len(data) < PREFIX_BYTES:
        return None
    magic, number = _PREFIX.unpack_from(data)
    return int(number) if magic == MAGIC else None


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes after a prefix, and the position after them. Errors: CorruptRecord."""
    try:
        count, at = read_varint(data, PREFIX_BYTES)
        if not 0 <= count <= MAX_INDEXES:
            raise CorruptRecord(f"{count} message indexes", offset=PREFIX_BYTES)
        indexes = []
        for _ in range(count):
            index, at = read_varint(data, at)
            indexes.append(index)
    except WireError as error:
        raise CorruptRecord(f"no message indexes: {error}", offset=PREFIX_BYTES) from None
    if min(indexes, default=0) < 0:
        raise CorruptRecord(f"message indexes {indexes}", offset=PREFIX_BYTES)
    return tuple(indexes) or (0,), at


def message_name(file: Any, indexes: tuple[int, ...]) -> str:
    """The full name of the message to which indexes lead; `file` is a FileDescriptorProto. Errors: IndexError."""
    names = [file.package] if file.package else []
    inside = file.message_type
    for index in indexes:
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return ".".join(names)
