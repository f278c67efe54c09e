"""Rewrites stored batches with another magic, another codec or new offsets.

Down-conversion (fetches by old clients) follows AbstractRecords.downConvert and RecordsUtil;
up-conversion and reassigning offsets (produce) follow LogValidator's
convertAndAssignOffsetsNonCompressed and buildRecordsAndAssignOffsets. One budget of decompressed
bytes covers a whole call.
"""

from __future__ import annotations

from collections.abc import Iterator

from kwire.errors import CorruptRecord, TooLarge, UnsupportedCodec
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, Buffer, RecordBatch, iter_batches
from kwire.records.builder import BatchBuilder, write_batch
from kwire.records.compression import codec_of, compress
from kwire.records.layout import CODEC_MASK, HEADER_SIZE, NO_LEADER_EPOCH, NO_TIMESTAMP
from kwire.records.record import MIN_RECORD_SIZE, Record, TimestampType


def convert(
    buffer: Buffer,
    to_magic: int,
    *,
    first_offset: int = 0,
    codec: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return the batches in another magic: `up_convert` for magic 2, else `down_convert`."""
    if to_magic == 2:
        return up_convert(buffer, codec=codec, max_bytes=max_bytes)
    return down_convert(buffer, to_magic, first_offset=first_offset, max_bytes=max_bytes)


def down_convert(
    buffer: Buffer,
    to_magic: int,
    *,
    first_offset: int = 0,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    partly: bool = False,
) -> bytes:
    """Return the batches for a client that knows no magic above to_magic.

    Shape: batches that the client knows stay unchanged; control batches are dropped; headers, producers and
    transactions are lost; offsets and codecs stay. Records below first_offset in an uncompressed batch of magic 2 are
    omitted, as some librdkafka versions need. A truncated last batch is also dropped.
    Errors: UnsupportedCodec for zstd, which old clients cannot read, unless an earlier batch was converted; otherwise
    as RecordBatch.records; with `partly`, TooLarge only for the first batch.
    """
    parts: list[Buffer] = []
    budget = _Budget(max_bytes)
    for batch in iter_batches(buffer):
        header = batch.header
        if to_magic < 2 and header.is_control:
            continue
        if header.magic <= to_magic:
            parts.append(batch.view)
            continue
        try:
            codec = codec_of(header.codec, to_magic)
        except UnsupportedCodec:
            if not parts:
                raise
            break
        builder: BatchBuilder | None = None
        try:
            for record in budget.records(batch):
                if not codec and record.offset < first_offset:
                    continue
                if builder is None:
                    builder = BatchBuilder(
                        to_magic,
                        codec,
                        header.timestamp_type,
                        base_offset=record.offset,
                        log_append_time=header.max_timestamp,
                    )
                _append(builder, record.offset, record._replace(headers=()))
        except TooLarge:
            if not partly or not parts:
                raise
            break
        if builder is not None:
            parts.append(builder.build())
    return b"".join(parts)


def up_convert(
    buffer: Buffer,
    *,
    codec: int | None = None,
    base_offset: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    level: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return all records of the buffer as one batch of magic 2 with consecutive offsets.

    Shape: codec None keeps the first batch's codec; producer and transaction are the first batch's; a truncated last
    batch is omitted. Control batches cannot be rewritten.
    Errors: CorruptRecord if there are no records; otherwise as RecordBatch.records.
    """
    budget = _Budget(max_bytes)
    builder: BatchBuilder | None = None
    offset = base_offset
    for batch in iter_batches(buffer):
        header = batch.header
        if header.is_control:
            raise CorruptRecord(f"control batch at offset {header.base_offset} among data")
        if builder is None:
            builder = BatchBuilder(
                2,
                batch.codec if codec is None else codec,
                timestamp_type,
                base_offset=base_offset,
                log_append_time=log_append_time,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
                partition_leader_epoch=partition_leader_epoch,
                level=level,
            )
        for record in budget.records(batch):
            _append(builder, offset, record)
            offset += 1
    if builder is None or not builder.count:
        raise CorruptRecord("record data holds no records")
    try:
        return builder.build()
    except ValueError as error:
        raise CorruptRecord(str(error)) from error


def recompress(
    buffer: Buffer,
    codec: int,
    *,
    level: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return the batch (magic 2) with its body in another codec; the records keep their bytes.

    Shape: control batches, batches without records and batches that already have the codec are returned unchanged.
    Errors: ValueError for other magics; otherwise as RecordBatch.body.
    """
    batch = RecordBatch(buffer)
    header = batch.header
    if header.magic != 2:
        raise ValueError(f"magic {header.magic} is converted, not recompressed")
    if header.codec == codec or header.is_control or not header.records_count:
        return bytes(batch.view)
    body = batch.body(max_bytes)
    if header.records_count * MIN_RECORD_SIZE > len(body):
        raise CorruptRecord(
            f"records count {header.records_count} does not fit into {len(body)} bytes"
        )
    return write_batch(
        compress(codec, 2, body, level),
        attributes=header.attributes & ~CODEC_MASK | codec_of(codec, 2),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        records_count=header.records_count,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
    )


def _append(builder: BatchBuilder, offset: int, record: Record) -> None:
    """Append a stored record; if the builder refuses it, the stored batch is corrupt."""
    try:
        builder.append(record.timestamp, record.key, record.value, record.headers, offset=offset)
    except ValueError as error:
        raise CorruptRecord(str(error)) from error


class _Budget:
    """The number of decompressed bytes that a call may still use, for all its batches together."""

    def __init__(self, max_bytes: int) -> None:
        self.left = self.max_bytes = max_bytes

    def records(self, batch: RecordBatch) -> Iterator[Record]:
        used = 0
        for record in batch.records(self.left):
            used += len(record.key or b"") + len(record.value or b"") + MIN_RECORD_SIZE
            for key, value in record.headers:
                used += len(key) + len(value or b"") + 2
            yield record
        if not batch.header.codec:
            used = batch.header.size - HEADER_SIZE
        self.left -= used
        if self.left < 0:
            raise TooLarge(f"batches hold more than {self.max_bytes} bytes of records")
