"""Applies stored batches to producer state, one by one or all batches of a log.

Source: UnifiedLog.updateProducers, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import logging

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchHeader, RecordBatch
from kwire.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type,
    read_end_transaction,
)

from .file_layer import FileLayer
from .index.transaction_index import AbortedTransaction
from .producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, ProducerStateManager
from .segment import LogSegment, stem_of

logger = logging.getLogger(__name__)


def marker_of(view: memoryview | bytes) -> EndTransactionMarker | None:
    """The end-transaction marker in a control batch, None for other control records or none.

    Errors: CorruptRecord.
    """
    for record in RecordBatch(view).records():
        if control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            return read_end_transaction(record.key, record.value)
        break
    return None


def note_batch(
    producers: ProducerStateManager, header: BatchHeader, view: memoryview | bytes, offset: int
) -> AbortedTransaction | None:
    """Record a batch with a producer id, stored at offset; return the transaction that a marker aborted."""
    if header.is_control:
        marker = marker_of(view)
        if marker is None:
            return None
        return producers.append_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            offset,
            header.max_timestamp,
            committed=marker.is_commit,
        )
    producers.append_data(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta,
        offset,
        header.max_timestamp,
        header.is_transactional,
    )
    return None


def load_producers(
    layer: FileLayer,
    directory: str,
    segments: list[LogSegment],
    snapshots: list[int],
    producers: ProducerStateManager,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Build producer state at end_offset: the newest usable snapshot, then the batches after it.

    Shape: snapshots that cannot be read are removed, from disk and from the list.
    Source: ProducerStateManager.truncateAndReload, UnifiedLog.rebuildProducerState.
    """
    producers.clear(log_start_offset)
    for offset in sorted((o for o in snapshots if o <= end_offset), reverse=True):
        if offset < log_start_offset:
            break
        path = stem_of(directory, offset) + SNAPSHOT_SUFFIX
        try:
            producers.load_snapshot(layer.read_file(path), offset, now_ms)
            break
        except (CorruptSnapshot, FileNotFoundError) as e:
            logger.warning("%s: %s; an older one or the log itself is used", path, e)
            layer.unlink(path)
            snapshots.remove(offset)
    start = producers.last_map_offset
    if start < end_offset:
        for number, segment in enumerate(segments):
            last = number + 1 == len(segments)
            if not last and segments[number + 1].base_offset <= start:
                continue
            try:
                _replay(segment, producers, start, end_offset)
            except CorruptRecord as e:
                # Below the recovery point: what readers still get is not thrown away for this.
                logger.error("%s: %s; producer state is incomplete", segment.log.path, e)
    producers.last_map_offset = end_offset


def _replay(
    segment: LogSegment, producers: ProducerStateManager, start: int, end_offset: int
) -> None:
    position = segment.offset_index.lookup(start)
    for at, header in segment.headers(position):
        if header.base_offset >= end_offset:
            break
        if header.next_offset <= start or header.producer_id < 0:
            continue
        view = segment.log.read_at(header.size, at) if header.is_control else b""
        note_batch(producers, header, view, header.base_offset)
