"""Reads a segment batch by batch after a crash, to find its end and rebuild its indexes.

Source: LogSegment.recover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchHeader, batch_size, read_header, verify_crc
from kwire.records.layout import HEADER_SIZE

from ..index.transaction_index import AbortedTransaction
from ..leader_epoch_cache import LeaderEpochCache
from ..producer_state import ProducerStateManager
from ..producer_updates import note_batch
from ..segment import INT32_MAX, LogSegment
from .recovery_start import RecoveryStart

RECOVERY_WINDOW_BYTES = 1 << 20

logger = logging.getLogger(__name__)


def recover_segment(
    segment: LogSegment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    interval_bytes: int,
    start: RecoveryStart | None = None,
) -> int:
    """Read a segment, rebuild its indexes, and truncate it after its last valid batch.

    Shape: returns how many bytes were cut off; `producers` is moved to the segment's end. With
    `start`, reading begins there, where the indexes already end; batches below the offset that
    `producers` has reached are not added to it again.
    Source: LogSegment.recover.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    aborted: list[AbortedTransaction] = []
    if start is None:
        offset_index.truncate(0)
        time_index.truncate(0)
        valid = known_offset = 0
        newest, newest_offset = -1, segment.base_offset
    else:
        valid, known_offset = start.position, producers.last_map_offset
        newest, newest_offset = time_index.last()
        aborted += _flushed_aborts(segment, known_offset)
    last_entry = valid
    try:
        for position, header, view in checked_batches(segment, start=valid):
            last_offset = header.last_offset
            if not 0 <= last_offset - segment.base_offset <= INT32_MAX:
                break
            transaction = None
            if header.producer_id >= 0 and header.base_offset >= known_offset:
                transaction = note_batch(producers, header, view, header.base_offset)
            if transaction is not None:
                aborted.append(transaction)
            if header.max_timestamp > newest and header.records_count:
                newest, newest_offset = header.max_timestamp, last_offset
            if position - last_entry > interval_bytes and (
                start is None or last_offset > start.entry_offset
            ):
                offset_index.append(last_offset, position)
                time_index.maybe_append(newest, newest_offset)
                last_entry = position
            epoch = header.partition_leader_epoch
            if epoch > epochs.latest:
                epochs.read_batch_of(epoch, header.base_offset)
            epochs.read_to = last_offset + 1
            valid = position + header.size
            producers.last_map_offset = last_offset + 1
    except CorruptRecord as e:
        logger.warning("%s: %s", segment.log.path, e)
    removed = segment.size - valid
    if removed:
        segment.log.truncate(valid)
        segment.size = valid
    if newest >= 0:
        time_index.maybe_append(newest, newest_offset)
    segment.transaction_index.replace(aborted)
    return removed


def _flushed_aborts(segment: LogSegment, end_offset: int) -> list[AbortedTransaction]:
    # The entries for markers below end_offset. Entries that were not flushed follow them in the
    # file and may be torn, so that their offsets can have any value.
    aborted = [
        entry
        for entry in segment.transaction_index.entries()
        if segment.base_offset <= entry.last_offset < end_offset
    ]
    while aborted:
        found = segment.locate(aborted[-1].last_offset)
        if found is not None:
            header = read_header(segment.log.read_at(HEADER_SIZE, found[0]), 0)
            if header.is_control and header.producer_id == aborted[-1].producer_id:
                break
        aborted.pop()
    return aborted


def checked_batches(
    segment: LogSegment,
    window_bytes: int = RECOVERY_WINDOW_BYTES,
    start: int = 0,
    take: Callable[[memoryview, int], int] | None = None,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of each complete batch, from a batch boundary on.

    Shape: `take` gets bytes and the position of a complete batch in them; it may deal with this
    batch and any number of those after it, and returns where the first one is that it leaves.
    Unit: window_bytes are read at a time, or more for a larger batch. Errors: CorruptRecord at the
    first batch with a wrong CRC; an incomplete batch ends the iteration.
    """
    position = window_at = start
    window = memoryview(b"")
    end = segment.size
    while position < end:
        at = position - window_at
        size = batch_size(window, at, at + end - position) if at + 17 <= len(window) else None
        if size is None or at + size > len(window):
            wanted = max(window_bytes, size or 0)
            window = memoryview(segment.log.read_at(min(wanted, end - position), position))
            window_at = position
            at = 0
            size = batch_size(window, 0, end - position)
            if size is not None and size > len(window):
                window = memoryview(segment.log.read_at(size, position))
            if size is None or size > len(window):
                return
        if take is not None and (end_of_taken := take(window, at)) > at:
            position += end_of_taken - at
            continue
        header = read_header(window, at)
        verify_crc(window, at, header)
        yield position, header, window[at : at + size]
        position += size
