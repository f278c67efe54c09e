"""Slices of a log directory as Parquet files, written without Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from kwire.pipeline import archive_slices
from kwire.pipeline.archive_files import SCHEMA, folders_of
from kwire.pipeline.archive_slices import write_slice
from kwire.pipeline.log_cluster import LogCluster
from kwire.pipeline.manifest import COLUMNS
from kwire.pipeline.segments import tasks
from server.log.checkpoint import HIGH_WATERMARK, write_offsets
from server.log.file_layer import FileLayer

from ..log.logs import TP, append, batch, config, open_log

HOUR_MS = 3_600_000
START_MS = 491_000 * HOUR_MS


def test_hours_become_folders_as_spark_writes_them() -> None:
    assert folders_of(0) == "date=1970-01-01/hour=00"
    assert folders_of(-1) == "date=1969-12-31/hour=23"
    assert folders_of(491_000) == "date=2026-01-05/hour=08"
    ten_thousand = int(np.datetime64("10000-01-01T05", "h").astype(np.int64))
    assert folders_of(ten_thousand) == "date=+10000-01-01/hour=05"
    assert folders_of(int(np.datetime64("-0043-03-15T12", "h").astype(np.int64))) == (
        "date=-0043-03-15/hour=12"
    )


@pytest.mark.parametrize("open_files", [2, 32])
def test_each_record_is_in_a_file_of_its_hour_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int
) -> None:
    monkeypatch.setattr(archive_slices, "OPEN_FILES", open_files)
    monkeypatch.setattr(archive_slices, "ROW_GROUP_BYTES", 400)
    log = open_log(tmp_path, config())
    hours = [0, 1, 0, 2, 3, 0, 1, 2]
    for hour in hours:
        append(log, batch(b"a", None, timestamp=START_MS + hour * HOUR_MS))
    end = log.log_end_offset
    log.close()
    write_offsets(FileLayer(), f"{tmp_path}/{HIGH_WATERMARK}", {TP: end})
    options, slices = LogCluster([str(tmp_path)]).slices(
        {("topic", 0): 1}, {("topic", 0): end}, read_committed=True, go_on=False
    )
    found = {}
    for cut in slices:
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
