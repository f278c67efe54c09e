"""A log directory as a place: first its batches are scanned, one Spark task per segment, then its records are read."""

from __future__ import annotations

import glob
import json
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.records.record import MAX_INT64
from kwire.server.log.checkpoint import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    CorruptCheckpoint,
    read_offsets,
)
from kwire.server.log.file_layer import FileLayer
from kwire.server.log.stored_logs import logs_at, segment_files

from ..problems import Problem
from ..segments import register
from ..topic_configs import is_compacted
from .facts import ClaimedRange, PartitionFacts, Where
from .findings import Finding, wrong
from .gaps import ABORTED, COMPACTED, CONTROL
from .log_facts import LogFacts, put_together
from .places import Gaps, open_transaction
from .segment_scan import SegmentDamage, SegmentScan, scan_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAMAGED = "damaged batches"
#: Topics that brokers always compact.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})

#: Path of a segment, and the offsets to count.
Task = tuple[str, int, int]


def directories(patterns: Iterable[str]) -> list[str]:
    """The log directories that the patterns match. Raises Problem for a pattern that matches none."""
    found: list[str] = []
    for pattern in patterns:
        # Not Path.glob, which has no absolute patterns.
        matches = [path for path in sorted(glob.glob(pattern)) if Path(path).is_dir()]  # noqa: PTH207
        if not matches:
            raise Problem(f"no log directory is at {pattern}")
        found += (path.rstrip("/") for path in matches)
    return list(dict.fromkeys(found))


class LogPlace:
    """The partitions of one log directory."""

    kind = "log directory"

    def __init__(
        self,
        options: Namespace,
        directory: str,
        topics: Collection[str] | None,
        configs: Mapping[str, Mapping[str, str]],
    ) -> None:
        """`configs` are topic configs from a broker, which say which topics are compacted."""
        self.name = directory
        self._options = options
        self._committed = options.isolation == "read_committed"
        self._configs = configs
        found = logs_at(Path(directory))
        is_log = Path(directory) in found.values()
        logs = Path(directory).parent if is_log else Path(directory)
        self._logs: dict[Where, Path] = {
            (where[0], where[1]): folder
            for where, folder in found.items()
            if topics is None or where[0] in topics
        }
        self._cleaned = _offsets(logs, CLEANER_OFFSET)
        self._starts = _offsets(logs, LOG_START_OFFSET)
        # A directory without that file is a copy, and all of it counts.
        self._is_copy = not (logs / HIGH_WATERMARK).exists()
        self._high_watermarks = _offsets(logs, HIGH_WATERMARK)
        self.facts: dict[Where, LogFacts] = {}
        self.ranges: dict[Where, ClaimedRange] = {}

    def tasks(self) -> list[Task]:
        """The segments to scan."""
        return [
            (str(path), self._starts.get(where, 0), MAX_INT64)
            for where, folder in self._logs.items()
            for path in segment_files(folder)
        ]

    def take(self, scans: Mapping[str, SegmentScan]) -> None:
        """Adopt the results of the scans, by path."""
        for where, folder in self._logs.items():
            start = self._starts.get(where, 0)
            own = [scans[str(path)] for path in segment_files(folder) if str(path) in scans]
            facts = put_together(own, start)
            end = facts.log_end_offset
            if not self._is_copy:
                end = max(facts.range.start, min(end, self._high_watermarks.get(where, 0)))
            if self._committed:
                end = min(end, facts.last_stable_offset)
            if end < facts.range.end:
                # Offsets beyond this are not compared: an open transaction, or not known to be committed.
                again = [
                    _scan_task((scan.path, start, end)) if scan.next_offset > end else scan
                    for scan in own
                ]
                open_ = facts.open
                facts = put_together(filter(None, again), start, end)
                facts.open = open_
            self.facts[where] = facts
            self.ranges[where] = facts.range

    def rows(self, spark: SparkSession) -> DataFrame | None:
        """See AuditPlace."""
        bounds: list[dict[str, dict[str, int]]] = [{}, {}]
        for (topic, partition), own in self.ranges.items():
            if not own.is_empty:
                for bound, offset in zip(bounds, own, strict=True):
                    bound.setdefault(topic, {})[str(partition)] = offset
        if not bounds[0]:
            return None
        assigned = {topic: [int(number) for number in own] for topic, own in bounds[0].items()}
        register(spark)
        return (
            spark.read.format("kwire-log")
            .option("path", self.name)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(bounds[0]))
            .option("endingOffsets", json.dumps(bounds[1]))
            .option("isolation", self._options.isolation)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "false")
            .option("corrupt", "skip")
            .option("checkCrc", "true")
            .load()
        )

    def asks_for_gaps(self, facts: PartitionFacts) -> bool:
        """See AuditPlace."""
        return False

    def comparable(self, where: Where) -> ClaimedRange:
        """See AuditPlace."""
        return self.ranges[where]

    def judge(self, facts: PartitionFacts, gaps: Gaps) -> list[Finding]:
        """See AuditPlace."""
        own = self.facts[facts.where]
        facts.batch_bytes = dict(own.batch_bytes)
        findings = [wrong("damage", facts, _damage_text(one), one.offset) for one in own.damages]
        hidden = sum(own.damage_count.values()) - len(own.damages)
        if hidden > 0:
            findings.append(wrong("damage", facts, f"{hidden} more batches are damaged"))
        self._explain(facts, own)
        for span in facts.unexplained:
            text = f"{span.size} offsets without a batch: {span}"
            findings.append(wrong("gap", facts, text, span.first))
        aborted = own.aborted_records if self._committed else 0
        lacking = own.records - aborted - (facts.rows - facts.duplicates)
        if lacking and not own.damage_count:
            text = (
                f"its batches announce {own.records - aborted} records, but"
                f" {facts.rows - facts.duplicates} different ones were read"
            )
            findings.append(wrong("count", facts, text))
        findings += [
            open_transaction(
                self, facts, one.first_offset, own.log_end_offset, one.open_ms, self._options
            )
            for one in own.open[:10]
        ]
        return findings

    def _explain(self, facts: PartitionFacts, own: LogFacts) -> None:
        facts.explain(CONTROL, own.control_offsets)
        if self._committed:
            facts.explain(ABORTED, own.aborted_records)
        # Damage in them is a separate finding.
        facts.explain(_DAMAGED, own.damaged_offsets)
        if self._is_compacted(facts.where):
            facts.explain(COMPACTED, own.thinned + own.hole_offsets)
            return
        for span in own.holes:
            facts.miss(span)
        facts.unexplained_count = own.hole_offsets + own.thinned

    def _is_compacted(self, where: Where) -> bool:
        topic = where[0]
        if topic in self._configs:
            return is_compacted(self._configs[topic])
        return topic in _INTERNAL or where in self._cleaned


def scan(
    spark: SparkSession, places: Collection[LogPlace], done: Callable[[int, int], Any]
) -> None:
    """Scan the segments of all places as Spark tasks; calls `done(segments scanned, segments in all)`."""
    tasks = [task for place in places for task in place.tasks()]
    if not tasks:
        return
    context = spark.sparkContext
    # The slowest first would be best; the largest first is close to that, and spreads the large ones.
    slices = min(len(tasks), context.defaultParallelism * 8)
    scans: dict[str, SegmentScan] = {}
    for result in context.parallelize(tasks, slices).map(_scan_task).toLocalIterator(True):
        if result is not None:
            scans[result.path] = result
        done(len(scans), len(tasks))
    for place in places:
        place.take(scans)


def _scan_task(task: Task) -> SegmentScan | None:
    try:
        return scan_segment(*task)
    except FileNotFoundError:
        return None  # deleted in the meantime by retention, or replaced by compaction


def _offsets(log_dir: Path, name: str) -> dict[Where, int]:
    try:
        return {
            (where[0], where[1]): offset
            for where, offset in read_offsets(FileLayer(), str(log_dir / name)).items()
        }
    except CorruptCheckpoint as error:
        raise Problem(str(error)) from error


def _damage_text(damage: SegmentDamage) -> str:
    name = Path(damage.path).name
    what = {
        "crc": "a batch's checksum is wrong",
        "records": "a batch's records cannot be read",
        "header": "no batch can be recognized",
        "cut": "a segment ends within a batch",
        "order": "offsets go back",
        "sequence": "a batch occurs twice",
    }[damage.kind]
    return f"{what}: {name} at byte {damage.position}: {damage.text}"
