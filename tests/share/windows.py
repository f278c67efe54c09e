"""A share partition under the control of a test, with short names for operations on it."""

from __future__ import annotations

from collections.abc import Sequence

from kwire.records.batch import BatchHeader
from server.coordinator.share_state.rows import StateBatch
from server.share import acknowledgement, acquisition, locks, writes
from server.share.acknowledgement import Acknowledged, ShareRefusal
from server.share.acquisition import AcquireLimits
from server.share.fetched import Fetched, FetchedBatch
from server.share.in_flight import StateRun, StateWrite
from server.share.partition import BATCH_BYTES, RUN_BYTES, SharePartition
from server.share.settings import ShareSettings
from server.turns import exhaust

LOCK_MS = 30_000
NAMES = {0: "available", 1: "acquired", 2: "acknowledged", 4: "archived"}

Range = tuple[int, int]


def header(first: int, last: int) -> BatchHeader:
    return BatchHeader(first, 49, 0, 2, 0, 0, last - first, 0, 0, -1, -1, -1, last - first + 1)


def stored(*ranges: Range) -> Fetched:
    """The batches that were read, with these offsets (both included)."""
    batches = [
        FetchedBatch(first, last, 61 * number, 61, header(first, last))
        for number, (first, last) in enumerate(ranges)
    ]
    return Fetched(bytes(61 * len(ranges)), batches)


class Window:
    """A share partition, its settings and the time."""

    def __init__(
        self, start: int = 0, *batches: tuple[int, int, int, int], **settings: int | bool
    ) -> None:
        self.machine = SharePartition(0, start, [StateBatch(*each) for each in batches])
        self.settings = ShareSettings(**settings)  # type: ignore[arg-type]
        self.now_ms = 0

    def acquire(
        self,
        *ranges: Range,
        member: str = "one",
        most: int = 500,
        batch_size: int = 10_000,
        exact: bool = False,
        at: int | None = None,
        found: Fetched | None = None,
    ) -> list[tuple[int, int, int]]:
        """Acquire of batches that were read: (first, last, delivery count)."""
        read = found or stored(*ranges)
        rows, count = acquisition.acquire(
            self.machine,
            member,
            read,
            read.first_offset if at is None else at,
            AcquireLimits(most, batch_size, exact),
            self.settings,
            self.now_ms,
        )
        found_rows = [(each.first_offset, each.last_offset, each.delivery_count) for each in rows]
        assert count == sum(last - first + 1 for first, last, _ in found_rows)
        return found_rows

    def begin(
        self, *asked: tuple[int, int, int | Sequence[int]], member: str = "one"
    ) -> StateWrite | ShareRefusal:
        """Acknowledge, and leave the write to the test."""
        batches = [
            Acknowledged(first, last, [types] if isinstance(types, int) else types)
            for first, last, types in asked
        ]
        return exhaust(
            acknowledgement.acknowledge(self.machine, member, batches, self.settings, self.now_ms)
        )

    def acknowledge(
        self, *asked: tuple[int, int, int | Sequence[int]], member: str = "one"
    ) -> list[tuple[int, int, int, int]] | ShareRefusal:
        """Acknowledge, and return the stored states."""
        write = self.begin(*asked, member=member)
        if isinstance(write, ShareRefusal):
            return write
        self.complete(write)
        return [tuple(each) for each in write.batches]  # type: ignore[misc]

    def complete(self, write: StateWrite | ShareRefusal, stored: bool = True) -> bool:
        assert isinstance(write, StateWrite), write
        changed = exhaust(writes.complete_write(self.machine, write, stored, self.now_ms))
        self.check()
        return changed

    def release(self, member: str = "one") -> StateWrite:
        return exhaust(locks.release(self.machine, member, self.settings))

    def expire(self, after_ms: int = LOCK_MS) -> list[tuple[int, int, int, int]]:
        """Let time pass, and return the stored states of locks that have ended."""
        self.now_ms += after_ms
        if self.machine.lock_end_ms is None or self.machine.lock_end_ms > self.now_ms:
            return []
        write = exhaust(locks.expire(self.machine, self.settings, self.now_ms))
        self.complete(write)
        return [tuple(each) for each in write.batches]  # type: ignore[misc]

    @property
    def states(self) -> list[str]:
        """The records in flight, as "first-last state count member"."""
        return [shown(run) for batch in self.machine.batches for run in batch.runs]

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Start, end and next fetch offset."""
        machine = self.machine
        return machine.start_offset, machine.end_offset, machine.next_fetch_offset()

    def check(self) -> None:
        """Check the invariants of share partitions."""
        machine = self.machine
        done = 0
        before = -1
        for batch in machine.batches:
            assert batch.first > before
            expected = batch.first
            for run in batch.runs:
                assert run.first == expected and run.last >= run.first
                expected = run.last + 1
                if run.state in (2, 4):
                    done += max(run.last - max(run.first, machine.start_offset) + 1, 0)
                assert (run.state == 1) == bool(run.member_id)
                assert (run.write is None) == (run.before is None)
                if run.state == 1:
                    assert machine.lock_end_ms is not None
                    assert machine.lock_end_ms <= run.lock_end_ms
            assert expected == batch.last + 1
            before = batch.last
        assert machine.delivery_complete_count == done
        batches, runs = len(machine.batches), sum(len(each.runs) for each in machine.batches)
        assert machine.held_bytes == BATCH_BYTES * batches + RUN_BYTES * (runs - batches)
        if machine.batches:
            assert machine.end_offset >= before


def shown(run: StateRun) -> str:
    member = f" {run.member_id}" if run.member_id else ""
    waits = "..." if run.write is not None else ""
    return f"{run.first}-{run.last} {NAMES[run.state]}{waits} {run.delivery_count}{member}"
