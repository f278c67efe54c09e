"""The partition of __consumer_offsets, and thus the broker, to which a group belongs."""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from struct import unpack

#: The number of UTF-16 code units that are hashed at a time: names of 32 KB take a millisecond.
BLOCK = 1024
_POWERS = [pow(31, BLOCK - 1 - place, 1 << 32) for place in range(BLOCK)]

#: Longer names are not cached; only an attacker has many of them.
MAX_REMEMBERED = 256


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: signed 32 bit, over UTF-16 code units."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for begin in range(0, len(data), 2 * BLOCK):
        part = data[begin : begin + 2 * BLOCK]
        count = len(part) // 2
        units = unpack(f">{count}H", part)
        value = value * pow(31, count, 1 << 32) + sum(map(mul, units, _POWERS[BLOCK - count :]))
        value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition that holds a group (or a transactional id, with the count of its topic).

    Source: GroupMetadataManager.partitionFor; Utils.abs maps the smallest number to 0.
    """
    if len(key) > MAX_REMEMBERED:
        return _partition_for(key, partitions)
    return _remembered(key, partitions)


def _partition_for(key: str, partitions: int) -> int:
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


_remembered = lru_cache(maxsize=4096)(_partition_for)
