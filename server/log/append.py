"""Checks batches before they are written, and stamps offsets and epochs into their bytes. Pure.

Used by leaders for batches that the fast path of `Log.append_as_leader` does not cover, and by followers.
Source: UnifiedLog.append, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import CorruptRecord, ErrorCode
from kwire.records.batch import (
    MAX_DECOMPRESSED_BYTES,
    batch_size,
    read_header,
    rewrite_crc,
    set_log_append_time,
    set_offset_and_epoch,
    verify_crc,
)
from kwire.records.layout import (
    ATTRIBUTES_AT,
    INT64,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)

from .log_config import LogConfig
from .validator import (
    AppendError,
    AppendOrigin,
    Batches,
    BatchRefused,
    analyze,
    check_batch,
    check_number,
    check_timestamps,
    needs_rewrite,
    prepare,
)

if TYPE_CHECKING:
    from ..metadata.topic_partition import TopicPartition


class Written(NamedTuple):
    """Batches ready to be written: the bytes, the position of each batch, and totals over all of them."""

    records: memoryview
    batches: Batches
    max_timestamp: int
    last_offset: int


def check_as_leader(
    records: memoryview,
    config: LogConfig,
    tp: TopicPartition,
    now_ms: int,
    origin: AppendOrigin,
    prepared: bool,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> tuple[memoryview, Batches] | AppendError:
    """Check batches in full, and rewrite them first where the topic requires it.

    Shape: the bytes to be stamped, and the batches in them; no more than max_bytes are decompressed. Errors: as
    value; those of `Log.append_as_leader` except the producer errors.
    """
    if not prepared and origin is AppendOrigin.CLIENT and needs_rewrite(records, config):
        rewritten = prepare(records, config, str(tp), now_ms, origin, max_bytes)
        if isinstance(rewritten, AppendError):
            return rewritten
        records = memoryview(rewritten)
        prepared = True
    try:
        batches = analyze(records, config, origin)
        if origin is AppendOrigin.CLIENT:
            check_number(batches)
        for _, header in batches:
            check_batch(header, 2, origin)
    except BatchRefused as e:
        return e.reason
    if not prepared:
        for position, header in batches:
            problem = None
            if not header.is_control:
                problem = check_timestamps(records, position, header, config, now_ms, max_bytes)
            if problem is not None:
                return problem
    if len(records) > config.segment_bytes:
        return AppendError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {len(records)} bytes in append to partition {tp}, which "
            f"exceeds the maximum configured segment size of {config.segment_bytes}",
        )
    return records, batches


def stamp(
    records: memoryview,
    batches: Batches,
    offset: int,
    leader_epoch: int,
    log_append_time: bool,
    now_ms: int,
) -> Written:
    """Give batches their offsets from `offset` on, their leader epoch and their timestamp type.

    Shape: in place if the buffer is writable, else in a copy.
    """
    if records.readonly:
        records = memoryview(bytearray(records))
    max_timestamp = NO_TIMESTAMP
    stamped: Batches = []
    for position, header in batches:
        if log_append_time:  # markers too
            set_log_append_time(records, position, now_ms)
        elif header.is_log_append_time and not header.is_control:
            _set_create_time(records, position, header.max_timestamp)
        set_offset_and_epoch(records, position, offset, leader_epoch)
        header = read_header(records, position)
        stamped.append((position, header))
        max_timestamp = max(max_timestamp, header.max_timestamp)
        offset += header.last_offset_delta + 1
    return Written(records, stamped, max_timestamp, offset - 1)


def _set_create_time(records: memoryview, position: int, max_timestamp: int) -> None:
    # A client that sets the attribute on a CreateTime topic: the topic's type counts.
    records[position + ATTRIBUTES_AT + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
    INT64.pack_into(records, position + MAX_TIMESTAMP_AT, max_timestamp)
    rewrite_crc(records, position)


def check_as_follower(
    records: memoryview, end_offset: int, tp: TopicPartition
) -> Written | AppendError:
    """Check batches that carry their offsets, for a log that ends at end_offset.

    Shape: an incomplete last batch is left out; there may be no batch left. Errors: as value; CORRUPT_MESSAGE;
    OFFSET_OUT_OF_RANGE for a batch below the end.
    """
    batches: Batches = []
    position = 0
    expected = end_offset
    max_timestamp = NO_TIMESTAMP
    try:
        while (size := batch_size(records, position)) is not None:
            header = read_header(records, position)
            verify_crc(records, position, header)
            # A wrapper of magic 0 or 1 carries its LAST offset, so only that can be compared.
            if (header.base_offset if header.magic == 2 else header.last_offset) < expected:
                return AppendError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append to {tp}: {header.base_offset} is less than "
                    f"the next offset {expected}",
                )
            batches.append((position, header))
            expected = header.last_offset + 1
            max_timestamp = max(max_timestamp, header.max_timestamp)
            position += size
    except CorruptRecord as e:
        return AppendError(ErrorCode.CORRUPT_MESSAGE, str(e))
    # A leader may have cut the last batch at the fetch size.
    return Written(records[:position], batches, max_timestamp, expected - 1)
