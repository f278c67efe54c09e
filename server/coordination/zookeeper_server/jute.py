"""The encoding of ZooKeeper's messages: big-endian, lengths as int32; pure.

| type | bytes |
|---|---|
| boolean | 1 byte, 0 or 1 |
| int, long | 4, 8 bytes, signed |
| buffer, ustring | int length, then the bytes (UTF-8); length -1 is null |
| vector | int count, then the elements; count -1 is null |

Source: BinaryInputArchive, BinaryOutputArchive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ..acl import AclId, ZnodeAclEntry
from ..store import Stat

INT = Struct(">i")
LONG = Struct(">q")
#: czxid mzxid ctime mtime, version cversion aversion, ephemeralOwner, dataLength numChildren, pzxid.
STAT = Struct(">qqqqiiiqiiq")


class JuteError(Exception):
    """The bytes are not the expected record."""


class JuteReader:
    """Reads one message from start to end."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        """The next bytes. Errors: JuteError if there are fewer."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise JuteError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self.position == len(self.data)


class JuteType(NamedTuple):
    """The functions that read and write values of a type."""

    read: Callable[[JuteReader], Any]
    write: Callable[[bytearray, Any], None]


def read_boolean(reader: JuteReader) -> bool:
    """As in Java, any value except 0 is true."""
    return reader.take(1) != b"\0"


def write_boolean(out: bytearray, value: bool) -> None:
    """One byte."""
    out.append(1 if value else 0)


def read_int(reader: JuteReader) -> int:
    """Four bytes."""
    position = reader.position
    try:
        value: int = INT.unpack_from(reader.data, position)[0]
    except StructError:
        raise JuteError(f"4 bytes wanted at {position} of {len(reader.data)}") from None
    reader.position = position + 4
    return value


def write_int(out: bytearray, value: int) -> None:
    """Four bytes."""
    out += INT.pack(value)


def read_long(reader: JuteReader) -> int:
    """Eight bytes."""
    value: int = LONG.unpack(reader.take(8))[0]
    return value


def write_long(out: bytearray, value: int) -> None:
    """Eight bytes."""
    out += LONG.pack(value)


def read_buffer(reader: JuteReader) -> bytes | None:
    """Bytes or null."""
    size = read_int(reader)
    return None if size == -1 else reader.take(size)


def write_buffer(out: bytearray, value: bytes | None) -> None:
    """Bytes or null."""
    if value is None:
        out += INT.pack(-1)
    else:
        out += INT.pack(len(value))
        out += value


def read_string(reader: JuteReader) -> str | None:
    """Text or null; invalid UTF-8 is replaced, as in Java."""
    value = read_buffer(reader)
    return None if value is None else value.decode(errors="replace")


def write_string(out: bytearray, value: str | None) -> None:
    """Text or null."""
    write_buffer(out, None if value is None else value.encode(errors="replace"))


def read_stat(reader: JuteReader) -> Stat:
    """A Stat, in the order of the wire."""
    fields = STAT.unpack(reader.take(STAT.size))
    czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, count, pzxid = fields
    return Stat(
        czxid, mzxid, ctime, mtime, version, cversion, owner, count, pzxid, aversion, length
    )


def write_stat(out: bytearray, stat: Stat) -> None:
    """A Stat, in the order of the wire."""
    out += STAT.pack(
        *stat[:6],
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )


def read_id(reader: JuteReader) -> AclId:
    """Scheme and id; either may be null, which no list may contain."""
    scheme, id_ = read_string(reader), read_string(reader)
    return AclId(scheme, id_)  # type: ignore[arg-type]


def write_id(out: bytearray, value: AclId) -> None:
    """Scheme and id."""
    write_string(out, value.scheme)
    write_string(out, value.id)


def read_acl_entry(reader: JuteReader) -> ZnodeAclEntry:
    """Permissions and an id."""
    return ZnodeAclEntry(read_int(reader), read_id(reader))


def write_acl_entry(out: bytearray, entry: ZnodeAclEntry) -> None:
    """Permissions and an id."""
    write_int(out, entry.perms)
    write_id(out, entry.id)


def read_count(reader: JuteReader, least_bytes: int) -> int | None:
    """The number of elements of a vector, each of which takes at least so many bytes; None for null."""
    count = read_int(reader)
    if count == -1:
        return None
    # A higher count would only fill the memory.
    if count < 0 or count * least_bytes > len(reader.data) - reader.position:
        raise JuteError(f"a vector of {count} elements")
    return count


def vector(element: JuteType) -> JuteType:
    """The type of vectors of another type; they are tuples, or None for null."""

    def read(reader: JuteReader) -> tuple[Any, ...] | None:
        count = read_count(reader, 1)
        return None if count is None else tuple([element.read(reader) for _ in range(count)])

    def write(out: bytearray, values: Iterable[Any] | None) -> None:
        if values is None:
            out += INT.pack(-1)
            return
        values = tuple(values)
        out += INT.pack(len(values))
        for value in values:
            element.write(out, value)

    return JuteType(read, write)


def read_strings(reader: JuteReader) -> tuple[str | None, ...] | None:
    """A vector of texts; there may be very many."""
    count = read_count(reader, 4)
    if count is None:
        return None
    data, position = reader.data, reader.position
    unpack = INT.unpack_from
    texts: list[str | None] = []
    try:
        for _ in range(count):
            size = unpack(data, position)[0]
            position += 4
            if size == -1:
                texts.append(None)
                continue
            end = position + size
            if size < 0 or end > len(data):
                raise JuteError(f"{size} bytes wanted at {position} of {len(data)}")
            texts.append(data[position:end].decode(errors="replace"))
            position = end
    except StructError:
        raise JuteError(f"4 bytes wanted at {position} of {len(data)}") from None
    reader.position = position
    return tuple(texts)


def write_strings(out: bytearray, texts: Collection[str | None] | None) -> None:
    """A vector of texts; there may be very many."""
    if texts is None:
        out += INT.pack(-1)
        return
    pack = INT.pack
    parts = [pack(len(texts))]
    for text in texts:
        if text is None:
            parts.append(pack(-1))
            continue
        raw = text.encode(errors="replace")
        parts.append(pack(len(raw)))
        parts.append(raw)
    out += b"".join(parts)


BOOLEAN = JuteType(read_boolean, write_boolean)
INT32 = JuteType(read_int, write_int)
INT64 = JuteType(read_long, write_long)
BUFFER = JuteType(read_buffer, write_buffer)
STRING = JuteType(read_string, write_string)
STRINGS = JuteType(read_strings, write_strings)
STAT_RECORD = JuteType(read_stat, write_stat)
ID = JuteType(read_id, write_id)
ACL_LIST = vector(JuteType(read_acl_entry, write_acl_entry))
