"""`kwire pipeline audit`: finds what is wrong with topics, archives and log directories, and whether they agree."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain, product
from typing import TYPE_CHECKING

from ..cluster import Cluster
from ..counting import count
from ..options import check_topics, topic_names
from ..problems import Problem, WrongCall
from ..storage import is_local
from ..tables.options import formats
from ..topic_ids import made_anew
from .compare import ContentComparison, common_ranges, compare, pairs
from .facts import OffsetSpan, PartitionFacts, Where
from .findings import Finding, wrong
from .options import add_arguments
from .places import ArchivePlace, AuditPlace, TopicPlace, archives_at
from .progress import LatestText, watched
from .report import Report, print_report, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .log_place import LogPlace


__all__ = ["add_arguments", "run"]


def run(options: Namespace) -> int:
    """Audit, report, and return 1 if something is wrong."""
    report = audit(options)
    print_report(report, sys.stdout)
    if options.json:
        write_json(report, options.json)
    if options.html:
        from .page import write_page

        write_page(report, options.html)
    return 1 if report.is_wrong else 0


def audit(options: Namespace) -> Report:
    """Read all places and report the findings; raises Problem if a place cannot be read."""
    # First the steps without Spark, so that mistakes in the options are reported immediately.
    wanted = topic_names(options)
    has_topics = bool(wanted or options.topics_pattern)
    if has_topics:
        check_topics(options)
    if not (has_topics or options.archives or options.log_dirs):
        raise WrongCall("give --topics, --archive or --log-dir to say what to audit")
    if formats(options) and not options.archives:
        raise WrongCall("--table is for --archive")
    for file in (options.json, options.html):
        if file is not None and not file.absolute().parent.is_dir():
            raise WrongCall(f"there is no folder {file.absolute().parent} to write {file.name} to")
        if file is not None and (
            file.is_dir()
            or not os.access(file if file.exists() else file.absolute().parent, os.W_OK)
        ):
            raise Problem(f"{file} cannot be written")
    began = time.time()
    with ExitStack() as stack:
        places: list[AuditPlace] = []
        names = None
        if has_topics:
            cluster = stack.enter_context(
                Cluster(options.bootstrap_server, options.client_properties)
            )
            topics = cluster.chosen(options)
            if not topics:
                raise Problem(f"no topic at {options.bootstrap_server} matches")
            names = set(topics)
            committed = options.isolation == "read_committed"
            places.append(TopicPlace(options, cluster, topics, committed))
        logs = _log_places(options, names, places)
        local = {p: archives_at(p, names, options) for p in options.archives if is_local(p)}
        if not logs and len(local) == len(options.archives):
            _check_map(options, [*places, *chain(*local.values())])
        _say(options, "starting Spark")
        from ..session import start_session

        spark = start_session(options, "audit", connector=has_topics)
        _scan(options, spark, logs)
        places += logs
        for path in options.archives:
            places += local.get(path) or archives_at(path, names, options)
        return _Audit(options, spark, places, began).run()


def _log_places(
    options: Namespace, names: set[str] | None, places: Sequence[AuditPlace]
) -> list[LogPlace]:
    """The log directories, not yet read. Raises Problem."""
    if not options.log_dirs:
        return []
    from .log_place import LogPlace, directories

    configs = places[0].configs if places and isinstance(places[0], TopicPlace) else {}
    return [LogPlace(options, path, names, configs) for path in directories(options.log_dirs)]


def _check_map(options: Namespace, places: Sequence[AuditPlace]) -> None:
    """Raises Problem for a topic of `--map` that no place has, or that would be compared with itself."""
    for source, target in options.renamed:
        if not target:
            raise WrongCall(f"--map {source}=: TARGET is missing")
        if source == target:
            raise WrongCall(
                f"--map {source}={target}: places that have topics of one name are compared without it"
            )
    known = {topic for place in places for topic, _ in place.ranges}
    for name in (name for pair in options.renamed for name in pair if name not in known):
        raise Problem(f"--map: no place has a topic {name}")


def _scan(options: Namespace, spark: SparkSession, found: Sequence[LogPlace]) -> None:
    """Read the batches of log directories."""
    if not found:
        return
    from .log_place import scan

    _say(options, f"scanning {sum(len(place.tasks()) for place in found):,} segments")
    progress = LatestText(options.quiet)
    scan(spark, found, lambda done, all_: progress.show(f"{done:,} of {all_:,} segments"))
    progress.end()


class _Audit:
    """One audit of places that are already open."""

    def __init__(
        self, options: Namespace, spark: SparkSession, places: list[AuditPlace], began: float
    ) -> None:
        self._options = options
        self._spark = spark
        self._places = places
        self._began = began
        self._facts: dict[tuple[int, Where], PartitionFacts] = {
            (number, where): PartitionFacts(place.name, *where, own)
            for number, place in enumerate(places)
            for where, own in sorted(place.ranges.items())
        }

    def run(self) -> Report:
        """Measure, judge and compare."""
        from .measure import MeasuredRows
        from .rules import judge_rows

        options, places = self._options, self._places
        renamed = {target: source for source, target in options.renamed}
        findings = self._absent(renamed) + self._made_anew()
        pairs_ = pairs(places, renamed, with_offsets=options.with_offsets)
        common = common_ranges(pairs_)
        for key, shared in common.items():
            self._facts[key].common = shared
        frames = [
            (number, frame)
            for number, place in enumerate(places)
            if (frame := place.rows(self._spark)) is not None
        ]
        offsets = sum(facts.range.size for facts in self._facts.values())
        _say(
            options,
            f"reading {count(len(self._facts), 'partition')} with {count(offsets, 'offset')}",
        )
        comparisons: list[ContentComparison] = []
        self._size_shuffles()
        rows = MeasuredRows(self._spark, frames, options.ignore) if frames else None
        gaps: dict[tuple[int, Where], list[OffsetSpan]] = {}
        if rows is not None:
            with watched(self._spark, options.quiet, offsets):
                rows.measure(self._facts, common)
                asked = [
                    key for key, facts in self._facts.items() if places[key[0]].asks_for_gaps(facts)
                ]
                gaps = rows.gaps(asked)
        for (number, where), facts in self._facts.items():
            place = places[number]
            findings += place.judge(facts, gaps.get((number, where), ()))
            findings += judge_rows(facts, options)
            if options.html and isinstance(place, TopicPlace):
                place.batch_sizes(facts)
        if rows is not None:
            _say(options, f"comparing {len(pairs_)} pairs of partitions")
            for pair in pairs_:
                comparison, found = compare(pair, self._facts, rows, strict=options.strict)
                comparisons.append(comparison)
                findings += found
            rows.close()
        return Report(
            places=[(place.name, place.kind) for place in places],
            partitions=list(self._facts.values()),
            comparisons=comparisons,
            findings=findings,
            began=self._began,
            seconds=time.time() - self._began,
        )

    def _size_shuffles(self) -> None:
        """Use one task per partition, up to Spark's default of 200, unless the user has set the number."""
        key = "spark.sql.shuffle.partitions"
        conf = self._spark.sparkContext.getConf()
        if not conf.contains(key):
            least = self._spark.sparkContext.defaultParallelism
            self._spark.conf.set(key, str(max(least, min(len(self._facts), 200))))

    def _absent(self, renamed: dict[str, str]) -> list[Finding]:
        """Partitions with records that an archive or a replay has nothing of."""
        _check_map(self._options, self._places)
        first: dict[Where, PartitionFacts] = {}
        for (_, where), facts in self._facts.items():
            if not facts.range.is_empty:
                first.setdefault(where, facts)
        lacking = []
        for where, facts in first.items():
            archives = [
                place.name
                for place in self._places
                # A replay is not expected to be archived.
                if place.kind == "archive" and where not in place.ranges and where[0] not in renamed
            ]
            lacking += [(name, where, facts) for name in archives]
            replays = [
                (target, where[1]) for target, source in renamed.items() if source == where[0]
            ]
            lacking += [(facts.place, replay, facts) for replay in replays if replay not in first]
        return [
            wrong(
                "coverage",
                PartitionFacts(name, *where, facts.range),
                f"is empty or missing; {facts.topic}-{facts.partition} in {facts.place} has {facts.range}",
            )
            for name, where, facts in lacking
        ]

    def _made_anew(self) -> list[Finding]:
        """Archives of a topic that has since been deleted and created again."""
        findings = []
        topics = [place for place in self._places if isinstance(place, TopicPlace)]
        archives = [place for place in self._places if isinstance(place, ArchivePlace)]
        for there, archive in product(topics, archives):
            for name in made_anew(archive.topic_ids, there.topic_ids):
                facts = next(own for own in self._facts.values() if own.topic == name)
                text = (
                    f"topic {name} was deleted and created again: the archive is of topic id {archive.topic_ids[name]},"
                    f" {there.name} has {there.topic_ids[name]}"
                )
                about = PartitionFacts(archive.name, name, facts.partition, facts.range)
                findings.append(wrong("topic-id", about, text))
        return findings


def _say(options: Namespace, text: str) -> None:
    if not options.quiet:
        print(f"audit: {text}", file=sys.stderr, flush=True)
