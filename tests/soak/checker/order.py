"""The order of records: the sends and polls of a process move forward and skip nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from .analysis import Analysis, PartitionLog
from .history import Operation


def internal_poll_skips(analysis: Analysis) -> Iterator[str]:
    """Two adjacent records of one poll with a skipped record in between."""
    for operation, tp, log, offsets in _polls(analysis):
        for before, after in pairwise(offsets):
            left_out = log.between(operation.isolation, before, after)
            if left_out:
                yield f"{tp}: {operation} got {before}, then {after}; not {left_out[:8]}"


def internal_nonmonotonic_polls(analysis: Analysis) -> Iterator[str]:
    """Two adjacent records of one poll, the second of which has the lower offset."""
    for operation, tp, _, offsets in _polls(analysis):
        for before, after in pairwise(offsets):
            if after <= before:
                yield f"{tp}: {operation} got {before}, then {after}"


def poll_skips(analysis: Analysis) -> Iterator[str]:
    """A poll that begins further on than the one before it ended, in one stretch of reading."""
    for operation, tp, log, position, first in _successive_polls(analysis):
        left_out = log.between(operation.isolation, position - 1, first)
        if left_out:
            yield f"{tp}: {operation} begins at {first}, expected {position}; not {left_out[:8]}"


def nonmonotonic_polls(analysis: Analysis) -> Iterator[str]:
    """A poll that begins before the end of the one before it, in one stretch of reading."""
    for operation, tp, _, position, first in _successive_polls(analysis):
        if first < position:
            yield f"{tp}: {operation} begins at {first}, expected {position}"


def internal_send_skips(analysis: Analysis) -> Iterator[str]:
    """Two adjacent records of one send with another record in between.

    Only where one process is the sole writer: elsewhere, as in transactions, the writes of several processes
    interleave.
    """
    alone = _written_by_one(analysis)
    for operation, tp, log, offsets in _sends(analysis):
        if tp in alone:
            for before, after in pairwise(offsets):
                between = log.between(None, before, after)
                if between:
                    yield f"{tp}: {operation} sent {before}, then {after}; {between[:8]} lie between"


def internal_nonmonotonic_sends(analysis: Analysis) -> Iterator[str]:
    """Two adjacent records of one send, the second of which has the lower offset."""
    for operation, tp, _, offsets in _sends(analysis):
        for before, after in pairwise(offsets):
            if after <= before:
                yield f"{tp}: {operation} sent {before}, then {after}"


def send_skips(analysis: Analysis) -> Iterator[str]:
    """Two successive operations of the only writer, between whose records there is another one."""
    alone = _written_by_one(analysis)
    for before, operation, tp, log, last, first in _successive_sends(analysis):
        if tp in alone:
            between = log.between(None, last, first)
            if between:
                yield f"{tp}: {before} ended at {last}, {operation} begins at {first}: {between[:8]}"


def nonmonotonic_sends(analysis: Analysis) -> Iterator[str]:
    """Two successive operations of a process, the second of which lies before the first."""
    for before, operation, tp, _, last, first in _successive_sends(analysis):
        if first <= last:
            yield f"{tp}: {before} ended at {last}, {operation} begins at {first}"


def _polls(analysis: Analysis) -> Iterator[tuple[Operation, str, PartitionLog, list[int]]]:
    for operation in analysis.operations:
        for tp, records in operation.polls:
            yield operation, tp, analysis.logs[tp], [offset for offset, _ in records]


def _successive_polls(
    analysis: Analysis,
) -> Iterator[tuple[Operation, str, PartitionLog, int, int]]:
    """Yield each poll but the first of a stretch: the position left before, the offset it begins at.

    A stretch of reading begins with an assignment; a rebalance may give or take partitions, so
    nothing is expected over it. `groups` looks at where a stretch begins.
    """
    positions: dict[tuple[str, str], int] = {}
    for operation in analysis.operations:
        if operation.name in ("assign", "revoke"):
            for tp, offset in operation.offsets.items():
                positions.pop((operation.process, tp), None)
                if offset >= 0 and operation.name != "revoke":
                    positions[operation.process, tp] = offset
        for tp, records in operation.polls:
            if not records:
                continue
            position = positions.get((operation.process, tp))
            if position is not None:
                yield operation, tp, analysis.logs[tp], position, records[0][0]
            positions[operation.process, tp] = records[-1][0] + 1


def _sends(analysis: Analysis) -> Iterator[tuple[Operation, str, PartitionLog, list[int]]]:
    """Yield what operations sent to each partition, where it is known: their offsets in that order."""
    for operation in analysis.operations:
        for tp, sends in operation.sent().items():
            if analysis.exactly_once(tp):
                log = analysis.logs[tp]
                found = (_offset(log, value, offset) for value, offset in sends)
                offsets = [offset for offset in found if offset is not None]
                if offsets:
                    yield operation, tp, log, offsets


def _offset(log: PartitionLog, value: str, acknowledged: int | None) -> int | None:
    if acknowledged is not None:
        return acknowledged
    return min(log.offsets.get(value, ()), default=None)  # read, though not acknowledged


def _successive_sends(
    analysis: Analysis,
) -> Iterator[tuple[Operation, Operation, str, PartitionLog, int, int]]:
    last: dict[tuple[str, str], tuple[Operation, int]] = {}
    for operation, tp, log, offsets in _sends(analysis):
        before = last.get((operation.process, tp))
        if before is not None:
            yield before[0], operation, tp, log, before[1], offsets[0]
        last[operation.process, tp] = operation, offsets[-1]


def _written_by_one(analysis: Analysis) -> set[str]:
    processes: dict[str, set[str]] = defaultdict(set)
    for (tp, _), writer in analysis.writers.items():
        processes[tp].add(writer.process)
    return {tp for tp, writers in processes.items() if len(writers) == 1}
