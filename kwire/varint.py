"""Variable-length integers: 7 bits per byte, lowest first, the top bit set on all bytes but the last.

unsigned   as they are; at most 5 bytes for 32 bits, 10 for 64
zig-zag    signed, 0 -1 1 -2 2 ... written as unsigned 0 1 2 3 4 ...

Source: org.apache.kafka.common.utils.ByteUtils, which accepts overlong forms within those bounds.
"""

from __future__ import annotations

from kwire.errors import BadLength, EncodeError, Truncated

_ONE_BYTE = tuple(bytes((value,)) for value in range(128))
UINT32_BYTES = 5
UINT64_BYTES = 10


def read_uvarint(
    buffer: bytes | bytearray | memoryview, pos: int, max_bytes: int = UINT32_BYTES
) -> tuple[int, int]:
    """Read an unsigned varint, and return it with the position after it.

    Errors: Truncated, or BadLength if it does not end within max_bytes or exceeds 32 or 64 bits.
    """
    try:
        byte = buffer[pos]
        if byte < 128:
            return byte, pos + 1
        value = byte & 127
        start = pos
        shift = 7
        while True:
            pos += 1
            byte = buffer[pos]
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if pos - start + 1 >= max_bytes:
                raise BadLength(f"varint does not end within {max_bytes} bytes", offset=start)
    except IndexError:
        raise Truncated("the bytes end within a varint", offset=pos) from None
    if value >> (32 if max_bytes == UINT32_BYTES else 64):
        raise BadLength(f"varint {value} is too large", offset=start)
    return value, pos + 1


def read_varint(
    buffer: bytes | bytearray | memoryview, pos: int, max_bytes: int = UINT32_BYTES
) -> tuple[int, int]:
    """Read a zig-zag varint, and return it with the position after it; errors as read_uvarint."""
    value, pos = read_uvarint(buffer, pos, max_bytes)
    return (value >> 1) ^ -(value & 1), pos


def uvarint(value: int) -> bytes:
    """Write an unsigned varint.

    Errors: EncodeError if the value is negative.
    """
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if 0 <= value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    if value < 0:
        raise EncodeError(f"{value} is negative")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(value: int) -> bytes:
    """Write a zig-zag varint."""
    return uvarint(value << 1 if value >= 0 else ~(value << 1))
