"""In-flight records: batches that have one state each, or are divided into runs of offsets with different states.

A whole batch is acquired or acknowledged in one step, regardless of its number of records. A batch is divided only
where an acknowledgement, a limit or the start offset falls inside it, into one run for each change of state.
Source: InFlightBatch, InFlightState. Apache Kafka keeps one state per record of a divided batch.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from ..coordinator.share_state.rows import StateBatch
from .states import ACQUIRED, AVAILABLE, FINAL, RecordState

NOBODY = ""

_FIRST = attrgetter("first")


class StateRun:
    """Consecutive offsets in the same state.

    Shape: `first` and `last` are inclusive. `member_id` is the member that holds the records; it is empty unless they
    are acquired. `delivery_count` is the number of deliveries. `write` is the pending write of this state, and `before`
    the member that holds the records again if the write fails; both are None if no write is pending. `forced` says that the
    records were archived and stay archived even if the write fails.
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
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NOBODY,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_end_ms = 0
        self.write: StateWrite | None = None
        self.before: str | None = None
        self.forced = False

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last}, {self.state.name}, {self.delivery_count}, {self.member_id!r})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether the run may be delivered."""
        return self.state is AVAILABLE and self.write is None

    @property
    def is_done(self) -> bool:
        """Whether the run is in a final state that is stored."""
        return self.state in FINAL and self.write is None

    def is_like(self, other: StateRun) -> bool:
        """Whether both runs have the same state in every respect."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.write is other.write
            and self.before == other.before
            and self.forced == other.forced
            and (
                self.lock_end_ms == other.lock_end_ms
                or (self.write is None and self.state is not ACQUIRED)
            )
        )

    def split(self, offset: int) -> StateRun:
        """Cut off the offsets from the given one on, and return them as a separate run."""
        rest = StateRun(offset, self.last, self.state, self.delivery_count, self.member_id)
        rest.lock_end_ms, rest.write = self.lock_end_ms, self.write
        rest.before, rest.forced = self.before, self.forced
        self.last = offset - 1
        return rest


class Tally:
    """The number of runs of all batches of a share partition."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs = 0


class InFlightBatch:
    """Offsets that were acquired together.

    Shape: `runs` covers `first` through `last` without gaps. `divided` says that states are kept per offset because an
    operation affected only a part of the batch; this is what Apache Kafka reports to clients. `tally` counts its runs
    together with those of others.
    """

    __slots__ = ("divided", "first", "last", "runs", "tally")

    def __init__(self, run: StateRun, tally: Tally) -> None:
        self.tally = tally
        tally.runs += 1
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        self.divided = False

    def __repr__(self) -> str:
        return f"InFlightBatch({self.runs})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def place_of(self, offset: int) -> int:
        """The index of the run that contains an offset of this batch."""
        return bisect_right(self.runs, offset, key=_FIRST) - 1

    def is_divided_by(self, first: int, last: int) -> bool:
        """Whether runs would have to be divided so that they begin at `first` and end at `last`."""
        runs = self.runs
        return runs[self.place_of(first)].first != first or runs[self.place_of(last)].last != last

    def cut(self, first: int, last: int) -> list[StateRun]:
        """Divide runs so that runs begin at `first` and end at `last`, and return the runs in between."""
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
            self.tally.runs += 1
        end = self.place_of(last)
        if runs[end].last > last:
            runs.insert(end + 1, runs[end].split(last + 1))
            self.tally.runs += 1
        return runs[begin : end + 1]

    def merge(self, first: int, last: int) -> None:
        """Merge adjacent runs in the same state, between two offsets and at their edges."""
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
            self.tally.runs -= end - place + 1 - len(kept)
            runs[place : end + 1] = kept


class StateWrite:
    """States that are to be stored.

    Shape: `holds` says that the records wait for the write; otherwise their state has changed already.
    """

    __slots__ = ("batches", "delivery_count_limit", "holds")

    def __init__(self, delivery_count_limit: int, *, holds: bool = True) -> None:
        self.batches: list[StateBatch] = []
        self.delivery_count_limit = delivery_count_limit
        self.holds = holds

    def add(self, run: StateRun) -> None:
        self.batches.append(StateBatch(run.first, run.last, run.state, run.delivery_count))
