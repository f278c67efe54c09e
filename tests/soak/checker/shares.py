"""Share groups: settled records stay settled, all records are delivered, and deliveries are counted correctly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .analysis import Analysis
from .history import Operation

#: Acknowledge types.
RELEASE = 2

#: A record as a group consumes it: group, partition, offset.
Key = tuple[str, str, int]
#: A delivery, and its delivery count according to the broker.
Delivery = tuple[Operation, int]


def share_repeats(analysis: Analysis) -> Iterator[str]:
    """A record was delivered again after it was accepted or rejected, and that was acknowledged."""
    settled = {
        key: min((each for each, kind in found if kind != RELEASE), key=_completed, default=None)
        for key, found in _settled(analysis).items()
    }
    for key, deliveries in _deliveries(analysis).items():
        done = settled.get(key)
        for delivery, _ in deliveries:
            if done is not None and delivery.invoked > done.completed:
                yield f"{_name(key)}: {delivery} after {done}"


def share_losses(analysis: Analysis) -> Iterator[str]:
    """A record after the first one that a group got was never delivered, although the group had time for all."""
    if not analysis.expectations.drained:
        return
    offsets: dict[tuple[str, str], set[int]] = defaultdict(set)
    for group, tp, offset in _deliveries(analysis):
        offsets[group, tp].add(offset)
    for (group, tp), found in offsets.items():
        expected = analysis.logs[tp].everything
        missing = [each for each in expected if each > min(found) and each not in found]
        if missing:
            yield f"{tp}: {group} never got {len(missing)} records, the first at {missing[:8]}"


def share_counts(analysis: Analysis) -> Iterator[str]:
    """A delivery count is not higher than before, or higher than the possible number of deliveries.

    A delivery that was not stored as released does not count if a broker was killed. An unanswered fetch may have
    delivered any record, so each such fetch may count as a delivery.
    """
    lost = [each for each in analysis.named("acquire") if each.outcome == "info"]
    settled = _settled(analysis)
    for key, deliveries in _deliveries(analysis).items():
        released = [each for each, kind in settled.get(key, ()) if kind == RELEASE]
        before: list[Delivery] = []
        for delivery, count in sorted(deliveries, key=lambda each: each[0].completed):
            unknown = sum(
                each.invoked < delivery.completed and each.group == key[0] for each in lost
            )
            if not 1 <= count <= len(before) + unknown + 1:
                yield f"{_name(key)}: {delivery} is the delivery {count}, after {len(before)}"
            for release in released:
                known = [n for each, n in before if each.completed <= release.invoked]
                if known and release.completed < delivery.invoked and count <= max(known):
                    yield f"{_name(key)}: {delivery} is the delivery {count}, after {release}"
            before.append((delivery, count))


def _deliveries(analysis: Analysis) -> dict[Key, list[Delivery]]:
    found: dict[Key, list[Delivery]] = defaultdict(list)
    for operation in analysis.named("acquire"):
        assert operation.group is not None
        for tp, records in operation.acquired:
            for offset, count, _ in records:
                found[operation.group, tp, offset].append((operation, count))
    return found


def _settled(analysis: Analysis) -> dict[Key, list[tuple[Operation, int]]]:
    """The settlements that were certainly stored: operation and type, for each record."""
    found: dict[Key, list[tuple[Operation, int]]] = defaultdict(list)
    for operation in analysis.named("settle"):
        assert operation.group is not None
        if operation.outcome == "ok":
            for tp, rows in operation.settled:
                for offset, kind in rows:
                    found[operation.group, tp, offset].append((operation, kind))
    return found


def _completed(operation: Operation) -> float:
    return operation.completed


def _name(key: Key) -> str:
    group, tp, offset = key
    return f"{tp} offset {offset} of {group}"
