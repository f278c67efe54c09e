"""How a leader checks the batches that it receives, and how it rewrites them where it must.

Pure: bytes in, bytes or an error out. Always checked, from the header: magic, size, CRC, codec,
base offset 0, last_offset_delta + 1 = records_count > 0, no control batch from a client, a sequence
beside a producer id, timestamps within bounds. Each record is read where something needs it: a
compacted topic (keys), magic 0 and 1, another `compression.type`, or `validation=deep`. Where the
native module runs, a batch that is as its header states costs little to read (`reads_as_stated`).
Source: UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple, final

from kwire import native
from kwire.errors import (
    CorruptRecord,
    ErrorCode,
    RecordError,
    TooLarge,
    UnsupportedCodec,
)
from kwire.records.batch import (
    MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    RecordBatch,
    batch_size,
    read_header,
    verify_crc,
)
from kwire.records.compression import Codec, decompress
from kwire.records.layout import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    RECORDS_AT,
)
from kwire.records.record import MIN_RECORD_SIZE, TimestampType
from kwire.records.validation import MAX_ISSUES, RecordIssue, validate_records

from .log_config import LogConfig

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

#: Reading and rewriting fewer bytes of decompressed records than this in the loop stalls it less
#: than sending them to a worker process.
INLINE_REWRITE_BYTES = 64 * 1024
INLINE_REWRITE_RECORDS = 2000
#: The same for bytes that are decompressed and read natively, and for those that are only read.
INLINE_READ_BYTES = 1 << 20
INLINE_WALK_BYTES = 8 << 20
#: The most gzip data that are decompressed in the loop, as they may be blocks that hold nothing and take a
#: microsecond for each 12 bytes.
INLINE_GZIP_BYTES = 256 * 1024

_COUNT = Struct(">57xi").unpack_from
_UNPACK_HEADER = HEADER.unpack_from

#: Attribute bits that a plain batch of a client does not have: all but codec and transactional.
UNUSUAL_ATTRIBUTES = ~0x17

CODEC_BY_NAME = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class AppendOrigin(Enum):
    """The origin of an append; batches of clients are checked most strictly."""

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()


@final
class AppendError(NamedTuple):
    """The reason why nothing was appended; record_errors as (index in the batch, message).

    Shape: `before_append` says that the log was not consulted, so the answer has no offsets. A producer gets the
    message only then, or together with record errors; otherwise it is for the broker's log.
    """

    error: ErrorCode
    message: str | None = None
    record_errors: list[tuple[int, str]] = []  # noqa: RUF012 - a NamedTuple default, never changed
    before_append: bool = False


class AppendInfo(NamedTuple):
    """The result of an append.

    Shape: first_offset and last_offset inclusive. log_append_time_ms is -1 with CreateTime, except
    for a duplicate: then it is the original batch's timestamp, as Apache Kafka answers.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    max_timestamp: int
    size: int
    duplicate: bool = False


#: `AppendInfo` of a tuple of all its fields, without a call in Python, because every append makes one.
append_info = partial(tuple.__new__, AppendInfo)


class BatchRefused(Exception):
    """Carries an AppendError out of nested checks; never leaves this package."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.reason = AppendError(error, message)


#: Nothing was appended, nor decided: reading the records takes more than the caller allowed. Not an
#: answer for clients; compare with `is`.
TOO_MUCH_HERE = AppendError(ErrorCode.MESSAGE_TOO_LARGE, "The records are more than is read here.")

Batches = list[tuple[int, BatchHeader]]


WRONG_TYPE = (
    "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
)


def target_codec(config: LogConfig) -> Codec | None:
    """The codec that `compression.type` demands; None where the producer chooses."""
    return CODEC_BY_NAME.get(config.compression_type)


def compression_level(codec: Codec, config: LogConfig) -> int | None:
    """The configured level for a codec, None for the codec's own default."""
    if codec is Codec.GZIP:
        level = config.compression_gzip_level
        return None if level < 0 else level
    if codec is Codec.LZ4:
        return config.compression_lz4_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    return None


def analyze(records: memoryview, config: LogConfig, origin: AppendOrigin) -> Batches:
    """Split records into batches, and run the checks that apply to every batch.

    Errors: BatchRefused with CORRUPT_MESSAGE (CRC, bytes left over), MESSAGE_TOO_LARGE, INVALID_RECORD (a base offset other
    than 0 from a client).
    """
    batches: Batches = []
    position = 0
    try:
        while position < len(records):
            size = batch_size(records, position)
            if size is None:
                raise BatchRefused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{len(records) - position} bytes at {position} are not a whole batch",
                )
            header = read_header(records, position)
            if header.magic == 2 and header.base_offset != 0 and origin is AppendOrigin.CLIENT:
                raise BatchRefused(
                    ErrorCode.INVALID_RECORD,
                    f"The baseOffset of the record batch should be 0, but it is "
                    f"{header.base_offset}",
                )
            if size > config.max_message_bytes:
                raise BatchRefused(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"The record batch size is {size} bytes which exceeds the maximum configured "
                    f"value of {config.max_message_bytes}",
                )
            verify_crc(records, position, header)
            batches.append((position, header))
            position += size
    except CorruptRecord as e:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
    if not batches:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, "there is no batch in the records")
    return batches


def check_header(
    records: memoryview,
    now_ms: int,
    before_ms: int,
    after_ms: int,
    max_bytes: int,
    reads: bool,
    needs_keys: bool,
) -> tuple[int, int, int, int, int, int, int, int, bool] | None:
    """Check the header of a client's batch, but for its CRC and whether the topic takes its codec.

    Shape: (crc, attributes, last offset delta, base timestamp, largest timestamp, producer id, producer epoch, sequence,
    False); None if it is not plain. The native form, `check_batch` of server/native/batches.pxi, also reads the records of batches
    that are not compressed, if it `reads`, as `reads_as_stated` does, and the last element says that it did.
    """
    try:
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = _UNPACK_HEADER(records)
    except StructError:
        return None
    size = len(records)
    if (
        length + LOG_OVERHEAD != size
        or magic != 2
        or attributes & UNUSUAL_ATTRIBUTES
        or base_offset
        or count != delta + 1
        or count <= 0
        or size > max_bytes
        or not now_ms - before_ms <= base_timestamp <= max_timestamp
        or max_timestamp > now_ms + after_ms
    ):
        return None
    return (
        crc,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        False,
    )


def check_number(batches: Batches) -> None:
    """Refuse several batches where a leader takes only one: with magic 2, or if any is compressed.

    Errors: BatchRefused with INVALID_RECORD. Source: LogValidator.getFirstBatchAndMaybeValidateNoMoreBatches.
    """
    if len(batches) > 1 and (
        batches[0][1].magic == 2 or any(header.codec for _, header in batches)
    ):
        raise BatchRefused(
            ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch"
        )


def check_batch(header: BatchHeader, first_magic: int, origin: AppendOrigin) -> None:
    """Check the header of a batch.

    Errors: BatchRefused with INVALID_RECORD, or UNSUPPORTED_COMPRESSION_TYPE for an unassigned codec.
    """
    if header.magic != first_magic:
        raise BatchRefused(
            ErrorCode.INVALID_RECORD,
            f"Batch magic {header.magic} is not the same as the first batch's magic {first_magic}",
        )
    if header.codec > Codec.ZSTD or (header.magic < 2 and header.codec == Codec.ZSTD):
        raise BatchRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Compression codec {header.codec} is not known for magic {header.magic}",
        )
    if header.magic < 2:
        return
    count = header.records_count
    problem = None
    if origin is AppendOrigin.CLIENT:
        if header.last_offset_delta < 0:
            problem = f"Batch has an invalid offset range: [0, {header.last_offset_delta}]"
        elif count <= 0:
            problem = f"Invalid reported count for record batch: {count}"
        elif count != header.last_offset_delta + 1:
            problem = (
                f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of "
                f"records {count}"
            )
        elif header.is_control:
            problem = "Clients are not allowed to write control records"
        elif header.has_producer_id and header.base_sequence < 0:
            problem = (
                f"Invalid sequence number {header.base_sequence} in record batch with producerId "
                f"{header.producer_id}"
            )
    elif count <= 0 or count != header.last_offset_delta + 1:
        problem = f"Invalid reported count for record batch: {count}"
    if problem is not None:
        raise BatchRefused(ErrorCode.INVALID_RECORD, problem)


def timestamp_bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Earliest and latest timestamp that a record may have now, inclusive."""
    return (
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
    )


def timestamp_problem(timestamp: int, offset: int, config: LogConfig, now_ms: int) -> str | None:
    """The sentence for a record whose timestamp is out of bounds; None if it is within."""
    earliest, latest = timestamp_bounds(config, now_ms)
    if timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest:
        return None
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp "
        f"should be within [{earliest}, {latest}]"
    )


def check_timestamps(
    records: memoryview,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> AppendError | None:
    """Check a magic 2 batch's first and largest timestamp, and its timestamp type.

    Errors: INVALID_TIMESTAMP, with the records that are out of bounds; TOO_MUCH_HERE.
    """
    stamped, latest = header.is_log_append_time, header.max_timestamp
    if stamped and (config.log_append_time or latest == NO_TIMESTAMP):
        try:
            count = validate_records(
                RecordBatch(records[position : position + header.size]), max_bytes=max_bytes
            ).count
        except RecordError as error:
            if is_too_much_here(error, max_bytes):
                return TOO_MUCH_HERE
            count = 0
        told = range(min(count, MAX_ISSUES))
        return invalid_timestamps([(index, WRONG_TYPE) for index in told])
    if config.log_append_time:
        return None
    for timestamp in (latest,) if stamped else (header.base_timestamp, latest):
        problem = timestamp_problem(timestamp, 0, config, now_ms)
        if problem is not None:
            try:
                view = records[position : position + header.size]
                issues, _ = _read_records(view, header, config, now_ms, max_bytes)
            except (RecordError, BatchRefused) as error:
                if is_too_much_here(error, max_bytes):
                    return TOO_MUCH_HERE
                issues = []
            return invalid_timestamps([(i.batch_index, i.message) for i in issues])
    return None


def is_too_much_here(error: Exception, max_bytes: int) -> bool:
    """Whether the error only means that the caller's limit is below the general one."""
    return isinstance(error, TooLarge) and max_bytes < MAX_DECOMPRESSED_BYTES


def invalid_timestamps(errors: list[tuple[int, str]]) -> AppendError:
    """The answer to records with timestamps out of bounds."""
    return AppendError(
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        errors,
    )


def is_much_work(records: RecordsBytes) -> bool:
    """Whether the header alone says that reading the records in Python would stall the loop for long."""
    size = len(records)
    return size > INLINE_REWRITE_BYTES or (
        size >= HEADER_SIZE
        and records[MAGIC_AT] == 2
        and _COUNT(records)[0] > INLINE_REWRITE_RECORDS
    )


def bytes_in_python(records: RecordsBytes, max_bytes: int) -> int:
    """How many bytes of a batch may be decompressed to be read in Python, where max_bytes may be decompressed natively."""
    if max_bytes >= MAX_DECOMPRESSED_BYTES:
        return max_bytes
    return 0 if is_much_work(records) else min(max_bytes, INLINE_REWRITE_BYTES)


def reads_as_stated(
    records: memoryview,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    config: LogConfig,
    now_ms: int,
    max_bytes: int,
) -> bool:
    """Read a magic 2 batch natively: whether its records are as its header states, and all are valid.

    Shape: the caller has checked the header; `attributes` has no bits except codec and transaction. At most max_bytes
    are decompressed. If true, `prepare` would return the same records; if false, `prepare` has to find the error, or
    the batch is unusual or too large.
    """
    body: memoryview | bytes = records[RECORDS_AT:]
    if attributes & CODEC_MASK:
        if count * MIN_RECORD_SIZE > max_bytes:
            return False
        if attributes & CODEC_MASK == Codec.GZIP and len(body) > INLINE_GZIP_BYTES:
            return False
        try:
            body = decompress(attributes & CODEC_MASK, 2, body, max_bytes)
        except RecordError:
            return False
    walk = native.walk_records
    if walk is None or len(body) > INLINE_WALK_BYTES:
        return False
    found = walk(body, count)
    if found is None:
        return False
    earliest, latest, _, consecutive, keyless = found
    if not consecutive or (keyless and config.is_compacted):
        return False
    if config.log_append_time:
        return True
    least, most = timestamp_bounds(config, now_ms)
    right = max(base_timestamp + latest, NO_TIMESTAMP) == max_timestamp
    return right and least <= base_timestamp + earliest and max_timestamp <= most


def needs_rewrite(records: memoryview, config: LogConfig, *, natively: bool = False) -> bool:
    """Whether the records must be read one by one before they can be appended.

    True for a compacted topic and deep validation, unless records are read `natively`; for magic 0 and 1, and for a
    codec other than the topic's. False also where the batch is broken: appending says how.
    """
    if not natively and (config.is_compacted or config.validation == "deep"):
        return True
    target = target_codec(config)
    position = 0
    try:
        while (size := batch_size(records, position)) is not None:
            header = read_header(records, position)
            if header.magic < 2 or (target is not None and header.codec != target):
                return True
            position += size
    except CorruptRecord:
        pass
    return False


def prepare(
    records: memoryview,
    config: LogConfig,
    name: str,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> memoryview | bytes | AppendError:
    """Prepare a batch as `needs_rewrite` requires; CPU work, fit for a worker process.

    Shape: returns the same records if they only had to be read, else one new magic 2 batch with base offset 0; `name`
    is the partition's, for messages; at most max_bytes are decompressed.
    Errors: as Apache Kafka's validator; TOO_MUCH_HERE.
    """
    if len(records) > max_bytes:
        return TOO_MUCH_HERE
    try:
        batches = analyze(records, config, origin)
        check_number(batches)
        for _, header in batches:
            check_batch(header, batches[0][1].magic, origin)
        return _prepare(records, batches, config, name, now_ms, max_bytes)
    except BatchRefused as e:
        return e.reason
    except TooLarge as e:
        if is_too_much_here(e, max_bytes):
            return TOO_MUCH_HERE
        return AppendError(ErrorCode.MESSAGE_TOO_LARGE, str(e))
    except UnsupportedCodec as e:
        return AppendError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(e))
    except CorruptRecord as e:
        error = ErrorCode.CORRUPT_MESSAGE if batches[0][1].magic < 2 else ErrorCode.INVALID_RECORD
        return AppendError(error, str(e))


def _prepare(
    records: memoryview,
    batches: Batches,
    config: LogConfig,
    name: str,
    now_ms: int,
    max_bytes: int,
) -> memoryview | bytes | AppendError:
    first = batches[0][1]
    if first.is_control:  # not recompressed, and has no user keys
        return records
    dense = True
    if first.magic < 2 or config.is_compacted or config.validation == "deep":
        for position, header in batches:
            view = records[position : position + header.size]
            issues, as_stated = _read_records(view, header, config, now_ms, max_bytes)
            if (
                issues
            ):  # Kafka refuses the first batch that is wrong; each message of magic 0 and 1 is one
                return _refuse(issues, name)
            dense = dense and as_stated
    else:  # the header stands for the records' timestamps
        problem = check_timestamps(records, 0, first, config, now_ms, max_bytes)
        if problem is not None:
            return problem
    codec = target_codec(config)
    if codec is None:
        codec = Codec(first.attributes & CODEC_MASK)
    if not dense or codec != first.codec:
        _check_producer_fields(first)
    # All records that were stamped LogAppendTime get the largest timestamp when they are rewritten.
    stamped = first.is_log_append_time and codec != first.codec
    if first.magic < 2 or not dense or stamped:
        from kwire.records.convert import up_convert

        return up_convert(
            records,
            codec=codec,
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if config.log_append_time
                else TimestampType.CREATE_TIME
            ),
            log_append_time=now_ms if config.log_append_time else NO_TIMESTAMP,
            level=compression_level(codec, config),
            max_bytes=max_bytes,
        )
    if codec != first.codec:
        from kwire.records.convert import recompress

        return recompress(
            records, codec, level=compression_level(codec, config), max_bytes=max_bytes
        )
    return records


def _check_producer_fields(header: BatchHeader) -> None:
    """Refuse to rewrite a batch that no producer could have written; Apache Kafka fails on it."""
    if header.has_producer_id:
        if header.producer_epoch < 0:
            raise BatchRefused(
                ErrorCode.INVALID_RECORD, f"Invalid producer epoch {header.producer_epoch}"
            )
    elif header.is_transactional:
        raise BatchRefused(ErrorCode.INVALID_RECORD, "A transactional batch without a producer id")


def _read_records(
    view: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, max_bytes: int
) -> tuple[list[RecordIssue], bool]:
    # (the error is in records, while offsets and largest timestamp are as the header states).
    bounds: tuple[int | None, int | None] = (None, None)
    if not config.log_append_time:
        bounds = timestamp_bounds(config, now_ms)
    summary = validate_records(
        RecordBatch(view),
        compacted=config.is_compacted,
        min_timestamp=bounds[0],
        max_timestamp=bounds[1],
        max_bytes=max_bytes,
    )
    issues = summary.issues
    # A CreateTime topic's type counts: a batch stamped otherwise has one timestamp, and is refused
    # only where that is out of bounds.
    stamped = header.is_log_append_time and not config.log_append_time
    latest = header.max_timestamp
    if stamped and latest != NO_TIMESTAMP and timestamp_problem(latest, 0, config, now_ms) is None:
        issues = [i for i in issues if i.error is not ErrorCode.INVALID_TIMESTAMP]
    if header.magic == 2 and summary.count == 0:
        raise BatchRefused(ErrorCode.INVALID_RECORD, "the batch holds no records")
    right = config.log_append_time or summary.max_timestamp == header.max_timestamp
    return issues, summary.consecutive and right


def _refuse(issues: list[RecordIssue], name: str) -> AppendError:
    where = f" in topic partition {name}"
    errors = [
        (i.batch_index, i.message + (where if i.error is ErrorCode.INVALID_RECORD else ""))
        for i in issues
    ]
    if any(issue.error is ErrorCode.INVALID_TIMESTAMP for issue in issues):
        return invalid_timestamps(errors)
    first = ", ".join(
        f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:3]
    )
    return AppendError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, and "
        f"only showing the first three errors at most: [{first}]",
        errors,
    )
