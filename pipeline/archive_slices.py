"""Archives without Java: Spark's tasks read log directories or brokers, and write Parquet from Arrow themselves.

What is written has the layout of `archive_files.stage`. Spark's own commit of files is replaced by a simpler rule: every attempt of
a task writes names of its own, and only the names that a task returns count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession

from .archive_files import HOUR, PART, staging_folder
from .manifest import COLUMNS, STAGING
from .segments.columns import RECORD_COLUMNS
from .storage import Storage

HOUR_US = 3_600_000_000
#: Bytes of one row group before compression, which a task keeps in memory.
ROW_GROUP_BYTES = 64 << 20
#: The maximum number of open files of a task. If records alternate between more hours, an hour gets more than one file.
OPEN_FILES = 32
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
            for hour, rows in by_hour(batch):
                files.add(hour, rows)
    finally:
        files.close()
    return files.names


def by_hour(batch: Any) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each hour since 1970, in their order; most batches have one hour."""
    stamps = batch.column("timestamp").cast(pa.int64()).to_numpy()
    hours = stamps // HOUR_US
    first = int(hours[0])
    if (hours == first).all():
        yield first, batch
        return
    for hour in np.unique(hours):
        yield int(hour), batch.filter(pa.array(hours == hour))


class _Files:
    """The open files of one task: one for each hour."""

    def __init__(self, cut: Cut, place: Path, compression: str) -> None:
        self._cut = cut
        self._place = place
        self._compression = compression
        self._open: dict[int, _File] = {}
        self.names: list[str] = []

    def add(self, hour: int, rows: Any) -> None:
        file = self._open.get(hour)
        if file is None:
            if len(self._open) == OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            folder = f"topic={self._cut.topic}/{HOUR}={hour}/{PART}={self._cut.partition}"
            name = f"{folder}/{uuid4()}.parquet"
            file = self._open[hour] = _File(self._place / name, self._compression)
            self.names.append(name)
        file.add(rows)
        if sum(each.waiting_bytes for each in self._open.values()) >= ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    def close(self) -> None:
        for file in self._open.values():
            file.close()


class _File:
    """A Parquet file, and the rows that wait to become its next row group."""

    def __init__(self, path: Path, compression: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Arrow's name for Parquet's own form of LZ4, which both of our names select here.
        codec = "lz4" if compression == "lz4_raw" else compression
        self._writer = pyarrow.parquet.ParquetWriter(
            path,
            _SCHEMA,
            compression=codec,
            compression_level=_ZSTD_LEVEL if codec == "zstd" else None,
            use_dictionary=[name for name in COLUMNS if name != "offset"],
        )
        self._rows: list[Any] = []
        self.waiting_bytes = 0

    def add(self, rows: Any) -> None:
        self._rows.append(rows)
        self.waiting_bytes += rows.nbytes

    def flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._rows, _SCHEMA))
            self._rows, self.waiting_bytes = [], 0

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._writer.close()
