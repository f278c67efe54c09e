"""Functions that compiled codecs call in rare cases, so that their own code stays short."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any

from kwire.interpreter import MAX_STRING_BYTES
from kwire.varint import read_uvarint, uvarint

SMALL_RECORDS_BYTES = 1024
"""Records in memory up to this size are joined to the bytes around them: cheaper than one more buffer."""

FEW = 16
"""Arrays with fewer numbers than this use a prepared Struct."""


STEP_ELEMENTS = 64
"""The number of an array's elements that a codec reads or writes in one step, besides the arrays within them."""

STEP_NUMBERS = 4096
"""The same for arrays of numbers."""

MANY_TAGS = 128
"""The maximum number of tagged fields in a usual struct; a struct with more is decoded in steps."""

LARGE_TAG_BYTES = 64 * 1024
"""The same for the size of an unknown tagged field."""

TAG_BYTES = 200
"""The memory of an unknown tagged field, without its bytes."""

CHUNK_BYTES = 256 * 1024
"""The size from which on a message encoded in steps is cut into buffers."""


class Refused(Exception):
    """A compiled codec found an error; interpreter.py identifies it."""


class TooMuch(Exception):
    """A message would take more memory than allowed."""


class Chunk(bytearray):
    """A part of an encoded message that may still grow."""

    __slots__ = ()


def _read_string_length(buffer: Any, pos: int) -> tuple[int, int]:
    size, pos = read_uvarint(buffer, pos)
    if size > MAX_STRING_BYTES + 1:
        raise Refused
    return size, pos


def _lenient_string(data: Any) -> str:
    """Read a string as Java does. Errors: Refused if U+FFFD makes it too long for an answer."""
    text = str(data, "utf-8", "replace")
    if len(text) * 3 > MAX_STRING_BYTES and len(text.encode()) > MAX_STRING_BYTES:
        raise Refused
    return text


def _string_length(size: int) -> bytes:
    if size > MAX_STRING_BYTES + 1:
        raise Refused
    return uvarint(size)


def _read_unknown_tags(made: Any, buffer: Any, pos: int, end: int) -> int:
    count, pos = read_uvarint(buffer, pos)
    if count * 2 > end - pos or count > MANY_TAGS:
        raise Refused
    unknown = {}
    for _ in range(count):
        tag, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        if size > end - pos or size > LARGE_TAG_BYTES:
            raise Refused
        unknown[tag] = bytes(buffer[pos : pos + size])
        pos += size
    made.unknown_tags = unknown
    return pos


def _read_unknown_tags_steps(
    made: Any, buffer: Any, pos: int, end: int, room: list[int]
) -> Generator[None, None, int]:
    count, pos = read_uvarint(buffer, pos)
    if count * 2 > end - pos:
        raise Refused
    room[0] -= count * TAG_BYTES
    if room[0] < 0:
        raise TooMuch
    unknown = {}
    for number in range(count):
        if not number % STEP_ELEMENTS:
            yield
        tag, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        if size > end - pos:
            raise Refused
        room[0] -= size
        if room[0] < 0:
            raise TooMuch
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


def _unpack_steps(count: int, code: str, buffer: Any, pos: int) -> Generator[None, None, list[Any]]:
    if count <= STEP_NUMBERS:
        return _unpack_many(count, code, buffer, pos)
    values: list[Any] = []
    size = struct.calcsize(">" + code)
    while count:
        yield
        some = min(count, STEP_NUMBERS)
        values += struct.unpack_from(f">{some}{code}", buffer, pos)
        pos += some * size
        count -= some
    return values


def _gather(parts: list[bytes], out: list[Any]) -> None:
    """Move the written parts to the end of the output."""
    data = b"".join(parts)
    parts.clear()
    last = out[-1] if out else None
    if type(last) is Chunk and len(last) < CHUNK_BYTES:
        last += data
    else:
        out.append(Chunk(data))


def _pack_many(code: str, values: Sequence[Any]) -> bytes:
    return struct.pack(f">{len(values)}{code}", *values)


RUNTIME: dict[str, Any] = {
    "Refused": Refused,
    "TooMuch": TooMuch,
    "gather": _gather,
    "join": b"".join,
    "lenient_string": _lenient_string,
    "new": object.__new__,
    "pack_many": _pack_many,
    "put_small_records": _put_small_records,
    "read_string_length": _read_string_length,
    "read_unknown_tags": _read_unknown_tags,
    "read_unknown_tags_steps": _read_unknown_tags_steps,
    "read_uvarint": read_uvarint,
    "string_length": _string_length,
    "tag_section": _tag_section,
    "unknown_tag_section": _unknown_tag_section,
    "unpack_many": _unpack_many,
    "unpack_steps": _unpack_steps,
    "uvarint": uvarint,
}
"""The names that compiled source may use."""
