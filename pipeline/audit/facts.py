"""The facts about a partition in one place, as plain values; this module needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

#: (topic, partition)
Where = tuple[str, int]

_MASK = (1 << 64) - 1


class ClaimedRange(NamedTuple):
    """Offsets of a partition that a place claims to have; end is exclusive."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    @property
    def is_empty(self) -> bool:
        """Whether the range contains no offset."""
        return self.end <= self.start

    @property
    def size(self) -> int:
        """The number of offsets."""
        return max(0, self.end - self.start)

    def common(self, other: ClaimedRange) -> ClaimedRange:
        """The range that both have."""
        return ClaimedRange(max(self.start, other.start), min(self.end, other.end))


class OffsetSpan(NamedTuple):
    """A run of offsets, both ends included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"


class Digest(NamedTuple):
    """A sum over the 64-bit hashes of records, so that it can be computed in parts and added up.

    Shape: the sums of the lower and upper halves of the hashes; as text, their sum modulo 2^64. It reveals
    damage and mistakes, not forgery.
    """

    low: int = 0
    high: int = 0

    def plus(self, other: Digest) -> Digest:
        """The digest of both parts."""
        return Digest(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{(self.high << 32) + self.low & _MASK:016x}"


#: The digest of no records.
NOTHING = Digest()


@dataclass(slots=True)
class Stretch:
    """Consecutive records of a partition: one of the parts in which it is measured and plotted."""

    bucket: int
    rows: int
    first_offset: int
    last_offset: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    gaps: int = 0
    missing: int = 0
    duplicates: int = 0
    backwards: int = 0
    worst_backwards_ms: int = 0
    append_time: int = 0
    first_duplicate: int | None = None
    worst_backwards_offset: int | None = None
    content: Digest = NOTHING
    ordered: Digest = NOTHING
    placed: Digest = NOTHING
    common_rows: int = 0


@dataclass(slots=True)
class PartitionFacts:
    """Everything that was measured in one partition in one place.

    Shape: `missing` counts the offsets within the range that have no record; `explained` (reason -> offsets) counts those
    with an explanation, `unexplained` has the first of the others and `unexplained_count` counts them all. There are three
    digests: `content` depends on neither order nor offsets, `ordered` depends on the order, and `placed` on the offsets;
    `placed` covers only the range that all compared places have (`common`).
    """

    place: str
    topic: str
    partition: int
    range: ClaimedRange
    rows: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    gaps: int = 0
    missing: int = 0
    duplicates: int = 0
    backwards: int = 0
    worst_backwards_ms: int = 0
    append_time_rows: int = 0
    first_duplicate: int | None = None
    worst_backwards_offset: int | None = None
    content: Digest = NOTHING
    ordered: Digest = NOTHING
    placed: Digest = NOTHING
    common: ClaimedRange | None = None
    common_rows: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    unexplained: list[OffsetSpan] = field(default_factory=list)
    unexplained_count: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    batch_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def where(self) -> Where:
        """(topic, partition)."""
        return self.topic, self.partition

    def explain(self, reason: str, offsets: int) -> None:
        """Count offsets that have no record for a known reason."""
        if offsets > 0:
            self.explained[reason] = self.explained.get(reason, 0) + offsets

    def miss(self, span: OffsetSpan) -> None:
        """Count offsets that should have a record."""
        if span.size > 0:
            self.unexplained_count += span.size
            if len(self.unexplained) < 100:
                self.unexplained.append(span)


def gather(facts: PartitionFacts, stretches: Iterable[Stretch]) -> PartitionFacts:
    """Add up the parts of a partition.

    Shape: gaps at both ends of the range, which do not lie between two records, are counted too.
    """
    ordered = sorted(stretches, key=lambda stretch: stretch.bucket)
    facts.stretches = ordered
    for part in ordered:
        facts.rows += part.rows
        facts.bytes += part.bytes
        facts.gaps += part.gaps
        facts.missing += part.missing
        facts.duplicates += part.duplicates
        facts.backwards += part.backwards
        if part.worst_backwards_ms > facts.worst_backwards_ms:
            facts.worst_backwards_ms = part.worst_backwards_ms
            facts.worst_backwards_offset = part.worst_backwards_offset
        if facts.first_duplicate is None:
            facts.first_duplicate = part.first_duplicate
        facts.append_time_rows += part.append_time
        facts.common_rows += part.common_rows
        facts.content = facts.content.plus(part.content)
        facts.ordered = facts.ordered.plus(part.ordered)
        facts.placed = facts.placed.plus(part.placed)
    if ordered:
        facts.first_offset = min(part.first_offset for part in ordered)
        facts.last_offset = max(part.last_offset for part in ordered)
        facts.min_timestamp = min(part.min_timestamp for part in ordered)
        facts.max_timestamp = max(part.max_timestamp for part in ordered)
    for span in end_gaps(facts):
        facts.gaps += 1
        facts.missing += span.size
    return facts


def end_gaps(facts: PartitionFacts) -> list[OffsetSpan]:
    """The offsets of the range before the first and after the last record."""
    if facts.range.is_empty:
        return []
    if facts.first_offset is None or facts.last_offset is None:
        return [OffsetSpan(facts.range.start, facts.range.end - 1)]
    found = (
        OffsetSpan(facts.range.start, facts.first_offset - 1),
        OffsetSpan(facts.last_offset + 1, facts.range.end - 1),
    )
    return [span for span in found if span.size > 0]
