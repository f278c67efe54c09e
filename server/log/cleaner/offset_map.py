"""Maps each key in the part of a log to be compacted to its last offset, in bounded memory.

With the native module, it is a hash table of entries of 24 bytes, which are a digest of the key
and its last offset: `KeyTable` in server/native/compaction.pxi. The table is allocated once, for as
many keys as there are offsets to read, or as memory allows; the system provides its memory as it
is used.

Without the module, it is a dict of the keys themselves as long as it is small: exact and fast. A
dict needs about 150 bytes per key, so when it would exceed its share of memory, it is converted to
buckets of entries

    16 MD5 of the key       8 last offset, big-endian

one after another in bytearrays, where searching for a digest is a single call into C.

Both forms are full at the same number of keys, which is about that of Apache Kafka's map in the
same memory. It compares digests, too. Source: SkimpyOffsetMap.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import md5
from itertools import repeat
from struct import Struct
from typing import Any

from kwire.records.crc import crc32c

from ... import native
from .rewriting import Buffer, body_of, with_records

NO_OFFSET = -1
OFFSET = Struct(">q")

DIGEST_SIZE = 16
ENTRY_SIZE = 24
KEYS_PER_BUCKET = 32
BUCKETED_KEY_BYTES = 32
"""The memory per key in a bucket: the entry, and its share of the bytearray and its spare room. In
the native table: the entry, and its share of the free ones, which are a quarter."""
EXACT_SHARE = 0.6
"""The share of memory that the dict may take; the conversion to buckets needs the rest."""
DICT_KEY_BYTES = 140
"""The memory of a key in the dict, without the key's own bytes: the headers of two objects, and a
slot in a dict that has just grown."""

unpredictable = random.SystemRandom()

Left = tuple[Buffer | None, int, int, int, int]
"""Of a batch: what is left of it, None for nothing; its size and last offset; how many records it had and has."""


def digest_of(key: bytes) -> bytes:
    """The digest that represents a key in a bucket."""
    return md5(key, usedforsecurity=False).digest()


class OffsetMap(ABC):
    """The last offset of each key; accepts keys until `is_full`.

    Shape: what both forms have in common; `offset_map` makes one of them.
    """

    __slots__ = ("latest_offset", "max_keys")

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.latest_offset = NO_OFFSET
        """The last offset up to which records were read (inclusive)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def is_exact(self) -> bool:
        """Whether keys themselves are compared, not their digests."""
        return False

    @property
    def is_full(self) -> bool:
        """True once there are as many keys as memory allows."""
        return len(self) >= self.max_keys

    def note_batches(self, window: memoryview, at: int, usual: int, start_offset: int) -> int:
        """Put the keys of batch after batch from start_offset on, natively; return the position after the last one.

        Shape: `usual` are the attributes that batches may have. Returns `at` if not even one batch is suitable.
        """
        return at

    def filter_batches(
        self, window: memoryview, at: int, usual: int, now_ms: int
    ) -> tuple[int, list[Left]]:
        """The position after the batches that can be filtered natively, and what is left of each.

        Shape: `usual` as in `note_batches`.
        """
        return at, []

    @abstractmethod
    def put(self, key: bytes, offset: int) -> None:
        """Set the key's last offset; offsets must increase, and the caller checks `is_full`."""

    @abstractmethod
    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Like `put` for each key in order; does nothing and returns False if `put` must be used.

        Shape: as many offsets as keys, at least one. `put` must be used near the limits of memory.
        """

    @abstractmethod
    def get(self, key: bytes) -> int:
        """The key's last offset; -1 if the key was not seen."""

    def last_offsets(self, keys: Sequence[bytes]) -> list[int]:
        """The result of `get` for each key."""
        return list(map(self.get, keys))

    def marks(self, start: int, max_bytes: int) -> bytearray | None:
        """One byte for each offset from start to `latest_offset`: 1 if it is the last of its key.

        Shape: None if that would exceed max_bytes, or in the native form, where it is of no use. No
        offset in the map may be below start.
        """
        return None

    def update_latest_offset(self, offset: int) -> None:
        """Record that everything up to offset was read."""
        if offset > self.latest_offset:
            self.latest_offset = offset


def offset_map(max_bytes: int, load_factor: float = 0.9, offsets: int | None = None) -> OffsetMap:
    """An empty map, natively if possible.

    Unit: max_bytes is log.cleaner.dedupe.buffer.size, used up to load_factor.
    Shape: `offsets` is the number of offsets that will be read, if it is known.
    """
    room = max_bytes * load_factor
    max_keys = max(1, int(room / BUCKETED_KEY_BYTES))
    if offsets is not None:
        max_keys = max(1, min(max_keys, offsets))
    if native.KeyTable is not None:
        return NativeOffsetMap(max_keys)
    return PythonOffsetMap(max_keys, int(room * EXACT_SHARE))


class NativeOffsetMap(OffsetMap):
    """In the native module's table."""

    __slots__ = ("_table",)

    def __init__(self, max_keys: int) -> None:
        super().__init__(max_keys)
        assert native.KeyTable is not None
        seed = [unpredictable.randrange(1, 1 << 60) for _ in range(2)]
        self._table: Any = native.KeyTable(max_keys, seed, crc32c, body_of, with_records)

    def __len__(self) -> int:
        return self._table.count  # type: ignore[no-any-return]

    def note_batches(self, window: memoryview, at: int, usual: int, start_offset: int) -> int:
        end: int
        end, rows = self._table.take(window, at, usual, True, start_offset, 0, 0)
        if rows:
            self.update_latest_offset(rows[-1][2])
        return end

    def filter_batches(
        self, window: memoryview, at: int, usual: int, now_ms: int
    ) -> tuple[int, list[Left]]:
        return self._table.take(window, at, usual, False, 0, self.latest_offset, now_ms)  # type: ignore[no-any-return]

    def put(self, key: bytes, offset: int) -> None:
        self._table.get(key, offset)
        self.latest_offset = offset

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        if len(self) + len(keys) > self.max_keys:
            return False
        for key, offset in zip(keys, offsets, strict=True):
            self._table.get(key, offset)
        self.latest_offset = offsets[-1]
        return True

    def get(self, key: bytes) -> int:
        return self._table.get(key)  # type: ignore[no-any-return]


class PythonOffsetMap(OffsetMap):
    """In a dict of the keys, and in buckets of digests once that becomes too large."""

    __slots__ = ("_bucket_count", "_buckets", "_count", "_exact", "_exact_bytes_left")

    def __init__(self, max_keys: int, exact_bytes: int) -> None:
        super().__init__(max_keys)
        self._bucket_count = max(1, max_keys // KEYS_PER_BUCKET)
        self._exact: dict[bytes, int] | None = {}
        self._exact_bytes_left = exact_bytes
        self._buckets: list[bytearray | None] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_exact(self) -> bool:
        return self._exact is not None

    def put(self, key: bytes, offset: int) -> None:
        exact = self._exact
        if exact is not None:
            exact[key] = offset
            if len(exact) != self._count:
                self._count += 1
                self._exact_bytes_left -= DICT_KEY_BYTES + len(key)
                if self._exact_bytes_left <= 0:
                    self._turn_into_buckets(exact)
        else:
            self._put_digest(digest_of(key), offset)
        self.latest_offset = offset

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        exact = self._exact
        count = len(keys)
        if self._count + count > self.max_keys:
            return False
        if exact is None:
            self._put_digests(keys, offsets)
        else:
            key_bytes = DICT_KEY_BYTES + max(map(len, keys))
            if count * key_bytes >= self._exact_bytes_left:
                return False
            exact.update(zip(keys, offsets, strict=True))
            added = len(exact) - self._count
            self._count += added
            self._exact_bytes_left -= added * key_bytes
        self.latest_offset = offsets[-1]
        return True

    def last_offsets(self, keys: Sequence[bytes]) -> list[int]:
        if self._exact is not None:
            return list(map(self._exact.get, keys, repeat(NO_OFFSET)))
        return super().last_offsets(keys)

    def marks(self, start: int, max_bytes: int) -> bytearray | None:
        size = self.latest_offset + 1 - start
        if not 0 < size <= max_bytes:
            return None
        marks = bytearray(size)
        if self._exact is not None:
            for offset in self._exact.values():
                marks[offset - start] = 1
        else:
            for bucket in filter(None, self._buckets):
                for at in range(DIGEST_SIZE, len(bucket), ENTRY_SIZE):
                    marks[int.from_bytes(bucket[at : at + 8], "big") - start] = 1
        return marks

    def get(self, key: bytes) -> int:
        if self._exact is not None:
            return self._exact.get(key, NO_OFFSET)
        digest = digest_of(key)
        bucket = self._buckets[hash(digest) % self._bucket_count]
        if bucket is None:
            return NO_OFFSET
        at = _find(bucket, digest)
        if at < 0:
            return NO_OFFSET
        return int.from_bytes(bucket[at + DIGEST_SIZE : at + ENTRY_SIZE], "big")

    def _put_digest(self, digest: bytes, offset: int) -> None:
        number = hash(digest) % self._bucket_count
        bucket = self._buckets[number]
        if bucket is None:
            bucket = self._buckets[number] = bytearray()
        at = _find(bucket, digest)
        if at >= 0:
            bucket[at + DIGEST_SIZE : at + ENTRY_SIZE] = offset.to_bytes(8, "big")
            return
        bucket += digest + offset.to_bytes(8, "big")
        self._count += 1

    def _put_digests(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        # Like _put_digest, but without a Python call for each key.
        buckets, bucket_count = self._buckets, self._bucket_count
        write = OFFSET.pack_into
        added = 0
        for key, offset in zip(keys, offsets, strict=True):
            digest = md5(key, usedforsecurity=False).digest()
            number = hash(digest) % bucket_count
            bucket = buckets[number]
            if bucket is None:
                bucket = buckets[number] = bytearray()
            at = bucket.find(digest)
            if at % ENTRY_SIZE and at >= 0:
                at = _find(bucket, digest)
            if at >= 0:
                write(bucket, at + DIGEST_SIZE, offset)
            else:
                bucket += digest + offset.to_bytes(8, "big")
                added += 1
        self._count += added

    def _turn_into_buckets(self, exact: dict[bytes, int]) -> None:
        self._buckets = [None] * self._bucket_count
        self._exact = None
        self._count = 0
        while exact:
            key, offset = exact.popitem()
            self._put_digest(digest_of(key), offset)


def _find(bucket: bytearray, digest: bytes) -> int:
    at = bucket.find(digest)
    while at % ENTRY_SIZE and at >= 0:  # the same bytes across two entries
        at = bucket.find(digest, at + 1)
    return at
