"""Checks each record in a produced batch, for brokers that do not rely on the header alone.

Covers what Apache Kafka's LogValidator requires of records: structure, count, keys for compacted
topics, timestamps, and the inner checksums of old wrappers. The caller checks the header (CRC, offset
range, its agreement with the count, control, sequence). Source: LogValidator.validateRecord,
DefaultRecord.readPartiallyFrom.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kwire import native
from kwire.errors import CorruptRecord, ErrorCode
from kwire.records import legacy
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, RecordBatch
from kwire.records.layout import CODEC_MASK, NO_TIMESTAMP
from kwire.records.record import (
    MAX_INT64,
    MIN_INT64,
    check_headers,
    read_records,
    record_heads,
)

MAX_ISSUES = 1_000
"""The maximum number of records of a batch that are reported with the same error; a batch may hold millions."""


@dataclass(frozen=True, slots=True)
class RecordIssue:
    """The reason to refuse one record; batch_index counts from 0."""

    batch_index: int
    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """A summary of a batch's records.

    Shape: max_timestamp and index_of_max_timestamp are -1 if there are no records or timestamps.
    consecutive is false if the offsets are not 0, 1, 2, ... (from the batch's base offset): Apache
    Kafka then rewrites compressed batches with correct ones, see `convert.up_convert`.
    """

    count: int
    max_timestamp: int
    index_of_max_timestamp: int
    consecutive: bool
    issues: list[RecordIssue]

    @property
    def error(self) -> ErrorCode:
        """The one code for the batch: INVALID_TIMESTAMP if any record has it, else INVALID_RECORD."""
        if not self.issues:
            return ErrorCode.NONE
        if any(issue.error == ErrorCode.INVALID_TIMESTAMP for issue in self.issues):
            return ErrorCode.INVALID_TIMESTAMP
        return ErrorCode.INVALID_RECORD


def validate_records(
    batch: RecordBatch,
    *,
    compacted: bool = False,
    min_timestamp: int | None = None,
    max_timestamp: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordsSummary:
    """Walk all records of a batch and report each one that a broker has to refuse, see MAX_ISSUES.

    Unit: timestamps in ms, bounds inclusive and not applied to -1; pass None for topics with
    LogAppendTime. Errors: CorruptRecord if the body's structure is broken, so that no single record
    can be named, or if an inner message fails its CRC; TooLarge, UnsupportedCodec.
    """
    bounds = (
        MIN_INT64 if min_timestamp is None else max(min_timestamp, MIN_INT64),
        MAX_INT64 if max_timestamp is None else min(max_timestamp, MAX_INT64),
    )
    header = batch.header
    if header.magic < 2:
        return _judge(batch, _walk_legacy(batch, max_bytes), compacted, bounds)
    body = batch.body(max_bytes)
    if not header.is_log_append_time:
        summary, earliest, keyless = _scanned(body, header.records_count, header.base_timestamp)
        if (
            bounds[0] <= earliest
            and summary.max_timestamp <= bounds[1]
            and not (compacted and keyless)
        ):
            return summary
    # At least one record has to be refused; examine each record to find out which.
    return _judge(batch, _walk_body(batch, body), compacted, bounds)


def _scanned(data: bytes, count: int, base_timestamp: int) -> tuple[RecordsSummary, int, bool]:
    """Check the structure of all records; return (summary, earliest timestamp, any null key)."""
    walk = native.walk_records
    found = None if walk is None else walk(data, count)
    earliest, latest, index_of_latest, consecutive, keyless = found or _scan(data, count)
    latest += base_timestamp
    if index_of_latest < 0 or latest <= NO_TIMESTAMP:
        latest = index_of_latest = -1
    summary = RecordsSummary(count, latest, index_of_latest, consecutive, [])
    return summary, earliest + base_timestamp, keyless


def _scan(data: bytes, count: int) -> tuple[int, int, int, bool, bool]:
    """Check the structure of all records; nothing is copied from the body, except headers.

    Shape: (earliest timestamp delta, latest, its index, whether offset deltas are 0, 1, 2, ..., whether any key is null).
    """
    consecutive = True
    keyless = False
    earliest = latest = 0
    index_of_latest = -1
    for index, head in enumerate(record_heads(data, count)):
        start, end, delta, offset_delta, _, key_size, value_at, value_size = head
        if delta > latest or index_of_latest < 0:
            latest = delta
            index_of_latest = index
            if not index:
                earliest = delta
        elif delta < earliest:
            earliest = delta
        if offset_delta != index:
            consecutive = False
        if key_size < 0:
            keyless = True
        headers_at = value_at + value_size if value_size > 0 else value_at
        if data[headers_at] or headers_at + 1 != end:
            check_headers(data, headers_at, start, end)
    return earliest, latest, index_of_latest, consecutive, keyless


def _judge(
    batch: RecordBatch,
    records: Iterator[tuple[int, int, bool]],
    compacted: bool,
    bounds: tuple[int, int],
) -> RecordsSummary:
    """Return an issue for each record that has to be refused; `records` as `_walk_body` yields them."""
    issues: list[RecordIssue] = []
    reported: dict[ErrorCode, int] = {}
    latest = NO_TIMESTAMP
    index_of_latest = -1
    consecutive = True
    index = -1
    base = 0 if batch.magic < 2 else batch.header.base_offset
    append_time = batch.header.is_log_append_time
    for index, (delta, timestamp, has_key) in enumerate(records):
        if delta != index:
            consecutive = False
        if compacted and not has_key:
            error = ErrorCode.INVALID_RECORD
            message = "Compacted topic cannot accept message without key"
        elif timestamp != NO_TIMESTAMP and not bounds[0] <= timestamp <= bounds[1]:
            error = ErrorCode.INVALID_TIMESTAMP
            message = (
                f"Timestamp {timestamp} of message with offset {base + delta} is out of range."
                f" The timestamp should be within [{bounds[0]}, {bounds[1]}]"
            )
        elif append_time:
            error = ErrorCode.INVALID_TIMESTAMP
            message = (
                "Invalid timestamp type in message. Producer should not set timestamp type"
                " to LogAppendTime."
            )
        else:
            error = ErrorCode.NONE
            message = ""
        if error and (before := reported.get(error, 0)) < MAX_ISSUES:
            reported[error] = before + 1
            issues.append(RecordIssue(index, error, message))
        if timestamp > latest:
            latest = timestamp
            index_of_latest = index
    return RecordsSummary(index + 1, latest, index_of_latest, consecutive, issues)


def _walk_legacy(batch: RecordBatch, max_bytes: int) -> Iterator[tuple[int, int, bool]]:
    wrapper = legacy.read_message(batch.view, 0)
    if not wrapper.attributes & CODEC_MASK:
        yield 0, wrapper.timestamp, wrapper.key is not None
        return
    append_time = batch.header.is_log_append_time
    messages = legacy.inner_messages(wrapper, max_bytes, check_crc=True)
    for index, message in enumerate(messages):
        if message.magic != wrapper.magic:
            raise CorruptRecord(
                f"inner message {index} has magic {message.magic}, its wrapper {wrapper.magic}"
            )
        if not message.crc_ok:
            raise CorruptRecord(f"inner message {index} fails its CRC check")
        yield (
            message.offset,
            wrapper.timestamp if append_time else message.timestamp,
            message.key is not None,
        )


def _walk_body(batch: RecordBatch, body: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (offset delta, timestamp, has key) of each record."""
    header = batch.header
    append_time = header.max_timestamp if header.is_log_append_time else None
    for record in read_records(body, header.records_count, 0, header.base_timestamp, append_time):
        yield record.offset, record.timestamp, record.key is not None
