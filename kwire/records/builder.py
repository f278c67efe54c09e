"""Writes record batches: one batch of magic 2, or messages of magic 0 or 1."""

from __future__ import annotations

from collections.abc import Sequence

from kwire.records.compression import Codec, codec_of, compress
from kwire.records.crc import crc32c
from kwire.records.layout import (
    HEADER_FROM_ATTRIBUTES,
    HEADER_SIZE,
    HEADER_TO_CRC,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
)
from kwire.records.legacy import write_message
from kwire.records.record import Header, Record, TimestampType, write_record

_MAX_INT32 = 0x7FFFFFFF


def write_batch(
    body: bytes | bytearray | memoryview,
    *,
    attributes: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    records_count: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return a magic 2 batch of records that are already encoded, and compressed according to the attributes."""
    middle = HEADER_FROM_ATTRIBUTES.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    head = HEADER_TO_CRC.pack(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        partition_leader_epoch,
        2,
        crc32c(body, crc32c(middle)),
    )
    return b"".join((head, middle, body))


class BatchBuilder:
    """Collects records and builds a batch from them. Source: MemoryRecordsBuilder.

    Shape: magic 2 produces one batch; magic 0 and 1 produce one message per record, or one wrapper if compressed. With
    LOG_APPEND_TIME, log_append_time is the timestamp of all records. delete_horizon_ms, if set, is stored in place of
    the base timestamp.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_body",
        "_codec",
        "_count",
        "_is_control",
        "_last_offset",
        "_level",
        "_log_append_time",
        "_magic",
        "_max_timestamp",
        "_partition_leader_epoch",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(
        self,
        magic: int = 2,
        codec: int = Codec.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        *,
        base_offset: int = 0,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = -1,
        delete_horizon_ms: int | None = None,
        level: int | None = None,
    ) -> None:
        if not 0 <= magic <= 2:
            raise ValueError(f"magic {magic} is unknown")
        if magic < 2 and (
            is_transactional or is_control or producer_id >= 0 or delete_horizon_ms is not None
        ):
            raise ValueError(f"magic {magic} has no producers, transactions or control batches")
        self._magic = magic
        self._codec = codec_of(codec, magic)
        self._level = level
        self._attributes = (
            codec
            | (timestamp_type << 3 if magic else 0)
            | is_transactional << 4
            | is_control << 5
            | (delete_horizon_ms is not None) << 6
        )
        self._is_control = is_control
        self._log_append_time = (
            log_append_time if timestamp_type == TimestampType.LOG_APPEND_TIME and magic else None
        )
        self._base_offset = base_offset
        self._last_offset = base_offset - 1
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._partition_leader_epoch = partition_leader_epoch
        self._count = 0
        self._body = bytearray()

    @property
    def count(self) -> int:
        """Number of records appended so far."""
        return self._count

    @property
    def size(self) -> int:
        """Size in bytes of the batch if it were built now, uncompressed."""
        return len(self._body) + (HEADER_SIZE if self._magic == 2 else 0)

    @property
    def next_offset(self) -> int:
        """The offset of the next record unless another is given."""
        return self._last_offset + 1

    @property
    def max_timestamp(self) -> int:
        """Latest timestamp so far in ms, or -1."""
        return self._max_timestamp

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Add a record, at the next offset or a higher one. Errors: ValueError for a lower one."""
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise ValueError(f"offset {offset} does not follow {self._last_offset}")
        delta = offset - self._base_offset
        if delta > _MAX_INT32:
            raise ValueError(f"offset {offset} is too far from base offset {self._base_offset}")
        if self._magic == 2:
            base_timestamp = self._base_timestamp
            if base_timestamp is None:
                self._base_timestamp = base_timestamp = timestamp
            self._body += write_record(delta, timestamp - base_timestamp, key, value, headers)
        else:
            if headers:
                raise ValueError(f"magic {self._magic} has no record headers")
            if self._log_append_time is not None:
                timestamp = self._log_append_time
            self._body += write_message(
                self._magic,
                delta if self._magic and self._codec else offset,
                self._attributes & 0x08,
                timestamp,
                key,
                value,
            )
        self._last_offset = offset
        self._count += 1
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def append_record(self, record: Record) -> None:
        """Add an existing record, at its own offset."""
        self.append(
            record.timestamp, record.key, record.value, record.headers, offset=record.offset
        )

    def build(self, *, last_offset: int | None = None, max_timestamp: int | None = None) -> bytes:
        """Return the finished batch; b"" for magic 0 and 1 if no record was added.

        Shape: a magic 2 batch without records is a bare header. last_offset and max_timestamp override the values of
        the records, as compaction requires.
        Errors: ValueError for a producer id without epoch or sequence.
        """
        self._check_producer()
        if max_timestamp is None:
            max_timestamp = (
                self._max_timestamp if self._log_append_time is None else self._log_append_time
            )
        if last_offset is None:
            last_offset = self._last_offset
        if self._magic == 2:
            body: bytes | bytearray = self._body
            if self._codec and self._count:
                body = compress(self._codec, 2, body, self._level)
            attributes = self._attributes
            if not self._count:
                attributes &= ~7
            return write_batch(
                body,
                attributes=attributes,
                base_offset=self._base_offset,
                last_offset_delta=last_offset - self._base_offset,
                base_timestamp=NO_TIMESTAMP
                if self._base_timestamp is None
                else self._base_timestamp,
                max_timestamp=max_timestamp,
                records_count=self._count,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._base_sequence,
                partition_leader_epoch=self._partition_leader_epoch,
            )
        if not self._codec or not self._count:
            return bytes(self._body)
        value = compress(self._codec, self._magic, self._body, self._level)
        return write_message(self._magic, last_offset, self._attributes, max_timestamp, None, value)

    def _check_producer(self) -> None:
        if self._producer_id < 0:
            if self._attributes & 0x10:
                raise ValueError("a transactional batch needs a producer id")
            return
        if self._producer_epoch < 0:
            raise ValueError("a producer id needs an epoch")
        if self._base_sequence < 0 and not self._is_control:
            raise ValueError("a producer id needs a sequence number")
