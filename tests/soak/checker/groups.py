"""Consumer groups: each continues where it committed, and together its members get everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .analysis import Analysis
from .history import Operation


def group_rewinds(analysis: Analysis) -> Iterator[str]:
    """A member was assigned a partition and began before an acknowledged commit, which was lost."""
    commits = _commits(analysis, certain=True)
    for poll, tp, assigned, first in _resumptions(analysis):
        assert poll.group is not None
        done = [
            (offset, commit)
            for commit, offset in commits[poll.group, tp]
            if commit.completed < assigned.invoked
        ]
        if done:
            offset, commit = max(done, key=lambda entry: entry[0])
            if first < offset:
                yield f"{tp}: {poll} of {poll.group} begins at {first}; {commit} committed {offset}"


def group_skips(analysis: Analysis) -> Iterator[str]:
    """A member was assigned a partition and skipped records for which no offset had been committed."""
    commits = _commits(analysis, certain=False)
    for poll, tp, _, first in _resumptions(analysis):
        assert poll.group is not None
        offsets = [o for commit, o in commits[poll.group, tp] if commit.invoked < poll.completed]
        committed = max(offsets, default=0)
        left_out = analysis.logs[tp].between(poll.isolation, committed - 1, first)
        if left_out:
            yield (
                f"{tp}: {poll} of {poll.group} begins at {first}; committed was {committed};"
                f" not {left_out[:8]}"
            )


def group_holes(analysis: Analysis) -> Iterator[str]:
    """Records that no member of a group got, although the group is past them or had time for them."""
    got: dict[tuple[str, str], set[int]] = defaultdict(set)
    isolations: dict[tuple[str, str], str | None] = {}
    for operation in analysis.operations:
        if operation.group is not None:
            for tp, records in operation.polls:
                got[operation.group, tp].update(offset for offset, _ in records)
                isolations[operation.group, tp] = operation.isolation
    for (group, tp), offsets in got.items():
        log = analysis.logs[tp]
        end = max(log.values) + 1 if analysis.expectations.drained else max(offsets)
        missing = [
            offset
            for offset in log.between(isolations[group, tp], -1, end)
            if offset not in offsets
        ]
        if missing:
            yield f"{tp}: {group} never got {len(missing)} records, the first at {missing[:8]}"


def _commits(
    analysis: Analysis, *, certain: bool
) -> dict[tuple[str, str], list[tuple[Operation, int]]]:
    """Return the commits of each group and partition that took place, or all that may have."""
    found: dict[tuple[str, str], list[tuple[Operation, int]]] = defaultdict(list)
    for operation in analysis.named("commit", "txn"):
        if operation.group is None or operation.outcome == "fail":
            continue
        if operation.outcome == "ok" or not certain or _proven(analysis, operation):
            for tp, offset in operation.offsets.items():
                found[operation.group, tp].append((operation, offset))
    return found


def _proven(analysis: Analysis, operation: Operation) -> bool:
    return bool(operation.sends) and analysis.committed(operation)


def _resumptions(analysis: Analysis) -> Iterator[tuple[Operation, str, Operation, int]]:
    """Yield each first poll after an assignment: poll, partition, assignment, its first offset."""
    assigned: dict[tuple[str, str], Operation] = {}
    for operation in analysis.operations:
        for tp, offset in operation.offsets.items():
            if operation.name == "assign" and offset < 0:
                assigned[operation.process, tp] = operation
            elif operation.name == "revoke":
                assigned.pop((operation.process, tp), None)
        if operation.group is not None:
            for tp, records in operation.polls:
                since = assigned.pop((operation.process, tp), None)
                if since is not None and records:
                    yield operation, tp, since, records[0][0]
