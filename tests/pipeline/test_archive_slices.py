"""Slices of a log directory as Parquet files, written without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from kwire.pipeline.archive import slices
from kwire.pipeline.archive.files import SCHEMA, folders_of
from kwire.pipeline.archive.slices import alternating, write_slice
from kwire.pipeline.log_cluster import LogCluster
from kwire.pipeline.manifest import COLUMNS
from kwire.pipeline.segments import tasks
from kwire.pipeline.segments.columns import RECORD_COLUMNS
from server.log.checkpoint import HIGH_WATERMARK, write_offsets
from server.log.file_layer import FileLayer

from ..log.logs import TP, append, batch, config, open_log

HOUR_MS = 3_600_000
START_MS = 491_000 * HOUR_MS


def test_hours_become_folders_as_spark_writes_them() -> None:
    assert folders_of("0") == "date=1970-01-01/hour=00"
    assert folders_of("-1") == "date=1969-12-31/hour=23"
    assert folders_of("491000") == "date=2026-01-05/hour=08"
    ten_thousand = int(np.datetime64("10000-01-01T05", "h").astype(np.int64))
    assert folders_of(f"{ten_thousand}") == "date=+10000-01-01/hour=05"
    caesar = int(np.datetime64("-0043-03-15T12", "h").astype(np.int64))
    assert folders_of(f"{caesar}") == "date=-0043-03-15/hour=12"
    assert folders_of("d20458") == "date=2026-01-05/hour=__HIVE_DEFAULT_PARTITION__"
    assert folders_of("d-1") == "date=1969-12-31/hour=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("hours", "count"),
    [
        ([5], 1),
        ([*range(100)], 1),
        ([*range(99, -1, -1)], 1),
        ([0, 1, 0, 2, 3, 2, 3], 2),
        ([*range(100), *range(100)], 100),
        ([*range(100), *range(0, 100, 2)], 51),
    ],
)
def test_hours_alternate_from_their_first_record_to_their_last(
    hours: list[int], count: int
) -> None:
    assert alternating(np.array(hours, np.int64)) == count


class Hours(NamedTuple):
    """Records of one partition in these hours since 1970, one after the other."""

    hours: list[int]
    topic: str = "t"
    partition: int = 3

    def read(self) -> Iterator[pa.RecordBatch]:
        """In batches of 700 records."""
        for at in range(0, len(self.hours), 700):
            hours = self.hours[at : at + 700]
            rows = {name: pa.nulls(len(hours), RECORD_COLUMNS[name]) for name in COLUMNS}
            rows["offset"] = pa.array(range(at, at + len(hours)), pa.int64())
            micros = pa.array([hour * HOUR_MS * 1000 for hour in hours], pa.int64())
            rows["timestamp"] = micros.cast(RECORD_COLUMNS["timestamp"])
            yield pa.RecordBatch.from_pydict(rows)


def files_of(path: Path, hours: list[int]) -> dict[str, list[int]]:
    """The level of each file that is written -> its hours; checks that all records are there, in order."""
    found: dict[str, list[int]] = {}
    every: list[int] = []
    for name in write_slice(Hours(hours), Hours.read, str(path), "zstd"):
        table = pyarrow.parquet.read_table(path / name, partitioning=None)
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        every += offsets
        level = name.split("/")[1].removeprefix("_hour=")
        assert level not in found
        found[level] = [hours[offset] for offset in offsets]
    assert sorted(every) == [*range(len(hours))]
    return found


def test_records_of_scattered_hours_are_in_one_file_for_each_day(tmp_path: Path) -> None:
    rng = random.Random(1)
    days = 30
    found = files_of(tmp_path, [491_016 + rng.randrange(24 * days) for _ in range(3_000)])
    assert [*found] == [f"d{day}" for day in range(20_459, 20_459 + days)]
    assert all({hour // 24 for hour in of} == {int(day[1:])} for day, of in found.items())


def test_hours_that_follow_each_other_have_files_of_their_own_however_many(tmp_path: Path) -> None:
    # Each has a late record of the hour before it.
    hours = [hour for late in range(200) for hour in (late + 1, late + 1, late)]
    found = files_of(tmp_path, hours)
    assert sorted(map(int, found)) == [*range(201)]


@pytest.mark.parametrize("open_files", [2, 32])
def test_each_record_is_in_a_file_of_its_hour_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int
) -> None:
    monkeypatch.setattr(slices, "OPEN_FILES", open_files)
    monkeypatch.setattr(slices, "ROW_GROUP_BYTES", 400)
    log = open_log(tmp_path, config())
    hours = [0, 1, 0, 2, 3, 0, 1, 2]
    for hour in hours:
        append(log, batch(b"a", None, timestamp=START_MS + hour * HOUR_MS))
    end = log.log_end_offset
    log.close()
    write_offsets(FileLayer(), f"{tmp_path}/{HIGH_WATERMARK}", {TP: end})
    options, cuts = LogCluster([str(tmp_path)]).slices(
        {("topic", 0): 1}, {("topic", 0): end}, read_committed=True, go_on=False
    )
    found = {}
    for cut in cuts:
        read = partial(tasks.read, options=options, columns=COLUMNS)
        for name in write_slice(cut, read, str(tmp_path / "out"), "zstd"):
            topic, hour, part = name.split("/")[:-1]
            assert (topic, part) == ("topic=topic", "_part=0")
            table = pyarrow.parquet.read_table(tmp_path / "out" / name, partitioning=None)
            assert tuple(table.column_names) == COLUMNS == tuple(SCHEMA.fieldNames()[:7])
            offsets = table.column("offset").to_pylist()
            assert offsets == sorted(offsets)
            found |= dict.fromkeys(offsets, int(hour.removeprefix("_hour=")))
    assert found == {offset: 491_000 + hours[offset // 2] for offset in range(1, end)}
