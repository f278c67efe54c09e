"""An archive written without Spark, and the content of its tables, as the same tuples as in `archive_model`."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kwire.pipeline.manifest import Archive, ArchiveFile, ManifestEntry
from kwire.pipeline.tables.changes import RANGES
from kwire.pipeline.tables.follower import ArchiveTables
from kwire.pipeline.tables.place import TablePlace, raw_schema

from ..archive_model import EVENING_MS, Record, records_of

BOTH = ("iceberg", "delta")


def options_of(*formats: str, **more: object) -> Namespace:
    """The options that a job with these tables has."""
    known = {
        "table": list(formats or BOTH),
        "catalog": None,
        "catalog_properties": [],
        "namespace": "kwire",
        "topics": [],
        "topics_pattern": None,
        "value_schemas": [],
        "value_framing": None,
        "key_schemas": [],
    }
    return Namespace(**{**known, **more})


def add_batch(
    path: Path,
    count: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    batch: int = 0,
    start_ms: int = EVENING_MS,
    values: Sequence[bytes | None] = (),
    keys: Sequence[bytes | None] = (),
) -> ManifestEntry:
    """Archive one batch of records as the job does; its timestamps are of one hour.

    `values` and `keys` are those of the first records.
    """
    archive = Archive(path)
    archive.create()
    first = archive.ends().get((topic, partition), 0)
    numbers = range(first, first + count)
    columns: dict[str, list[object]] = {
        "key": [None if n % 7 == 0 else b"k%d" % (n % 13) for n in numbers],
        "value": [None if n % 11 == 0 else b"value %d" % n for n in numbers],
        "partition": [partition] * count,
        "offset": [*numbers],
        "timestamp": [(start_ms + n % 50) * 1000 for n in numbers],
        "timestampType": [0] * count,
        "headers": [[{"key": "h", "value": b"\0"}] if n % 3 == 0 else None for n in numbers],
    }
    columns["value"][: len(values)] = values
    columns["key"][: len(keys)] = keys
    table = pa.table(columns, schema=raw_schema())
    day = "2026-01-02/hour=23" if start_ms == EVENING_MS else "2026-01-03/hour=23"
    last = first + count - 1
    name = f"topic={topic}/date={day}/{topic}-{partition}-{first:020d}-{last:020d}-b{batch}.parquet"
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / name)
    stamps = [start_ms + n % 50 for n in numbers]
    size = (path / name).stat().st_size
    file = ArchiveFile(name, count, size, first, last, min(stamps), max(stamps))
    entry = ManifestEntry(topic, partition, first, last, count, (file,))
    archive.commit_batch([entry], batch)
    return entry


def follow(path: Path, *formats: str, **options: object) -> int:
    """Bring the tables up to date; returns how many commits that took."""
    follower = ArchiveTables(Archive(path), options_of(*formats, **options))
    try:
        return follower.follow()
    finally:
        follower.close()


def in_table(path: Path, format: str, topic: str = "orders") -> list[Record]:
    """The content of a table, read by its own library."""
    return sorted(records_of(topic, rows_of_table(path, format, topic)))


def rows_of_table(path: Path, format: str, topic: str, kind: str = "") -> list[dict[str, object]]:
    """The rows of a table, or of that of a topic's values or dead letters."""
    if format == "delta":
        folder = f"{kind}/delta/{topic}" if kind else f"topic={topic}"
        table = DeltaTable(path / folder).to_pyarrow_table()
    else:
        place = TablePlace(Archive(path), options_of())
        try:
            table = place.catalog().load_table(("kwire", f"{topic}{kind}")).scan().to_arrow()
        finally:
            place.close()
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def ranges_of(path: Path, format: str, topic: str = "orders") -> list[dict[str, list[int]]]:
    """The first and last offsets, by partition, that each commit of a table adds according to its metadata."""
    place = TablePlace(Archive(path), options_of())
    table = place.table(format, topic)
    table.open(create=False)
    said = [one.properties[RANGES] for one in table.snapshots() if RANGES in one.properties]
    place.close()
    return [json.loads(text)[topic] for text in said]


def ranges_follow(snapshots: Iterable[dict[str, list[int]]]) -> bool:
    """Whether the ranges of snapshots, by partition, begin where those before end."""
    ends: dict[str, int] = {}
    for snapshot in snapshots:
        for number, (first, last) in snapshot.items():
            if ends.get(number, first) != first:
                return False
            ends[number] = last + 1
    return True
