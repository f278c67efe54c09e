"""Rewrites an archive's small files into larger ones; readers see either the old files or the new ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ..manifest import STAGING, Archive, ArchiveFile, Conflict, ManifestEntry
from ..problems import Problem
from .files import PART, publish, read_files, stage, staged, sweep

#: Staging folders of compactions that are older than this were left by killed ones.
ABANDONED_MS = 6 * 3_600_000


@dataclass
class EntryRun:
    """Consecutive entries of one partition that become one."""

    entries: list[ManifestEntry] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(entry.size for entry in self.entries)

    def split(self) -> tuple[list[ArchiveFile], list[ArchiveFile]]:
        """(files that stay, being the only ones in their hour; files that are rewritten into one per hour)."""
        hours: dict[str, list[ArchiveFile]] = {}
        for entry in self.entries:
            for file in entry.files:
                hours.setdefault(file.path.rpartition("/")[0], []).append(file)
        alone = [files[0] for files in hours.values() if len(files) == 1]
        return alone, [file for files in hours.values() if len(files) > 1 for file in files]


def runs(entries: Iterable[ManifestEntry], target: int) -> list[EntryRun]:
    """The runs worth rewriting, of at most `target` bytes each, from entries sorted by partition and offset."""
    found: list[EntryRun] = []
    for entry in entries:
        last = found[-1] if found else None
        if (
            last is not None
            and (last.entries[-1].topic, last.entries[-1].partition)
            == (entry.topic, entry.partition)
            and last.entries[-1].last_offset + 1 == entry.first_offset
            and last.size + entry.size <= target
        ):
            last.entries.append(entry)
        else:
            found.append(EntryRun([entry]))
    return [run for run in found if run.split()[1]]


def compact(
    spark: SparkSession,
    archive: Archive,
    topics: Collection[str] | None,
    target: int,
    compression: str,
) -> tuple[int, int]:
    """Rewrite small files; return how many files were replaced, and by how many.

    Replaced files are deleted later (`sweep_replaced`). Raises Problem if another compaction was faster.
    """
    now_ms = time.time_ns() // 1_000_000
    sweep(archive, "compaction.", now_ms - ABANDONED_MS)
    chosen = runs(archive.entries(topics), target)
    if not chosen:
        return 0, 0
    token = f"compaction.{now_ms}.{os.getpid()}"
    old = [run.split()[1] for run in chosen]
    frame = read_files(
        spark, archive, [archive.storage.location(file.path) for files in old for file in files]
    )
    spans = spark.createDataFrame(
        [
            (
                entry.topic,
                entry.partition,
                run.entries[0].first_offset,
                run.entries[-1].last_offset,
                str(at),
            )
            for at, run in enumerate(chosen)
            for entry in run.entries[:1]
        ],
        f"t string, p int, f long, l long, {PART} string",
    )
    place = (
        (sf.col("topic") == sf.col("t"))
        & (sf.col("partition") == sf.col("p"))
        & sf.col("offset").between(sf.col("f"), sf.col("l"))
    )
    parted = frame.join(sf.broadcast(spans), place)
    # All rows of a run go to one task, so that those of one hour become one file.
    names = stage(parted.repartition(len(chosen), PART), archive.storage, token, compression)
    new = staged(archive.storage, token, f"c{now_ms}", names)
    merged = [
        _merged(run, [item.file for item in new if item.part == str(at)])
        for at, run in enumerate(chosen)
    ]
    publish(archive.storage, token, new)
    try:
        archive.commit_compaction([entry for run in chosen for entry in run.entries], merged)
    except Conflict as error:
        raise Problem(f"another job is also compacting {archive.path}: {error}") from error
    archive.storage.delete(f"{STAGING}/{token}")
    return sum(map(len, old)), len(new)


def _merged(run: EntryRun, files: list[ArchiveFile]) -> ManifestEntry:
    """The entry that replaces a run's. Raises Problem if not all rows are in the new files."""
    alone, rewritten = run.split()
    first, last = run.entries[0], run.entries[-1]
    rows, wanted = sum(file.rows for file in files), sum(file.rows for file in rewritten)
    if rows != wanted:
        raise Problem(
            f"{first.topic}-{first.partition}: files from offset {first.first_offset} to {last.last_offset} have"
            f" {rows} rows, their manifests say {wanted}; nothing was changed"
        )
    return ManifestEntry(
        topic=first.topic,
        partition=first.partition,
        first_offset=first.first_offset,
        last_offset=last.last_offset,
        rows=sum(entry.rows for entry in run.entries),
        files=tuple(sorted([*alone, *files], key=lambda file: (file.first_offset, file.path))),
        lost=tuple(span for entry in run.entries for span in entry.lost),
    )


def sweep_replaced(
    archive: Archive,
    keep_ms: int,
    is_free: Callable[[str], bool] = lambda path: True,
    forget: Callable[[str], object] = lambda path: None,
) -> int:
    """Delete files that were replaced at least `keep_ms` ago, so that no reader needs them; return their number.

    Files that `is_free` refuses, because a table may name them, stay. `forget` is called for each file that is deleted.
    """
    before = time.time_ns() // 1_000_000 - keep_ms
    old = [path for path, at in archive.replaced().items() if at <= before and is_free(path)]
    for path in old:
        archive.storage.delete(path)
        forget(path)
    if old:
        archive.commit_swept(old)
    return len(old)
