"""The locks by which members hold records: taken and renewed, given up by members that leave, and ended by time."""

from __future__ import annotations

from collections.abc import Generator

from .in_flight import NOBODY, InFlightBatch, StateRun, StateWrite
from .partition import SharePartition
from .settings import ShareSettings
from .states import ACQUIRED, ARCHIVED, AVAILABLE
from .writes import begin_write

#: A delivery count is stored in 16 bits.
MAX_DELIVERIES = 0x7FFF


class Lock:
    """Locks records of a share partition for a member, starting now."""

    __slots__ = ("end_ms", "member_id", "partition", "settings")

    def __init__(
        self, partition: SharePartition, member_id: str, settings: ShareSettings, now_ms: int
    ) -> None:
        self.partition = partition
        self.member_id = member_id
        self.settings = settings
        self.end_ms = now_ms + settings.lock_duration_ms

    def take(self, run: StateRun) -> None:
        """Deliver an available run, and count the delivery."""
        run.delivery_count = min(run.delivery_count + 1, MAX_DELIVERIES)
        run.member_id = self.member_id
        self.partition.set_state(run, ACQUIRED)
        self.renew(run)

    def renew(self, run: StateRun) -> None:
        """Extend the lock of a run."""
        run.lock_end_ms = self.end_ms
        self.partition.note_lock(self.end_ms)


def release(
    partition: SharePartition, member_id: str, settings: ShareSettings
) -> Generator[None, None, StateWrite]:
    """Make the records that a member holds available again.

    Source: releaseAcquiredRecords.
    """
    write = StateWrite(settings.delivery_count_limit)
    for batch in list(partition.batches):
        yield
        for run in _acquired_runs(partition, batch):
            if run.member_id == member_id:
                state = ARCHIVED if run.last < partition.start_offset else AVAILABLE
                begin_write(partition, write, run, state)
        batch.merge(batch.first, batch.last)
    return write


def expire(
    partition: SharePartition, settings: ShareSettings, now_ms: int
) -> Generator[None, None, StateWrite]:
    """Make records available whose lock has expired.

    Source: releaseAcquisitionLockOnTimeout.
    """
    write = StateWrite(settings.delivery_count_limit, holds=False)
    partition.lock_end_ms = None
    for batch in list(partition.batches):
        yield
        for run in _acquired_runs(partition, batch):
            if run.lock_end_ms > now_ms:
                partition.note_lock(run.lock_end_ms)
                continue
            state = AVAILABLE
            if (
                run.last < partition.start_offset
                or run.delivery_count >= write.delivery_count_limit
            ):
                state = ARCHIVED
            run.member_id = NOBODY
            partition.set_state(run, state)
            write.add(run)
            if state is AVAILABLE:
                partition.note_available(run.first)
        batch.merge(batch.first, batch.last)
    return write


def _acquired_runs(partition: SharePartition, batch: InFlightBatch) -> list[StateRun]:
    """The acquired runs of a batch, divided at the start offset."""
    runs = batch.runs
    start = partition.start_offset
    if batch.first < start <= batch.last and any(
        run.first < start <= run.last and run.state is ACQUIRED for run in runs
    ):
        batch.divided = True
        batch.cut(start, batch.last)
    return [run for run in runs if run.state is ACQUIRED]
