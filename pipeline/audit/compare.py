"""Compares places: which partitions are compared, over which offsets, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .facts import ClaimedRange, PartitionFacts, Where
from .findings import Finding, note, wrong
from .measure import MeasuredRows
from .places import AuditPlace

#: The number of differing records that are named.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """Two partitions that should have the same records: the number of each place, and the partition in it.

    Shape: common is the range of offsets that both have; None if all records are compared, whatever their offsets.
    """

    first: tuple[int, Where]
    second: tuple[int, Where]
    common: ClaimedRange | None


@dataclass(frozen=True, slots=True)
class ContentComparison:
    """The outcome of comparing a pair, with the digests that were compared."""

    first: str
    second: str
    by: str
    rows: tuple[int, int]
    digests: tuple[str, str]
    equal: bool
    range: ClaimedRange | None


def pairs(
    places: Sequence[AuditPlace], renamed: Mapping[str, str], *, with_offsets: bool
) -> list[Pair]:
    """Pair each partition of a place with that of the first place that has it.

    `renamed` maps target topic to source topic: the target's partitions are compared with the source's, by order unless
    with_offsets.
    """
    found = []
    references: dict[Where, tuple[int, Where]] = {}
    for number, place in enumerate(places):
        for where in sorted(place.ranges):
            known = references.setdefault(where, (number, where))
            if known[0] != number:
                found.append(_by_offset(places, known, (number, where)))
    for target, source in renamed.items():
        for topic, partition in sorted(references):
            if topic != target or (source, partition) not in references:
                continue
            original = _longest(places, (source, partition))
            replayed = references[target, partition]
            if with_offsets:
                found.append(_by_offset(places, original, replayed))
            else:
                found.append(Pair(original, replayed, None))
    return found


def _by_offset(
    places: Sequence[AuditPlace], first: tuple[int, Where], second: tuple[int, Where]
) -> Pair:
    one, other = (places[number].comparable(where) for number, where in (first, second))
    return Pair(first, second, one.common(other))


def _longest(places: Sequence[AuditPlace], where: Where) -> tuple[int, Where]:
    """The place whose copy of a partition begins at the lowest offset: a topic may have lost what an archive kept."""
    having = [number for number, place in enumerate(places) if where in place.ranges]
    return min(having, key=lambda number: (places[number].ranges[where].start, number)), where


def common_ranges(found: Sequence[Pair]) -> dict[tuple[int, Where], ClaimedRange]:
    """The offsets that a partition's digest has to cover, so that one digest serves all of its pairs.

    Shape: the range common to all places that are compared with one another.
    """
    ranges: dict[tuple[int, Where], ClaimedRange] = {}
    groups: dict[tuple[int, Where], list[Pair]] = {}
    for pair in found:
        if pair.common is not None:
            groups.setdefault(pair.first, []).append(pair)
    for first, members in groups.items():
        shared = members[0].common
        assert shared is not None
        for pair in members[1:]:
            assert pair.common is not None
            shared = shared.common(pair.common)
        for key in (first, *(pair.second for pair in members)):
            ranges[key] = shared
    return ranges


def compare(
    pair: Pair,
    facts: Mapping[tuple[int, Where], PartitionFacts],
    rows: MeasuredRows,
    *,
    strict: bool,
) -> tuple[ContentComparison, list[Finding]]:
    """Compare the measurements; where they differ, find out which records differ."""
    one, other = facts[pair.first], facts[pair.second]
    if pair.common is None:
        counts = one.rows, other.rows
        digests = one.ordered, other.ordered
        by = "order"
    else:
        counts = one.common_rows, other.common_rows
        digests = one.placed, other.placed
        by = "offset"
    comparison = ContentComparison(
        _name(one),
        _name(other),
        by,
        counts,
        (str(digests[0]), str(digests[1])),
        counts[0] == counts[1] and digests[0] == digests[1],
        one.common if pair.common is not None else None,
    )
    findings = [] if comparison.equal else [_difference(pair, one, other, counts, rows)]
    if pair.common is not None:
        findings += _coverage(one, other, strict)
    return comparison, findings


def _difference(
    pair: Pair,
    one: PartitionFacts,
    other: PartitionFacts,
    counts: tuple[int, int],
    rows: MeasuredRows,
) -> Finding:
    if pair.common is None:
        same_records = one.content == other.content and one.rows == other.rows
        if same_records:
            text = f"the same {one.rows} records as {_name(one)}, but in another order"
        else:
            text = f"{counts[1]} records, not equal to the {counts[0]} of {_name(one)}"
        found = rows.differences(
            pair.first, pair.second, "rank", ClaimedRange(1, max(counts) + 1), NAMED
        )
        shown = [
            f"record {at} (offset {_offset(first)} there, {_offset(second)} here): {what}"
            for at, first, second, what in found[:3]
        ]
    else:
        assert one.common is not None
        text = f"differs from {_name(one)} in {one.common}: {counts[1]} records against {counts[0]}"
        found = rows.differences(pair.first, pair.second, "offset", one.common, NAMED)
        shown = [
            f"offset {at} " + ("is missing there" if first is None else "is missing here")
            if first is None or second is None
            else f"offset {at}: another {what}"
            for at, first, second, what in found[:3]
        ]
    if len(found) > 3:
        shown.append("..." if len(found) == NAMED else f"and {len(found) - 3} more")
    at = found[0][2] if found and found[0][2] is not None else None
    return wrong("difference", other, "; ".join([text, *shown]), at)


def _coverage(one: PartitionFacts, other: PartitionFacts, strict: bool) -> list[Finding]:
    """Offsets that one of the two has and the other does not."""
    findings = []
    judge = wrong if strict else note
    for name, mine, theirs in (
        ("begins", other.range.start, one.range.start),
        ("ends", other.range.end, one.range.end),
    ):
        if mine != theirs:
            text = f"{name} at offset {mine}, {_name(one)} at {theirs}"
            findings.append(judge("coverage", other, text, mine))
    return findings


def _offset(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _name(facts: PartitionFacts) -> str:
    return f"{facts.topic}-{facts.partition} in {facts.place}"
