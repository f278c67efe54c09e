"""`kwire pipeline aggregate KIND`: logs, metrics and sessions of topics, to a topic and to Parquet.

One streaming query (see `batches.py`) with one checkpoint. A result is written when the watermark has closed its
window: exactly once to Parquet, at least once to topics. Dead letters are written at least once too. After a crash the last
batch is written to topics again, with the same keys and values.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Collection
from datetime import UTC, datetime

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from ..bar import Bar, is_shown
from ..checkpoints import Checkpoint
from ..cluster import Cluster, reason
from ..following import follow
from ..options import check_topics, say_if_none, topic_names
from ..problems import DATA_LOSS, Problem, WrongCall, whole_text
from ..schemas.schema import column, read_schema
from ..session import kafka_options, start_session
from ..storage import is_local, open_storage
from .batches import (
    SCANS,
    BatchWriter,
    Counts,
    Outputs,
    check_owner,
    rows_of_batch,
    watermark_ms,
)
from .defaults import GROUPS, SCHEMAS
from .kinds import Grouping, check_grouping, check_store
from .options import add_arguments
from .read_topics import ReadTopics
from .records import ValueFormat, make_format, named_groups, parse

__all__ = ["add_arguments", "run"]

#: Number of tasks, and of parts of the state, unless Spark's settings say otherwise; Spark's default suits large clusters.
PARTITIONS = "8"


def run(options: Namespace) -> int:
    """Run the job until it is stopped or, with `--once`, until it has read the present data."""
    look_first(options)
    spark = start_session(options, f"aggregate {options.kind}")
    if spark.sparkContext.getConf().get("spark.sql.shuffle.partitions") is None:
        spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    # After an error, and after Ctrl-C, Spark ends with this process: another call to it could fail, or never return.
    counts = aggregate(spark, options)
    still_open = _still_open(options) if options.once else None
    spark.stop()
    print(f"aggregate {options.kind}: {counts}")
    if still_open:
        print(still_open)
    return 0


def look_first(options: Namespace) -> None:
    """Check everything that needs no Spark, because Spark takes seconds to start. Raises Problem."""
    check_options(options)
    form, grouping = plan(options)
    with Cluster(options.bootstrap_server, options.client_properties) as cluster:
        say_if_none(options, _check_names(cluster, options), cluster.where)
    if is_local(options.checkpoint_dir) and is_local(options.to_parquet or ""):
        _checkpoint(options, grouping, form.schema, look_only=True)


def _still_open(options: Namespace) -> str | None:
    """The windows that a run has not written although it has read everything; None if nothing was read."""
    entry = Checkpoint(options.checkpoint_dir).newest_entry()
    mark = 0 if entry is None else watermark_ms(entry)
    if not mark:
        return None
    until = datetime.fromtimestamp(mark / 1000, UTC).isoformat(timespec="milliseconds")
    what = "sessions whose gap ends" if options.kind == "sessions" else "windows that end"
    return f"{what} after the watermark, {until.replace('+00:00', 'Z')}, are still open; later records close them in a later run"


def check_options(options: Namespace) -> None:
    """Raises Problem for options that contradict each other."""
    check_topics(options)
    if not options.to_topic and not options.to_parquet:
        raise WrongCall("give --to-topic, --to-parquet or both, so that results go somewhere")
    if options.late == "dead-letter" and not options.dead_letter_topic:
        raise WrongCall("--late dead-letter needs --dead-letter-topic")
    if options.to_topic and options.to_topic == options.dead_letter_topic:
        raise WrongCall("--to-topic and --dead-letter-topic are the same")


def aggregate(spark: SparkSession, options: Namespace) -> Counts:
    """Run the job on a running Spark; returns the counts. Raises Problem, or Spark's own error if it must be a bug."""
    form, grouping = plan(options)
    outputs = Outputs(
        kafka=kafka_options(options),
        topic=options.to_topic,
        parquet=options.to_parquet,
        dead_letters=options.dead_letter_topic,
        late_letters=options.late == "dead-letter",
        job=f"aggregate {options.kind}",
    )
    with Cluster(options.bootstrap_server, options.client_properties) as cluster:
        chosen = _make_ready(cluster, options)
        checkpoint = _checkpoint(options, grouping, form.schema)
        read = ReadTopics(checkpoint, cluster, go_on=options.on_data_loss == "go-on")
        written = {options.to_topic, options.dead_letter_topic}

        def check(topics: Collection[str]) -> None:
            read.check([name for name in topics if name not in written])

        check(chosen)
        try:
            rows = rows_of_batch(parse(_source(spark, options), form), grouping, outputs)
        except AnalysisException as error:
            raise Problem(str(error).splitlines()[0]) from error
        writer = BatchWriter(checkpoint, grouping, outputs, options.quiet, check)
        query = _query(rows, writer, checkpoint, options)
        try:
            bar = None
            if options.once and is_shown(options.quiet):
                known = {**cluster.starts(chosen), **checkpoint.done()}
                ends = cluster.ends(chosen)
                left = sum(max(0, end - known.get(place, end)) for place, end in ends.items())
                bar = Bar(f"aggregate {options.kind}", left)
            follow(spark, query.start, cluster, options.group, options.quiet, SCANS, bar)
        except Exception as error:
            if DATA_LOSS.search(whole_text(error)):
                raise Problem(
                    "records to be read are gone, deleted by retention or with their topic; with --on-data-loss go-on"
                    " the rest is counted"
                ) from error
            raise
    return writer.counts


def plan(options: Namespace) -> tuple[ValueFormat, Grouping]:
    """How values are read and grouped. Raises WrongCall."""
    default = SCHEMAS[options.kind]
    if options.pattern and options.schema is None and options.schema_file is None:
        columns = [StructField(name, StringType()) for name in named_groups(options.pattern)]
        schema = StructType(columns)
    else:
        schema = read_schema(options.schema, options.schema_file, default)
    wanted = options.group_by or GROUPS[options.kind]
    groups = [column(schema, name, "--group-by") for name in wanted]
    value = None
    if options.kind == "metrics":
        value = column(schema, options.value_column, "--value-column")
    slide = options.slide or options.window
    grouping = Grouping(
        kind=options.kind,
        groups=tuple(dict.fromkeys(field.name for field in groups)),
        window_ms=options.window,
        slide_ms=slide,
        gap_ms=options.gap,
        watermark_ms=options.watermark,
        value=None if value is None else value.name,
        percentiles=options.percentiles if options.kind == "metrics" else (),
        exact=options.exact,
        accuracy=options.accuracy,
    )
    check_grouping(grouping, groups, value)
    if options.kind == "logs":
        check_store(schema)
    used = [*grouping.groups, *([] if value is None else [value.name]), *options.require]
    form = make_format(
        schema,
        used,
        None if options.record_time else options.time_column,
        time_unit=options.time_unit,
        time_format=options.time_format,
        max_ahead_ms=options.max_ahead,
        pattern=options.pattern,
    )
    return form, grouping


def _source(spark: SparkSession, options: Namespace) -> DataFrame:
    settings = {
        "kafka.isolation.level": options.isolation_level,
        "failOnDataLoss": "true" if options.on_data_loss == "fail" else "false",
        **kafka_options(options),
        "startingOffsets": options.starting_offsets,
        "maxOffsetsPerTrigger": str(options.max_offsets_per_trigger),
        "includeHeaders": "true",
    }
    if options.topics_pattern:
        settings["subscribePattern"] = options.topics_pattern
    else:
        settings["subscribe"] = ",".join(topic_names(options))
    rows = spark.readStream.format("kafka").options(**settings).load()
    # A pattern may also match the topics that this job writes.
    written = [name for name in (options.to_topic, options.dead_letter_topic) if name]
    return rows.where(~F.col("topic").isin(written)) if options.topics_pattern and written else rows


def _query(
    rows: DataFrame, writer: BatchWriter, checkpoint: Checkpoint, options: Namespace
) -> DataStreamWriter:
    query = (
        rows.writeStream.queryName(f"aggregate {options.kind}")
        .outputMode("append")
        .option("checkpointLocation", checkpoint.path)
        .foreachBatch(writer)
    )
    if options.once:
        return query.trigger(availableNow=True)
    return query.trigger(processingTime=f"{options.interval} milliseconds")


def _check_names(cluster: Cluster, options: Namespace) -> dict[str, int]:
    """The topics to read, with their numbers of partitions. Raises Problem."""
    read = cluster.chosen(options)
    for name in (options.to_topic, options.dead_letter_topic):
        if name in topic_names(options):
            raise WrongCall(f"topic {name} would be both read and written")
    return read


def _make_ready(cluster: Cluster, options: Namespace) -> dict[str, int]:
    """The topics to read; creates the output topics with the brokers' defaults. Raises Problem."""
    read = _check_names(cluster, options)
    written = [name for name in (options.to_topic, options.dead_letter_topic) if name]
    there = {*cluster.partitions(), *read}
    absent = [NewTopic(name, -1, -1) for name in written if name not in there]
    if not absent:
        return read
    admin = AdminClient(cluster.settings())
    for name, answer in admin.create_topics(absent, operation_timeout=15).items():
        try:
            answer.result()
        except KafkaException as error:
            raise Problem(f"cannot create topic {name}: {reason(error)}") from error
        print(f"created topic {name}", file=sys.stderr)
    return read


def _checkpoint(
    options: Namespace, grouping: Grouping, schema: StructType, *, look_only: bool = False
) -> Checkpoint:
    """The checkpoint. Raises Problem if it, or an output, belongs to a different job from the one asked for now."""
    checkpoint = Checkpoint(options.checkpoint_dir)
    types = [column(schema, name, "").dataType.simpleString() for name in grouping.groups]
    about = {**grouping.definition(), "types": ",".join(types)}
    checkpoint.claim("aggregate", about, look_only=look_only)
    checkpoint.check()
    if options.to_parquet:
        check_owner(open_storage(options.to_parquet), checkpoint)
    return checkpoint
