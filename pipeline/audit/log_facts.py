"""Puts the scans of a partition's segments together: its range, its open transactions, why offsets have no record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .facts import ClaimedRange, OffsetSpan
from .segment_scan import DESCRIBED, SegmentDamage, SegmentScan


class OpenTransaction(NamedTuple):
    """A transaction without a marker: no consumer that reads committed records gets past its first offset.

    Shape: open_ms is how long it was open when the place was last written.
    """

    producer_id: int
    first_offset: int
    open_ms: int


@dataclass(slots=True)
class LogFacts:
    """What the batches of a partition show.

    Shape: `records` includes those of aborted transactions; holes are offsets between batches; thinned are offsets within
    batches that have no record; damaged are offsets of batches with a wrong checksum.
    """

    range: ClaimedRange
    log_end_offset: int
    records: int = 0
    aborted_records: int = 0
    control_offsets: int = 0
    thinned: int = 0
    hole_offsets: int = 0
    damaged_offsets: int = 0
    holes: list[OffsetSpan] = field(default_factory=list)
    open: list[OpenTransaction] = field(default_factory=list)
    damages: list[SegmentDamage] = field(default_factory=list)
    damage_count: dict[str, int] = field(default_factory=dict)
    batch_bytes: dict[int, int] = field(default_factory=dict)
    batches: int = 0
    bytes: int = 0

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        return min((one.first_offset for one in self.open), default=self.log_end_offset)


class _Open(NamedTuple):
    first_offset: int
    records: int
    timestamp: int


def put_together(scans: Iterable[SegmentScan], start: int, end: int | None = None) -> LogFacts:
    """Combine the scans of a partition's segments.

    Shape: start and end (None: the log's) are the limits that the scans counted within. A truncated file is damage unless it
    is the last one, which may still be being written, and which recovery will truncate.
    """
    segments = sorted(scans, key=lambda scan: scan.base_offset)
    facts = LogFacts(ClaimedRange(start, start), start)
    if not segments:
        return facts
    facts.log_end_offset = max(max(one.next_offset, one.base_offset) for one in segments)
    facts.range = ClaimedRange(
        max(start, segments[0].base_offset), facts.log_end_offset if end is None else end
    )
    _add_up(facts, segments)
    open_, facts.aborted_records = _transactions(segments)
    newest = max(scan.max_timestamp for scan in segments)
    facts.open = [
        OpenTransaction(producer_id, one.first_offset, max(newest - one.timestamp, 0))
        for producer_id, one in sorted(open_.items(), key=lambda item: item[1].first_offset)
    ]
    return facts


def _add_up(facts: LogFacts, segments: list[SegmentScan]) -> None:
    last = segments[-1]
    for scan in segments:
        facts.batches += scan.batches
        facts.bytes += scan.size
        facts.records += scan.records
        facts.control_offsets += scan.control_offsets
        facts.thinned += scan.thinned
        facts.hole_offsets += scan.hole_offsets
        facts.damaged_offsets += scan.damaged_offsets
        facts.holes += scan.holes
        for bucket, count in scan.batch_bytes.items():
            facts.batch_bytes[bucket] = facts.batch_bytes.get(bucket, 0) + count
        is_last = scan is last
        facts.damages += [one for one in scan.damages if not (is_last and one.kind == "cut")]
        for kind, count in scan.damage_count.items():
            if not (is_last and kind == "cut"):
                facts.damage_count[kind] = facts.damage_count.get(kind, 0) + count
    # Between segments and before the first batch there may be none, because of compaction or loss.
    expected = facts.range.start
    for scan in segments:
        if scan.first_offset < 0:
            continue
        hole = ClaimedRange(expected, scan.first_offset).common(facts.range)
        if not hole.is_empty:
            facts.hole_offsets += hole.size
            facts.holes.append(OffsetSpan(hole.start, hole.end - 1))
        expected = max(expected, scan.next_offset)
    if (
        expected < facts.range.end
    ):  # the last segments are empty, but their names have a later offset
        facts.hole_offsets += facts.range.end - expected
        facts.holes.append(OffsetSpan(expected, facts.range.end - 1))
    facts.holes.sort()
    del facts.holes[DESCRIBED:]


def _transactions(segments: list[SegmentScan]) -> tuple[dict[int, _Open], int]:
    """(transactions open at the end by producer id, number of records in aborted transactions)."""
    open_: dict[int, _Open] = {}
    aborted = 0
    for scan in segments:
        for step in scan.steps:
            earlier = open_.pop(step.producer_id, None)
            records = step.records + (earlier.records if earlier else 0)
            if step.marker is None:
                first = earlier.first_offset if earlier else step.first_offset
                begun = earlier.timestamp if earlier else step.timestamp
                open_[step.producer_id] = _Open(first, records, begun)
            elif step.marker == "abort":
                aborted += records
    return open_, aborted
