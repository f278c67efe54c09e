"""The state machine of a share partition: which records are in flight, and which member holds them.

The window of batches goes from the start offset (all earlier records are done) to the end offset (no later records have
been read). An acknowledgement or release counts only once it is written: the operations return a `StateWrite`, and the
caller calls `complete` when it is stored or has failed. Until then, no member holds its records.
Pure: the caller passes the time. Long operations are generator functions, and other operations may run between their
steps.
Source: SharePartition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.share_fetch import AcquiredRecords

from ..coordinator.share.rows import StateBatch
from .fetched import Fetched
from .in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    FINAL,
    NOBODY,
    InFlightBatch,
    Run,
    StateWrite,
    Tally,
)
from .settings import ShareSettings

# Acknowledge types. Source: AcknowledgeType; 0 is a gap, an offset without a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_OF = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

#: The number of runs after which a batch is no longer divided; each run takes about 150 bytes. Only the last batch of a
#: share partition can have more records than may be locked, because it was acquired whole.
MAX_RUNS = 5_000

#: The memory of a batch that is not divided, and of each further run. Unit: bytes.
BATCH_BYTES = 305
RUN_BYTES = 175

#: The number of runs that one step processes.
STEP = 256

#: A delivery count is stored in 16 bits.
MAX_DELIVERIES = 0x7FFF
STORED = (AVAILABLE, ACQUIRED, *FINAL)

_FIRST = attrgetter("first")


class Refusal(NamedTuple):
    """Why an operation is refused."""

    error: ErrorCode
    message: str


NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
PART_NOT_ACQUIRED = (
    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
)
OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
IN_TRANSITION = (
    "The record state is invalid. The acknowledgement of delivery could not be completed."
)
NOT_OWNER = "Member is not the owner of batch record"
NOT_OWNER_OF_OFFSET = "Member is not the owner of offset"
NO_RENEWAL = "Renewing acquisition locks is not enabled for the group."
NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_TOO_HIGH = "Batch record not found. The first offset in request is past acquired records."
LAST_TOO_HIGH = "Batch record not found. The last offset in request is past acquired records."
TOO_MANY_PARTS = "The records in flight are acknowledged in too many parts."


class Acknowledged(NamedTuple):
    """Offsets that a member acknowledges.

    Shape: `last` is inclusive; there is one type for all offsets, or one per offset.
    """

    first: int
    last: int
    types: Sequence[int]


class AcquireLimits(NamedTuple):
    """Limits on what a fetch acquires.

    Shape: whole stored batches are acquired even if they exceed `max_records`, unless the limit is `exact`; new batches
    are reported in parts of about `batch_size` records.
    """

    max_records: int
    batch_size: int
    exact: bool = False


class SharePartition:
    """The in-flight records of a partition in one share group.

    Shape: `start_offset` is the first offset that is not done. `end_offset` is the last acquired offset; if nothing is
    in flight, it is the next offset to read. `delivery_complete_count` is the number of offsets from the start offset
    on in a final state. `lock_end_ms` is a lower bound of the earliest lock end; None if nothing is locked.
    """

    def __init__(
        self, state_epoch: int, start_offset: int, stored: Iterable[StateBatch] = ()
    ) -> None:
        """Begin with the stored state.

        Errors: ValueError if that state is impossible.
        """
        self.state_epoch = state_epoch
        self.start_offset = self.end_offset = start_offset
        self.delivery_complete_count = 0
        self.lock_end_ms: int | None = None
        self._batches: list[InFlightBatch] = []
        self._tally = Tally()
        #: No records below this offset are available; None if none are available at all.
        self._available_from: int | None = None
        # Acquired states are not stored. Records that the previous leader had in flight are therefore gaps, which are
        # read again.
        self._gap_offset = -1
        self._gap_end_offset = -1
        gap_offset = -1
        expected = start_offset
        for first, last, state, delivery_count in stored:
            if first < start_offset or last < first or (first < expected and self._batches):
                raise ValueError(
                    f"offsets {first} to {last} of a share partition from {start_offset} on"
                )
            if gap_offset < 0 and first > expected:
                gap_offset = expected
            if state not in STORED:
                raise ValueError(f"{state} is not a state of records")
            if state == ACQUIRED:  # no member could release it later
                state = AVAILABLE
            expected = last + 1
            self._batches.append(
                InFlightBatch(Run(first, last, state, delivery_count), self._tally)
            )
            if state in FINAL:
                self.delivery_complete_count += last - first + 1
        if self._batches:
            self._available_from = start_offset
            self.end_offset = self._batches[-1].last
            if gap_offset >= 0:
                self._gap_offset, self._gap_end_offset = gap_offset, self.end_offset
            self._advance_start()

    # -- what is in flight -------------------------------------------------------------------------

    @property
    def batches(self) -> Sequence[InFlightBatch]:
        """The batches in flight, in order."""
        return self._batches

    @property
    def held_bytes(self) -> int:
        """The memory of the batches in flight, estimated."""
        batches = len(self._batches)
        return BATCH_BYTES * batches + RUN_BYTES * (self._tally.runs - batches)

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    def can_acquire(self, settings: ShareSettings) -> bool:
        """Whether a fetch could acquire records, provided that they exist."""
        return (
            self.next_fetch_offset() != self.end_offset + 1
            or self.in_flight < settings.max_record_locks
        )

    def next_fetch_offset(self) -> int:
        """The offset at which the next fetch reads: the first available record, or the first offset not read yet."""
        batches = self._batches
        if not batches or self.start_offset > batches[-1].last:
            self._available_from = None
            return self.end_offset
        if self._available_from is None:
            return self.end_offset + 1
        in_gaps = self._in_gaps
        gap_offset = self._gap_offset
        begin = 0 if in_gaps else max(self._floor(self._available_from), 0)
        for place in range(begin, len(batches)):
            batch = batches[place]
            if in_gaps:
                if batch.first > gap_offset:
                    return gap_offset
                gap_offset = max(batch.last + 1, gap_offset)
            for run in batch.runs:
                if run.state == AVAILABLE and run.write is None:
                    if not in_gaps:
                        self._available_from = run.first
                    return run.first
        self._available_from = None
        return self.end_offset + 1

    # -- acquiring ---------------------------------------------------------------------------------

    def acquire(
        self,
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
        if limits.max_records <= 0 or found.last_offset < self.start_offset:
            return [], 0
        last_offset, most = self._room(fetch_offset, limits.max_records, found, settings)
        if most <= 0:
            return [], 0
        lock = _Lock(self, member_id, settings, now_ms)
        first_read = found.first_offset
        self._archive_compacted(fetch_offset, first_read)
        base = first_read
        floor = self._floor(base)
        if floor < 0:
            base = max(base, self.start_offset)
        elif self._batches[floor].last >= base:
            base = self._batches[floor].first
        known = self._between(min(first_read, base), last_offset)
        rows: list[AcquiredRecords] = []
        if not known:
            count = self._acquire_new(lock, rows, found, base, last_offset, limits, most)
        else:
            count = self._acquire_known(lock, rows, found, known, base, last_offset, limits, most)
            if rows:
                self._move_gap(rows[-1].last_offset + 1)
        if rows and found.aborted:
            rows, count = self._without_aborted(rows, found)
        return rows, count

    def _room(
        self, fetch_offset: int, max_records: int, found: Fetched, settings: ShareSettings
    ) -> tuple[int, int]:
        """The last offset and the number of records that may be acquired.

        Source: lastOffsetAndMaxRecordsToAcquire.
        """
        last_offset = found.last_offset
        most = min(max_records, settings.max_record_locks - self.in_flight)
        if most <= 0 and fetch_offset <= self.end_offset:
            # The window is full, but records inside it that were released may be acquired again.
            most = min(max_records, self.end_offset - fetch_offset + 1)
            last_offset = min(last_offset, self.end_offset)
        return last_offset, most

    def _acquire_known(
        self,
        lock: _Lock,
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
            if self._in_gaps:
                if gap_from < batch.first:
                    count += self._acquire_new(
                        lock, rows, found, gap_from, batch.first - 1, limits, most - count
                    )
                gap_from = batch.last + 1
                if count >= most:
                    break
            throttled = batch_is_throttled(batch, first_read, last_offset, lock.settings)
            if throttled and count > 0:
                return count  # the next fetch delivers it alone
            first, last = max(batch.first, first_read), min(batch.last, last_offset)
            acquired = lock.part(
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
            count += self._acquire_new(
                lock, rows, found, next_offset, last_offset, limits, most - count
            )
        return count

    def _acquire_new(
        self,
        lock: _Lock,
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
        if not self._batches:
            first = max(first, self.end_offset)
        if first > last:
            return 0
        if most < last - first + 1:
            # Stored batches are acquired whole, except inside the gaps of the stored state.
            end = found.end_of_batch_with(first + most - 1)
            last = min(end, last) if self._in_gaps else end
        parts = [first]
        batch_size = max(limits.batch_size, 1)
        if not limits.exact and last - first + 1 > batch_size:
            for stored in found.batches:
                if stored.base_offset > last:
                    break
                if stored.base_offset - parts[-1] >= batch_size:
                    parts.append(stored.base_offset)
        place = self._floor(first) + 1
        acquired_last = last
        for number, begin in enumerate(parts):
            end = parts[number + 1] - 1 if number + 1 < len(parts) else last
            batch = InFlightBatch(Run(begin, end, AVAILABLE, 0), self._tally)
            self._batches.insert(place + number, batch)
            if limits.exact and len(batch) > most:
                acquired_last = begin + most - 1
                batch.divided = True
                self._note_available(acquired_last + 1)
            run = batch.cut(begin, min(end, acquired_last))[0]
            lock.take(run)
            rows.append(_acquired(run))
        if self._batches[0].first == first:
            self.start_offset = first
        self.end_offset = max(self.end_offset, last)
        self._move_gap(acquired_last + 1)
        return acquired_last - first + 1

    def _without_aborted(
        self, rows: list[AcquiredRecords], found: Fetched
    ) -> tuple[list[AcquiredRecords], int]:
        """Archive the records of aborted transactions, and remove them from the acquired records."""
        aborted = found.aborted_batches()
        for first, last in aborted:
            self._archive(first, last, ACQUIRED)
        if aborted:
            rows = list(_without(rows, aborted))
            self._advance_start()
        return rows, sum(each.last_offset - each.first_offset + 1 for each in rows)

    def _archive_compacted(self, fetch_offset: int, first_read: int) -> None:
        """Archive available records that the read did not find again, because compaction has removed them."""
        if self._batches and fetch_offset < first_read:
            self._archive(fetch_offset, first_read - 1, AVAILABLE)

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        batches: Iterable[Acknowledged],
        settings: ShareSettings,
        now_ms: int,
    ) -> Generator[None, None, StateWrite | Refusal]:
        """Apply acknowledgements, all of them or none.

        Errors: INVALID_RECORD_STATE if the member does not hold the records; INVALID_REQUEST for offsets that were
        never acquired.
        """
        write = StateWrite(settings.delivery_count_limit)
        lock = _Lock(self, member_id, settings, now_ms)
        try:
            for each in batches:
                yield
                refusal = yield from self._acknowledge(write, lock, each)
                if refusal is not None:
                    yield from self.complete(write, False, now_ms)
                    return refusal
        except GeneratorExit:
            for _ in self.complete(write, False, now_ms):
                pass
            raise
        return write

    def _acknowledge(
        self, write: StateWrite, lock: _Lock, asked: Acknowledged
    ) -> Generator[None, None, Refusal | None]:
        first, last, types = asked
        if last < self.start_offset:
            return None
        found = self._to_acknowledge(first, last)
        if isinstance(found, Refusal):
            return found
        for batch in found:
            yield
            if batch.last < self.start_offset:
                continue
            if not batch.divided:
                refused = self._check_batch(batch, lock.member_id)
                if refused is not None:
                    return refused
            if (
                not batch.divided
                and len(types) == 1
                and first <= batch.first
                and batch.last <= last
                and not batch.first < self.start_offset <= batch.last
            ):
                run = batch.runs[0]
                if run.state != ACQUIRED:
                    return Refusal(ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED)
                refused = self._change(write, lock, run, types[0])
                if refused is not None:
                    return refused
                continue
            if not batch.divided:
                if batch.runs[0].state != ACQUIRED:
                    return Refusal(ErrorCode.INVALID_RECORD_STATE, PART_NOT_ACQUIRED)
                batch.divided = True
            lowest, highest = max(batch.first, first, self.start_offset), min(batch.last, last)
            for begin, end, kind in _same_types(types, first, lowest, highest):
                yield
                most = min(MAX_RUNS, lock.settings.max_runs)
                if len(batch.runs) > most and batch.is_divided_by(begin, end):
                    return Refusal(ErrorCode.INVALID_RECORD_STATE, TOO_MANY_PARTS)
                refused = self._change_part(write, lock, batch, begin, end, kind)
                if refused is not None:
                    return refused
        return None

    def _to_acknowledge(self, first: int, last: int) -> list[InFlightBatch] | Refusal:
        """The batches that contain the acknowledged offsets.

        Source: fetchSubMapForAcknowledgementBatch.
        """
        floor = self._floor(first)
        if floor < 0:
            if first < self.start_offset <= last:
                floor = self._floor(self.start_offset)
            if floor < 0:
                return Refusal(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        found = self._batches[floor : bisect_right(self._batches, last, key=_FIRST)]
        if found[-1].last < first:
            return Refusal(ErrorCode.INVALID_REQUEST, FIRST_TOO_HIGH)
        if last > found[-1].last:
            return Refusal(ErrorCode.INVALID_REQUEST, LAST_TOO_HIGH)
        return found

    def _check_batch(self, batch: InFlightBatch, member_id: str) -> Refusal | None:
        run = batch.runs[0]
        message = ""
        if run.member_id == NOBODY:
            message = NOT_ACQUIRED
        elif run.member_id != member_id:
            message = NOT_OWNER
        elif run.write is not None:
            message = IN_TRANSITION
        return Refusal(ErrorCode.INVALID_RECORD_STATE, message) if message else None

    def _change_part(
        self, write: StateWrite, lock: _Lock, batch: InFlightBatch, begin: int, end: int, kind: int
    ) -> Refusal | None:
        refused = None
        for run in batch.cut(begin, end):
            message = ""
            if run.state != ACQUIRED:
                message = OFFSET_NOT_ACQUIRED
            elif run.write is not None:
                message = IN_TRANSITION
            elif run.member_id != lock.member_id:
                message = NOT_OWNER_OF_OFFSET
            if message:
                refused = Refusal(ErrorCode.INVALID_RECORD_STATE, message)
            else:
                refused = self._change(write, lock, run, kind)
            if refused is not None:
                break
        batch.merge(begin, end)
        return refused

    def _change(self, write: StateWrite, lock: _Lock, run: Run, kind: int) -> Refusal | None:
        """Change the state of one run, or renew its lock."""
        if kind == RENEW:
            if not lock.settings.renews:
                return Refusal(ErrorCode.INVALID_RECORD_STATE, NO_RENEWAL)
            lock.renew(run)
            return None
        self._begin(write, run, STATE_OF[kind])
        return None

    def _begin(self, write: StateWrite, run: Run, state: int) -> None:
        """Change the state of a run, pending its write."""
        if state == AVAILABLE and run.delivery_count >= write.delivery_count_limit:
            state = ARCHIVED
        run.before = run.state, run.member_id
        run.write = write
        run.member_id = NOBODY
        self._set_state(run, state)
        write.add(run)

    def complete(self, write: StateWrite, stored: bool, now_ms: int) -> Generator[None, None, bool]:
        """Complete a write that was stored or has failed; return whether more records can be fetched than before."""
        changed = False
        if write.holds:
            for row in write.batches:
                yield
                for batch in self._overlapping(row.first_offset, row.last_offset):
                    first = max(row.first_offset, batch.first)
                    begin, end = batch.place_of(first), batch.place_of(row.last_offset)
                    for run in batch.runs[begin : end + 1]:
                        if run.write is write:
                            changed = self._end(run, stored, now_ms) or changed
                    batch.merge(row.first_offset, row.last_offset)
        if stored or not write.holds:
            changed = self._advance_start() or changed
        return changed

    def _end(self, run: Run, stored: bool, now_ms: int) -> bool:
        """Give a run its new state, or restore the previous one; return whether the run is available now."""
        write, before = run.write, run.before
        assert write is not None and before is not None
        run.write = run.before = None
        if not stored and not run.forced:
            state, member_id = before
            if run.lock_end_ms <= now_ms:
                is_last = run.delivery_count >= write.delivery_count_limit
                state, member_id = ARCHIVED if is_last else AVAILABLE, NOBODY
            else:
                self._note_lock(run.lock_end_ms)
            run.member_id = member_id
            self._set_state(run, state)
        if run.state == AVAILABLE:
            self._note_available(run.first)
            return True
        return False

    # -- locks that end, and members that leave ----------------------------------------------------

    def release(self, member_id: str, settings: ShareSettings) -> Generator[None, None, StateWrite]:
        """Make the records that a member holds available again.

        Source: releaseAcquiredRecords.
        """
        write = StateWrite(settings.delivery_count_limit)
        for batch in list(self._batches):
            yield
            for run in self._acquired_runs(batch):
                if run.member_id == member_id:
                    state = ARCHIVED if run.last < self.start_offset else AVAILABLE
                    self._begin(write, run, state)
            batch.merge(batch.first, batch.last)
        return write

    def expire(self, settings: ShareSettings, now_ms: int) -> Generator[None, None, StateWrite]:
        """Make records available whose lock has expired.

        Source: releaseAcquisitionLockOnTimeout.
        """
        write = StateWrite(settings.delivery_count_limit, holds=False)
        self.lock_end_ms = None
        for batch in list(self._batches):
            yield
            for run in self._acquired_runs(batch):
                if run.lock_end_ms > now_ms:
                    self._note_lock(run.lock_end_ms)
                    continue
                state = AVAILABLE
                if run.last < self.start_offset or run.delivery_count >= write.delivery_count_limit:
                    state = ARCHIVED
                run.member_id = NOBODY
                self._set_state(run, state)
                write.add(run)
                if state == AVAILABLE:
                    self._note_available(run.first)
            batch.merge(batch.first, batch.last)
        return write

    def _acquired_runs(self, batch: InFlightBatch) -> list[Run]:
        """The acquired runs of a batch, divided at the start offset."""
        runs = batch.runs
        start = self.start_offset
        if batch.first < start <= batch.last and any(
            run.first < start <= run.last and run.state == ACQUIRED for run in runs
        ):
            batch.divided = True
            batch.cut(start, batch.last)
        return [run for run in runs if run.state == ACQUIRED]

    # -- the start offset --------------------------------------------------------------------------

    def move_start(self, log_start_offset: int) -> None:
        """Apply a new log start offset: available records before it are done.

        Source: updateCacheAndOffsets.
        """
        if log_start_offset <= self.start_offset:
            return
        if not self._batches:
            self.start_offset = self.end_offset = log_start_offset
            return
        if self._archive(self.start_offset, log_start_offset - 1, AVAILABLE):
            self._note_available(log_start_offset)
        self._set_start(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _advance_start(self) -> bool:
        """Move the start offset past the records that are done, and drop them.

        Source: maybeUpdateCachedStateAndOffsets.
        """
        batches = self._batches
        floor = self._floor(self.start_offset)
        if floor < 0:
            return False
        batch = batches[floor]
        if not batch.runs[batch.place_of(min(self.start_offset, batch.last))].is_done:
            return False
        done, last_done = self._last_done()
        if last_done < 0:
            return False
        last = batches[-1].last
        if last_done == last:
            self.start_offset = max(last + 1, self.start_offset)
            self.end_offset = max(last + 1, self.start_offset)
            self.delivery_complete_count = 0
            self._available_from = self.lock_end_ms = None
            batches.clear()
            self._tally.runs = 0
            return True
        start = last_done + 1
        if done > 0 and batches[done - 1].last == last_done:
            start = batches[done].first
            if self._in_gaps:
                start = min(self._gap_offset, start)
        if start > self.start_offset:
            self._set_start(start)
        self._tally.runs -= sum(len(batch.runs) for batch in batches[:done])
        del batches[:done]
        return True

    def _last_done(self) -> tuple[int, int]:
        """The number of leading batches that are done, and the last done offset; -1 for none."""
        last_done = -1
        for place, batch in enumerate(self._batches):
            if self._in_gaps and batch.last >= self._gap_offset:
                return place, last_done
            for run in batch.runs:
                if not run.is_done:
                    return place, last_done
                last_done = run.last
        return len(self._batches), last_done

    def _set_start(self, offset: int) -> None:
        """Set the start offset, and stop counting final states before it."""
        for batch in self._overlapping(self.start_offset, offset - 1):
            for run in batch.runs:
                if run.state in FINAL:
                    first, last = max(run.first, self.start_offset), min(run.last, offset - 1)
                    self.delivery_complete_count -= max(last - first + 1, 0)
        self.start_offset = offset

    def _archive(self, first: int, last: int, state: int) -> bool:
        """Archive, at once, the records in a state between two offsets; return whether there were any."""
        found = False
        for batch in self._overlapping(first, last):
            if not any(run.state == state for run in batch.runs):
                continue
            if batch.first < first or batch.last > last:
                batch.divided = True
            for run in batch.cut(first, last):
                if run.state == state:
                    run.forced = True
                    run.member_id = NOBODY
                    self._set_state(run, ARCHIVED)
                    found = True
            batch.merge(first, last)
        return found

    def _set_state(self, run: Run, state: int) -> None:
        """Set a state, and update the count of final states."""
        was, becomes = run.state in FINAL, state in FINAL
        if was != becomes:
            count = max(run.last - max(run.first, self.start_offset) + 1, 0)
            self.delivery_complete_count += count if becomes else -count
        run.state = state

    # -- the window --------------------------------------------------------------------------------

    @property
    def _in_gaps(self) -> bool:
        """Whether gaps in the stored state are still to be read."""
        return self._gap_offset >= 0 and self._gap_end_offset == self.end_offset

    def _move_gap(self, offset: int) -> None:
        if self._gap_offset < 0:
            return
        if self._gap_end_offset == self.end_offset and offset <= self._gap_end_offset:
            self._gap_offset = offset
        else:
            self._gap_offset = -1

    def _floor(self, offset: int) -> int:
        """The index of the last batch that begins at or before an offset; -1 if there is none."""
        return bisect_right(self._batches, offset, key=_FIRST) - 1

    def _between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin between two offsets."""
        batches = self._batches
        return batches[
            bisect_left(batches, first, key=_FIRST) : bisect_right(batches, last, key=_FIRST)
        ]

    def _overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that overlap a range of offsets."""
        floor = self._floor(first)
        if floor < 0 or self._batches[floor].last < first:
            floor += 1
        return self._batches[floor : bisect_right(self._batches, last, key=_FIRST)]

    def _note_available(self, offset: int) -> None:
        known = self._available_from
        self._available_from = offset if known is None else min(known, offset)

    def _note_lock(self, end_ms: int) -> None:
        if self.lock_end_ms is None or end_ms < self.lock_end_ms:
            self.lock_end_ms = end_ms


class _Lock:
    """Locks records of a share partition for a member, starting now."""

    __slots__ = ("_partition", "end_ms", "member_id", "settings")

    def __init__(
        self, partition: SharePartition, member_id: str, settings: ShareSettings, now_ms: int
    ) -> None:
        self._partition = partition
        self.member_id = member_id
        self.settings = settings
        self.end_ms = now_ms + settings.lock_duration_ms

    def take(self, run: Run) -> None:
        """Deliver an available run, and count the delivery."""
        run.delivery_count = min(run.delivery_count + 1, MAX_DELIVERIES)
        run.member_id = self.member_id
        self._partition._set_state(run, ACQUIRED)
        self.renew(run)

    def renew(self, run: Run) -> None:
        """Extend the lock of a run."""
        run.lock_end_ms = self.end_ms
        self._partition._note_lock(self.end_ms)

    def part(
        self,
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
        limit, throttled_from = self.settings.delivery_count_limit, self.settings.throttled_from
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
            self.take(run)
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


def batch_is_throttled(
    batch: InFlightBatch, first: int, last: int, settings: ShareSettings
) -> bool:
    """Whether the available records of a batch were delivered so often that fewer of them are delivered now."""
    limit = settings.throttled_from
    return any(
        run.delivery_count >= limit
        and run.is_available
        and (not batch.divided or (run.first <= last and run.last >= first))
        for run in batch.runs
    )


def _acquired(run: Run) -> AcquiredRecords:
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


def _same_types(
    types: Sequence[int], first: int, lowest: int, highest: int
) -> Iterator[tuple[int, int, int]]:
    """The (first offset, last offset, type) of adjacent offsets with the same type; the types begin at `first`."""
    if lowest > highest:
        return
    if len(types) == 1:
        yield lowest, highest, types[0]
        return
    begin = lowest
    for offset in range(lowest + 1, highest + 1):
        if types[offset - first] != types[begin - first] or offset - begin >= STEP:
            yield begin, offset - 1, types[begin - first]
            begin = offset
    yield begin, highest, types[begin - first]
