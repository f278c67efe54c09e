"""The wire types of Kafka's protocol, named as in its message definitions.

type       bytes                                    flexible versions
int8..64   1, 2, 4, 8, big endian, two's complement same
uint16/32  2, 4, big endian                         same
float64    8, IEEE 754 big endian                   same
bool       1, zero or not                           same
uuid       16                                       same
string     int16 length, UTF-8; null is -1          uvarint length + 1; null is 0
bytes      int32 length; null is -1                 uvarint length + 1; null is 0
records    as bytes; passed on as a view            as bytes
[]T        int32 count, elements; null is -1        uvarint count + 1; null is 0
struct     its fields; nullable: int8 -1 or 1 first same, then the tagged fields
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeAlias

ZERO_UUID = bytes(16)
"""The id that stands for none, as Kafka's Uuid.ZERO_UUID."""

ONE_UUID = bytes(15) + b"\x01"
"""The id of the KRaft metadata topic, as Kafka's Uuid.ONE_UUID."""


class Fixed:
    """A type that always takes the same number of bytes."""

    __slots__ = ("code", "name", "size", "zero")

    def __init__(self, name: str, code: str, size: int, zero: object) -> None:
        self.name = name
        self.code = code  # of the struct module
        self.size = size
        self.zero = zero

    def __repr__(self) -> str:
        return self.name


class Sized:
    """A type whose bytes are preceded by their length."""

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: object) -> None:
        self.name = name
        self.zero = zero

    def __repr__(self) -> str:
        return self.name


class Array:
    """A sequence of one type, which may be a struct."""

    __slots__ = ("element",)

    def __init__(self, element: Fixed | Sized | type) -> None:
        self.element = element

    def __repr__(self) -> str:
        element = self.element
        return f"[]{element.__name__ if isinstance(element, type) else element}"


RecordsBytes: TypeAlias = Any
"""Record batches. Decoded, they are a memoryview. To be encoded, they can be any bytes-like object, or any object whose
len() is its size in bytes, which encode_parts passes on unchanged.
"""

WireType = Fixed | Sized | Array | type
"""The types of fields; a `type` is a class made by @struct."""

Int8 = Fixed("int8", "b", 1, 0)
Int16 = Fixed("int16", "h", 2, 0)
Int32 = Fixed("int32", "i", 4, 0)
Int64 = Fixed("int64", "q", 8, 0)
UInt16 = Fixed("uint16", "H", 2, 0)
UInt32 = Fixed("uint32", "I", 4, 0)
Float64 = Fixed("float64", "d", 8, 0.0)
Bool = Fixed("bool", "?", 1, False)
Uuid = Fixed("uuid", "16s", 16, ZERO_UUID)
String = Sized("string", "")
Bytes = Sized("bytes", b"")
Records = Sized("records", b"")


def uuid_to_str(uuid: bytes) -> str:
    """Write an id in Kafka's form: base64 with - and _, without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_str(text: str) -> bytes:
    """Read an id in Kafka's form.

    Errors: ValueError unless it is 16 bytes in base64url.
    """
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a base64url id") from error
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is {len(uuid)} bytes, not 16")
    return uuid
