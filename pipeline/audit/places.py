"""Where records are stored: topics of a broker, an archive, a log directory. Each gives its ranges and its rows."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from ..cluster import Cluster
from ..durations import shown
from ..manifest import Archive, ArchiveContent, ManifestEntry
from ..problems import Problem
from ..record_times import timestamps_at
from ..session import kafka_options
from ..tables.content import TableContent
from ..tables.options import formats
from ..topic_configs import is_compacted, topic_configs
from .facts import ClaimedRange, OffsetSpan, PartitionFacts, Where
from .findings import Finding, note, wrong
from .gaps import TopicGaps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Runs of offsets without a record, between two that have one.
Gaps = Sequence[OffsetSpan]

_ARCHIVED = (
    "key binary, value binary, partition int, offset long, timestamp timestamp, timestampType int,"
    " headers array<struct<key:string,value:binary>>, topic string"
)


class AuditPlace(Protocol):
    """One place with partitions."""

    name: str
    kind: str
    ranges: dict[Where, ClaimedRange]

    def asks_for_gaps(self, facts: PartitionFacts) -> bool:
        """Whether `judge` needs the gaps between records."""

    def rows(self, spark: SparkSession) -> DataFrame | None:
        """All records with the columns of Spark's kafka source; None if there can be none."""

    def judge(self, facts: PartitionFacts, gaps: Gaps) -> list[Finding]:
        """Record the explanations of missing offsets in the facts of a measured partition; return the findings."""

    def comparable(self, where: Where) -> ClaimedRange:
        """The part of the range that must be equal in another place."""


class TopicPlace:
    """Topics of a running broker."""

    kind = "topic"

    def __init__(
        self, options: Namespace, cluster: Cluster, topics: dict[str, int], committed: bool
    ) -> None:
        self.name = options.bootstrap_server
        self._options = options
        self._cluster = cluster
        self._committed = committed
        self.topics = topics
        self.configs = topic_configs(cluster, topics)
        self.topic_ids = cluster.topic_ids(topics)
        # The start is read first and the end last, so that deletes and appends in between do no harm.
        starts = cluster.starts(topics)
        self._high_watermarks = cluster.ends(topics)
        self._stable = cluster.ends(topics, read_committed=True)
        ends = self._stable if committed else self._high_watermarks
        self.ranges = {
            where: ClaimedRange(start, max(start, ends[where])) for where, start in starts.items()
        }

    def rows(self, spark: SparkSession) -> DataFrame | None:
        """See AuditPlace."""
        if all(one.is_empty for one in self.ranges.values()):
            return None
        bounds: list[dict[str, dict[str, int]]] = [{}, {}]
        for (topic, partition), own in self.ranges.items():
            for bound, offset in zip(bounds, own, strict=True):
                bound.setdefault(topic, {})[str(partition)] = offset
        return (
            spark.read.format("kafka")
            .options(**kafka_options(self._options))
            .option("kafka.isolation.level", _isolation(self._committed))
            .option("subscribe", ",".join(self.topics))
            .option("startingOffsets", json.dumps(bounds[0]))
            .option("endingOffsets", json.dumps(bounds[1]))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "false")
            # How long Spark waits for records that retention deleted after the ranges were read.
            .option("kafkaConsumer.pollTimeoutMs", "20000")
            .load()
        )

    def asks_for_gaps(self, facts: PartitionFacts) -> bool:
        """See AuditPlace."""
        return facts.missing > 0 and not is_compacted(self.configs.get(facts.topic, {}))

    def comparable(self, where: Where) -> ClaimedRange:
        """See AuditPlace."""
        return self.ranges[where]

    def judge(self, facts: PartitionFacts, gaps: Gaps) -> list[Finding]:
        """See AuditPlace."""
        findings = self._open(facts)
        if facts.missing:
            config = self.configs.get(facts.topic, {})
            with self._looker() as looker:
                start = self._cluster.starts(self.topics)[facts.where]
                looker.explain(facts, gaps, start, compacted=is_compacted(config))
                findings += looker.findings
        return findings

    def batch_sizes(self, facts: PartitionFacts) -> None:
        """Sample the batch sizes of a partition."""
        with self._looker() as looker:
            looker.sample(facts)

    def _looker(self) -> TopicGaps:
        properties = dict(self._options.client_properties)
        return TopicGaps(self.name, properties, committed=self._committed)

    def _open(self, facts: PartitionFacts) -> list[Finding]:
        stable, high = self._stable[facts.where], self._high_watermarks[facts.where]
        if stable >= high:
            return []
        # A transaction may have begun between the two requests: it counts only if it is still open.
        now = self._cluster.ends(self.topics, read_committed=True)[facts.where]
        if now != stable:
            return []
        began = _timestamp_at(self._cluster, facts.where, stable)
        open_ms = max(int(time.time() * 1000) - began, 0) if began is not None else None
        return [open_transaction(self, facts, stable, high, open_ms, self._options)]


def open_transaction(
    place: AuditPlace,
    facts: PartitionFacts,
    first: int,
    end: int,
    open_ms: int | None,
    options: Namespace,
) -> Finding:
    """The finding that readers of committed records stop at `first` although the log ends at `end`."""

    since = "" if open_ms is None else f" for {shown(open_ms)} by its records' timestamps"
    text = (
        f"a transaction is open{since}: readers of committed records stop at offset {first},"
        f" the log ends at {end}"
    )
    limit = options.open_after
    if limit is None and place.kind == "topic":
        limit = 15 * 60_000
    judge = wrong if limit is not None and open_ms is not None and open_ms >= limit else note
    return judge("open-transaction", facts, text, first)


class ArchivePlace:
    """A Parquet archive, as described by its manifests or its tables."""

    kind = "archive"

    def __init__(self, archive: ArchiveContent, topics: Collection[str] | None) -> None:
        self.name = archive.name
        self._archive = archive
        self._entries: dict[Where, list[ManifestEntry]] = {}
        for entry in archive.entries(topics):
            self._entries.setdefault((entry.topic, entry.partition), []).append(entry)
        self.ranges = {
            where: ClaimedRange(entries[0].first_offset, entries[-1].last_offset + 1)
            for where, entries in self._entries.items()
        }
        archived = {topic for topic, _ in self.ranges}
        self.topic_ids = {
            name: own for name, own in archive.topic_ids().items() if name in archived
        }
        self._absent = self._missing_files()

    def _missing_files(self) -> dict[str, str]:
        """Files that are missing or have a different size -> the finding."""
        storage = self._archive.storage
        there: dict[str, dict[str, int]] = {}
        absent = {}
        for entries in self._entries.values():
            for file in (file for entry in entries for file in entry.files):
                folder, _, name = file.path.rpartition("/")
                if folder not in there:
                    there[folder] = {item.name: item.size for item in storage.list(folder)}
                size = there[folder].get(name)
                if size is None:
                    absent[file.path] = "is missing"
                elif size != file.size:
                    absent[file.path] = f"has {size} bytes instead of {file.size}"
        return absent

    def rows(self, spark: SparkSession) -> DataFrame | None:
        """See AuditPlace."""
        files = [
            self._archive.storage.location(file.path)
            for entries in self._entries.values()
            for entry in entries
            for file in entry.files
            if file.path not in self._absent
        ]
        if not files:
            return None
        return spark.read.schema(_ARCHIVED).option("basePath", self._archive.path).parquet(*files)

    def asks_for_gaps(self, facts: PartitionFacts) -> bool:
        """See AuditPlace."""
        return False

    def comparable(self, where: Where) -> ClaimedRange:
        """See AuditPlace."""
        return self.ranges[where]

    def judge(self, facts: PartitionFacts, gaps: Gaps) -> list[Finding]:
        """See AuditPlace."""
        findings = []
        expected = absent_rows = accounted = 0
        end = facts.range.start
        for entry in self._entries[facts.where]:
            if entry.first_offset > end:
                span = OffsetSpan(end, entry.first_offset - 1)
                facts.miss(span)
                accounted += span.size
                findings.append(wrong("gap", facts, f"offsets {span} were never archived", end))
            end = entry.last_offset + 1
            for first, last in entry.lost:
                span = OffsetSpan(first, last)
                facts.miss(span)
                accounted += span.size
                text = (
                    f"offsets {span} had been deleted from the topic before they could be archived"
                )
                findings.append(wrong("lost", facts, text, first))
            expected += entry.rows
            for file in entry.files:
                if file.path in self._absent:
                    absent_rows += file.rows
                    text = (
                        f"{file.path} {self._absent[file.path]}:"
                        f" {file.rows} records from offset {file.first_offset} to {file.last_offset}"
                    )
                    findings.append(wrong("file", facts, text, file.first_offset))
        distinct = facts.rows - facts.duplicates
        lacking = expected - distinct
        if lacking != absent_rows:
            text = f"its files have {distinct} different records, its manifests say {expected - absent_rows}"
            findings.append(wrong("count", facts, text))
        facts.unexplained_count += max(lacking, 0)
        facts.explain("no record when archived", facts.missing - accounted - max(lacking, 0))
        return findings


def _timestamp_at(cluster: Cluster, where: Where, offset: int) -> int | None:
    """The timestamp of the record at or after an offset, in ms since 1970; None if none arrives."""
    return timestamps_at(cluster, {where: offset}).get(where)


def _isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"


def archives_at(
    path: str, topics: Collection[str] | None, options: Namespace
) -> list[ArchivePlace]:
    """The archive in a folder, and its tables of each format asked for.

    Raises Problem if there is none, or if it has none of these topics.
    """
    archive = Archive(path)
    places = [ArchivePlace(archive, topics)]
    places += [
        ArchivePlace(TableContent(archive, name, topics, options), topics)
        for name in formats(options)
    ]
    for place, table in zip(places, (None, *formats(options)), strict=True):
        if not place.ranges:
            of = f" of {', '.join(sorted(topics))}" if topics else ""
            what = f"holds nothing{of}" if table is None else f"has no {table} table{of}"
            raise Problem(f"the archive {archive.path} {what}")
    return places
