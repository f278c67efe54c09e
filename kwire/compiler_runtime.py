"""What compiled codecs call for the rare cases, so that their own code stays short."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from kwire.interpreter import MAX_STRING_BYTES
from kwire.varint import read_uvarint, uvarint

SMALL_RECORDS_BYTES = 1024
"""Records in memory up to this size are joined to the bytes around them: cheaper than one more buffer."""

FEW = 16
"""Arrays of fewer numbers than this have a Struct kept ready."""


class Refused(Exception):
    """A compiled codec met something wrong; interpreter.py finds out what."""


def _read_string_length(buffer: Any, pos: int) -> tuple[int, int]:
    size, pos = read_uvarint(buffer, pos)
    if size > MAX_STRING_BYTES + 1:
        raise Refused
    return size, pos


def _string_length(size: int) -> bytes:
    if size > MAX_STRING_BYTES + 1:
        raise Refused
    return uvarint(size)


def _read_unknown_tags(made: Any, buffer: Any, pos: int, end: int) -> int:
    count, pos = read_uvarint(buffer, pos)
    if count * 2 > end - pos:
        raise Refused
    unknown = {}
    for _ in range(count):
        tag, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        if size > end - pos:
            raise Refused
        unknown[tag] = bytes(buffer[pos : pos + size])
        pos += size
    made.unknown_tags = unknown
    return pos


def _tag_section(
    found: dict[int, bytes], unknown: dict[int, bytes] | None, known: frozenset[int]
) -> bytes:
    if unknown:
        if not known.isdisjoint(unknown):
            raise Refused
        found.update(unknown)
    parts = [uvarint(len(found))]
    for tag in sorted(found):
        data = found[tag]
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)


def _unknown_tag_section(made: Any) -> bytes:
    return _tag_section({}, made.unknown_tags, frozenset())


def _put_small_records(parts: list[Any], out: list[Any], records: Any) -> list[Any]:
    """Add small records, joined to the other parts if in memory; return the parts to continue with."""
    if isinstance(records, bytes | bytearray | memoryview):
        parts.append(records)
        return parts
    out.append(b"".join(parts))
    out.append(records)
    return []


def unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Functions that read 0, 1, 2 ... FEW - 1 numbers of one type."""
    return tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(FEW))


def packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """Functions that write 0, 1, 2 ... FEW - 1 numbers of one type."""
    return tuple(struct.Struct(f">{count}{code}").pack for count in range(FEW))


def _unpack_many(count: int, code: str, buffer: Any, pos: int) -> list[Any]:
    return list(struct.unpack_from(f">{count}{code}", buffer, pos))


def _pack_many(code: str, values: Sequence[Any]) -> bytes:
    return struct.pack(f">{len(values)}{code}", *values)


RUNTIME: dict[str, Any] = {
    "Refused": Refused,
    "join": b"".join,
    "new": object.__new__,
    "pack_many": _pack_many,
    "put_small_records": _put_small_records,
    "read_string_length": _read_string_length,
    "read_unknown_tags": _read_unknown_tags,
    "read_uvarint": read_uvarint,
    "string_length": _string_length,
    "tag_section": _tag_section,
    "unknown_tag_section": _unknown_tag_section,
    "unpack_many": _unpack_many,
    "uvarint": uvarint,
}
"""The names that compiled source may use."""
