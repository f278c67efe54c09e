"""Whether a producer may append a batch now: its epoch, its sequence, and whether the batch is there already.

Pure: takes the producer's state and a batch, and returns an answer or None. Source:
UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.records.batch import BatchHeader
from kwire.records.layout import TRANSACTIONAL_MASK

from .producer_state import ProducerRefusal, ProducerStateEntry, ProducerStateManager
from .producer_updates import marker_of, note_batch
from .segment import INT32_MAX
from .validator import AppendError, AppendInfo, AppendOrigin, Batches

if TYPE_CHECKING:
    from ..metadata.topic_partition import TopicPartition


def check_next(
    producers: ProducerStateManager,
    entry: ProducerStateEntry | None,
    epoch: int,
    sequence: int,
    delta: int,
    attributes: int,
    producer_id: int,
    tp: TopicPartition,
    log_start_offset: int,
) -> AppendInfo | AppendError | None:
    """Check a client's batch that is not plainly the next one; None if it may be appended.

    Shape: the answer of the append that wrote it, if the batch is there already. Errors: as value.
    """
    if sequence < 0:
        return AppendError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {sequence} in record batch with producerId {producer_id}",
        )
    if entry is None:
        entry = ProducerStateEntry(producer_id)
    last_sequence = (sequence + delta) & INT32_MAX
    duplicate = _duplicate(entry, epoch, sequence, last_sequence, log_start_offset)
    if duplicate is not None:
        return duplicate
    transactional = attributes & TRANSACTIONAL_MASK != 0
    refused = producers.check(entry, epoch, sequence, from_client=True, transactional=transactional)
    return None if refused is None else _error(refused, tp)


def check_all(
    producers: ProducerStateManager,
    records: memoryview,
    batches: Batches,
    origin: AppendOrigin,
    tp: TopicPartition,
    log_start_offset: int,
    log_end_offset: int,
) -> AppendInfo | AppendError | None:
    """Check batches that are to be appended together; None if all are valid.

    Shape: as `check_next`. Later batches are checked against the state after the earlier ones.
    Errors: as value; CorruptRecord for a marker that cannot be read.
    """
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
                duplicate = _duplicate(
                    known,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    log_start_offset,
                )
                if duplicate is not None:
                    return duplicate
            entry = known.copy() if known is not None else ProducerStateEntry(producer_id)
            staged.producers[producer_id] = entry
        view = records[position : position + header.size]
        refused = _check(staged, entry, header, view, from_client)
        if refused is not None:
            return _error(refused, tp)
        note_batch(staged, header, view, log_end_offset)
    return None


def _duplicate(
    entry: ProducerStateEntry,
    epoch: int,
    first_sequence: int,
    last_sequence: int,
    log_start_offset: int,
) -> AppendInfo | None:
    known = entry.find_duplicate(epoch, first_sequence, last_sequence)
    if known is None:
        return None
    return AppendInfo(
        known.last_offset - known.offset_delta,
        known.last_offset,
        known.timestamp,
        log_start_offset,
        known.timestamp,
        0,
        True,
    )


def _check(
    producers: ProducerStateManager,
    entry: ProducerStateEntry,
    header: BatchHeader,
    view: memoryview,
    from_client: bool,
) -> ProducerRefusal | None:
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


def _error(refused: ProducerRefusal, tp: TopicPartition) -> AppendError:
    return AppendError(refused.error, f"{refused.message} in partition {tp}")
