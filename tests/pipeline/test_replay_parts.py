"""Parts of replay without Spark and broker: options, ordering overlapping files, dividing a rate."""

from __future__ import annotations

import re
import threading
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.pipeline.manifest import Archive
from kwire.pipeline.problems import Problem
from kwire.pipeline.replay import progress, writer
from kwire.pipeline.replay.from_archive import (
    SCHEMA,
    Piece,
    archived_partitions,
    merged,
    overlapping,
)
from kwire.pipeline.replay.options import check_range, offsets, targets, time_ms
from kwire.pipeline.replay.plan import Job, RecordRange, ReplayPosition, TargetTopic, Task, shares
from kwire.pipeline.replay.progress import AT_A_TIME, Positions
from kwire.pipeline.replay.writer import Pace, headers_of

from .faults import check_row
from .replay_data import add_to_archive, some_records

if TYPE_CHECKING:
    from kwire.pipeline.cluster import Cluster
    from kwire.pipeline.replay.plan import SourcePartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00+01:00", 0),
    ],
)
def test_time_is_iso_or_milliseconds(text: str, expected: int) -> None:
    assert time_ms(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "12:00"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="neither ISO 8601 nor"):
        time_ms(text)


def test_offsets_are_by_topic_and_partition() -> None:
    assert offsets('{"a": {"0": 5, "1": 7}}') == {("a", 0): 5, ("a", 1): 7}
    for wrong in ("5", "[1]", '{"a": 5}', '{"a": {"x": 1}}', "{"):
        with pytest.raises(ArgumentTypeError):
            offsets(wrong)


def test_range_without_anything_in_it_is_refused() -> None:
    whole = {"from_time": None, "to_time": None, "from_offset": {}, "to_offset": {}}
    part = {"from_offset": {("a", 0): 5}, "to_offset": {("a", 0): 6, ("b", 0): 1}}
    for right in ({}, {"from_time": 1, "to_time": 2}, part, {"from_offset": {("a", 0): 9}}):
        check_range(Namespace(**{**whole, **right}))
    for wrong, said in (
        ({"from_time": 2, "to_time": 2}, "--to-time is not after --from-time"),
        ({"from_offset": {("a", 0): 6}, "to_offset": {("a", 0): 5}}, "5 of a-0 is not after 6"),
    ):
        with pytest.raises(Problem, match=said):
            check_range(Namespace(**{**whole, **wrong}))


def test_targets_are_one_or_mapped() -> None:
    assert targets(["a=b, c=d", "e"]) == ("e", {"a": "b", "c": "d"})
    for words, said in (
        (["a", "b"], "two topics"),
        (["a=b,a=c"], "two targets for a"),
        (["=b"], "neither"),
    ):
        with pytest.raises(Problem, match=said):
            targets(words)


def test_position_survives_its_text_and_others_are_refused() -> None:
    position = ReplayPosition(12, 7, "abc", "r1")
    assert ReplayPosition.of(12, position.metadata()) == position
    for text in (None, "", "{}", "[]", '{"records": 1}'):
        with pytest.raises(ValueError, match="committed offset 12"):
            ReplayPosition.of(12, text)


def test_positions_of_thousands_of_partitions_are_looked_at_in_turns() -> None:
    source = cast("SourcePartition", SimpleNamespace(topic="a", partition=0, first=0, end=10))
    tasks = [Task(source, TargetTopic("b", 1)) for _ in range(2000)]
    positions = Positions(cast("Cluster", None), Job("job", "abc"), tasks)
    done, begun = ReplayPosition(10, 10, "abc", "r1"), ReplayPosition(5, 5, "abc", "r1")
    known: list[ReplayPosition | None] = [None] * 2000
    assert [len(positions.due(known, turn)) for turn in range(3)] == [AT_A_TIME] * 3
    assert {number for turn in range(32) for number in positions.due(known, turn)} == {*range(2000)}
    known[:100] = [done] * 100
    known[100:103] = [begun] * 3
    for turn in range(40):
        due = positions.due(known, turn)
        assert due[:3] == [100, 101, 102] and min(due) == 100 and len({*due}) == AT_A_TIME
    known[3:] = [begun] * 1997
    assert {number for turn in range(64) for number in positions.due(known, turn)} == {
        *range(3, 2000)
    }
    assert positions.due([done] * 2000, 7) == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 500), unique=True, min_size=1), min_size=1, max_size=5))
def test_streams_are_merged_by_offset(streams: list[list[int]]) -> None:
    def batches(numbers: list[int]) -> list[pa.RecordBatch]:
        ordered = sorted(numbers)
        return [
            pa.RecordBatch.from_pylist([{"offset": n} for n in ordered[at : at + 3]], SCHEMA)
            for at in range(0, len(ordered), 3)
        ]

    found = [
        offset
        for batch in merged([iter(batches(numbers)) for numbers in streams])
        for offset in batch.column("offset").to_pylist()
    ]
    assert found == sorted(number for numbers in streams for number in numbers)


def test_files_that_overlap_are_read_together() -> None:
    pieces = [Piece("d", 30, 39), Piece("a", 0, 9), Piece("c", 12, 25), Piece("b", 8, 20)]
    assert ["".join(piece.path for piece in group) for group in overlapping(pieces)] == ["abc", "d"]


@pytest.mark.parametrize("limits", [(0, 10**9), (700, 1500), (701, 702), (10**6, 10**7)])
def test_archived_partition_gives_its_records_in_order(
    tmp_path: Path, limits: tuple[int, int]
) -> None:
    records = some_records(3000)
    add_to_archive(tmp_path, "t", 4, records)
    (found,) = archived_partitions(Archive(tmp_path), None, RecordRange())
    assert (found.topic, found.partition) == ("t", 4)
    assert (found.first, found.end) == (records[0].offset, records[-1].offset + 1)
    read = [row for batch in found.read(*limits) for row in batch.to_pylist()]
    expected = [one for one in records if limits[0] <= one.offset < limits[1]]
    assert [
        (
            row["offset"],
            row["key"],
            row["value"],
            row["timestamp"],
            row["headers"] and [(one["key"], one["value"]) for one in row["headers"]],
        )
        for row in read
    ] == [tuple(one) for one in expected]


def test_files_outside_of_the_time_are_not_opened(tmp_path: Path) -> None:
    records = some_records(1000)
    add_to_archive(tmp_path, "t", 0, records)
    within = RecordRange(from_ms=min(one.timestamp for one in records) + 3_600_000)
    (whole,) = archived_partitions(Archive(tmp_path), None, RecordRange())
    (part,) = archived_partitions(Archive(tmp_path), None, within)
    assert 0 < len(part.pieces) < len(whole.pieces)
    kept = sum(within.of_time(batch).num_rows for batch in part.read(0, 10**9))
    assert kept == sum(one.timestamp >= (within.from_ms or 0) for one in records)


def test_archive_file_that_is_gone_is_named(tmp_path: Path) -> None:
    add_to_archive(tmp_path, "t", 0, some_records(10))
    (found,) = archived_partitions(Archive(tmp_path), None, RecordRange())
    Path(found.pieces[0].path).unlink()
    with pytest.raises(Problem) as caught:
        list(found.read(0, 100))
    names = {found.pieces[0].path: "DIR/FILE"}
    check_row(
        "replay",
        "archive file gone",
        str(caught.value),
        "continues with the files that exist",
        names,
    )


def test_damaged_archive_file_is_named(tmp_path: Path) -> None:
    add_to_archive(tmp_path, "t", 0, some_records(10))
    (found,) = archived_partitions(Archive(tmp_path), None, RecordRange())
    Path(found.pieces[0].path).write_bytes(b"PAR1 and nothing more")
    with pytest.raises(Problem) as caught:
        list(found.read(0, 100))
    message = re.sub(r": Parquet magic.*", ": REASON", str(caught.value))
    again = "the same, until the file is restored"
    check_row("replay", "archive file damaged", message, again, {found.pieces[0].path: "DIR/FILE"})


def test_headers_of_a_slice_are_its_own() -> None:
    lists = [[("a", b"1"), ("a", None)], [], None, [("b", b"")], [("c", b"3")]]
    rows = [one and [{"key": key, "value": value} for key, value in one] for one in lists]
    column = pa.array(rows, SCHEMA.field("headers").type)
    for start in range(5):
        for end in range(start, 6):
            expected = [one or None for one in lists[start:end]]
            assert list(headers_of(column.slice(start, end - start))) == expected


def test_rate_is_shared_by_what_is_left() -> None:
    class Source:
        topic, partition, first, end, oldest_ms, lost = "t", 0, 0, 100, None, ()

    tasks = [Task(Source(), TargetTopic("t", 1)) for _ in range(5)]  # type: ignore[arg-type]
    assert shares(tasks, [1] * 5, 2, None) == [([task], None) for task in tasks]
    found = shares(tasks, [100, 10, 20, 30, 40], 2, 1000.0)
    assert [(len(some), rate) for some, rate in found] == [(1, 500.0), (4, 500.0)]
    assert len(shares(tasks, [0] * 5, 16, 10.0)) == 5


def test_pace_lets_no_more_pass_than_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("kwire.pipeline.replay.writer.time.monotonic", lambda: now[0])

    def poll(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(50.0)
    assert pace.lot == 5
    for _ in range(100):
        pace.wait(pace.lot, poll)
    assert now[0] == pytest.approx(10.0, abs=0.5)
    now[0] += 60.0  # the cluster was away
    before = now[0]
    for _ in range(100):
        pace.wait(pace.lot, poll)
    assert now[0] - before == pytest.approx(9.0, abs=1.5)


def test_settings_that_the_client_refuses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaException(
            KafkaError(KafkaError._INVALID_ARG, "`message.timeout.ms` is too large")
        )

    monkeypatch.setattr(writer, "Transactions", refuse)
    task = cast("Task", SimpleNamespace(place="orders-0"))
    with pytest.raises(Problem, match=r"orders-0 can be made: `message\.timeout\.ms` is too large"):
        writer.replay_partition(cast("Job", None), task, Pace(None))


def test_replay_ends_although_its_progress_waits_for_a_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def refreshed(*_: object) -> list[ReplayPosition | None]:
        asked.set()
        answered.wait(60)
        raise Problem("no broker answers")

    monkeypatch.setattr(progress, "INTERVAL_S", 0.01)
    positions = cast("Positions", SimpleNamespace(refreshed=refreshed))
    threads = set(threading.enumerate())
    with progress.shown(positions, []):
        assert asked.wait(60)
    (shower,) = set(threading.enumerate()) - threads
    answered.set()
    shower.join()
    assert not capsys.readouterr().err
