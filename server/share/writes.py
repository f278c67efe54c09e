"""States that have to be stored: what a run is until its write ends, and what it becomes then."""

from __future__ import annotations

from collections.abc import Generator

from .in_flight import NOBODY, StateRun, StateWrite
from .partition import SharePartition
from .states import ARCHIVED, AVAILABLE, RecordState


def begin_write(
    partition: SharePartition, write: StateWrite, run: StateRun, state: RecordState
) -> None:
    """Change the state of an acquired run, pending its write."""
    if state is AVAILABLE and run.delivery_count >= write.delivery_count_limit:
        state = ARCHIVED
    run.before = run.member_id
    run.write = write
    run.member_id = NOBODY
    partition.set_state(run, state)
    write.add(run)


def complete_write(
    partition: SharePartition, write: StateWrite, stored: bool, now_ms: int
) -> Generator[None, None, bool]:
    """Complete a write that was stored or has failed; return whether more records can be fetched than before."""
    changed = False
    if write.holds:
        for row in write.batches:
            yield
            for batch in partition.overlapping(row.first_offset, row.last_offset):
                first = max(row.first_offset, batch.first)
                begin, end = batch.place_of(first), batch.place_of(row.last_offset)
                for run in batch.runs[begin : end + 1]:
                    if run.write is write:
                        changed = _end(partition, run, stored, now_ms) or changed
                batch.merge(row.first_offset, row.last_offset)
    if stored or not write.holds:
        changed = partition.advance_start() or changed
    return changed


def _end(partition: SharePartition, run: StateRun, stored: bool, now_ms: int) -> bool:
    """Give a run its new state, or restore the previous one; return whether the run is available now."""
    write, member_id = run.write, run.before
    assert write is not None and member_id is not None
    run.write = run.before = None
    if not stored and not run.forced:
        partition.undo(run, member_id)
        if run.lock_end_ms <= now_ms:
            is_last = run.delivery_count >= write.delivery_count_limit
            run.member_id = NOBODY
            partition.set_state(run, ARCHIVED if is_last else AVAILABLE)
        else:
            partition.note_lock(run.lock_end_ms)
    if run.state is AVAILABLE:
        partition.note_available(run.first)
        return True
    return False
