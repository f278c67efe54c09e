"""Collects records into batches, and encodes them in bulk. Pure.

Source: BuiltInPartitioner, Utils.murmur2, RecordAccumulator (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import iter_unpack
from typing import Any, NamedTuple

from kwire.records.builder import write_batch
from kwire.records.compression import Codec, compress
from kwire.records.record import Header, write_record
from kwire.varint import varint

#: The size of a batch before compression, below the default of max.message.bytes (1048588). Unit: bytes.
BATCH_BYTES = 900_000
#: The maximum size of a small record beyond its key, value and headers.
OVERHEAD = 16


class Outgoing(NamedTuple):
    """A record to send. Unit: timestamp in ms, None for now."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int | None


@lru_cache(maxsize=1)
def small_varints() -> tuple[bytes, ...]:
    """The varints of small numbers, which are the most frequent ones."""
    return tuple(varint(number) for number in range(16384))


def encode_values(values: Sequence[bytes]) -> bytes:
    """The records of a batch that consist only of values, with the batch's timestamp.

    Record: length, attributes 0, timestamp delta 0, offset delta, key -1, value, no headers.
    """
    table = small_varints()
    limit = len(table) - OVERHEAD
    parts: list[bytes] = []
    extend = parts.extend
    for delta, value in enumerate(values):
        size = len(value)
        if size < limit and delta < limit:
            offset, length = table[delta], table[size]
            body = table[len(offset) + len(length) + size + 4]
        else:
            offset, length = varint(delta), varint(size)
            body = varint(len(offset) + len(length) + size + 4)
        extend((body, b"\0\0", offset, b"\x01", length, value, b"\0"))
    return b"".join(parts)


def encode_records(records: Sequence[Outgoing], base_timestamp: int) -> tuple[bytes, int]:
    """The records of a batch, and the largest timestamp."""
    largest = base_timestamp
    parts = []
    for delta, (key, value, headers, timestamp) in enumerate(records):
        at = base_timestamp if timestamp is None else timestamp
        largest = max(largest, at)
        parts.append(write_record(delta, at - base_timestamp, key, value, headers))
    return b"".join(parts), largest


@lru_cache(maxsize=65536)
def murmur2(data: bytes) -> int:
    """The hash that Kafka's clients use to choose a key's partition, as an unsigned number. Source: Utils.murmur2."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (k,) in iter_unpack("<I", data[:whole]):
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class UnacknowledgedBatch:
    """Records of one partition, until they are acknowledged."""

    __slots__ = ("count", "data", "partition", "records", "sequence")

    def __init__(self, partition: int, records: list[Any], sequence: int) -> None:
        self.partition = partition
        self.records = records
        self.count = len(records)
        self.sequence = sequence
        self.data = b""


class Accumulator:
    """Collects records by partition, and hands over a batch when it is full. Unit: `batch_bytes` before compression."""

    def __init__(
        self, send: Callable[[UnacknowledgedBatch], None], batch_bytes: int = BATCH_BYTES
    ) -> None:
        self.partitions = 0
        """The number of the topic's partitions."""
        self.sticky = 0
        """The partition of records without a key, until its batch is full."""
        self._send = send
        self._batch_bytes = batch_bytes
        self._open: dict[int, list[Any]] = {}
        self._open_bytes: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def add(self, record: Outgoing, partition: int | None) -> None:
        """Add a record; without a partition, its key chooses one."""
        if partition is None:
            key = record.key
            partition = self.sticky if key is None else partition_of(key, self.partitions)
        size = OVERHEAD + len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            size += len(name) + len(value or b"") + 4
        filled = self._open_bytes.get(partition, 0)
        if filled + size > self._batch_bytes:
            self._close(partition)
            filled = 0
        self._open.setdefault(partition, []).append(record)
        self._open_bytes[partition] = filled + size

    def add_values(self, values: list[bytes], size: int, partition: int | None) -> None:
        """Add values without keys or headers. Unit: `size` of all, in bytes."""
        pieces = (size + OVERHEAD * len(values)) // self._batch_bytes + 1
        step = -(-len(values) // pieces)
        for at in range(0, len(values), step):
            piece = values if pieces == 1 else values[at : at + step]
            to = self.sticky if partition is None else partition
            filled = self._open_bytes.get(to, 0)
            more = size // pieces + OVERHEAD * len(piece)
            if filled + more > self._batch_bytes:
                self._close(to)
                filled = 0
                to = self.sticky if partition is None else partition
            self._open.setdefault(to, []).extend(piece)
            self._open_bytes[to] = self._open_bytes.get(to, 0) + more

    def close_all(self) -> None:
        """Hand over all records."""
        for partition in list(self._open):
            self._close(partition)

    def _close(self, partition: int) -> None:
        records = self._open.pop(partition, None)
        self._open_bytes.pop(partition, None)
        if partition == self.sticky and self.partitions > 1:
            self.sticky = (self.sticky + 1) % self.partitions
        if not records:
            return
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(records) & 0x7FFFFFFF
        self._send(UnacknowledgedBatch(partition, records, sequence))


def encode_batch(
    batch: UnacknowledgedBatch, now_ms: int, producer: tuple[int, int], codec: Codec, *, plain: bool
) -> bytes:
    """The bytes of a batch. Shape: `producer` is id and epoch; with `plain`, records are only values."""
    if plain:
        body, largest = encode_values(batch.records), now_ms
    else:
        body, largest = encode_records(batch.records, now_ms)
    producer_id, epoch = producer
    return write_batch(
        compress(codec, 2, body) if codec else body,
        attributes=codec,
        base_offset=0,
        last_offset_delta=batch.count - 1,
        base_timestamp=now_ms,
        max_timestamp=largest,
        records_count=batch.count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=batch.sequence if producer_id >= 0 else -1,
    )
