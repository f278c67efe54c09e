"""The required content of one partition, derived only from the batches that were appended to it.

Everything here is computed from the batches as they were sent and answered, without code of `server/log`, so that a bug
there cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

COMMIT, ABORT = "commit", "abort"
REMEMBERED = 5


class Violation(AssertionError):
    """The log does not have the required content."""


class Batch(NamedTuple):
    """A batch as stored in the log; base and last offset are inclusive."""

    base: int
    last: int
    data: bytes
    timestamp: int
    leader_epoch: int
    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    control: str | None = None
    records: tuple[tuple[bytes | None, bytes | None], ...] = ()


@dataclass
class Producer:
    """One producer's state."""

    epoch: int
    batches: list[Batch] = field(default_factory=list)
    first_open: int = -1
    last_at: int = -1
    """Offset of the last batch or marker."""
    faded: bool = False
    """Compaction dropped its last batch in favour of one that was lost with the power."""

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        last = self.batches[-1]
        return last.sequence + last.last - last.base + 1


class Reference:
    """The state of producers and transactions after a replay of batches."""

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        self.producers: dict[int, Producer] = {}
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)"""
        for batch in batches:
            self.note(batch)

    def note(self, batch: Batch) -> None:
        if batch.pid < 0:
            return
        producer = self.producers.get(batch.pid)
        if producer is None:
            producer = self.producers[batch.pid] = Producer(batch.epoch)
        if producer.epoch != batch.epoch:
            producer.epoch = batch.epoch
            producer.batches = []
            producer.faded = False
        producer.last_at = batch.last
        if batch.control is None:
            producer.batches = [*producer.batches[-REMEMBERED + 1 :], batch]
            if batch.transactional and producer.first_open < 0:
                producer.first_open = batch.base
            return
        if producer.first_open >= 0 and batch.control == ABORT:
            self.aborted.append((batch.pid, producer.first_open, batch.base))
        producer.first_open = -1

    def first_open(self) -> int | None:
        """The offset at which the oldest open transaction begins."""
        open_ = [p.first_open for p in self.producers.values() if p.first_open >= 0]
        return min(open_) if open_ else None

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a transactional batch was aborted."""
        return any(
            pid == batch.pid and first <= batch.base < marker for pid, first, marker in self.aborted
        )


class Expected:
    """The expected content of one partition."""

    def __init__(self, directory: str, topic: str) -> None:
        self.directory = directory
        self.topic = topic
        self.origin = 0
        """The offset at which the log started again."""
        self.batches: list[Batch] = []
        self.ghosts: dict[int, list[Batch]] = {}
        """By base offset: never acknowledged, or cut off; they may be there after all."""
        self.reference = Reference()
        self.lost_until = 0
        """A compacted log may have lost its last records and nevertheless continue at their end."""
        self.synced = 0
        """Below it, nothing may be lost in any case."""
        self.safe_start = 0
        """The log start offset can no longer be lower than that."""
        self.told_start = 0
        """Nor higher than that."""
        self.watermark = 0
        """The high watermark that was checkpointed."""
        self.leader_epoch = 0
        self.deleted = False
        self.unsure = False
        """Power or pages were lost since the log was last checked."""

    @property
    def end(self) -> int:
        """The offset of the next batch."""
        last = self.batches[-1].last + 1 if self.batches else self.origin
        return max(last, self.lost_until)

    def append(self, batch: Batch) -> None:
        """Record an acknowledged batch."""
        if batch.base != self.end:
            raise Violation(f"appended at {batch.base}, but the log ended at {self.end}")
        self.batches.append(batch)
        self.reference.note(batch)

    def maybe(self, batch: Batch) -> None:
        """Record a batch that was not acknowledged but may have been written."""
        self.ghosts.setdefault(batch.base, []).append(batch)

    def cut(self, offset: int) -> None:
        """Remove everything from offset on; until that is synced, it may come back."""
        kept = [batch for batch in self.batches if batch.last < offset]
        for batch in self.batches[len(kept) :]:
            self.maybe(batch)
        self.become(kept)
        if not kept:
            self.origin = offset
        self.lost_until = min(self.lost_until, offset)
        self.synced = min(self.synced, self.end)
        self.safe_start = min(self.safe_start, self.end)

    def restart_at(self, offset: int) -> None:
        """Empty the log, which continues at offset."""
        self.cut(0)
        self.origin = offset
        self.synced = 0
        self.safe_start = 0
        self.told_start = offset

    def become(self, batches: list[Batch]) -> None:
        """Set the log's content to these batches."""
        self.batches = batches
        self.reference = Reference(batches)

    def confirm(self, end: int) -> None:
        """Record that everything below end is on the device."""
        if end > self.synced:
            self.synced = end
        for base in [base for base in self.ghosts if base < end]:
            del self.ghosts[base]
