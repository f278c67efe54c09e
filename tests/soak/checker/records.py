"""Single records: each acknowledged one exists once, at one offset, and no others exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .analysis import Analysis, topic_of
from .history import READ_COMMITTED, Operation


def lost_writes(analysis: Analysis) -> Iterator[str]:
    """An acknowledged value that no consumer got, although one got later records."""
    read_to = {
        tp: max((o for o in log.values if (tp, log.values[o]) in analysis.polled), default=-1)
        for tp, log in analysis.logs.items()
    }
    for operation in analysis.operations:
        for tp, value, offset in analysis.acknowledged(operation):
            if (tp, value) in analysis.polled:
                continue
            # An info transaction of which something was read is committed as a whole, offset or
            # not.
            if offset is None or offset <= read_to[tp]:
                yield f"{tp}: {value} at {offset}, sent by {operation}; read up to {read_to[tp]}"


def unseen(analysis: Analysis) -> Iterator[str]:
    """An acknowledged value beyond everything that was read: the end of the log is missing."""
    read_to: dict[str, int] = {}
    for tp, log in analysis.logs.items():
        seen = [o for o, value in log.values.items() if (tp, value) in analysis.polled]
        read_to[tp] = max(seen, default=-1)
    for operation in analysis.operations:
        for tp, value, offset in analysis.acknowledged(operation):
            if (tp, value) not in analysis.polled and offset is not None and offset > read_to[tp]:
                yield f"{tp}: {value} at {offset}, sent by {operation}; read up to {read_to[tp]}"


def two_values(analysis: Analysis) -> Iterator[str]:
    """One offset with different values for different clients."""
    for tp, log in analysis.logs.items():
        for offset, values in sorted(log.conflicts.items()):
            yield f"{tp}: offset {offset} holds {sorted(values)}"


def two_offsets(analysis: Analysis) -> Iterator[str]:
    """One value of an idempotent or transactional producer at several offsets."""
    for tp, log in analysis.logs.items():
        if analysis.exactly_once(tp):
            for value, offsets in log.offsets.items():
                if len(offsets) > 1:
                    yield f"{tp}: {value} lies at {sorted(offsets)}"


def duplicates(analysis: Analysis) -> Iterator[str]:
    """One value that one reader got twice without seeking back."""
    given: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for operation in analysis.operations:
        if operation.name in ("assign", "revoke"):
            for tp in operation.offsets:
                given.pop((operation.process, tp), None)
        for tp, records in operation.polls:
            if not analysis.exactly_once(tp):
                continue
            seen = given[operation.process, tp]
            for offset, value in records:
                if value in seen:
                    yield f"{tp}: {operation} got {value} at {seen[value]} and again at {offset}"
                seen[value] = offset


def phantoms(analysis: Analysis) -> Iterator[str]:
    """A value that was read but never sent."""
    for tp, log in analysis.logs.items():
        for value, offsets in log.offsets.items():
            if (tp, value) not in analysis.writers:
                yield f"{tp}: {value} at {sorted(offsets)} was sent by nobody"


def aborted_reads(analysis: Analysis) -> Iterator[str]:
    """A read_committed consumer got a record of a transaction that was certainly not committed."""
    for operation, tp, value, writer in _reads_with_writer(analysis):
        if writer.outcome == "fail":
            yield f"{tp}: {operation} got {value} of {writer}"


def failed_writes(analysis: Analysis) -> Iterator[str]:
    """A value outside a transaction that was certainly refused but is in the log."""
    for operation in analysis.named("send"):
        if operation.outcome == "fail":
            for tp, value, _ in operation.sends:
                if (tp, value) in analysis.polled:
                    yield f"{tp}: {value} of {operation} was read"


def dirty_reads(analysis: Analysis) -> Iterator[str]:
    """A read_committed consumer got a value before the commit of its transaction was requested."""
    for operation, tp, value, writer in _reads_with_writer(analysis):
        if writer.outcome == "fail":
            continue  # an aborted read
        if writer.ending is None or operation.completed < writer.ending:
            yield f"{tp}: {operation} got {value} before {writer} was to commit"


def precommitted_reads(analysis: Analysis) -> Iterator[str]:
    """A transaction whose own read_committed consumer got a record that it had sent."""
    for operation, tp, value, writer in _reads_with_writer(analysis):
        if writer is operation:
            yield f"{tp}: {operation} got its own {value}"


def _reads_with_writer(analysis: Analysis) -> Iterator[tuple[Operation, str, str, Operation]]:
    """Yield each committed read of a transaction's value: reader, partition, value, writer."""
    for operation in analysis.operations:
        if operation.isolation != READ_COMMITTED:
            continue
        for tp, records in operation.polls:
            for _, value in records:
                writer = analysis.writers.get((tp, value))
                if writer is not None and writer.transactional_id is not None:
                    yield operation, tp, value, writer


def sparse_offsets(analysis: Analysis) -> Iterator[str]:
    """An offset that is neither a record nor possibly the end of a transaction.

    A marker is behind the last record of its transaction in the partition, and before the first record of the next
    transaction with the same id. Each transaction leaves one marker in a partition, plus one for each kill (two for
    each move of leaders) until the id's next transaction completes: a restarted coordinator writes markers again if it
    does not know that they were written, and so does one that got no answer. Source: TransactionMarkerChannelManager.
    """
    room = _room_for_markers(analysis)
    for tp, log in analysis.logs.items():
        intervals = sorted(room.get(tp, ()))
        waiting: list[list[float]] = []  # [the offset before which, how many there may be]
        position = 0
        end = log.end_offset if log.end_offset is not None else max(log.values, default=-1) + 1
        for hole in range(end):
            if hole in log.values:
                continue
            while position < len(intervals) and intervals[position][0] < hole:
                waiting.append([intervals[position][1], intervals[position][2]])
                position += 1
            waiting = [entry for entry in waiting if entry[0] > hole and entry[1] > 0]
            if not waiting:
                yield f"{tp}: nothing is known of offset {hole}"
            else:
                min(waiting)[1] -= 1  # the one that ends first


def _room_for_markers(analysis: Analysis) -> dict[str, list[tuple[int, float, int]]]:
    """Return where the markers of each partition may lie: after, before (exclusive), how many."""
    by_id: dict[str, list[Operation]] = defaultdict(list)
    for operation in analysis.named("txn"):
        if operation.transactional_id is not None:
            by_id[operation.transactional_id].append(operation)
    room: dict[str, list[tuple[int, float, int]]] = defaultdict(list)
    for transactions in by_id.values():
        transactions.sort(key=lambda operation: operation.invoked)
        last: dict[str, int] = {}
        bounds = []
        for operation in transactions:  # forward: behind which record
            known = _known_offsets(analysis, operation)
            for tp, offsets in known.items():
                last[tp] = max(offsets, default=last.get(tp, -1))
            bounds.append((known, {tp: last[tp] for tp in known}))
        following: dict[str, int] = {}
        over = float("inf")
        for operation, (known, after) in zip(reversed(transactions), reversed(bounds), strict=True):
            repeats = sum(
                operation.invoked <= end and begin <= over for begin, end in analysis.repeats
            )
            for tp, offsets in known.items():
                before = following.get(tp, float("inf"))
                room[tp].append((after[tp], before, 1 + repeats))
                following[tp] = min(offsets, default=before)
            over = operation.completed
    return room


def _known_offsets(analysis: Analysis, operation: Operation) -> dict[str, list[int]]:
    return {
        tp: [o for value, _ in sends for o in analysis.logs[tp].offsets.get(value, ())]
        for tp, sends in operation.sent().items()
    }


def end_offsets(analysis: Analysis) -> Iterator[str]:
    """A partition whose end differs for read_committed after all transactions: a transaction hangs."""
    ends: dict[str, dict[str | None, int]] = defaultdict(dict)
    for operation in analysis.named("end"):
        for tp, offset in operation.offsets.items():
            ends[tp][operation.isolation] = offset
    for tp, by_isolation in ends.items():
        if len(set(by_isolation.values())) > 1:
            yield f"{tp}: ends at {by_isolation} (topic {topic_of(tp)})"
