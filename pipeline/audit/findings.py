"""The findings of an audit: faults, and notes that are not faults."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import PartitionFacts

#: The meaning of each kind of finding, for readers.
KINDS = {
    "gap": "offsets without a record, and nothing that explains it",
    "lost": "offsets that were deleted before they were archived",
    "duplicate": "an offset that occurs twice",
    "damage": "bytes that are not what was appended",
    "time-order": "timestamps that go back",
    "open-transaction": "a transaction without an end",
    "file": "a file of an archive is missing or has changed",
    "count": "more or fewer records than there should be",
    "difference": "two places do not have the same records",
    "topic-id": "an archive of a topic that has since been created again",
    "coverage": "one place has a range that the other lacks",
    "look": "something could not be examined",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found in one partition in one place; `is_wrong` decides the exit status."""

    is_wrong: bool
    kind: str
    place: str
    topic: str
    partition: int
    text: str
    offset: int | None = None


def wrong(kind: str, facts: PartitionFacts, text: str, offset: int | None = None) -> Finding:
    """A fault."""
    return _finding(True, kind, facts, text, offset)


def note(kind: str, facts: PartitionFacts, text: str, offset: int | None = None) -> Finding:
    """A finding that is not a fault."""
    return _finding(False, kind, facts, text, offset)


def _finding(
    is_wrong: bool, kind: str, facts: PartitionFacts, text: str, offset: int | None
) -> Finding:
    assert kind in KINDS
    return Finding(is_wrong, kind, facts.place, facts.topic, facts.partition, text, offset)
