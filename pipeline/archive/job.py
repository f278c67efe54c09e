"""`kwire pipeline archive`: topics to partitioned Parquet, each record once.

A batch is written to a staging folder, moved to names that follow from its offsets, and counts from the moment its manifest
exists (`manifest.py`); only then does Spark record it as done. Whatever is killed in between, the next run finds the end of
the archive in the manifests and continues there: the checkpoint only says which offsets were about to be read.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ..bar import Bar, is_shown, watching_tasks
from ..checkpoints import QueryBatch
from ..cluster import Cluster
from ..counting import count
from ..following import follow
from ..log_cluster import LogCluster
from ..manifest import COLUMNS, STAGING, Archive, Conflict, ManifestEntry
from ..offsets import Offsets, tree_of
from ..options import check_no_cluster, check_topics, chosen_topics, say_if_none
from ..problems import DATA_LOSS, Problem, whole_text
from ..segments import read_stream, tasks
from ..segments.slices import OffsetSlice
from ..session import kafka_options, start_session
from ..storage import LocalStorage, StillHeld, Storage, is_local
from ..tables.follower import ArchiveTables
from ..tables.options import check_value_topics, formats, value_schemas
from ..tables.place import check_catalog
from . import fetched
from .checks import Checks, checkpoint_of
from .compaction import compact, sweep_replaced
from .fetched import Span
from .files import NO_HOUR, PART, Staged, publish, stage, staged, sweep
from .options import add_arguments
from .plan import OffsetsToArchive, plan
from .slices import HOURS, Read, stage_slices

__all__ = ["add_arguments", "run"]

#: Messages of Spark and the clients when topics, or offsets to be read, are gone.
GONE = re.compile(
    f"{DATA_LOSS.pattern}|[Uu]nknown topic|UnknownTopicOrPartition|no longer (?:exist|there)"
)
_EARLIEST, _LATEST = -2, -1


def check_starting_offsets(
    options: Namespace, cluster: Cluster | LogCluster, chosen: dict[str, int]
) -> None:
    """Refuse partitions that are not archived and offsets beyond the end: the checkpoint would keep the mistake.

    With a pattern, topics may be created later. Raises Problem.
    """
    asked = options.starting_offsets
    if options.topics_pattern or isinstance(asked, str):
        return
    ends = cluster.ends(chosen)
    for (topic, number), offset in sorted(asked.items()):
        end = ends.get((topic, number))
        if end is None:
            raise Problem(
                f"--starting-offsets names {topic}-{number}, which --topics does not have"
            )
        if offset > end:
            raise Problem(
                f"--starting-offsets names offset {offset} of {topic}-{number}, which ends at {end}"
            )


def run(options: Namespace) -> int:
    """Archive, or compact an archive; returns the exit code."""
    check_value_topics(options, value_schemas(options))
    formats(options)
    if options.compact:
        if options.topics or options.topics_pattern:
            check_topics(options)
        if is_local(options.path):
            # Before Spark is started, which takes seconds.
            archive = Archive(options.path)
            _to_compact(archive, options)
            check_catalog(archive, options)
        spark = start_session(options, "archive", connector=False)
        return compact_archive(spark, options)
    check_topics(options)
    if options.from_logs:
        check_no_cluster(options, "--from-logs")
    with cluster_of(options) as cluster:
        # Check that there is something to archive, and a place for it, before Spark is started, which takes seconds.
        chosen = cluster.chosen(options)
        say_if_none(options, chosen, cluster.where)
        check_starting_offsets(options, cluster, chosen)
        if not is_local(options.path):
            return archive_topics(start_session(options, "archive"), cluster, options)
        with _held(options) as (archive, held):
            if is_local(checkpoint_of(archive, options)):
                Checks(cluster, archive, options).start()
            check_catalog(archive, options)
            return _archive(start_session(options, "archive"), cluster, archive, held, options)


def cluster_of(options: Namespace) -> Cluster | LogCluster:
    """The brokers, or the log directories, to archive from."""
    if options.from_logs:
        return LogCluster(options.from_logs.split(","))
    return Cluster(options.bootstrap_server, options.client_properties)


def _to_compact(archive: Archive, options: Namespace) -> Collection[str] | None:
    """The topics to compact, None for all. Raises Problem if there is no archive, or if it lacks a topic that was named."""
    archive.refresh()
    if not (options.topics or options.topics_pattern):
        return None
    there = {entry.topic: 0 for entry in archive.entries()}
    chosen = chosen_topics(options, there, f"in {archive.path}")
    say_if_none(options, chosen, f"in {archive.path}")
    return chosen


def compact_archive(spark: SparkSession, options: Namespace) -> int:
    """Compact, and print what was done."""
    archive = Archive(options.path)
    topics = _to_compact(archive, options)
    tables = ArchiveTables(archive, options, partial(_by_spark, spark))
    tables.check_all()
    try:
        before, after = compact(
            spark, archive, topics, options.target_size << 20, options.compression
        )
        deleted = _swept(archive, tables, options)
    finally:
        tables.close()
    print(
        f"{count(before, 'file')} became {after:,}; of those replaced earlier, {deleted:,} were deleted"
    )
    return 0


def _swept(archive: Archive, tables: ArchiveTables, options: Namespace) -> int:
    """Bring the tables up to date, and delete files that neither they nor the archive name any more; returns how many."""
    tables.follow()
    tables.expire(options.keep_replaced)
    return sweep_replaced(archive, options.keep_replaced, tables.is_free, tables.forget)


def archive_topics(spark: SparkSession, cluster: Cluster | LogCluster, options: Namespace) -> int:
    """Run the query until it ends, and print the result."""
    with _held(options) as (archive, held):
        return _archive(spark, cluster, archive, held, options)


@contextmanager
def _held(options: Namespace) -> Iterator[tuple[Archive, StillHeld]]:
    """The archive, for this run alone, and whether it still is. Raises Problem if it is not an archive, or if the same job is already running on it."""
    archive = Archive(options.path)
    archive.create()
    # The remains of an earlier run with this name are removed, so that run must have ended.
    with archive.storage.hold(f"_locks/{_token(options, '')}lock") as held:
        if held is None:
            raise Problem(
                f"a job with --group {options.group} is already archiving to {archive.path}: stop it first,"
                " or choose another --group and other topics"
            )
        yield archive, held


def _token(options: Namespace, batch: int | str) -> str:
    """The name of a batch's staging folder."""
    return f"archive.{re.sub(r'[^A-Za-z0-9_-]', '_', options.group)}.{batch}"


def _archive(
    spark: SparkSession,
    cluster: Cluster | LogCluster,
    archive: Archive,
    held: StillHeld,
    options: Namespace,
) -> int:
    job = _Job(spark, cluster, archive, held, options)
    try:
        code = job.run()
    finally:
        job.tables.close()
    print(f"archived {count(job.rows, 'row')} in {count(job.files, 'file')} to {archive.path}")
    return code


class _Job:
    """One run: how the query is built, and what each of its batches does."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster | LogCluster,
        archive: Archive,
        held: StillHeld,
        options: Namespace,
    ) -> None:
        self.spark = spark
        self.cluster = cluster
        self.archive = archive
        self.held = held
        self.options = options
        self.arguments = fetched.arguments_of(options.client_properties)
        self.go_on = options.on_data_loss == "go-on"
        self.checks = Checks(cluster, archive, options)
        self.checkpoint = self.checks.checkpoint
        self.tables = ArchiveTables(archive, options, partial(_by_spark, spark))
        self.rows = self.files = 0
        self.batch_rows: dict[int, int] = {}
        self.by_day: set[str] = set()
        self.bar: Bar | None = None

    def run(self) -> int:
        """Remove what killed runs left behind, then archive until the query ends."""
        sweep(self.archive, _token(self.options, ""))
        _swept(self.archive, self.tables, self.options)
        options, start = self.options, self.query().start
        if options.once and is_shown(options.quiet):
            self.bar = Bar("archive", self._left())
        try:
            return follow(
                self.spark,
                start,
                self.cluster,
                options.group,
                options.quiet,
                bar=self.bar,
                rows_of=lambda batch: self.batch_rows.pop(batch, 0),
            )
        except Exception as error:
            if GONE.search(whole_text(error)):
                self.explain(error)
            raise

    def _left(self) -> int:
        """The number of offsets that remain to be archived."""
        chosen = self.cluster.chosen(self.options)
        known = {**self.cluster.starts(chosen), **self.archive.ends()}
        ends = self.cluster.ends(chosen)
        return sum(max(0, end - known[place]) for place, end in ends.items())

    def query(self) -> DataStreamWriter:
        """The query, not yet started. Raises Problem if it cannot continue at the archive's end."""
        chosen = self.checks.start()
        frame = self._logs(chosen) if self.options.from_logs else self._topics(chosen)
        writer = frame.writeStream.foreachBatch(self.write)
        writer = writer.option("checkpointLocation", self.checkpoint.path)
        if self.options.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self.options.interval} milliseconds")

    def _topics(self, chosen: dict[str, int]) -> DataFrame:
        reader = self.spark.readStream.format("kafka").options(
            **kafka_options(self.options),
            **{"kafka.isolation.level": self.options.isolation_level},
            includeHeaders="true",
            failOnDataLoss=str(not self.go_on).lower(),
            startingOffsets=self._starting_offsets(chosen),
        )
        if self.options.topics_pattern:
            # Kafka's own patterns match whole names too.
            reader = reader.option("subscribePattern", self.options.topics_pattern)
        else:
            reader = reader.option("subscribe", ",".join(chosen))
        if self.options.max_offsets_per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", self.options.max_offsets_per_trigger)
        return reader.load()

    def _logs(self, chosen: dict[str, int]) -> DataFrame:
        options = self.options
        begins = {**self.cluster.starts(chosen)}
        if options.starting_offsets == "latest":
            begins = self.cluster.ends(chosen)
        elif isinstance(options.starting_offsets, dict):
            begins |= {k: v for k, v in options.starting_offsets.items() if k in begins}
        begins |= {k: v for k, v in self.archive.ends().items() if k in begins}
        if self.checkpoint.is_new():
            self.checkpoint.begin(begins)
        more: dict[str, Any] = {"startingOffsets": tree_of(begins)}
        if options.topics_pattern:
            more["subscribePattern"] = options.topics_pattern
        else:
            more["topics"] = list(chosen)
        if options.max_offsets_per_trigger and options.once and _spark_version() < (4, 2):
            print(
                "kwire pipeline: --max-offsets-per-trigger has no effect with --from-logs and --once before Spark 4.2:"
                " everything is one batch",
                file=sys.stderr,
                flush=True,
            )
        elif options.max_offsets_per_trigger:
            more["maxOffsetsPerTrigger"] = options.max_offsets_per_trigger
        assert isinstance(self.cluster, LogCluster)
        return read_stream(
            self.spark,
            self.cluster.folders,
            isolation=options.isolation_level,
            failOnDataLoss=not self.go_on,
            includeHeaders=True,
            **more,
        )

    def _starting_offsets(self, chosen: dict[str, int]) -> str:
        """Where to begin with a new checkpoint: at the archive's end, for partitions that it has."""
        ends, asked = self.archive.ends(), self.options.starting_offsets
        if isinstance(asked, str) and not any(topic in chosen for topic, _ in ends):
            return asked
        default = _LATEST if asked == "latest" else _EARLIEST
        known = {**(asked if isinstance(asked, dict) else {}), **ends}
        return json.dumps(
            {
                topic: {str(number): known.get((topic, number), default) for number in range(count)}
                for topic, count in chosen.items()
            }
        )

    def write(self, frame: DataFrame, batch: int) -> None:
        """Archive one batch, except for records that are already archived."""
        storage, token = self.archive.storage, _token(self.options, batch)
        self.archive.refresh()
        covered = self.checkpoint.batch(batch)
        topics = _counts(covered.ends)
        ids = self.checks.topic_ids(topics)
        ranges = plan(
            covered.starts,
            covered.ends,
            self.checkpoint.initial(),
            self.archive.ends(),
            self.cluster.starts(topics),
            go_on=self.go_on,
        )
        if not ranges:
            return
        names = self._stage(frame, ranges, covered, token)
        found = staged(storage, token, f"b{batch}", names)
        lost = self._lost(ranges, found, frame) if self.go_on else {}
        # Everything was read between two checks of the ids: if the ids are the same, so were the topics.
        there = self.checks.topic_ids({topic for topic, _ in ranges}, ids)
        self.held()
        publish(storage, token, found)
        entries = _entries(ranges, found, lost)
        try:
            self.archive.commit_batch(entries, batch, there)
        except Conflict as error:
            raise Problem(
                f"another job is also archiving to {self.archive.path}: {error}; run one at a time"
            ) from error
        storage.delete(f"{STAGING}/{token}")
        self.tables.follow()
        self._tell_days(entries)
        self.batch_rows[batch] = sum(entry.rows for entry in entries)
        self.rows += self.batch_rows[batch]
        self.files += len(found)
        for entry in entries:
            for first, last in entry.lost:
                print(
                    f"kwire pipeline: {entry.topic}-{entry.partition}: offsets {first} to {last} were deleted before"
                    " they were archived; the gap is recorded",
                    file=sys.stderr,
                    flush=True,
                )

    def _tell_days(self, entries: list[ManifestEntry]) -> None:
        """Say once of each partition that it has files without an hour: who reads by the hour would miss them."""
        for entry in entries:
            name = f"{entry.topic}-{entry.partition}"
            if name not in self.by_day and any(NO_HOUR in file.path for file in entry.files):
                self.by_day.add(name)
                print(
                    f"kwire pipeline: {name}: records of more than {HOURS} hours alternate, so that their files are by day, and"
                    " hour is null",
                    file=sys.stderr,
                    flush=True,
                )

    def _stage(
        self,
        frame: DataFrame,
        ranges: dict[tuple[str, int], OffsetsToArchive],
        covered: QueryBatch,
        token: str,
    ) -> set[str]:
        """Write what the batch adds to the archive; return the names of the staged files."""
        storage, compression = self.archive.storage, self.options.compression
        committed = self.options.isolation_level == "read_committed"
        cuts: list[OffsetSlice] | list[Span]
        if not isinstance(storage, LocalStorage):
            return _by_java(frame, ranges, covered, storage, token, compression)
        if isinstance(self.cluster, LogCluster):
            source, cuts = self.cluster.slices(
                {place: span.first for place, span in ranges.items()},
                {place: span.end for place, span in ranges.items()},
                read_committed=committed,
                go_on=self.go_on,
            )
            read: Read = partial(tasks.read, options=source, columns=COLUMNS)
        elif self.arguments is not None and not self.go_on:
            at, how = self.cluster.servers, self.arguments
            cuts = [Span(at, *place, *span[:2], committed, how) for place, span in ranges.items()]
            read = partial(fetched.read, columns=COLUMNS)
        else:
            return _by_java(frame, ranges, covered, storage, token, compression)
        with self._watched(sum(cut.end - cut.start for cut in cuts)):
            return stage_slices(self.spark, cuts, read, storage, token, compression)

    @contextmanager
    def _watched(self, offsets: int) -> Iterator[None]:
        """Update the bar by completed tasks, because a batch of log directories may be the only one."""
        bar = self.bar
        if bar is None:
            yield
            return
        done, rows = bar.done, self.rows

        def tell(stage: int, tasks: int, of: int) -> None:
            bar.at(done + offsets * tasks // of, rows + offsets * tasks // of)

        with watching_tasks(self.spark, tell):
            yield

    def _lost(
        self, ranges: dict[tuple[str, int], OffsetsToArchive], found: list[Staged], frame: DataFrame
    ) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """The gaps in a batch: offsets deleted before or while it was read."""
        lost = {place: [span.lost] for place, span in ranges.items() if span.lost}
        there = self.cluster.starts(_counts(ranges))
        for place, span in ranges.items():
            known = span.lost[1] + 1 if span.lost else span.first
            until = min(there[place], span.end)
            if until > known:
                lost[place] = [*lost.get(place, []), *_holes(frame, place, known, until)]
        return lost

    def explain(self, error: Exception) -> None:
        """Raise a Problem that says which topic is missing or which offset is needed, if that can be found out now."""
        try:
            self.checks.goes_on(self.cluster.chosen(self.options))
        except Problem as problem:
            raise problem from error


def _by_java(
    frame: DataFrame,
    ranges: dict[tuple[str, int], OffsetsToArchive],
    covered: QueryBatch,
    storage: Storage,
    token: str,
    compression: str,
) -> set[str]:
    """Let Spark read and write a batch."""
    within = _within(frame, ranges, covered)
    return stage(within, storage, token, compression, in_order=True)


def _by_spark(spark: SparkSession, make: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
    """Processes items in Spark tasks."""
    if not work:
        return []
    return list(spark.sparkContext.parallelize(work, len(work)).map(make).collect())


def _spark_version() -> tuple[int, int]:
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def _counts(places: Offsets | dict[tuple[str, int], OffsetsToArchive]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, number in places:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    return counts


def _within(
    frame: DataFrame, ranges: dict[tuple[str, int], OffsetsToArchive], covered: QueryBatch
) -> DataFrame:
    """The batch without what the archive already has; each partition is one part."""
    for (topic, number), end in covered.ends.items():
        start = covered.starts.get((topic, number), 0)
        span = ranges.get((topic, number))
        there = (sf.col("topic") == topic) & (sf.col("partition") == number)
        if span is None and start < end:
            frame = frame.where(~there)
        elif span is not None and start < span.first:
            frame = frame.where(~there | (sf.col("offset") >= span.first))
    return frame.withColumn(PART, sf.col("partition").cast("string"))


def _holes(
    frame: DataFrame, place: tuple[str, int], first: int, until: int
) -> list[tuple[int, int]]:
    """Offsets of a partition from `first` (inclusive) to `until` (exclusive) that are not in the frame."""
    topic, number = place
    found = frame.where(
        (sf.col("topic") == topic)
        & (sf.col("partition") == number)
        & sf.col("offset").between(first, until - 1)
    ).select("offset")
    rims = frame.sparkSession.createDataFrame([(first - 1,), (until,)], "offset long")
    before = sf.lag("offset").over(Window.orderBy("offset")).alias("before")
    steps = found.union(rims).select("offset", before).where("offset > before + 1").collect()
    return [(step.before + 1, step.offset - 1) for step in steps]


def _entries(
    ranges: dict[tuple[str, int], OffsetsToArchive],
    found: list[Staged],
    lost: dict[tuple[str, int], list[tuple[int, int]]],
) -> list[ManifestEntry]:
    entries = []
    for (topic, number), span in ranges.items():
        files = sorted(
            (
                item.file
                for item in found
                if item.part == str(number) and item.file.path.startswith(f"topic={topic}/")
            ),
            key=lambda file: (file.first_offset, file.path),
        )
        entries.append(
            ManifestEntry(
                topic=topic,
                partition=number,
                first_offset=span.first,
                last_offset=span.end - 1,
                rows=sum(file.rows for file in files),
                files=tuple(files),
                lost=tuple(lost.get((topic, number), ())),
            )
        )
    return entries
