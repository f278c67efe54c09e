"""An archive as replay reads it: the records of one partition by offset, from files that may overlap.

An archive splits a partition by the hour of its records. If timestamps do not rise with the offsets, the offsets of two
hours' files interleave, and the files are merged: a batch at a time, never a whole file. More files than may be open at a time are
first brought in order in passes (`external_sort.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..manifest import ArchiveContent, ManifestEntry
from ..problems import Problem
from ..storage import is_local
from ..tables.stores import file_system, store_settings
from .external_sort import FAN_IN, merged, sorted_by_offset
from .plan import COLUMNS, RecordRange

#: Number of records of each file held in memory.
BATCH = 8192

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


class Piece(NamedTuple):
    """One Parquet file, and its first and last offset."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class ArchivedPartition:
    """The files of one partition; a SourcePartition."""

    topic: str
    partition: int
    first: int
    end: int
    pieces: tuple[Piece, ...]
    oldest_ms: int | None = None
    lost: tuple[tuple[int, int], ...] = ()
    #: How to reach the files in an object store (`store_settings`).
    store: Mapping[str, str] = field(default_factory=dict)

    def read(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        """See SourcePartition."""
        wanted = [piece for piece in self.pieces if piece.last >= offset and piece.first < end]
        for group in overlapping(wanted):
            streams = (_batches(piece, offset, end, self.store) for piece in group)
            yield from merged([*streams]) if len(group) <= FAN_IN else sorted_by_offset(streams)


def archived_partitions(
    archive: ArchiveContent, topics: Collection[str] | None, within: RecordRange
) -> list[ArchivedPartition]:
    """An archive's partitions of these topics (of all, for None), without files that have no record in the time asked for.

    Raises Problem if its manifests lack entries.
    """
    archive.check(topics)
    store = store_settings(archive.path)
    entries: dict[tuple[str, int], list[ManifestEntry]] = {}
    for entry in archive.entries(topics):
        entries.setdefault((entry.topic, entry.partition), []).append(entry)
    found = []
    for (topic, partition), some in entries.items():
        files = [
            file
            for entry in some
            for file in entry.files
            if (within.from_ms is None or file.last_timestamp_ms >= within.from_ms)
            and (within.to_ms is None or file.first_timestamp_ms < within.to_ms)
        ]
        times = [file.first_timestamp_ms for file in files if file.first_timestamp_ms >= 0]
        pieces = tuple(
            Piece(archive.storage.location(file.path), file.first_offset, file.last_offset)
            for file in files
        )
        lost = tuple(lost for entry in some for lost in entry.lost)
        first, end = some[0].first_offset, some[-1].last_offset + 1
        oldest = max(min(times), within.from_ms or 0) if times else None
        found.append(ArchivedPartition(topic, partition, first, end, pieces, oldest, lost, store))
    return found


def overlapping(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """The files by offset, in groups whose offsets overlap."""
    group: list[Piece] = []
    last = -1
    for piece in sorted(pieces, key=lambda one: one.first):
        if group and piece.first > last:
            yield group
            group = []
        group.append(piece)
        last = max(last, piece.last)
    if group:
        yield group


def _batches(
    piece: Piece, offset: int, end: int, store: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The records of one file; row groups that end before `offset` or begin at `end` are not read."""
    try:
        with _open(piece.path, store) as file:
            groups = [
                number
                for number in range(file.num_row_groups)
                if _may_hold(file.metadata.row_group(number), offset, end)
            ]
            for batch in file.iter_batches(BATCH, row_groups=groups, columns=list(COLUMNS)):
                batch = between(conformed(batch, piece.path), offset, end)
                if batch.num_rows:
                    yield batch
    except FileNotFoundError as error:
        raise Problem(
            f"the archive's file {piece.path} is gone (a compaction may have replaced it):"
            " run the same command again"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise Problem(f"cannot read {piece.path}: {error}") from error


def _open(path: str, store: Mapping[str, str]) -> pq.ParquetFile:
    if is_local(path):
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="ms")
    system, name = file_system(path, store)
    return pq.ParquetFile(name, filesystem=system, coerce_int96_timestamp_unit="ms")


def _may_hold(group: pq.RowGroupMetaData, offset: int, end: int) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "offset":
            known = column.statistics
            return (
                known is None or not known.has_min_max or (known.max >= offset and known.min < end)
            )
    return True


def conformed(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Convert a batch with Spark's columns to SCHEMA; raises Problem if its offsets do not rise."""
    timestamp = batch.column("timestamp")
    if pa.types.is_timestamp(timestamp.type):
        # Kafka has milliseconds; -1 (no timestamp) is treated like any other time here.
        timestamp = timestamp.cast(pa.timestamp("ms", timestamp.type.tz), safe=False).cast(
            pa.int64()
        )
    columns = {
        "offset": batch.column("offset"),
        "timestamp": pc.fill_null(timestamp, -1),
        "key": batch.column("key"),
        "value": batch.column("value"),
        "headers": batch.column("headers"),
    }
    found = pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA
    )
    offsets = found.column("offset")
    if found.num_rows > 1 and not pc.all(pc.greater(offsets[1:], offsets[:-1])).as_py():
        raise Problem(f"{where}: offsets do not rise from {offsets[0]} to {offsets[-1]}")
    return found


def between(batch: pa.RecordBatch, offset: int, end: int) -> pa.RecordBatch:
    """The records from `offset` on and before `end`."""
    offsets = batch.column("offset")
    if batch.num_rows and offsets[0].as_py() >= offset and offsets[-1].as_py() < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, offset), pc.less(offsets, end)))
