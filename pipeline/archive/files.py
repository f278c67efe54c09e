"""An archive's Parquet files: staged by Spark, moved to their names by the driver, and read as the manifests list them."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..manifest import COLUMNS, FOLDER, STAGING, Archive, ArchiveFile
from ..problems import Problem
from ..storage import Storage

_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
#: The columns that Spark reads from the files and from the names of their folders.
SCHEMA = StructType(
    [StructField(name, _TYPES[name]) for name in COLUMNS]
    + [StructField(name, StringType()) for name in ("topic", "date", "hour")]
)
#: The folder level that separates what belongs to different entries of one job.
PART = "_part"
#: The level of the hour in which records were made, counted from 1970; files that count have their date and hour instead.
HOUR = "_hour"
#: What that level begins with if it is a day, because records of many hours are in one file; the file has no hour then.
DAY = "d"
#: The folder of files without an hour, which Hive, Spark and others read as null.
NO_HOUR = "hour=__HIVE_DEFAULT_PARTITION__"
_FOLDERS = ("topic", HOUR, PART)
#: Files that a task writes side by side; with more, its rows are sorted first.
OPEN_FILES = 32
#: Nearly every footer fits into this, so that one read is enough.
FOOTER_BYTES = 64 << 10
#: No job takes this long between writing a manifest and giving it its name.
UNLINKED_MS = 3_600_000
#: File that says what moves where; written before anything is moved.
MOVES = "moves.json"


class Staged(NamedTuple):
    """A staged file: where it is, the topic and part it belongs to, and what it will be."""

    path: str
    part: str
    file: ArchiveFile


def read_archive(
    spark: SparkSession, archive: Archive, topics: Collection[str] | None = None
) -> DataFrame:
    """The archived records: the columns of Spark's kafka source, and `date` and `hour` (UTC) as strings."""
    return read_files(spark, archive, archive.files(topics))


def read_files(spark: SparkSession, archive: Archive, files: list[str]) -> DataFrame:
    """The records of some of an archive's files."""
    if not files:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).option("basePath", archive.path).parquet(*files)


def stage(
    frame: DataFrame, storage: Storage, token: str, compression: str, *, in_order: bool = False
) -> set[str]:
    """Write records below `_staging/<token>`: one file for each task, topic, hour and part; return the files' names.

    `frame` has the columns of the kafka source and PART; `in_order` says that the rows of each of its partitions are in order of
    offset. What an earlier run left there is removed first.
    """
    root = staging_folder(token)
    storage.delete(f"{STAGING}/{token}")
    spark = frame.sparkSession
    # In milliseconds, and with minimum and maximum in the footer; Spark's default, INT96, has neither.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    seconds = sf.unix_seconds("timestamp")
    level = sf.floor(seconds / 3600).cast("string")
    if "hour" in frame.columns:
        # Files of an archive, which keep their days.
        day = sf.concat(sf.lit(DAY), sf.floor(seconds / 86_400).cast("string"))
        level = sf.when(sf.col("hour").isNull(), day).otherwise(level)
    placed = frame.select(*COLUMNS, "topic", level.alias(HOUR), PART)
    if in_order:
        # Sorting costs more than anything else here. Spark sorts anyway if a task turns out to need more files, and not by offset.
        with _settings(spark, _UNSORTED):
            _write(placed, storage.location(root), compression)
        names = set(_parquet_files(storage, root))
        tasks = Counter(name.rpartition("/")[2].split(".")[0] for name in names)
        if max(tasks.values(), default=0) <= OPEN_FILES:
            return names
        storage.delete(root)
    _write(placed.sortWithinPartitions(*_FOLDERS, "offset"), storage.location(root), compression)
    return set(_parquet_files(storage, root))


_UNSORTED = {
    "spark.sql.optimizer.plannedWrite.enabled": "false",
    "spark.sql.maxConcurrentOutputFileWriters": str(OPEN_FILES),
}


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _write(placed: DataFrame, location: str, compression: str) -> None:
    writer = placed.write.partitionBy(*_FOLDERS).option("compression", compression)
    writer.parquet(location)


def staging_folder(token: str) -> str:
    """Where the files of a batch are until they are moved to their names."""
    return f"{STAGING}/{token}/data"


def staged(storage: Storage, token: str, origin: str, names: Collection[str]) -> list[Staged]:
    """The staged files of these names, with the names they will have; each ends in `origin`, which is unique to this commit."""
    found: list[Staged] = []
    root = staging_folder(token)
    for path in sorted(names):
        levels = dict(
            level.split("=", 1) for level in path.removeprefix(root + "/").split("/")[:-1]
        )
        folder = f"topic={levels['topic']}/{folders_of(levels[HOUR])}"

        def named(
            partition: int,
            first: int,
            last: int,
            folder: str = folder,
            topic: str = levels["topic"],
        ) -> str:
            return f"{folder}/{topic}-{partition}-{first:020d}-{last:020d}-{origin}.parquet"

        found.append(Staged(path, levels[PART], _described(storage, path, named)))
    return found


def folders_of(level: str) -> str:
    """The folders of an hour or a DAY, counted from 1970: `date=2026-01-02/hour=23`, with the year as Spark writes it."""
    if level.startswith(DAY):
        date, hour = np.datetime64(int(level.removeprefix(DAY)), "D"), NO_HOUR
    else:
        date = np.datetime64(int(level), "h").astype("datetime64[D]")
        hour = f"hour={int(level) % 24:02}"
    year, month, day = str(date).rsplit("-", 2)
    sign = "-" if int(year) < 0 else "+" if int(year) > 9999 else ""
    return f"date={sign}{abs(int(year)):04}-{month}-{day}/{hour}"


def _parquet_files(storage: Storage, folder: str) -> Iterable[str]:
    for item in storage.list(folder):
        name = f"{folder}/{item.name}"
        if item.is_folder:
            yield from _parquet_files(storage, name)
        elif item.name.endswith(".parquet") and not item.name.startswith((".", "_")):
            yield name


def _described(storage: Storage, path: str, named: Callable[[int, int, int], str]) -> ArchiveFile:
    """Describe a file by its footer."""
    footer = storage.read(path, FOOTER_BYTES) or b""
    length = int.from_bytes(footer[-8:-4], "little") + 8
    if length > len(footer):
        footer = storage.read(path, length) or b""
    metadata = pyarrow.parquet.read_metadata(io.BytesIO(footer))
    partition, _ = _bounds(metadata, "partition")
    first, last = _bounds(metadata, "offset")
    earliest, latest = _bounds(metadata, "timestamp")
    size = sum(
        item.size for item in storage.list(path.rpartition("/")[0]) if path.endswith(item.name)
    )
    return ArchiveFile(
        path=named(partition, first, last),
        rows=metadata.num_rows,
        size=size,
        first_offset=first,
        last_offset=last,
        first_timestamp_ms=earliest // 1000,
        last_timestamp_ms=latest // 1000,
    )


def _bounds(metadata: pyarrow.parquet.FileMetaData, column: str) -> tuple[int, int]:
    """The smallest and the largest number in a column, as stored."""
    at = metadata.schema.names.index(column)
    groups = [
        metadata.row_group(number).column(at).statistics
        for number in range(metadata.num_row_groups)
    ]
    return min(group.min_raw for group in groups), max(group.max_raw for group in groups)


def publish(storage: Storage, token: str, files: Iterable[Staged]) -> None:
    """Move files to their names, where they wait for a manifest that names them.

    A file written first records the moves, so that `sweep` can find them if the run is killed before it commits.
    """
    moves = {item.path: item.file.path for item in files}
    storage.replace(f"{STAGING}/{token}/{MOVES}", json.dumps(moves).encode())
    for path, to in moves.items():
        storage.move(path, to)
    storage.settle({to.rpartition("/")[0] for to in moves.values()})


def sweep(archive: Archive, prefix: str, older_than_ms: int | None = None) -> int:
    """Remove what killed runs have left behind: staging folders by their prefix, and files moved but not committed.

    With `older_than_ms` (since 1970) newer folders stay, because they may be another run's. Returns how many moved files were
    removed.
    """
    storage = archive.storage
    _sweep_unlinked(storage)
    # Files that a compaction replaced are kept for a separate period.
    known = {
        file.path for entry in archive.entries() for file in entry.files
    } | archive.replaced().keys()
    removed = 0
    for item in storage.list(STAGING):
        if not item.name.startswith(prefix):
            continue
        if older_than_ms is not None and item.modified_ms > older_than_ms:
            continue
        for path in _moved(storage, item.name):
            if path not in known:
                storage.delete(path)
                removed += 1
        storage.delete(f"{STAGING}/{item.name}")
    return removed


def _sweep_unlinked(storage: Storage) -> None:
    """Remove manifests that were written but not given their name; recent ones may be another job's and stay."""
    before = time.time_ns() // 1_000_000 - UNLINKED_MS
    for item in storage.list(FOLDER):
        if item.name.startswith(".") and item.modified_ms < before:
            storage.delete(f"{FOLDER}/{item.name}")


def _moved(storage: Storage, token: str) -> list[str]:
    text = storage.read(f"{STAGING}/{token}/{MOVES}")
    if text is None:
        return []
    try:
        return list(json.loads(text).values())
    except (ValueError, AttributeError) as error:
        raise Problem(
            f"{storage.location(f'{STAGING}/{token}/{MOVES}')} is damaged: {error}"
        ) from error
