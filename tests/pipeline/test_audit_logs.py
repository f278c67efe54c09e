"""The findings of an audit in batches: pure, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kwire.pipeline.audit.compare import Pair, compare
from kwire.pipeline.audit.facts import (
    ClaimedRange,
    Digest,
    OffsetSpan,
    PartitionFacts,
    Stretch,
    gather,
)
from kwire.pipeline.audit.log_facts import LogFacts, put_together
from kwire.pipeline.audit.places import ArchivePlace
from kwire.pipeline.audit.segment_scan import scan_segment
from kwire.pipeline.manifest import Archive, ArchiveFile, ManifestEntry
from kwire.records.batch import RecordBatch, rewrite_crc
from kwire.records.layout import ATTRIBUTES_AT, BATCH_LENGTH_AT

from ..golden.recorded import read_json, unpack_log_directory
from .audit_logs import batch, flip, marker, write_segments


def facts_of(folder: Path, start: int = 0) -> LogFacts:
    return put_together([scan_segment(str(path), start) for path in folder.glob("*.log")], start)


@pytest.mark.parametrize("strict", [False, True])
def test_range_that_one_place_lacks_is_wrong_if_strict(strict: bool) -> None:
    where, common = ("t", 0), ClaimedRange(2, 8)
    facts = {
        (0, where): PartitionFacts("a", *where, ClaimedRange(0, 10), common=common, common_rows=6),
        (1, where): PartitionFacts("b", *where, ClaimedRange(2, 8), common=common, common_rows=6),
    }
    pair = Pair((0, where), (1, where), common)
    comparison, found = compare(pair, facts, None, strict=strict)  # type: ignore[arg-type]
    assert comparison.equal
    assert [(one.kind, one.is_wrong, one.text) for one in found] == [
        ("coverage", strict, "begins at offset 2, t-0 in a at 0"),
        ("coverage", strict, "ends at offset 8, t-0 in a at 10"),
    ]


def test_sound_log_has_nothing_to_tell(tmp_path: Path) -> None:
    write_segments(tmp_path, "t-0", {0: [batch(0, 5), batch(5, 5)], 10: [batch(10, 3)]})
    facts = facts_of(tmp_path / "t-0")
    assert (facts.range, facts.records, facts.batches) == (ClaimedRange(0, 13), 13, 3)
    assert (facts.damages, facts.holes, facts.open, facts.thinned) == ([], [], [], 0)


def test_flipped_byte_is_damage_of_its_batch_only(tmp_path: Path) -> None:
    file = write_segments(tmp_path, "t-0", {0: [batch(0, 5), batch(5, 5), batch(10, 2)]})
    flip(file, len(batch(0, 5)) + 70)
    facts = facts_of(tmp_path / "t-0")
    assert [(one.kind, one.offset) for one in facts.damages] == [("crc", 5)]
    assert (facts.records, facts.damaged_offsets, facts.hole_offsets) == (7, 5, 0)


def test_impossible_length_ends_the_walk(tmp_path: Path) -> None:
    file = write_segments(tmp_path, "t-0", {0: [batch(0, 5), batch(5, 5)], 10: [batch(10, 1)]})
    data = bytearray(file.read_bytes())
    at = len(batch(0, 5)) + BATCH_LENGTH_AT
    data[at : at + 4] = (3).to_bytes(4, "big")
    file.write_bytes(data)
    facts = facts_of(tmp_path / "t-0")
    assert [one.kind for one in facts.damages] == ["header"]
    assert facts.holes == [OffsetSpan(5, 9)]


def test_segment_truncated_during_the_scan_ends_where_it_does_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the file were mapped, this would be the end of the process."""
    batches = [batch(first, 5, mark=bytes(300_000)) for first in range(0, 25, 5)]
    file = write_segments(tmp_path, "t-0", {0: batches})
    kept, verify = 2 * len(batches[0]), RecordBatch.verify_crc

    def truncating(one: RecordBatch) -> None:
        if one.header.base_offset == 5:
            os.truncate(file, kept)
        verify(one)

    monkeypatch.setattr(RecordBatch, "verify_crc", truncating)
    scan = scan_segment(str(file))
    assert (scan.next_offset, scan.records, scan.size, scan.damage_count) == (10, 10, kept, {})


def test_records_that_cannot_be_read_are_damage_of_their_batch_only(tmp_path: Path) -> None:
    unknown = bytearray(batch(5, 5))
    unknown[ATTRIBUTES_AT + 1] |= 7  # no codec has this number
    rewrite_crc(unknown)
    file = write_segments(tmp_path, "t-0", {0: [batch(0, 5), bytes(unknown), batch(10, 2)]})
    # Only a limit within the batch makes its records count.
    scan = scan_segment(str(file), 7)
    assert [(one.kind, one.offset, one.text) for one in scan.damages] == [
        ("records", 5, "codec 7 is not assigned")
    ]
    assert (scan.records, scan.damaged_offsets) == (2, 3)


def test_cut_batch_is_damage_unless_it_is_the_last_of_the_log(tmp_path: Path) -> None:
    for last in (True, False):
        folder = f"t-{int(last)}"
        segments = {0: [batch(0, 5), batch(5, 5)[:-7]]}
        if not last:
            segments[10] = [batch(10, 1)]
        write_segments(tmp_path, folder, segments)
        found = [one.kind for one in facts_of(tmp_path / folder).damages]
        assert found == ([] if last else ["cut"])


def test_missing_segment_and_missing_batch_are_holes(tmp_path: Path) -> None:
    write_segments(tmp_path, "t-0", {0: [batch(0, 5)], 20: [batch(20, 5), batch(27, 3)], 30: []})
    facts = facts_of(tmp_path / "t-0")
    assert facts.holes == [OffsetSpan(5, 19), OffsetSpan(25, 26)]
    assert (facts.hole_offsets, facts.range) == (17, ClaimedRange(0, 30))


def test_offsets_that_go_back_and_sequences_that_come_twice_are_damage(tmp_path: Path) -> None:
    again = batch(8, 4, producer_id=7, sequence=0)
    write_segments(
        tmp_path,
        "t-0",
        {0: [batch(0, 4, producer_id=7, sequence=0), batch(4, 4), batch(2, 2), again]},
    )
    facts = facts_of(tmp_path / "t-0")
    assert [(one.kind, one.offset) for one in facts.damages] == [("order", 2), ("sequence", 8)]


def test_transactions_are_followed_over_segments(tmp_path: Path) -> None:
    def part(first: int, producer_id: int) -> bytes:
        return batch(first, 2, producer_id=producer_id, sequence=first, transactional=True)

    write_segments(
        tmp_path,
        "t-0",
        {
            0: [part(0, 1), part(2, 2), marker(4, 1, commit=True)],
            5: [part(5, 2), marker(7, 2, commit=False), part(8, 3), part(10, 1)],
            12: [marker(12, 1, commit=True)],
        },
    )
    facts = facts_of(tmp_path / "t-0")
    assert [(one.producer_id, one.first_offset) for one in facts.open] == [(3, 8)]
    assert facts.last_stable_offset == 8
    assert (facts.records, facts.aborted_records, facts.control_offsets) == (10, 4, 3)
    # Batches before the log start are checked but not counted; the log start may be inside a batch.
    assert facts_of(tmp_path / "t-0", start=3).records == 7


def test_golden_log_directory_has_the_records_that_consumers_saw(tmp_path: Path) -> None:
    expected = read_json("logdir/expected.json")["topics"]
    log_dir = unpack_log_directory(tmp_path)
    compared = 0
    for topic, partitions in expected.items():
        for partition, seen in partitions.items():
            facts = facts_of(log_dir / f"{topic}-{partition}", seen["logStartOffset"])
            assert facts.damages == []
            assert facts.range == ClaimedRange(seen["logStartOffset"], seen["endOffset"])
            assert facts.records == len(seen["read_uncommitted"])
            assert facts.last_stable_offset == seen["lastStableOffset"]
            if not facts.open:
                assert facts.records - facts.aborted_records == len(seen["read_committed"])
            if topic != "compacted":
                assert (facts.hole_offsets, facts.thinned) == (0, 0)
            compared += 1
    assert compared > 10


def test_gathered_parts_count_gaps_at_both_ends() -> None:
    parts = [
        Stretch(1, 3, 12, 14, 30, 500, 700, content=Digest(2, 3)),
        Stretch(0, 2, 5, 11, 20, 100, 400, gaps=1, missing=5, content=Digest(1, 1)),
    ]
    facts = gather(PartitionFacts("here", "t", 0, ClaimedRange(3, 20)), parts)
    assert (facts.rows, facts.first_offset, facts.last_offset) == (5, 5, 14)
    assert (facts.gaps, facts.missing) == (3, 5 + 2 + 5)
    assert (facts.min_timestamp, facts.max_timestamp) == (100, 700)
    assert facts.content == Digest(3, 4)
    assert facts.missing == facts.range.size - facts.rows


def test_archived_files_that_are_missing_or_of_another_size_are_told(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    archive.create()
    names = [f"topic=t/date=2026-01-02/hour=05/{name}.parquet" for name in ("a", "b", "c")]
    files = tuple(ArchiveFile(name, 5, 100, 5 * n, 5 * n + 4, 1, 2) for n, name in enumerate(names))
    archive.commit_batch([ManifestEntry("t", 0, 0, 14, 15, files)], 0)
    for name, size in zip(names[:2], (100, 3), strict=True):
        path = Path(archive.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    place = ArchivePlace(archive, None)
    facts = PartitionFacts(place.name, "t", 0, place.ranges["t", 0], rows=5)
    told = [each.text for each in place.judge(facts, ()) if each.kind == "file"]
    assert told == [
        f"{names[1]} has 3 bytes instead of 100: 5 records from offset 5 to 9",
        f"{names[2]} is missing: 5 records from offset 10 to 14",
    ]
