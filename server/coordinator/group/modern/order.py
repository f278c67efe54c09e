"""The order in which Apache Kafka's assignors visit members and topics.

They iterate over Java's HashMap and HashSet, whose order is that of a table of buckets. It depends only on the keys,
their number, and, within a bucket, on the order of insertion. The same order here gives the same assignments, so a
group that moves between Apache Kafka and kwire keeps its assignments.
Source: java.util.HashMap (hash, tableSizeFor, resize), Uuid.hashCode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from struct import Struct
from typing import Generic, TypeVar

from ....steps import Steps, exhaust
from ...common.partitioner import java_string_hash

K = TypeVar("K")
V = TypeVar("V")

#: The minimum number of buckets of a table, and the load factor of three quarters.
BUCKETS = 16

_TWO_LONGS = Struct(">QQ")


def _table_size(keys: int, presized: bool) -> int:
    """The number of buckets of a table that was filled one by one, or made for a collection of that size."""
    if presized:
        wanted, size = max(int(keys / 0.75) + 1, BUCKETS), 1
        while size < wanted:
            size *= 2
        return size
    size = BUCKETS
    while keys > size * 3 // 4:
        size *= 2
    return size


def in_buckets(
    keys: Collection[K], hash_of: Callable[[K], int], *, presized: bool = False
) -> list[K]:
    """Return the keys in the order of a HashMap into which they were put in the given order.

    Shape: `presized` selects a HashSet that was made from a collection.
    """
    if len(keys) < 2:
        return list(keys)
    mask = _table_size(len(keys), presized) - 1
    hashes = [hash_of(key) & 0xFFFFFFFF for key in keys]
    buckets = [(hashed ^ (hashed >> 16)) & mask for hashed in hashes]
    in_order = list(keys)
    return [in_order[place] for place in sorted(range(len(buckets)), key=buckets.__getitem__)]


@lru_cache(maxsize=16384)
def hash_of_name(name: str) -> int:
    """Java's String.hashCode."""
    return java_string_hash(name)


@lru_cache(maxsize=16384)
def hash_of_uuid(value: bytes) -> int:
    """Hash an id of 16 bytes as Kafka's Uuid does."""
    high, low = _TWO_LONGS.unpack(value)
    both = high ^ low
    return int((both >> 32) ^ both) & 0xFFFFFFFF


def hash_of_int(value: int) -> int:
    """Java's Integer.hashCode."""
    return value


def names_in_order(names: Collection[str], *, presized: bool = False) -> list[str]:
    """Member ids, topic names or assignor names in the order of a HashMap."""
    return in_buckets(names, hash_of_name, presized=presized)


def topics_in_order(topic_ids: Collection[bytes], *, presized: bool = False) -> list[bytes]:
    """Topic ids in the order of a HashMap."""
    return in_buckets(topic_ids, hash_of_uuid, presized=presized)


def partitions_in_order(partitions: Collection[int]) -> list[int]:
    """Partitions in the order of a HashSet made from a sorted list: ascending, as long as they fit into the table."""
    if len(partitions) < 2:
        return list(partitions)
    return in_buckets(sorted(partitions), hash_of_int, presized=True)


def buckets_for(capacity: int) -> int:
    """The number of buckets of a HashMap with an initial capacity."""
    size = 1
    while size < capacity:
        size *= 2
    return size


class JavaHashMap(Generic[K, V]):
    """A HashMap that is iterated over in Java's order while it grows and shrinks.

    Shape: `buckets` is its initial number of buckets; `hash_of` is as for in_buckets.
    """

    def __init__(self, hash_of: Callable[[K], int], buckets: int = BUCKETS) -> None:
        self._hash_of = hash_of
        self._buckets = buckets
        self.entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: K) -> bool:
        return key in self.entries

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, creating it if there is none."""
        found = self.entries.get(key)
        if found is None:
            found = self.entries[key] = make()
            while len(self.entries) > self._buckets * 3 // 4:
                self._buckets *= 2
        return found

    def remove(self, key: K) -> None:
        """Remove a key; the table keeps its size."""
        self.entries.pop(key, None)

    def in_order(self) -> list[K]:
        """The keys in Java's order."""
        return exhaust(self.in_order_in_steps())

    def in_order_in_steps(self) -> Steps[list[K]]:
        """The keys in Java's order, in steps."""
        mask = self._buckets - 1
        keys = list(self.entries)
        places = []
        for number, key in enumerate(keys):
            if not number % 256:
                yield
            hashed = self._hash_of(key) & 0xFFFFFFFF
            places.append((((hashed ^ (hashed >> 16)) & mask) << 32) + number)
        places.sort()
        return [keys[place & 0xFFFFFFFF] for place in places]
