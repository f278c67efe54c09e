"""XXH32 of short inputs, in plain Python, for the one-byte header checksum of an LZ4 frame."""

from __future__ import annotations

_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def xxh32(data: bytes, seed: int = 0) -> int:
    """Return the 32-bit xxHash of data; meant for tens of bytes. Source: xxHash specification."""
    position = 0
    length = len(data)
    if length >= 16:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while position <= length - 16:
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * _PRIME_2, 13) * _PRIME_1 & _MASK
                position += 4
        rotations = (1, 7, 12, 18)
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, rotations, strict=True))
    else:
        value = seed + _PRIME_5
    value += length
    while position <= length - 4:
        word = int.from_bytes(data[position : position + 4], "little")
        value = _rotate(value + word * _PRIME_3, 17) * _PRIME_4
        position += 4
    for byte in data[position:]:
        value = _rotate(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _MASK
    value = (value ^ (value >> 15)) * _PRIME_2 & _MASK
    value = (value ^ (value >> 13)) * _PRIME_3 & _MASK
    return value ^ (value >> 16)
