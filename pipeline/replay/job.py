"""`kwire pipeline replay`: an archive or segments back to topics, each record once.

Spark distributes the source's partitions to its tasks; each task writes its records in its own transactions
(`writer.py`) and stores its position with them. Spark's own sink for Kafka would lose the timestamps, and repeat
records when a task is retried.
"""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from ..bar import Bar, is_shown
from ..cluster import Cluster
from ..counting import count
from ..manifest import Archive, ArchiveContent
from ..options import topic_names
from ..problems import Problem, WrongCall
from ..session import start_session
from ..tables.content import TableContent
from ..tables.options import formats
from .from_archive import archived_partitions
from .from_segments import stored_partitions
from .into_source import refuse_doubling
from .options import add_arguments, check_range, targets
from .plan import Done, Job, RecordRange, SourcePartition, Task, digest_of, shares
from .progress import Positions, shown
from .targets import find_targets, warnings
from .writer import replay

__all__ = ["add_arguments", "run"]


def run(options: Namespace) -> int:
    """Replay what remains to be replayed, and return 0; raises Problem."""
    check_range(options)
    if formats(options) and options.segments:
        raise WrongCall("--table is for --archive")
    everything, mapped = targets(options.to)
    wanted = _wanted(options, mapped)
    with Cluster(options.bootstrap_server, options.client_properties) as cluster:
        cluster.partitions()  # report an unreachable broker first, because Spark takes seconds to start
        sources = _sources(options, wanted)
        unmapped = {one.topic for one in sources if everything is None and one.topic not in mapped}
        if unmapped:
            raise Problem(f"--to gives no target for {', '.join(sorted(unmapped))}")
        aims = {one.topic: mapped.get(one.topic) or everything or "" for one in sources}
        tasks = _tasks(options, cluster, sources, aims)
        job = _job(options, cluster, aims)
        positions = Positions(cluster, job, tasks)
        before = positions.read()
        left = positions.left(before)
        aim = ", ".join(sorted({task.target.topic for task in tasks}))
        _tell(f"{job.name}: {count(len(tasks), 'partition')} of {', '.join(sorted(aims))} to {aim}")
        if not any(left):
            there = sum(position.records for position in before if position is not None)
            print(
                f"{job.name}: everything is there already, {count(there, 'record')}; use another --name to replay it once more"
            )
            return 0
        refuse_doubling(options, cluster, tasks, before)
        spark = start_session(options, "replay", connector=False)
        started = time.monotonic()
        done = _replay(spark, options, job, positions)
    seconds = time.monotonic() - started
    records, total = (sum(one.records for one in done), sum(one.total for one in done))
    earlier = f" ({total:,} including earlier runs)" if total > records else ""
    print(
        f"{job.name}: {count(records, 'record')}{earlier} in {seconds:.1f} s, {records / seconds:,.0f}/s"
    )
    timeless = sum(one.timeless for one in done)
    if timeless:
        _tell(
            f"note: {count(timeless, 'record')} with timestamp 0 (1970) got the time of this replay:"
            " librdkafka cannot write 0"
        )
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _wanted(options: Namespace, mapped: Collection[str]) -> set[str] | None:
    """Names given with --topics, else those that --to maps; None for all topics."""
    names = set(topic_names(options))
    if not options.topics_pattern:
        return names or set(mapped) or None
    if names:
        raise WrongCall("say either --topics or --topics-pattern")
    try:
        re.compile(options.topics_pattern)
    except re.error as error:
        raise WrongCall(f"--topics-pattern {options.topics_pattern!r}: {error}") from error
    return None


def _sources(options: Namespace, wanted: set[str] | None) -> Sequence[SourcePartition]:
    """The partitions of the requested topics; raises Problem if there are none."""
    within = RecordRange(from_ms=options.from_time, to_ms=options.to_time)
    found: Sequence[SourcePartition]
    if options.segments:
        where = f"log folder {options.segments}"
        found = stored_partitions(options.segments.split(","), wanted)
    else:
        where = f"archive {options.archive}"
        if ":/" in options.archive and not options.archive.startswith("file:"):
            start_session(
                options, "replay", connector=False
            )  # its Hadoop client reads the manifests
        found = archived_partitions(_content(options, wanted), wanted, within)
    if options.topics_pattern:
        found = [one for one in found if re.fullmatch(options.topics_pattern, one.topic)]
    tables = f"{options.table} table with " if options.table else ""
    missing = (wanted or set()) - {one.topic for one in found}
    if missing:
        raise Problem(f"{where} has no {tables}topic {', '.join(sorted(missing))}")
    if not found:
        raise Problem(f"{where} has no {tables}records of the topics asked for")
    places = {(one.topic, one.partition) for one in found}
    for topic, partition in sorted({*options.from_offset, *options.to_offset} - places):
        raise Problem(
            f"{where} has no {topic}-{partition}, which --from-offset or --to-offset names"
        )
    return found


def _content(options: Namespace, wanted: set[str] | None) -> ArchiveContent:
    """The archive by its manifests, or by its tables with `--table`."""
    archive = Archive(options.archive)
    for name in formats(options):
        return TableContent(archive, name, wanted, options)
    return archive


def _tasks(
    options: Namespace, cluster: Cluster, sources: Sequence[SourcePartition], aims: dict[str, str]
) -> list[Task]:
    """One task for each source partition with offsets in the requested range."""
    needed = dict.fromkeys(aims.values(), 0)
    oldest: dict[str, int] = {}
    for source in sources:
        name = aims[source.topic]
        if options.keep_partitions:
            needed[name] = max(needed[name], source.partition + 1)
        if source.oldest_ms is not None:
            oldest[name] = min(oldest.get(name, source.oldest_ms), source.oldest_ms)
        for first, last in source.lost:
            _tell(
                f"note: offsets {first} to {last} of {source.topic}-{source.partition} were deleted"
                " before they were archived"
            )
    found = find_targets(cluster, needed)
    for name, (target, configs) in found.items():
        for text in warnings(target, configs, oldest.get(name)):
            _tell(f"note: {text}")
    tasks = [
        Task(
            source,
            found[aims[source.topic]][0],
            RecordRange(
                options.from_offset.get((source.topic, source.partition)),
                options.to_offset.get((source.topic, source.partition)),
                options.from_time,
                options.to_time,
            ),
            options.keep_partitions,
        )
        for source in sources
    ]
    return [task for task in tasks if task.start < task.end]


def _job(options: Namespace, cluster: Cluster, aims: dict[str, str]) -> Job:
    """The job; its name differs from that of every replay that would write other records."""
    folders = (options.archive or options.segments).split(",")
    digest = digest_of(
        [folder if ":/" in folder else str(Path(folder).absolute()) for folder in folders],
        aims,
        options.keep_partitions,
        sorted((*place, offset) for place, offset in options.from_offset.items()),
        sorted((*place, offset) for place, offset in options.to_offset.items()),
        options.from_time,
        options.to_time,
    )
    return Job(
        options.name or f"replay-{digest}",
        digest,
        cluster.settings(),
        options.transaction_records,
        options.patience,
    )


def _replay(spark: SparkSession, options: Namespace, job: Job, positions: Positions) -> list[Done]:
    """Run the tasks on Spark."""
    before = positions.read()
    slots = spark.sparkContext.defaultParallelism
    work = shares(positions.tasks, positions.left(before), slots, options.rate)
    rows = spark.sparkContext.parallelize(work, max(1, len(work)))
    write = partial(_write, job)
    if options.quiet:
        return list(rows.mapPartitions(write).collect())
    bar = Bar("replay", sum(positions.left(before))) if is_shown(options.quiet) else None
    with shown(positions, before, bar):
        return list(rows.mapPartitions(write).collect())


def _write(job: Job, work: Iterator[tuple[list[Task], float | None]]) -> Iterator[Done]:
    for tasks, rate in work:
        yield from replay(job, tasks, rate)
