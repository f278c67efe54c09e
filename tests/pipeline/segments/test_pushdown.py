"""Filters that the source uses: their savings, and no row is lost; without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from kwire.pipeline.segments import plan, tasks
from kwire.pipeline.segments.columns import RECORD_COLUMNS
from kwire.pipeline.segments.errors import SegmentError
from kwire.pipeline.segments.options import parse
from kwire.pipeline.segments.pushdown import Pushed, take
from kwire.pipeline.segments.readers import SegmentReader
from kwire.pipeline.segments.walk import BatchWalk
from kwire.records.compression import Codec

from ...log.logs import NOW, append, batch, config, open_log


@dataclass(frozen=True)
class EqualTo:
    """As in pyspark.sql.datasource from 4.1 on, like those below."""

    attribute: tuple[str, ...]
    value: Any


class In(EqualTo): ...


class GreaterThan(EqualTo): ...


class GreaterThanOrEqual(EqualTo): ...


class LessThan(EqualTo): ...


class LessThanOrEqual(EqualTo): ...


class StringContains(EqualTo): ...


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: EqualTo


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def test_filters_that_are_exact_are_taken_and_others_are_left_to_spark() -> None:
    exact: list[Any] = [
        EqualTo(("topic",), "orders"),
        In(("partition",), (0, 3)),
        EqualTo(("partition",), 3),
        GreaterThan(("offset",), 9),
        GreaterThanOrEqual(("offset",), 5),
        LessThan(("offset",), 40),
        LessThanOrEqual(("offset",), 30),
        EqualTo(("key",), bytearray(b"k")),
        IsNotNull(("offset",)),
    ]
    for_spark: list[Any] = [
        GreaterThan(("timestamp",), at(1500)),
        GreaterThanOrEqual(("timestamp",), datetime(2020, 1, 1)),  # without a zone
        LessThan(("timestamp",), at(9000)),
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "key"), "h"),
        StringContains(("topic",), "o"),
        EqualTo(("partition",), None),
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("key",)),
    ]
    pushed, left = take([*exact, *for_spark], "records")
    assert left == for_spark
    assert pushed == Pushed(
        topics=frozenset({"orders"}),
        partitions=frozenset({3}),
        start=10,
        end=31,
        since_ms=1500,
        keys=frozenset({b"k"}),
    )
    filters = [EqualTo(("codec",), "lz4"), EqualTo(("offset",), 1), EqualTo(("topic",), "t")]
    pushed, left = take(filters, "batches")
    assert pushed == Pushed(codecs=frozenset({"lz4"}), topics=frozenset({"t"}))
    assert left == filters[1:2]
    assert take([EqualTo(("offset",), 7)], "records")[0] == Pushed(start=7, end=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """400 records in several segments, one second apart except for every tenth, which is a minute older."""
    log = open_log(tmp_path, config(segment_bytes=3000, index_interval_bytes=300))
    for number in range(100):
        stamp = NOW + number * 1000 - (60_000 if number % 10 == 9 else 0)
        codec = Codec.LZ4 if number % 4 == 0 else Codec.NONE
        key = b"k%d" % (number % 5)
        append(log, batch(b"v", b"v", b"v", b"v", key=key, timestamp=stamp, codec=codec))
    log.close()
    return tmp_path


def rows_of(folder: Path, pushed: Pushed, **options: str) -> list[dict[str, Any]]:
    parsed = parse({"path": str(folder), **options})
    return [
        row
        for cut in plan.slices(parsed, pushed)
        for arrow in tasks.read(cut, parsed, tuple(RECORD_COLUMNS), pushed)
        for row in arrow.to_pylist()
    ]


def test_ranges_are_planned_and_nothing_else(folder: Path) -> None:
    everything = rows_of(folder, Pushed())
    assert len(everything) == 400
    found = rows_of(folder, Pushed(start=17, end=203))
    assert [row["offset"] for row in found] == list(range(17, 203))
    for pushed in (
        Pushed(topics=frozenset({"other"})),
        Pushed(partitions=frozenset({7})),
        Pushed(start=400),
        Pushed(start=9, end=9),
        Pushed(since_ms=NOW + 3_600_000),
    ):
        assert plan.slices(parse({"path": str(folder)}), pushed) == []


def test_times_begin_at_the_index_and_lose_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = NOW + 70_000
    wanted = [row for row in rows_of(folder, Pushed()) if row["timestamp"] >= at(since)]
    read: list[int] = []
    windows = BatchWalk.windows

    def counted(walk: BatchWalk) -> Any:
        for window in windows(walk):
            read.append(len(window.batches))
            yield window

    monkeypatch.setattr(BatchWalk, "windows", counted)
    found = rows_of(folder, Pushed(since_ms=since))
    assert found == wanted
    assert len(found) == 4 * 27  # of 30 batches, the three of a minute before are not decoded
    assert sum(read) == 30


def test_equal_keys_are_what_is_passed_on(folder: Path) -> None:
    everything = rows_of(folder, Pushed())
    keys = frozenset({b"k1", b"k3"})
    found = rows_of(folder, Pushed(keys=keys, start=10, end=390))
    assert found == [r for r in everything if r["key"] in keys and 10 <= r["offset"] < 390]
    assert len(found) > 100
    # Also where headers would return every column.
    parsed = parse({"path": str(folder)})
    pushed = Pushed(keys=keys)
    (cut, *_) = plan.slices(parsed, pushed)
    offsets = [
        row["offset"]
        for arrow in tasks.read(cut, parsed, ("offset",), pushed)
        for row in arrow.to_pylist()
    ]
    assert offsets == [r["offset"] for r in everything if r["key"] in keys][: len(offsets)]


def test_batches_of_other_codecs_make_no_row(folder: Path) -> None:
    parsed = parse({"path": str(folder), "rows": "batches"})
    pushed = Pushed(codecs=frozenset({"lz4"}))
    rows = [
        row
        for cut in plan.slices(parsed, pushed)
        for arrow in tasks.read(cut, parsed, ("codec", "records"), pushed)
        for row in arrow.to_pylist()
    ]
    assert rows == [{"codec": "lz4", "records": 4}] * 25


def test_group_needs_to_know_its_cluster() -> None:
    with pytest.raises(SegmentError, match=r"group needs kafka\.bootstrap\.servers"):
        parse({"path": "p", "group": "g"})
    found = parse({"path": "p", "group": "g", "kafka.bootstrap.servers": "h:1"})
    assert (found.group, found.client) == ("g", (("bootstrap.servers", "h:1"),))


def test_task_without_a_slice_reads_nothing() -> None:
    # If a filter leaves nothing to plan, Spark makes a task nonetheless: with None in 4.0, in 4.2 as here.
    reader = SegmentReader(parse({"path": "p"}), ("offset",))
    assert list(reader.read(None)) == list(reader.read(InputPartition(None))) == []
