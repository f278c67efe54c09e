"""Which records a fetch acquires: available ones in the window, those in gaps of the stored state, and new ones.

Records that have been delivered often come in ever smaller parts, and alone on their last delivery, so that a record that
no consumer can process does not affect others.
Source: SharePartition.acquire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kwire.messages.share_fetch import AcquiredRecords

from .fetched import Fetched
from .in_flight import InFlightBatch, StateRun
from .locks import Lock
from .partition import SharePartition
from .settings import ShareSettings
from .states import ACQUIRED, AVAILABLE


class AcquireLimits(NamedTuple):
    """Limits on what a fetch acquires.

    Shape: whole stored batches are acquired even if they exceed `max_records`, unless the limit is `exact`; new batches
    are reported in parts of about `batch_size` records.
    """

    max_records: int
    batch_size: int
    exact: bool = False


def acquire(
    partition: SharePartition,
    member_id: str,
    found: Fetched,
    fetch_offset: int,
    limits: AcquireLimits,
    settings: ShareSettings,
    now_ms: int,
) -> tuple[list[AcquiredRecords], int]:
    """Lock records for a member, out of those that were read from `fetch_offset` on.

    Shape: the acquired offsets with their delivery counts, in order, and the number of records.
    """
    if limits.max_records <= 0 or found.last_offset < partition.start_offset:
        return [], 0
    last_offset, most = _room(partition, fetch_offset, limits.max_records, found, settings)
    if most <= 0:
        return [], 0
    lock = Lock(partition, member_id, settings, now_ms)
    first_read = found.first_offset
    _archive_compacted(partition, fetch_offset, first_read)
    base = first_read
    floor = partition.floor(base)
    if floor < 0:
        base = max(base, partition.start_offset)
    elif partition.batches[floor].last >= base:
        base = partition.batches[floor].first
    known = partition.between(min(first_read, base), last_offset)
    rows: list[AcquiredRecords] = []
    if not known:
        count = _acquire_new(partition, lock, rows, found, base, last_offset, limits, most)
    else:
        count = _acquire_known(partition, lock, rows, found, known, base, last_offset, limits, most)
        if rows:
            partition.move_gap(rows[-1].last_offset + 1)
    if rows and found.aborted:
        rows, count = _without_aborted(partition, rows, found)
    return rows, count


def _room(
    partition: SharePartition,
    fetch_offset: int,
    max_records: int,
    found: Fetched,
    settings: ShareSettings,
) -> tuple[int, int]:
    """The last offset and the number of records that may be acquired.

    Source: lastOffsetAndMaxRecordsToAcquire.
    """
    last_offset = found.last_offset
    most = min(max_records, settings.max_record_locks - partition.in_flight)
    if most <= 0 and fetch_offset <= partition.end_offset:
        # The window is full, but records inside it that were released may be acquired again.
        most = min(max_records, partition.end_offset - fetch_offset + 1)
        last_offset = min(last_offset, partition.end_offset)
    return last_offset, most


def _acquire_known(
    partition: SharePartition,
    lock: Lock,
    rows: list[AcquiredRecords],
    found: Fetched,
    known: list[InFlightBatch],
    base: int,
    last_offset: int,
    limits: AcquireLimits,
    most: int,
) -> int:
    """Acquire available records in batches in flight, in the gaps between them, and behind them."""
    first_read = found.first_offset
    count = 0
    gap_from = base
    for batch in known:
        if count >= most:
            break
        if partition.in_gaps:
            if gap_from < batch.first:
                count += _acquire_new(
                    partition, lock, rows, found, gap_from, batch.first - 1, limits, most - count
                )
            gap_from = batch.last + 1
            if count >= most:
                break
        throttled = _is_throttled(batch, first_read, last_offset, lock.settings)
        if throttled and count > 0:
            return count  # the next fetch delivers it alone
        first, last = max(batch.first, first_read), min(batch.last, last_offset)
        acquired = _acquire_part(
            lock,
            rows,
            batch,
            first,
            last,
            most - count if limits.exact else None,
            throttled=throttled,
        )
        count += acquired
        if throttled and acquired:
            return count
    next_offset = known[-1].last + 1
    if count < most and next_offset <= last_offset:
        count += _acquire_new(
            partition, lock, rows, found, next_offset, last_offset, limits, most - count
        )
    return count


def _acquire_new(
    partition: SharePartition,
    lock: Lock,
    rows: list[AcquiredRecords],
    found: Fetched,
    first: int,
    last: int,
    limits: AcquireLimits,
    most: int,
) -> int:
    """Acquire offsets that are not in flight.

    Source: acquireNewBatchRecords, createBatches.
    """
    if not partition.batches:
        first = max(first, partition.end_offset)
    if first > last:
        return 0
    if most < last - first + 1:
        # Stored batches are acquired whole, except inside the gaps of the stored state.
        end = found.end_of_batch_with(first + most - 1)
        last = min(end, last) if partition.in_gaps else end
    parts = [first]
    batch_size = max(limits.batch_size, 1)
    if not limits.exact and last - first + 1 > batch_size:
        for stored in found.batches:
            if stored.base_offset > last:
                break
            if stored.base_offset - parts[-1] >= batch_size:
                parts.append(stored.base_offset)
    place = partition.floor(first) + 1
    acquired_last = last
    for number, begin in enumerate(parts):
        end = parts[number + 1] - 1 if number + 1 < len(parts) else last
        batch = InFlightBatch(StateRun(begin, end, AVAILABLE, 0), partition.tally)
        partition.batches.insert(place + number, batch)
        if limits.exact and len(batch) > most:
            acquired_last = begin + most - 1
            batch.divided = True
            partition.note_available(acquired_last + 1)
        run = batch.cut(begin, min(end, acquired_last))[0]
        lock.take(run)
        rows.append(_acquired(run))
    if partition.batches[0].first == first:
        partition.start_offset = first
    partition.end_offset = max(partition.end_offset, last)
    partition.move_gap(acquired_last + 1)
    return acquired_last - first + 1


def _acquire_part(
    lock: Lock,
    rows: list[AcquiredRecords],
    batch: InFlightBatch,
    first: int,
    last: int,
    most: int | None,
    *,
    throttled: bool,
) -> int:
    """Acquire the available records between two offsets of a batch, and return their number.

    Shape: records that have been delivered often come in ever smaller parts, and alone on their last delivery, so
    that a record that no consumer can process does not affect others. Source: acquireSubsetBatchRecords.
    """
    limit, throttled_from = lock.settings.delivery_count_limit, lock.settings.throttled_from
    count, throttled_most = 0, -1
    if not any(run.is_available for run in batch.runs):
        return 0
    is_part = first > batch.first or last < batch.last
    place = batch.place_of(first)
    mine: list[AcquiredRecords] = []
    while place < len(batch.runs) and batch.runs[place].first <= last:
        run = batch.runs[place]
        place += 1
        if not run.is_available:
            continue
        begin, end = max(run.first, first), min(run.last, last)
        is_last_time = limit > 2 and run.delivery_count == limit - 1
        if is_last_time and count > 0:
            break
        if run.delivery_count >= throttled_from and throttled_most < 0:
            by = run.delivery_count - throttled_from + 1
            throttled_most = max(1, len(batch) >> by)
        if is_last_time:
            end = begin
        if most is not None:
            end = min(end, begin + most - count - 1)
        if throttled_most > count:
            end = min(end, begin + throttled_most - count - 1)
        if is_part or throttled or (begin, end) != (run.first, run.last):
            batch.divided = True
        (run,) = batch.cut(begin, end)
        place = batch.place_of(end) + 1
        lock.take(run)
        count += len(run)
        row = _acquired(run)
        if mine and _follows(mine[-1], row):
            mine[-1].last_offset = row.last_offset
        else:
            mine.append(row)
        if is_last_time or count in (most, throttled_most):
            break
    if mine:
        batch.merge(mine[0].first_offset, mine[-1].last_offset)
    rows += mine
    return count


def _without_aborted(
    partition: SharePartition, rows: list[AcquiredRecords], found: Fetched
) -> tuple[list[AcquiredRecords], int]:
    """Archive the records of aborted transactions, and remove them from the acquired records."""
    aborted = found.aborted_batches()
    for first, last in aborted:
        partition.archive(first, last, ACQUIRED)
    if aborted:
        rows = list(_without(rows, aborted))
        partition.advance_start()
    return rows, sum(each.last_offset - each.first_offset + 1 for each in rows)


def _archive_compacted(partition: SharePartition, fetch_offset: int, first_read: int) -> None:
    """Archive available records that the read did not find again, because compaction has removed them."""
    if partition.batches and fetch_offset < first_read:
        partition.archive(fetch_offset, first_read - 1, AVAILABLE)


def _is_throttled(batch: InFlightBatch, first: int, last: int, settings: ShareSettings) -> bool:
    """Whether the available records of a batch were delivered so often that fewer of them are delivered now."""
    limit = settings.throttled_from
    return any(
        run.delivery_count >= limit
        and run.is_available
        and (not batch.divided or (run.first <= last and run.last >= first))
        for run in batch.runs
    )


def _acquired(run: StateRun) -> AcquiredRecords:
    return AcquiredRecords(
        first_offset=run.first, last_offset=run.last, delivery_count=run.delivery_count
    )


def _follows(before: AcquiredRecords, row: AcquiredRecords) -> bool:
    return (
        row.first_offset == before.last_offset + 1 and row.delivery_count == before.delivery_count
    )


def _without(
    rows: Iterable[AcquiredRecords], removed: Sequence[tuple[int, int]]
) -> Iterator[AcquiredRecords]:
    """The parts of rows that were not removed; both lists are in order."""
    place = 0
    for row in rows:
        first = row.first_offset
        while place < len(removed) and removed[place][1] < first:
            place += 1
        for index in range(place, len(removed)):
            begin, end = removed[index]
            if begin > row.last_offset:
                break
            if first < begin:
                yield AcquiredRecords(
                    first_offset=first, last_offset=begin - 1, delivery_count=row.delivery_count
                )
            first = end + 1
        if first <= row.last_offset:
            yield AcquiredRecords(
                first_offset=first, last_offset=row.last_offset, delivery_count=row.delivery_count
            )
