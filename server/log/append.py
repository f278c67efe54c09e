"""The careful way into the log: every append that the fast path of `Log.append_as_leader` leaves.

Several batches, old magics, LogAppendTime, coordinators' batches and control records, anything that
is refused; and followers, whose offsets and epochs come with the batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from kwire.errors import CorruptRecord, ErrorCode
from kwire.records.batch import (
    BatchHeader,
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

from .producer_state import ProducerStateEntry, ProducerStateManager, Refused
from .producer_updates import marker_of, note_batch
from .validator import (
    AppendError,
    AppendOrigin,
    Batches,
    Refusal,
    analyze,
    check_batch,
    check_timestamps,
    needs_rewrite,
    prepare,
)

if TYPE_CHECKING:
    from .log import Log


@final
class AppendInfo(NamedTuple):
    """What became of an append.

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


def append_carefully(
    log: Log,
    records: memoryview,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    prepared: bool,
) -> AppendInfo | AppendError:
    """`Log.append_as_leader` without any assumption about the records."""
    if log.offline:
        return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
    if not records:  # an old client's message set may be empty
        return AppendInfo(-1, -1, NO_TIMESTAMP, log.log_start_offset, NO_TIMESTAMP, 0)
    config = log.config
    if not prepared and origin is AppendOrigin.CLIENT and needs_rewrite(records, config):
        rewritten = prepare(records, config, str(log.tp), now_ms, origin)
        if isinstance(rewritten, AppendError):
            return rewritten
        records = memoryview(rewritten)
        prepared = True
    try:
        batches = analyze(records, config, origin)
        for _, header in batches:
            check_batch(header, 2, origin)
    except Refusal as e:
        return e.reason
    if not prepared:
        for position, header in batches:
            problem = None
            if not header.is_control:
                problem = check_timestamps(records, position, header, config, now_ms)
            if problem is not None:
                return problem
    if len(records) > config.segment_bytes:
        return AppendError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {len(records)} bytes in append to partition {log.tp}, which "
            f"exceeds the maximum configured segment size of {config.segment_bytes}",
        )
    try:
        answer = _check_producers(log, records, batches, origin)
    except CorruptRecord as e:
        return AppendError(ErrorCode.INVALID_RECORD, str(e))
    if answer is not None:
        return answer
    if records.readonly:
        records = memoryview(bytearray(records))
    return _write_as_leader(log, records, batches, leader_epoch, now_ms)


def _check_producers(
    log: Log, records: memoryview, batches: Batches, origin: AppendOrigin
) -> AppendInfo | AppendError | None:
    # Later batches are checked against what the earlier ones would leave behind.
    producers = log.producers
    staged = ProducerStateManager(producers.expiration_ms)
    staged.verifying = producers.verifying.copy()
    from_client = origin is AppendOrigin.CLIENT
    for position, header in batches:
        producer_id = header.producer_id
        if producer_id < 0:
            continue
        entry = staged.producers.get(producer_id)
        if entry is None:
            known = producers.producers.get(producer_id)
            if from_client and known is not None:
                duplicate = known.find_duplicate(
                    header.producer_epoch, header.base_sequence, header.last_sequence
                )
                if duplicate is not None:
                    return AppendInfo(
                        duplicate.last_offset - duplicate.offset_delta,
                        duplicate.last_offset,
                        duplicate.timestamp,
                        log.log_start_offset,
                        duplicate.timestamp,
                        0,
                        True,
                    )
            entry = known.copy() if known is not None else ProducerStateEntry(producer_id)
            staged.producers[producer_id] = entry
        view = records[position : position + header.size]
        refused = _check_producer(staged, entry, header, view, from_client)
        if refused is not None:
            return AppendError(refused.error, f"{refused.message} in partition {log.tp}")
        note_batch(staged, header, view, log.log_end_offset)
    return None


def _check_producer(
    producers: ProducerStateManager,
    entry: ProducerStateEntry,
    header: BatchHeader,
    view: memoryview,
    from_client: bool,
) -> Refused | None:
    if header.is_control:
        marker = marker_of(view)
        if marker is None:
            return None
        return producers.check_marker(entry, header.producer_epoch, marker.coordinator_epoch)
    return producers.check(
        entry,
        header.producer_epoch,
        header.base_sequence,
        from_client=from_client,
        transactional=header.is_transactional,
    )


def _write_as_leader(
    log: Log, records: memoryview, batches: Batches, leader_epoch: int, now_ms: int
) -> AppendInfo | AppendError:
    log_append_time = log.config.log_append_time
    first_offset = offset = log.log_end_offset
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
    try:
        log.make_room(len(records), max_timestamp, offset - 1, now_ms)
        if leader_epoch != log.leader_epoch_cache.latest and leader_epoch >= 0:
            log.leader_epoch_cache.assign(leader_epoch, first_offset)
        log.write(records, first_offset, offset - 1, max_timestamp)
        _note_all(log, records, stamped)
    except OSError as e:
        return log.on_io_error(e)
    return AppendInfo(
        first_offset,
        offset - 1,
        now_ms if log_append_time else NO_TIMESTAMP,
        log.log_start_offset,
        max_timestamp,
        len(records),
    )


def _set_create_time(records: memoryview, position: int, max_timestamp: int) -> None:
    # A client that sets the attribute on a CreateTime topic: the topic's type counts.
    records[position + ATTRIBUTES_AT + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
    INT64.pack_into(records, position + MAX_TIMESTAMP_AT, max_timestamp)
    rewrite_crc(records, position)


def _note_all(log: Log, records: memoryview, batches: Batches) -> None:
    for position, header in batches:
        if header.producer_id >= 0:
            view = records[position : position + header.size]
            aborted = note_batch(log.producers, header, view, header.base_offset)
            if aborted is not None:
                log.active_segment.transaction_index.append(aborted)


def append_as_follower(log: Log, records: memoryview, now_ms: int) -> AppendInfo | AppendError:
    """`Log.append_as_follower`."""
    if log.offline:
        return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
    batches: Batches = []
    position = 0
    expected = log.log_end_offset
    max_timestamp = NO_TIMESTAMP
    last_offset = -1
    try:
        while (size := batch_size(records, position)) is not None:
            header = read_header(records, position)
            verify_crc(records, position, header)
            # A wrapper of magic 0 or 1 carries its LAST offset, so only that can be compared.
            if (header.base_offset if header.magic == 2 else header.last_offset) < expected:
                return AppendError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append to {log.tp}: {header.base_offset} is less than "
                    f"the next offset {expected}",
                )
            batches.append((position, header))
            last_offset = header.last_offset
            expected = last_offset + 1
            max_timestamp = max(max_timestamp, header.max_timestamp)
            position += size
    except CorruptRecord as e:
        return AppendError(ErrorCode.CORRUPT_MESSAGE, str(e))
    if not batches:
        return AppendInfo(
            expected, expected - 1, NO_TIMESTAMP, log.log_start_offset, NO_TIMESTAMP, 0
        )
    records = records[:position]  # a leader may have cut the last batch at the fetch size
    first_offset = batches[0][1].base_offset
    try:
        log.make_room(position, max_timestamp, last_offset, now_ms, first_offset)
        for _, header in batches:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != log.leader_epoch_cache.latest:
                log.leader_epoch_cache.assign(epoch, header.base_offset)
        log.write(records, first_offset, last_offset, max_timestamp)
        _note_all(log, records, batches)
    except OSError as e:
        return log.on_io_error(e)
    return AppendInfo(
        first_offset, last_offset, NO_TIMESTAMP, log.log_start_offset, max_timestamp, position
    )
