"""Writes each batch: faults to the dead-letter topic, records and results to their outputs.

Spark commits a batch after all of this has succeeded; otherwise it runs the batch again, with the same rows and the same
number. Parquet is partitioned by that number, and a batch replaces its own partitions, so writing it twice leaves no trace.
Topics get the same records again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..checkpoints import Checkpoint
from ..problems import Problem
from ..storage import Storage, open_storage
from .kinds import RESULTS, STORE, Grouping

RECORD, MALFORMED, RESULT = "record", "malformed", "result"
#: The number of times that the query below reads its source: once for the rows, once for the results.
SCANS = 2
#: Prefix of the headers that say where a dead letter comes from.
HEADER = "kwire.dead-letter."
#: File that says which checkpoint an output belongs to; Parquet readers ignore names that begin like this.
OWNER = "_kwire-aggregate.json"
#: Prefix of the folders in which Spark writes partitions before it moves them into place.
STAGED = ".spark-staging-"


@dataclass(frozen=True)
class Outputs:
    """Where everything goes: topics by name, `parquet` a folder; None for outputs that are not wanted."""

    kafka: dict[str, str]
    topic: str | None = None
    parquet: str | None = None
    dead_letters: str | None = None
    late_letters: bool = False
    job: str = "aggregate"


@dataclass
class Counts:
    """What a run has seen so far; `records` includes late records, but not malformed ones."""

    batches: int = 0
    records: int = 0
    malformed: int = 0
    late: int = 0
    results: int = 0

    def add(self, other: Counts) -> None:
        """Add the figures of another Counts."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def __str__(self) -> str:
        return (
            f"{self.records:,} records, {self.late:,} of them late, {self.malformed:,} malformed,"
            f" {self.results:,} results in {self.batches:,} batches"
        )


def rows_of_batch(parsed: DataFrame, grouping: Grouping, outputs: Outputs) -> DataFrame:
    """All rows of a batch as one stream: every row read (`record`, `malformed`) and every result (`result`).

    One query with one checkpoint and one watermark does it all; it contains the source twice, and so reads it twice.
    """
    good = parsed.where(F.col("reason").isNull())
    results = grouping.results(good.select("event_time", "data.*"))
    result = F.struct(*(F.col(f"`{name}`") for name in results.columns))
    shape = results.select(result.alias("result")).schema["result"].dataType
    stored = outputs.parquet is not None and grouping.kind == "logs"
    kept = F.lit(True) if outputs.late_letters else F.col("reason").isNotNull()
    read = parsed.select(
        F.when(F.col("reason").isNull(), RECORD).otherwise(MALFORMED).alias("what"),
        # Columns that no output needs are not kept in memory.
        *(F.when(kept, F.col(name)).alias(name) for name in ("key", "value", "headers")),
        "topic",
        "partition",
        "offset",
        "timestamp",
        "reason",
        F.when(F.col("reason").isNull(), grouping.first_end()).alias("first_end"),
        *((F.col(name) if stored else _null(parsed, name)) for name in ("event_time", "data")),
        F.lit(None).cast(shape).alias("result"),
    )
    closed = results.select(
        F.lit(RESULT).alias("what"),
        *(_null(parsed, name) for name in ("key", "value", "headers")),
        *(_null(parsed, name) for name in ("topic", "partition", "offset", "timestamp", "reason")),
        F.lit(None).cast("bigint").alias("first_end"),
        *(_null(parsed, name) for name in ("event_time", "data")),
        result.alias("result"),
    )
    return read.unionByName(closed)


def _null(like: DataFrame, name: str) -> Column:
    return F.lit(None).cast(like.schema[name].dataType).alias(name)


class BatchWriter:
    """Called by Spark with each batch; `counts` adds up the batches written."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        grouping: Grouping,
        outputs: Outputs,
        quiet: bool = False,
        check: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        """`check` is called with the topics of each batch, and raises if the batch should not be written."""
        self.grouping = grouping
        self.outputs = outputs
        self.quiet = quiet
        self.counts = Counts()
        self._checkpoint = checkpoint
        self._parquet = None if outputs.parquet is None else open_storage(outputs.parquet)
        self._check = check
        self._owned = False

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch; raises if any part of it could not be written."""
        batch.persist()
        try:
            self._write(batch, number)
        finally:
            batch.unpersist()

    def _write(self, batch: DataFrame, number: int) -> None:
        if self._check is not None:
            self._check({topic for topic, _ in self._checkpoint.batch(number).ends})
        if not self._owned:
            self._own()
        closed_us = self._closed_before(number)
        late = (F.col("what") == RECORD) & (F.col("first_end") <= closed_us)
        counts = _count(batch, late)
        letters = F.col("what") == MALFORMED
        if self.outputs.late_letters:
            letters = letters | late
        if counts.malformed or (counts.late and self.outputs.late_letters):
            self._send_letters(batch.where(letters), closed_us)
        if counts.records and self._parquet is not None and self.grouping.kind == "logs":
            self._store(batch.where(F.col("what") == RECORD), number)
        if counts.results:
            self._give_out(batch.where(F.col("what") == RESULT).select("result.*"), number)
        self.counts.add(counts)
        if (counts.malformed or counts.late) and not self.quiet:
            print(
                f"batch {number}: {counts.malformed:,} malformed, {counts.late:,} late of"
                f" {counts.records + counts.malformed:,} records",
                file=sys.stderr,
                flush=True,
            )

    def _own(self) -> None:
        """Mark the output as this checkpoint's, and remove what Spark staged there but did not move into place."""
        if self._parquet is not None:
            check_owner(self._parquet, self._checkpoint)
            owner = {"checkpoint": checkpoint_id(self._checkpoint)}
            self._parquet.replace(OWNER, json.dumps(owner).encode())
            for name in (STORE, RESULTS[self.grouping.kind]):
                for item in self._parquet.list(name):
                    if item.name.startswith(STAGED):
                        self._parquet.delete(f"{name}/{item.name}")
        self._owned = True

    def _closed_before(self, number: int) -> int:
        """The watermark by which Spark drops late records of this batch, in microseconds.

        It is that of the batch before: windows closed then are gone; windows that this batch closes still take records.
        Spark writes it into the checkpoint before the batch runs.
        """
        if not number:
            return 0
        text = self._checkpoint.storage.read(f"offsets/{number - 1}")
        if text is None:
            raise Problem(f"the checkpoint {self._checkpoint.path} has lost offsets/{number - 1}")
        return watermark_ms(text) * 1000

    def _send_letters(self, letters: DataFrame, closed_us: int) -> None:
        if self.outputs.dead_letters is None:
            raise self._first_letter(letters)
        reason = F.coalesce("reason", self._late_reason(closed_us))
        said = {
            "job": F.lit(self.outputs.job),
            "reason": reason,
            "topic": F.col("topic"),
            "partition": F.col("partition").cast("string"),
            "offset": F.col("offset").cast("string"),
            "timestamp": F.unix_millis("timestamp").cast("string"),
        }
        own = [
            F.struct(F.lit(HEADER + name).alias("key"), F.encode(text, "UTF-8").alias("value"))
            for name, text in said.items()
        ]
        headers = F.concat(F.coalesce("headers", F.array().cast(_headers(letters))), F.array(*own))
        self._to_topic(letters.select("key", "value", headers.alias("headers")), "dead_letters")

    def _late_reason(self, closed_us: int) -> Column:
        mark = F.date_format(F.timestamp_micros(F.lit(closed_us)), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
        window = "session" if self.grouping.kind == "sessions" else "window"
        return F.concat(F.lit("late: the watermark, "), mark, F.lit(f", had closed its {window}"))

    def _first_letter(self, letters: DataFrame) -> Problem:
        row = letters.orderBy("topic", "partition", "offset").select(
            "topic", "partition", "offset", "reason"
        )
        first = row.first()
        assert first is not None
        return Problem(
            f"record {first.offset} of {first.topic}-{first.partition} is malformed ({first.reason}), and there is"
            " no --dead-letter-topic; with one, the same command continues from here"
        )

    def _store(self, records: DataFrame, number: int) -> None:
        service = self.grouping.groups[0]
        data = records.schema["data"].dataType
        assert isinstance(data, StructType)
        columns = [name for name in data.fieldNames() if name != service]
        rows = records.select(
            "event_time",
            *(F.col("data").getField(name).alias(name) for name in columns),
            F.struct("topic", "partition", "offset", "timestamp").alias("source"),
            F.date_format("event_time", "yyyy-MM-dd").alias("date"),
            F.col("data").getField(service).alias(service),
            F.lit(number).alias("batch"),
        )
        # One file per partition, in time order, so that readers of a time range can skip most of it.
        rows = rows.repartition("date", service).sortWithinPartitions("date", service, "event_time")
        self._to_parquet(rows, STORE, ["date", service, "batch"])

    def _give_out(self, results: DataFrame, number: int) -> None:
        grouping = self.grouping
        if self._parquet is not None:
            rows = results.withColumns(
                {
                    "date": F.date_format(grouping.result_time, "yyyy-MM-dd"),
                    "batch": F.lit(number),
                }
            )
            rows = rows.repartition("date").sortWithinPartitions("date", grouping.result_time)
            self._to_parquet(rows, RESULTS[grouping.kind], ["date", "batch"])
        if self.outputs.topic is not None:
            groups = [F.col(f"`{name}`") for name in grouping.groups]
            key = groups[0].cast("string") if len(groups) == 1 else F.to_json(F.struct(*groups))
            value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            rows = results.select(key.alias("key"), value.alias("value"))
            self._to_topic(rows, "topic")

    def _to_topic(self, rows: DataFrame, which: str) -> None:
        """Write rows to the topic of that name in `outputs`. Raises Problem if the brokers refuse them."""
        topic = getattr(self.outputs, which)
        options = {**self.outputs.kafka, "topic": topic, "includeHeaders": "true"}
        try:
            rows.write.format("kafka").options(**options).save()
        except Exception as error:
            said = re.findall(r"org\.apache\.kafka\.common\.errors\.(\w+: [^\n]+)", str(error))
            if not said:
                raise
            raise Problem(f"cannot write to topic {topic}: {said[-1]}") from error

    def _to_parquet(self, rows: DataFrame, name: str, partitions: list[str]) -> None:
        assert self._parquet is not None
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partitions).parquet(self._parquet.location(name))


def _count(batch: DataFrame, late: Column) -> Counts:
    """Count a batch, which also computes and caches it."""
    what = F.col("what")
    row = batch.select(
        *(F.count_if(what == name).alias(name) for name in (RECORD, MALFORMED, RESULT)),
        F.count_if(late).alias("late"),
    ).first()
    assert row is not None
    return Counts(1, row.record, row.malformed, row.late, row.result)


def _headers(rows: DataFrame) -> str:
    return rows.schema["headers"].dataType.simpleString()


def watermark_ms(entry: bytes) -> int:
    """The watermark in an entry of Spark's offset log: a version, a line of JSON, the sources' offsets."""
    return int(json.loads(entry.splitlines()[1])["batchWatermarkMs"])


def checkpoint_id(checkpoint: Checkpoint) -> str | None:
    """Spark's name of the query a checkpoint belongs to, or None before its first start."""
    text = checkpoint.storage.read("metadata")
    return None if text is None else str(json.loads(text)["id"])


def check_owner(parquet: Storage, checkpoint: Checkpoint) -> None:
    """Raises Problem if another job has written here: batches with the same numbers would replace its files."""
    text = parquet.read(OWNER)
    if text is None:
        if parquet.list(""):
            raise Problem(f"{parquet.root} is not empty, and this job did not write it")
        return
    try:
        owner = json.loads(text)["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(f"{parquet.location(OWNER)} is damaged: {error!r}") from error
    if owner != checkpoint_id(checkpoint):
        raise Problem(
            f"{parquet.root} was written with another checkpoint than {checkpoint.path};"
            " use that one, or another folder"
        )
