"""Scans the batches of one segment file without reading their records: checksums, offsets, transactions.

Runs as a Spark task for each segment, so it takes a path and returns plain values. Recovery rule: a batch with a wrong
checksum is counted and skipped; one with an invalid length or magic ends the scan, because the start of the next batch
is unknown; a truncated one ends it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kwire.errors import CorruptRecord, RecordError
from kwire.records.batch import BatchHeader, RecordBatch
from kwire.records.control import ControlType, control_type
from kwire.records.record import MAX_INT64
from kwire.server.log.stored_logs import stored_batches

from .facts import ClaimedRange, OffsetSpan

#: The number of errors of each kind that are described; all are counted.
DESCRIBED = 100
#: The number of batches of a producer that are kept, the same number as in a broker.
REMEMBERED = 5


class SegmentDamage(NamedTuple):
    """Bytes of a segment that differ from the appended ones.

    Shape: `offset` is the base offset in the damaged batch's own header; `kind` is `crc`, `records` (they cannot be
    read), `header` (the scan ended there), `cut` (the file ends within a batch), `order` (offsets go back) or `sequence`
    (the producer's sequence occurs twice).
    """

    kind: str
    path: str
    position: int
    offset: int
    text: str


class TransactionStep(NamedTuple):
    """A producer's transactional batches up to a marker, or up to the end of the segment (marker None).

    Shape: first_offset is -1 if the transaction that the marker ends has no batch in this segment; records counts the
    records of the batches.
    """

    producer_id: int
    marker: str | None
    marker_offset: int
    first_offset: int
    records: int
    timestamp: int


@dataclass(slots=True)
class SegmentScan:
    """The sums and the findings of one segment file."""

    path: str
    base_offset: int
    size: int
    batches: int = 0
    records: int = 0
    control_offsets: int = 0
    thinned: int = 0
    first_offset: int = -1
    next_offset: int = -1
    max_timestamp: int = -1
    damage_count: dict[str, int] = field(default_factory=dict)
    damages: list[SegmentDamage] = field(default_factory=list)
    damaged_offsets: int = 0
    hole_offsets: int = 0
    holes: list[OffsetSpan] = field(default_factory=list)
    steps: list[TransactionStep] = field(default_factory=list)
    batch_bytes: dict[int, int] = field(default_factory=dict)

    def damage(self, kind: str, position: int, offset: int, text: str) -> None:
        """Record a fault."""
        self.damage_count[kind] = self.damage_count.get(kind, 0) + 1
        if len(self.damages) < DESCRIBED:
            self.damages.append(SegmentDamage(kind, self.path, position, offset, text))


def scan_segment(path: str, start: int = 0, end: int = MAX_INT64) -> SegmentScan:
    """Read one `.log` file from its first to its last batch.

    Shape: only records and offsets from `start` (inclusive) to `end` (exclusive) are counted; damage is looked for
    in all of it. Errors: OSError.
    """
    file = Path(path)
    scan = SegmentScan(path, int(file.name.partition(".")[0]), file.stat().st_size)
    _Walk(scan, ClaimedRange(start, end)).run(file)
    return scan


class _Walk:
    """The scan of one segment, with the state that is kept from one batch to the next."""

    def __init__(self, scan: SegmentScan, counted: ClaimedRange) -> None:
        self.scan = scan
        self.counted = counted
        self._open: dict[int, list[int]] = {}  # producer id -> first offset, records, time
        self._sequences: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self, file: Path) -> None:
        scan = self.scan
        after = 0
        try:
            for position, batch in stored_batches(file):
                self._batch(batch, position)
                after = position + batch.header.size
        except CorruptRecord as error:
            rest = scan.size - after
            scan.damage("header", after, scan.next_offset, f"{error}; {rest} bytes unread")
        else:
            if after < scan.size:
                # What a broker has truncated meanwhile is no part of the log.
                scan.size = min(scan.size, max(file.stat().st_size, after))
            if (rest := scan.size - after) > 0:
                text = f"the file ends within a batch, after {rest} bytes of it"
                scan.damage("cut", after, scan.next_offset, text)
        for producer_id, (first, records, timestamp) in self._open.items():
            scan.steps.append(TransactionStep(producer_id, None, -1, first, records, timestamp))

    def _batch(self, batch: RecordBatch, position: int) -> None:
        scan, header = self.scan, batch.header
        first, count = _extent(batch)
        span = ClaimedRange(first, header.next_offset)
        try:
            batch.verify_crc()
        except CorruptRecord as error:
            scan.damage("crc", position, first, str(error))
            # The checksum does not cover the offsets; they count if they follow the ones before.
            if span.start >= scan.next_offset and not span.is_empty:
                self._advance(span)
                scan.damaged_offsets += span.common(self.counted).size
            return
        scan.batches += 1
        bucket = max(header.size - 1, 1).bit_length()
        scan.batch_bytes[bucket] = scan.batch_bytes.get(bucket, 0) + 1
        scan.max_timestamp = max(scan.max_timestamp, header.max_timestamp)
        if scan.next_offset >= 0 and first < scan.next_offset:
            last = scan.next_offset - 1
            scan.damage("order", position, first, f"begins at offset {first} after {last}")
        self._advance(span)
        within = span.common(self.counted)
        try:
            if within != span and not within.is_empty and not header.is_control:
                count = sum(within.start <= one.offset < within.end for one in batch.records())
            self._count(batch, position, within, 0 if within.is_empty else count)
        except RecordError as error:
            scan.damage("records", position, first, str(error))
            scan.damaged_offsets += within.size

    def _count(self, batch: RecordBatch, position: int, within: ClaimedRange, count: int) -> None:
        scan = self.scan
        header = batch.header
        if header.is_control:
            self._marker(batch)
            scan.control_offsets += within.size
            return
        scan.records += count
        scan.thinned += within.size - count
        if header.is_transactional:
            begun = [header.base_offset, 0, header.max_timestamp]
            self._open.setdefault(header.producer_id, begun)[1] += count
        self._sequence(position, header)

    def _advance(self, span: ClaimedRange) -> None:
        scan = self.scan
        if scan.first_offset < 0:
            scan.first_offset = span.start
        elif span.start > scan.next_offset:
            hole = ClaimedRange(scan.next_offset, span.start).common(self.counted)
            if not hole.is_empty:
                scan.hole_offsets += hole.size
                if len(scan.holes) < DESCRIBED:
                    scan.holes.append(OffsetSpan(hole.start, hole.end - 1))
        scan.next_offset = max(scan.next_offset, span.end)

    def _marker(self, batch: RecordBatch) -> None:
        record = next(batch.records(), None)
        kind = control_type(record.key) if record is not None else ControlType.UNKNOWN
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            header = batch.header
            first, records, _ = self._open.pop(header.producer_id, (-1, 0, 0))
            name = "abort" if kind is ControlType.ABORT else "commit"
            self.scan.steps.append(
                TransactionStep(
                    header.producer_id,
                    name,
                    header.base_offset,
                    first,
                    records,
                    header.max_timestamp,
                )
            )

    def _sequence(self, position: int, header: BatchHeader) -> None:
        # A coordinator's batches have sequence numbers too, but no producer id.
        if min(header.producer_id, header.base_sequence) < 0 or header.records_count <= 0:
            return
        recent = self._sequences.setdefault((header.producer_id, header.producer_epoch), [])
        own = header.base_sequence, header.last_sequence
        if own in recent:
            text = (
                f"sequences {own[0]} to {own[1]} of producer {header.producer_id} occurred before"
            )
            self.scan.damage("sequence", position, header.base_offset, text)
        recent.append(own)
        del recent[:-REMEMBERED]


def _extent(batch: RecordBatch) -> tuple[int, int]:
    """First offset and number of records, which for a compressed message of magic 0 or 1 are inside it."""
    header = batch.header
    if header.magic >= 2 or header.records_count >= 0:
        return header.base_offset, max(header.records_count, 0)
    try:
        offsets = [record.offset for record in batch.records()]
    except Exception:  # noqa: BLE001 - damaged: the checksum shows it next
        return header.base_offset, 1
    return offsets[0], len(offsets)
