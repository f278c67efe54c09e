"""Records in flight: batches with one state each, divided into runs of offsets where states differ.

Whole batches are acquired and acknowledged in one step, however many records they have. A batch is divided only where
an acknowledgement, a limit or the start offset lies within it, and then into as few runs as there are different states.
Source: InFlightBatch, InFlightState, RecordState; there each record of a divided batch has a state of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from ..coordinator.share.rows import StateBatch

#: States of records, as they are stored. Source: RecordState.
AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
ARCHIVED = 4

#: The states that a record does not leave.
FINAL = (ACKNOWLEDGED, ARCHIVED)

NOBODY = ""

_FIRST = attrgetter("first")


class Run:
    """Consecutive offsets in the same state.

    Shape: `first` and `last` are included. `member_id` is whose the records are, empty unless they are acquired.
    `delivery_count` is how often they were delivered. `write` is the write that this state waits for, and `before` the
    state and the member to go back to if it fails; None if there is none. `forced` says that the records were
    archived whatever becomes of the write.
    Unit: the lock ends at `lock_end_ms`.
    """

    __slots__ = (
        "before",
        "delivery_count",
        "first",
        "forced",
        "last",
        "lock_end_ms",
        "member_id",
        "state",
        "write",
    )

    def __init__(
        self, first: int, last: int, state: int, delivery_count: int, member_id: str = NOBODY
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_end_ms = 0
        self.write: StateWrite | None = None
        self.before: tuple[int, str] | None = None
        self.forced = False

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last}, {self.state}, {self.delivery_count}, {self.member_id!r})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it may be delivered."""
        return self.state == AVAILABLE and self.write is None

    @property
    def is_done(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.state in FINAL and self.write is None

    def is_like(self, other: Run) -> bool:
        """Whether both are in the same state in every respect."""
        return (
            self.state == other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.write is other.write
            and self.before == other.before
            and self.forced == other.forced
            and (
                self.lock_end_ms == other.lock_end_ms
                or (self.write is None and self.state != ACQUIRED)
            )
        )

    def split(self, offset: int) -> Run:
        """Give up the offsets from this one on, and return them as a run of their own."""
        rest = Run(offset, self.last, self.state, self.delivery_count, self.member_id)
        rest.lock_end_ms, rest.write = self.lock_end_ms, self.write
        rest.before, rest.forced = self.before, self.forced
        self.last = offset - 1
        return rest


class InFlightBatch:
    """Offsets that were acquired together.

    Shape: `runs` covers `first` to `last` (included) without gaps. `divided` says that states are kept by offset since
    something concerned only a part of it, as Apache Kafka tells clients.
    """

    __slots__ = ("divided", "first", "last", "runs")

    def __init__(self, run: Run) -> None:
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        self.divided = False

    def __repr__(self) -> str:
        return f"InFlightBatch({self.runs})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def place_of(self, offset: int) -> int:
        """The index of the run with an offset of this batch."""
        return bisect_right(self.runs, offset, key=_FIRST) - 1

    def cut(self, first: int, last: int) -> list[Run]:
        """Divide runs so that some begin at `first` and end at `last`, and return those."""
        runs = self.runs
        if len(runs) == 1 and first <= self.first and last >= self.last:
            return runs[:]
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return []
        begin = self.place_of(first)
        if runs[begin].first < first:
            begin += 1
            runs.insert(begin, runs[begin - 1].split(first))
        end = self.place_of(last)
        if runs[end].last > last:
            runs.insert(end + 1, runs[end].split(last + 1))
        return runs[begin : end + 1]

    def merge(self, first: int, last: int) -> None:
        """Join neighbours in the same state, between two offsets and just outside them."""
        runs = self.runs
        if len(runs) == 1:
            return
        place = max(self.place_of(max(first, self.first)) - 1, 0)
        end = min(self.place_of(min(last, self.last)) + 1, len(runs) - 1)
        kept = [runs[place]]
        for run in runs[place + 1 : end + 1]:
            if kept[-1].is_like(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        if len(kept) <= end - place:
            runs[place : end + 1] = kept


class StateWrite:
    """States that are to be stored.

    Shape: `holds` says that the records wait for it; otherwise they have changed already.
    """

    __slots__ = ("batches", "delivery_count_limit", "holds")

    def __init__(self, delivery_count_limit: int, *, holds: bool = True) -> None:
        self.batches: list[StateBatch] = []
        self.delivery_count_limit = delivery_count_limit
        self.holds = holds

    def add(self, run: Run) -> None:
        self.batches.append(StateBatch(run.first, run.last, run.state, run.delivery_count))
