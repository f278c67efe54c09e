"""Archives without Java: Spark's tasks read log directories or brokers, and write Parquet from Arrow themselves.

What is written has the layout of `files.stage`. Spark's own commit of files is replaced by a simpler rule: every attempt of
a task writes names of its own, and only the names that a task returns count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession

from ..manifest import COLUMNS, STAGING
from ..segments.columns import RECORD_COLUMNS
from ..storage import Storage
from .files import DAY, HOUR, PART, staging_folder

HOUR_US = 3_600_000_000
#: Bytes before compression that a task keeps in memory; what a file has of them becomes a row group.
ROW_GROUP_BYTES = 64 << 20
#: The maximum number of open files of a task.
OPEN_FILES = 32
#: The most hours whose records may alternate; with more, there would be a file for every few records, so files are by day.
HOURS = 64
_SCHEMA = pa.schema([(name, RECORD_COLUMNS[name]) for name in COLUMNS])
#: As Spark's writer has it; Arrow's default is 1.
_ZSTD_LEVEL = 3


class Cut(Protocol):
    """What one task archives: some records of one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


#: Yields the records of a cut in order of offset, as Arrow batches with the archive's columns.
Read = Callable[[Any], Iterator[Any]]


def stage_slices(
    spark: SparkSession,
    slices: Sequence[Cut],
    read: Read,
    storage: Storage,
    token: str,
    compression: str,
) -> set[str]:
    """Write the records of slices below `_staging/<token>`; return the names of the files, relative to the storage.

    The storage has to be a folder that every task can reach under the same path. What an earlier run left there is removed
    first. Errors: those of Spark, around those of `read` and OSError.
    """
    root = staging_folder(token)
    storage.delete(f"{STAGING}/{token}")
    if not slices:
        return set()
    place = storage.location(root)

    def write(cuts: Iterable[Cut]) -> Iterable[str]:
        for cut in cuts:
            yield from write_slice(cut, read, place, compression)

    found = spark.sparkContext.parallelize(slices, len(slices)).mapPartitions(write).collect()
    return {f"{root}/{name}" for name in found}


def write_slice(cut: Cut, read: Read, place: str, compression: str) -> list[str]:
    """Write the records of one slice; return the names of the files, relative to `place`."""
    files = _Files(cut, Path(place), compression)
    try:
        for batch in read(cut):
            files.add(batch)
    finally:
        files.close()
    return files.names


def by_hour(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each hour in their order, or of each day if too many hours alternate, with the level of their folder."""
    stamps = table.column("timestamp").cast(pa.int64()).to_numpy()
    numbers, prefix = stamps // HOUR_US, ""
    if (numbers == numbers[0]).all():
        yield f"{numbers[0]}", table
        return
    if alternating(numbers) > HOURS:
        numbers, prefix = numbers // 24, DAY
    order = np.argsort(numbers, kind="stable")
    table, numbers = table.take(pa.array(order)), numbers[order]
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield f"{prefix}{numbers[start]}", table.slice(start, end - start)


def alternating(hours: npt.NDArray[np.int64]) -> int:
    """The largest number of hours that one place is in, each from its first record to its last."""
    _, first = np.unique(hours, return_index=True)
    _, last = np.unique(hours[::-1], return_index=True)
    steps = np.zeros(len(hours) + 1, np.int64)
    steps[first] += 1
    steps[len(hours) - last] -= 1
    return int(steps.cumsum().max())


class _Files:
    """The files of one task, and the rows that wait to become their next row groups."""

    def __init__(self, cut: Cut, place: Path, compression: str) -> None:
        self._cut = cut
        self._place = place
        self._compression = compression
        self._open: dict[str, pyarrow.parquet.ParquetWriter] = {}
        self._rows: list[Any] = []
        self._bytes = 0
        self.names: list[str] = []

    def add(self, rows: Any) -> None:
        """Take rows, and write all that wait if they are enough for row groups."""
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what waits, and end the files."""
        try:
            self._flush()
        finally:
            for writer in self._open.values():
                writer.close()

    def _flush(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._rows, _SCHEMA)
            self._rows, self._bytes = [], 0
            for level, rows in by_hour(table):
                self._writer(level).write_table(rows)

    def _writer(self, level: str) -> pyarrow.parquet.ParquetWriter:
        writer = self._open.get(level)
        if writer is None:
            if len(self._open) == OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            folder = f"topic={self._cut.topic}/{HOUR}={level}/{PART}={self._cut.partition}"
            name = f"{folder}/{uuid4()}.parquet"
            path = self._place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Arrow's name for Parquet's own form of LZ4, which both of our names select here.
            codec = "lz4" if self._compression == "lz4_raw" else self._compression
            writer = self._open[level] = pyarrow.parquet.ParquetWriter(
                path,
                _SCHEMA,
                compression=codec,
                compression_level=_ZSTD_LEVEL if codec == "zstd" else None,
                use_dictionary=[name for name in COLUMNS if name != "offset"],
            )
            self.names.append(name)
        return writer
