"""A share partition: the window of batches in flight, its start and end, and the states of their records.

The window goes from the start offset (all earlier records are done) to the end offset (no later records have been read).
The operations on it have a module each: `acquisition.py`, `acknowledgement.py`, `locks.py`, and `writes.py` for states
that have to be stored. An acknowledgement or release counts only once it is written: the operations return a `StateWrite`,
and the caller calls `complete_write` when it is stored or has failed. Until then, no member holds its records.
Pure: the caller passes the time. Long operations are generator functions, and other operations may run between their
steps.
Source: SharePartition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter

from ..coordinator.common.transition import IllegalTransition
from ..coordinator.share_state.rows import StateBatch
from .in_flight import NOBODY, InFlightBatch, StateRun, Tally
from .settings import ShareSettings
from .states import ACQUIRED, ARCHIVED, AVAILABLE, FINAL, VALID_PREVIOUS, RecordState

#: The memory of a batch that is not divided, and of each further run. Unit: bytes.
BATCH_BYTES = 305
RUN_BYTES = 175

_FIRST = attrgetter("first")


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
        #: The batches in flight, in order.
        self.batches: list[InFlightBatch] = []
        self.tally = Tally()
        #: No records below this offset are available; None if none are available at all.
        self._available_from: int | None = None
        # Acquired states are not stored. Records that the previous leader had in flight are therefore gaps, which are
        # read again.
        self._gap_offset = -1
        self._gap_end_offset = -1
        gap_offset = -1
        expected = start_offset
        for first, last, number, delivery_count in stored:
            if first < start_offset or last < first or (first < expected and self.batches):
                raise ValueError(
                    f"offsets {first} to {last} of a share partition from {start_offset} on"
                )
            if gap_offset < 0 and first > expected:
                gap_offset = expected
            state = RecordState(number)
            if state is ACQUIRED:  # no member could release it later
                state = AVAILABLE
            expected = last + 1
            self.batches.append(
                InFlightBatch(StateRun(first, last, state, delivery_count), self.tally)
            )
            if state in FINAL:
                self.delivery_complete_count += last - first + 1
        if self.batches:
            self._available_from = start_offset
            self.end_offset = self.batches[-1].last
            if gap_offset >= 0:
                self._gap_offset, self._gap_end_offset = gap_offset, self.end_offset
            self.advance_start()

    # -- what is in flight -------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """The memory of the batches in flight, estimated."""
        batches = len(self.batches)
        return BATCH_BYTES * batches + RUN_BYTES * (self.tally.runs - batches)

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    def can_acquire(self, settings: ShareSettings) -> bool:
        """Whether a fetch could acquire records, provided that they exist."""
        return (
            self.next_fetch_offset() != self.end_offset + 1
            or self.in_flight < settings.max_record_locks
        )

    def next_fetch_offset(self) -> int:
        """The offset at which the next fetch reads: the first available record, or the first offset not read yet."""
        batches = self.batches
        if not batches or self.start_offset > batches[-1].last:
            self._available_from = None
            return self.end_offset
        if self._available_from is None:
            return self.end_offset + 1
        in_gaps = self.in_gaps
        gap_offset = self._gap_offset
        begin = 0 if in_gaps else max(self.floor(self._available_from), 0)
        for place in range(begin, len(batches)):
            batch = batches[place]
            if in_gaps:
                if batch.first > gap_offset:
                    return gap_offset
                gap_offset = max(batch.last + 1, gap_offset)
            for run in batch.runs:
                if run.state is AVAILABLE and run.write is None:
                    if not in_gaps:
                        self._available_from = run.first
                    return run.first
        self._available_from = None
        return self.end_offset + 1

    # -- states ------------------------------------------------------------------------------------

    def set_state(self, run: StateRun, state: RecordState) -> None:
        """Set a state, and count the final ones. Errors: IllegalTransition, and then nothing has changed."""
        if run.state not in VALID_PREVIOUS[state]:
            raise IllegalTransition(f"offset {run.first}", run.state.name, state.name)
        if state in FINAL:
            self.delivery_complete_count += self._counted(run)
        run.state = state

    def undo(self, run: StateRun, member_id: str) -> None:
        """Give a run back to the member that held it until a write began that has failed."""
        if run.state in FINAL:
            self.delivery_complete_count -= self._counted(run)
        run.state = ACQUIRED
        run.member_id = member_id

    def _counted(self, run: StateRun) -> int:
        """The number of offsets of a run that are not before the start offset."""
        return max(run.last - max(run.first, self.start_offset) + 1, 0)

    def archive(self, first: int, last: int, state: RecordState) -> bool:
        """Archive, at once, the records in a state between two offsets; return whether there were any."""
        found = False
        for batch in self.overlapping(first, last):
            if not any(run.state is state for run in batch.runs):
                continue
            if batch.first < first or batch.last > last:
                batch.divided = True
            for run in batch.cut(first, last):
                if run.state is state:
                    run.forced = True
                    run.member_id = NOBODY
                    self.set_state(run, ARCHIVED)
                    found = True
            batch.merge(first, last)
        return found

    # -- the start offset --------------------------------------------------------------------------

    def move_start(self, log_start_offset: int) -> None:
        """Apply a new log start offset: available records before it are done.

        Source: updateCacheAndOffsets.
        """
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            return
        if self.archive(self.start_offset, log_start_offset - 1, AVAILABLE):
            self.note_available(log_start_offset)
        self._set_start(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def advance_start(self) -> bool:
        """Move the start offset past the records that are done, and drop them.

        Source: maybeUpdateCachedStateAndOffsets.
        """
        batches = self.batches
        floor = self.floor(self.start_offset)
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
            self.tally.runs = 0
            return True
        start = last_done + 1
        if done > 0 and batches[done - 1].last == last_done:
            start = batches[done].first
            if self.in_gaps:
                start = min(self._gap_offset, start)
        if start > self.start_offset:
            self._set_start(start)
        self.tally.runs -= sum(len(batch.runs) for batch in batches[:done])
        del batches[:done]
        return True

    def _last_done(self) -> tuple[int, int]:
        """The number of leading batches that are done, and the last done offset; -1 for none."""
        last_done = -1
        for place, batch in enumerate(self.batches):
            if self.in_gaps and batch.last >= self._gap_offset:
                return place, last_done
            for run in batch.runs:
                if not run.is_done:
                    return place, last_done
                last_done = run.last
        return len(self.batches), last_done

    def _set_start(self, offset: int) -> None:
        """Set the start offset, and stop counting final states before it."""
        for batch in self.overlapping(self.start_offset, offset - 1):
            for run in batch.runs:
                if run.state in FINAL:
                    first, last = max(run.first, self.start_offset), min(run.last, offset - 1)
                    self.delivery_complete_count -= max(last - first + 1, 0)
        self.start_offset = offset

    # -- the window --------------------------------------------------------------------------------

    @property
    def in_gaps(self) -> bool:
        """Whether gaps in the stored state are still to be read."""
        return self._gap_offset >= 0 and self._gap_end_offset == self.end_offset

    def move_gap(self, offset: int) -> None:
        if self._gap_offset < 0:
            return
        if self._gap_end_offset == self.end_offset and offset <= self._gap_end_offset:
            self._gap_offset = offset
        else:
            self._gap_offset = -1

    def floor(self, offset: int) -> int:
        """The index of the last batch that begins at or before an offset; -1 if there is none."""
        return bisect_right(self.batches, offset, key=_FIRST) - 1

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin between two offsets."""
        batches = self.batches
        return batches[
            bisect_left(batches, first, key=_FIRST) : bisect_right(batches, last, key=_FIRST)
        ]

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that overlap a range of offsets."""
        floor = self.floor(first)
        if floor < 0 or self.batches[floor].last < first:
            floor += 1
        return self.batches[floor : bisect_right(self.batches, last, key=_FIRST)]

    def note_available(self, offset: int) -> None:
        known = self._available_from
        self._available_from = offset if known is None else min(known, offset)

    def note_lock(self, end_ms: int) -> None:
        if self.lock_end_ms is None or end_ms < self.lock_end_ms:
            self.lock_end_ms = end_ms
