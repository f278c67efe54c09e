"""Which partition of __consumer_offsets, and so which broker, a group belongs to."""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: signed 32 bit, over UTF-16 code units."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """Return the partition that holds a group (or, with its topic's count, a transactional id).

    Source: GroupMetadataManager.partitionFor; Utils.abs maps the smallest number to 0.
    """
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
