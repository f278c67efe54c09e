"""Record batches as bytes: headers, checksums and the walk from one batch to the next.

`layout.py` gives the position of each field. Recovery rule: a truncated batch ends the walk; a damaged one raises.
Source: DefaultRecordBatch, AbstractLegacyRecordBatch, ByteBufferLogInputStream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kwire.errors import CorruptRecord, TooLarge
from kwire.records import legacy
from kwire.records.builder import BatchBuilder as BatchBuilder
from kwire.records.compression import Codec, codec_of, decompress
from kwire.records.crc import crc32, crc32c
from kwire.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_AT,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    HEADER_SIZE_TO_MAGIC,
    INT32,
    INT64,
    LEADER_EPOCH_AT,
    LEGACY_CRC_AT,
    LEGACY_HEAD,
    LEGACY_MIN_SIZE,
    LEGACY_TIMESTAMP_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORDS_AT,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kwire.records.record import (
    MAX_INT64,
    MIN_RECORD_SIZE,
    Record,
    TimestampType,
    check_count,
    read_records,
)

MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""Default limit for one batch: the default maximum size of a request (socket.request.max.bytes)."""

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The 13 fields of a batch header, in wire order.

    Shape: for magic 0 and 1 the same fields, as far as they exist: base_offset is the stored
    offset, which for a compressed message is that of its *last* record, so `last_offset` is right
    for every magic; max_timestamp is the message's; records_count is 1, or -1 (unknown) if the
    message is compressed.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive), even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Number of the compression codec, 0 (none) to 4 (zstd); 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """The origin of the timestamps; CREATE_TIME for magic 0, which has none."""
        return TimestampType(self.is_log_append_time)

    @property
    def is_log_append_time(self) -> bool:
        """True if max_timestamp is the broker's time and applies to every record."""
        return self.magic > 0 and self.attributes & TIMESTAMP_TYPE_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and self.attributes & CONTROL_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time at which this batch's tombstones may be removed, in ms since the epoch; None if not set."""
        if self.magic >= 2 and self.attributes & DELETE_HORIZON_MASK:
            return self.base_timestamp
        return None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; wraps from 2^31 - 1 to 0. -1 if there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence number that many records later; after 2^31 - 1 comes 0."""
    return (sequence + increment) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch that begins at position, without looking at its records.

    Errors: CorruptRecord if the header itself is cut short, has an unknown magic or a length too
    small for its magic. Whether the buffer holds the whole batch is not checked: compare `size`.
    """
    if len(buffer) - position >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.magic == 2:
            if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
                raise CorruptRecord(
                    f"batch length {header.batch_length} is smaller than a magic 2 header",
                    offset=position + BATCH_LENGTH_AT,
                )
            return header
    return _read_legacy_header(buffer, position)


def _read_legacy_header(buffer: Buffer, position: int) -> BatchHeader:
    remaining = len(buffer) - position
    if remaining < HEADER_SIZE_TO_MAGIC + 1:
        raise CorruptRecord(
            f"{max(remaining, 0)} bytes are too few for a batch header", offset=position
        )
    offset, length, crc, magic, attributes = LEGACY_HEAD.unpack_from(buffer, position)
    if not 0 <= magic <= 2:
        raise CorruptRecord(f"unknown magic {magic}", offset=position + MAGIC_AT)
    if magic == 2:
        raise CorruptRecord(
            f"{remaining} bytes are too few for a magic 2 batch header", offset=position
        )
    if LOG_OVERHEAD + length < LEGACY_MIN_SIZE[magic]:
        raise CorruptRecord(
            f"message size {length} is smaller than a magic {magic} message",
            offset=position + BATCH_LENGTH_AT,
        )
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if remaining < LEGACY_TIMESTAMP_AT + 8:
            raise CorruptRecord(
                f"{remaining} bytes are too few for a magic 1 header", offset=position
            )
        (timestamp,) = INT64.unpack_from(buffer, position + LEGACY_TIMESTAMP_AT)
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & 0xFF,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=-1 if attributes & CODEC_MASK else 1,
    )


def batch_size(buffer: Buffer, position: int = 0, end: int | None = None) -> int | None:
    """Return the size of the batch at position in bytes, or None if it does not end by `end`.

    Errors: CorruptRecord for a length smaller than any message or an unknown magic.
    Source: ByteBufferLogInputStream.nextBatch.
    """
    if end is None:
        end = len(buffer)
    remaining = end - position
    if remaining < LOG_OVERHEAD:
        return None
    (length,) = INT32.unpack_from(buffer, position + BATCH_LENGTH_AT)
    if length < LEGACY_MIN_SIZE[0] - LOG_OVERHEAD:
        raise CorruptRecord(
            f"batch length {length} is smaller than any message", offset=position + BATCH_LENGTH_AT
        )
    if remaining < HEADER_SIZE_TO_MAGIC:
        return None
    magic = buffer[position + MAGIC_AT]
    if magic > 2:
        raise CorruptRecord(f"unknown magic {magic}", offset=position + MAGIC_AT)
    return LOG_OVERHEAD + length if LOG_OVERHEAD + length <= remaining else None


def iter_batch_headers(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch in buffer[start:end].

    Shape: ends without an error before a batch that is cut short. Errors: as `read_header`.
    """
    position = start
    while True:
        size = batch_size(buffer, position, end)
        if size is None:
            return
        header = read_header(buffer, position)
        yield position, header
        position += size


def valid_bytes(buffer: Buffer, start: int = 0, end: int | None = None) -> int:
    """Return the size in bytes of the whole batches after start. Source: MemoryRecords.validBytes."""
    position = start
    while (size := batch_size(buffer, position, end)) is not None:
        position += size
    return position - start


def computed_crc(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """Return the CRC of the batch at position, computed according to its magic."""
    view = memoryview(buffer)
    end = position + header.size
    if header.magic == 2:
        return crc32c(view[position + ATTRIBUTES_AT : end])
    return crc32(view[position + MAGIC_AT : end])


def verify_crc(buffer: Buffer, position: int = 0, header: BatchHeader | None = None) -> None:
    """Check the stored CRC of the batch at position against its bytes.

    Errors: CorruptRecord if they differ, or if the buffer ends before the batch does.
    """
    if header is None:
        header = read_header(buffer, position)
    if position + header.size > len(buffer):
        raise CorruptRecord(
            f"batch of {header.size} bytes has only {len(buffer) - position}", offset=position
        )
    computed = computed_crc(buffer, position, header)
    if computed != header.crc:
        raise CorruptRecord(
            f"CRC is {computed:#010x}, the batch says {header.crc:#010x}",
            offset=position + (CRC_AT if header.magic == 2 else LEGACY_CRC_AT),
        )


def set_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the leader's 12 bytes into the magic 2 batch at position; its CRC stays valid.

    Shape: buffer must be writable.
    """
    INT64.pack_into(buffer, position + BASE_OFFSET_AT, base_offset)
    INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the broker's timestamp for all records of the magic 2 batch at position; updates its CRC.

    Source: DefaultRecordBatch.setMaxTimestamp.
    """
    buffer[position + ATTRIBUTES_AT + 1] |= TIMESTAMP_TYPE_MASK
    INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, timestamp_ms)
    rewrite_crc(buffer, position)


def rewrite_crc(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Recompute the CRC of the magic 2 batch at position and store it."""
    (length,) = INT32.unpack_from(buffer, position + BATCH_LENGTH_AT)
    end = position + LOG_OVERHEAD + length
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
    buffer[position + CRC_AT : position + ATTRIBUTES_AT] = crc.to_bytes(4, "big")


class RecordBatch:
    """One whole batch (magic 2) or message (magic 0, 1) in a buffer; only the header is parsed, and nothing is copied.

    Errors: CorruptRecord if the buffer ends before the batch does. The CRC is checked on demand.
    """

    __slots__ = ("header", "view")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.header = header = read_header(buffer, position)
        end = position + header.size
        if end > len(buffer):
            raise CorruptRecord(
                f"batch of {header.size} bytes has only {len(buffer) - position}", offset=position
            )
        self.view = memoryview(buffer)[position:end]

    @property
    def magic(self) -> int:
        return self.header.magic

    @property
    def codec(self) -> Codec:
        """The compression codec. Errors: UnsupportedCodec if unassigned or not in this magic."""
        return codec_of(self.header.codec, self.header.magic)

    @property
    def timestamp_type(self) -> TimestampType:
        return self.header.timestamp_type

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    def verify_crc(self) -> None:
        """Check the CRC. Errors: CorruptRecord if it is wrong."""
        verify_crc(self.view, 0, self.header)

    def body(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the encoded records of a magic 2 batch, decompressed.

        Errors: TooLarge beyond max_bytes, CorruptRecord, UnsupportedCodec.
        """
        header = self.header
        check_count(header.records_count, MAX_INT64 if header.codec else header.size - HEADER_SIZE)
        if header.records_count * MIN_RECORD_SIZE > max_bytes:
            raise TooLarge(f"{header.records_count} records cannot fit into {max_bytes} bytes")
        return decompress(header.codec, header.magic, self.view[RECORDS_AT:], max_bytes)

    def records(
        self, max_bytes: int = MAX_DECOMPRESSED_BYTES, *, body: bytes | None = None
    ) -> Iterator[Record]:
        """Return an iterator over the records; they are decoded one at a time.

        Shape: `body` is the result of an earlier call of `body()`, if there was one.
        Unit: max_bytes limits the decompressed body. Errors: TooLarge, UnsupportedCodec and CorruptRecord for a body
        that cannot be decompressed (for magic 2 already at the call); CorruptRecord for damaged records, when the
        iteration reaches them.
        """
        header = self.header
        if header.magic != 2:
            return legacy.read_legacy(self.view, 0, max_bytes)
        if header.records_count == 0:
            return iter(())
        return read_records(
            self.body(max_bytes) if body is None else body,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else None,
        )

    def sequence_of(self, offset: int) -> int:
        """Return the sequence number of the record at that offset, or -1 if it has none."""
        header = self.header
        if header.base_sequence < 0:
            return NO_SEQUENCE
        return increment_sequence(header.base_sequence, offset - header.base_offset)


def iter_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """Yield each whole batch in buffer[start:end]; shape and errors as `iter_batch_headers`."""
    position = start
    while (size := batch_size(buffer, position, end)) is not None:
        yield RecordBatch(buffer, position)
        position += size
