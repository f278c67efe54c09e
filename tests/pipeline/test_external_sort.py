"""Records of many streams come out in order of offset, with few files open."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kwire.pipeline.replay.external_sort import FAN_IN, sorted_by_offset
from kwire.pipeline.replay.from_archive import SCHEMA, ArchivedPartition, Piece
from kwire.pipeline.tables.place import raw_schema


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def batch_of(offsets: list[int]) -> pa.RecordBatch:
    rows = [
        {"offset": one, "timestamp": 0, "key": None, "value": b"v%d" % one, "headers": None}
        for one in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize("streams", [0, 1, 40])
@pytest.mark.parametrize("run_bytes", [1, 2_000, 1 << 20])
def test_streams_are_sorted_whatever_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: int, run_bytes: int
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/does/not/exist")
    rng = random.Random(streams)
    of: list[list[int]] = [[] for _ in range(streams)]
    for offset in range(10 * streams):
        of[rng.randrange(streams)].append(offset)
    before, most = open_files(), 0

    def stream(offsets: list[int]) -> Iterator[pa.RecordBatch]:
        nonlocal most
        for at in range(0, len(offsets), 3):
            most = max(most, open_files())
            yield batch_of(offsets[at : at + 3])

    found = []
    for batch in sorted_by_offset(map(stream, of), run_bytes, fan_in=4):
        most = max(most, open_files())
        found += batch.to_pylist()
    assert [row["offset"] for row in found] == [*range(10 * streams)]
    assert all(row["value"] == b"v%d" % row["offset"] for row in found)
    # The runs that are merged, and the one that they become.
    assert most - before <= 4 + 1
    assert not any(tmp_path.iterdir())


def test_reading_that_ends_early_leaves_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    found = sorted_by_offset(iter([batch_of([at])]) for at in range(100, 0, -1))
    assert next(found).column("offset")[0].as_py() == 1
    found.close()  # type: ignore[attr-defined]
    assert not any(tmp_path.iterdir())


def test_archive_of_more_interleaving_files_than_may_be_open_is_read_in_order(
    tmp_path: Path,
) -> None:
    pieces = []
    for number in range(3 * FAN_IN):
        offsets = [number, number + 3 * FAN_IN, number + 6 * FAN_IN]
        rows = {name: pa.nulls(3, kind) for name, kind in zip(*_columns(), strict=True)}
        rows["offset"] = pa.array(offsets)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(rows, schema=raw_schema()), path)
        pieces.append(Piece(str(path), offsets[0], offsets[-1]))
    end = 9 * FAN_IN
    partition = ArchivedPartition("t", 0, 0, end, tuple(pieces))
    before, most, found = open_files(), 0, []
    for batch in partition.read(5, end - 5):
        most = max(most, open_files())
        found += batch.column("offset").to_pylist()
    assert found == [*range(5, end - 5)]
    assert most - before <= FAN_IN


def _columns() -> tuple[list[str], list[pa.DataType]]:
    return raw_schema().names, raw_schema().types
