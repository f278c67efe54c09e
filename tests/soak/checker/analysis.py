"""Facts derived once from a history for all checks: where values are, who wrote them, and what is visible."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .history import READ_COMMITTED, Line, Operation, operations


@dataclass(frozen=True, slots=True)
class Expectations:
    """The intended behaviour of the load, as far as it does not follow from the history.

    Shape: `at_least_once` topics are written without idempotence, so values may be repeated and out of order.
    `transforms` are (group, source topic, target topic): each record read is written once, with a `<` before its value.
    `drained`: at the end, every group had time to read everything.
    """

    at_least_once: frozenset[str] = frozenset()
    transforms: tuple[tuple[str, str, str], ...] = ()
    drained: bool = True


def topic_of(tp: str) -> str:
    """Return the topic of a partition named as its folder."""
    return tp.rpartition("-")[0]


class PartitionLog:
    """One partition as its clients saw it."""

    def __init__(self) -> None:
        self.values: dict[int, str] = {}  # by offset, as first heard
        self.conflicts: dict[int, set[str]] = {}
        self.offsets: dict[str, set[int]] = defaultdict(set)
        self.everything: list[int] = []
        self.committed: list[int] = []
        self.end_offset: int | None = None

    def learn(self, offset: int, value: str) -> None:
        """Note that a value was said to be at an offset."""
        known = self.values.setdefault(offset, value)
        if known is not value and known != value:
            self.conflicts.setdefault(offset, {known}).add(value)
        self.offsets[value].add(offset)

    def visible(self, isolation: str | None) -> list[int]:
        """Return the offsets that a consumer can read, ascending."""
        return self.committed if isolation == READ_COMMITTED else self.everything

    def between(self, isolation: str | None, after: int, before: int) -> list[int]:
        """Return the visible offsets between two, both exclusive."""
        offsets = self.visible(isolation)
        return offsets[bisect.bisect_right(offsets, after) : bisect.bisect_left(offsets, before)]


@dataclass(slots=True)
class Analysis:
    """A history, and the facts derived from it."""

    operations: list[Operation]
    expectations: Expectations
    logs: dict[str, PartitionLog] = field(default_factory=lambda: defaultdict(PartitionLog))
    writers: dict[tuple[str, str], Operation] = field(default_factory=dict)
    polled: set[tuple[str, str]] = field(default_factory=set)
    polled_committed: set[tuple[str, str]] = field(default_factory=set)
    #: From when to when markers may have been written again, once for each entry.
    repeats: list[tuple[float, float]] = field(default_factory=list)

    def named(self, *names: str) -> Iterator[Operation]:
        """Yield the operations of these names."""
        return (operation for operation in self.operations if operation.name in names)

    def committed(self, operation: Operation) -> bool:
        """Tell whether the records of an operation must be visible to read_committed.

        The outcome of an `info` transaction is unknown, unless a read_committed reader saw some of its records: then
        all of it is committed. Outside a transaction, records in the log are committed.
        """
        if operation.transactional_id is None or operation.outcome == "ok":
            return True
        return operation.outcome == "info" and any(
            (tp, value) in self.polled_committed for tp, value, _ in operation.sends
        )

    def acknowledged(self, operation: Operation) -> Iterator[tuple[str, str, int | None]]:
        """Yield partition, value and offset of sends that must be readable for ever.

        Outside a transaction each send counts for itself: one with an offset was acknowledged,
        however its neighbours fared.
        """
        whole = operation.outcome == "ok" or (
            operation.transactional_id is not None and self.committed(operation)
        )
        for tp, value, offset in operation.sends:
            if whole or (operation.transactional_id is None and offset is not None):
                yield tp, value, offset

    def exactly_once(self, tp: str) -> bool:
        """Tell whether each value must be in a partition exactly once, in the order of sending."""
        return topic_of(tp) not in self.expectations.at_least_once


def analyse(lines: Iterable[Line], expectations: Expectations) -> Analysis:
    """Analyse the lines of all clients, in any order.

    Polls count regardless of the outcome of their transaction, because the records that a consumer gets do not depend
    on it. Acknowledged offsets of aborted sends count, too: the record is in the log, and read_uncommitted shows it.
    """
    analysis = Analysis(operations(lines), expectations)
    for operation in analysis.operations:
        for tp, value, offset in operation.sends:
            analysis.writers[tp, value] = operation
            if offset is not None:
                analysis.logs[tp].learn(offset, value)
        for tp, records in operation.polls:
            log = analysis.logs[tp]
            for offset, value in records:
                log.learn(offset, value)
                analysis.polled.add((tp, value))
                if operation.isolation == READ_COMMITTED:
                    analysis.polled_committed.add((tp, value))
        for tp, acquired in operation.acquired:
            for offset, _, value in acquired:
                analysis.logs[tp].learn(offset, value)
        if operation.name == "kill":
            analysis.repeats.append((operation.invoked, operation.invoked))
        elif operation.name == "move":  # of the partition's leader, and of the coordinator
            analysis.repeats += [(operation.invoked, operation.completed)] * 2
        elif operation.name == "end":
            for tp, offset in operation.offsets.items():
                log = analysis.logs[tp]
                log.end_offset = max(offset, log.end_offset or 0)
    for tp, log in analysis.logs.items():
        _order(analysis, tp, log)
    return analysis


def _order(analysis: Analysis, tp: str, log: PartitionLog) -> None:
    committed: dict[int, bool] = {}  # by operation
    log.everything = sorted(log.values)
    for offset in log.everything:
        writer = analysis.writers.get((tp, log.values[offset]))
        if writer is not None:
            if writer.index not in committed:
                committed[writer.index] = analysis.committed(writer)
            if not committed[writer.index]:
                continue
        log.committed.append(offset)
