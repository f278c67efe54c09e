"""`kwire pipeline aggregate KIND`: logs, metrics and sessions of topics, to a topic and to Parquet.

One streaming query (see `aggregates/batches.py`) with one checkpoint. A result is written when the watermark has closed its
window: exactly once to Parquet, at least once to topics. Dead letters are written at least once too. After a crash the last
batch is written to topics again, with the same keys and values.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from .aggregates.batches import (
    SCANS,
    BatchWriter,
    Counts,
    Outputs,
    check_owner,
    rows_of_batch,
    watermark_ms,
)
from .aggregates.kinds import GROUPS, SCHEMAS, Grouping, check_grouping, check_store
from .aggregates.records import TIME_UNITS, Format, group_numbers, make_format, parse
from .aggregates.schema import NeedsSpark, column, read_schema
from .checkpoints import Checkpoint
from .cluster import Cluster, reason
from .durations import duration_ms
from .following import follow
from .options import add_cluster, add_spark, add_topics, check_topics, topic_names
from .problems import DATA_LOSS, Problem, whole_text
from .read_topics import ReadTopics
from .session import kafka_options, start_session
from .storage import is_local, open_storage

#: Number of tasks, and of parts of the state, unless Spark's settings say otherwise; Spark's default suits large clusters.
PARTITIONS = "8"


def percentile(text: str) -> float:
    """A percentile, 0 to 100."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise ArgumentTypeError(f"{text!r} is not a percentile between 0 and 100")
    return number


def percentiles(text: str) -> tuple[float, ...]:
    """Percentiles separated by commas; none for an empty text."""
    return tuple(dict.fromkeys(percentile(word) for word in text.split(",") if word.strip()))


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def positive_ms(text: str) -> int:
    """A duration of at least a millisecond."""
    length = duration_ms(text)
    if length < 1:
        raise ArgumentTypeError(f"{text!r} is shorter than a millisecond")
    return length


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument(
        "kind",
        choices=sorted(SCHEMAS),
        help="logs: a searchable store, and counts by service and level; metrics: counts, minimum, maximum, mean and"
        " percentiles by name; sessions: start, end and events by user",
    )
    add_cluster(parser)
    add_topics(parser)
    parser.add_argument(
        "--starting-offsets",
        choices=("earliest", "latest"),
        default="earliest",
        help="where to begin with a new checkpoint (default: %(default)s)",
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        metavar="N",
        type=positive,
        default=1_000_000,
        help="the most offsets to read in one batch (default: %(default)s)",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are left out (default: %(default)s)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "go-on"),
        default="fail",
        help="if offsets were deleted before they were read: fail, or count the rest (default: %(default)s)",
    )
    _add_values(parser)
    _add_windows(parser)
    _add_outputs(parser)
    add_spark(parser)


def _add_values(parser: ArgumentParser) -> None:
    values = parser.add_argument_group("values")
    values.add_argument(
        "--schema",
        metavar="SCHEMA",
        help="columns of the values: Spark's DDL ('name STRING NOT NULL, value DOUBLE'), a JSON Schema, or Spark's JSON;"
        " the default depends on the kind: "
        + "; ".join(f"{kind} {text}" for kind, text in SCHEMAS.items()),
    )
    values.add_argument("--schema-file", metavar="FILE", type=Path, help="the same from a file")
    values.add_argument(
        "--pattern",
        metavar="REGEX",
        help="values are lines, split by a regular expression with named groups, instead of JSON",
    )
    values.add_argument(
        "--require",
        metavar="COLUMN[,COLUMN]",
        type=names,
        default=[],
        help="columns without which a record is malformed, besides those used here and those that are NOT NULL",
    )
    values.add_argument(
        "--time-column",
        metavar="COLUMN",
        default="time",
        help="event time: a timestamp, a string or a whole number (default: %(default)s)",
    )
    values.add_argument(
        "--record-time",
        action="store_true",
        help="use the record's own timestamp as event time instead",
    )
    values.add_argument(
        "--time-unit",
        choices=sorted(TIME_UNITS),
        default="ms",
        help="unit since 1970 of a time that is a whole number (default: %(default)s)",
    )
    values.add_argument(
        "--time-format",
        metavar="PATTERN",
        help="format of a time that is text, such as dd/MMM/yyyy:HH:mm:ss Z (default: ISO 8601; without a zone, UTC)",
    )
    values.add_argument(
        "--max-ahead",
        metavar="TIME",
        type=duration_ms,
        default=3_600_000,
        help="an event time this much later than the record's own timestamp is malformed, so that one wrong clock"
        " does not make all others late (default: 1h)",
    )


def _add_windows(parser: ArgumentParser) -> None:
    windows = parser.add_argument_group("windows")
    windows.add_argument(
        "--group-by",
        metavar="COLUMN[,COLUMN]",
        type=names,
        default=[],
        help="columns to group by; for logs the first is the service, which partitions the store (default: "
        + "; ".join(f"{kind} {','.join(columns)}" for kind, columns in GROUPS.items())
        + ")",
    )
    windows.add_argument(
        "--window",
        metavar="TIME",
        type=positive_ms,
        default=60_000,
        help="length of a window, such as 30s, 5m or 1h (default: 1m)",
    )
    windows.add_argument(
        "--slide",
        metavar="TIME",
        type=positive_ms,
        help="time from one window's start to the next one's (default: their length)",
    )
    windows.add_argument(
        "--gap",
        metavar="TIME",
        type=positive_ms,
        default=1_800_000,
        help="time without events that ends a session (default: 30m)",
    )
    windows.add_argument(
        "--watermark",
        metavar="TIME",
        type=duration_ms,
        default=600_000,
        help="how much later than newer records a record may arrive and still count (default: 10m)",
    )
    windows.add_argument(
        "--value-column",
        metavar="COLUMN",
        default="value",
        help="the number (metrics; default: %(default)s)",
    )
    windows.add_argument(
        "--percentiles",
        metavar="P[,P]",
        type=percentiles,
        default=(50.0, 95.0, 99.0),
        help="percentiles of metrics (default: 50,95,99; '' for none)",
    )
    windows.add_argument(
        "--accuracy",
        metavar="N",
        type=positive,
        default=10_000,
        help="a percentile's rank may be wrong by at most 1/N of the values (default: %(default)s)",
    )
    windows.add_argument(
        "--exact",
        action="store_true",
        help="compute exact percentiles; the state keeps every distinct value",
    )


def _add_outputs(parser: ArgumentParser) -> None:
    outputs = parser.add_argument_group("outputs")
    outputs.add_argument(
        "--to-topic", metavar="TOPIC", help="results as JSON, with the group as key; at least once"
    )
    outputs.add_argument(
        "--to-parquet",
        metavar="DIR",
        help="results (and for logs all records) as Parquet; exactly once",
    )
    outputs.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="where malformed records go, with headers that say what is wrong and where they come from; without it the first"
        " one ends the job",
    )
    outputs.add_argument(
        "--late",
        choices=("count", "dead-letter"),
        default="count",
        help="records whose window is closed are counted, or also sent to --dead-letter-topic"
        " (default: %(default)s)",
    )
    outputs.add_argument(
        "--checkpoint-dir", metavar="DIR", required=True, help="where the job keeps its progress"
    )
    outputs.add_argument(
        "--group",
        metavar="GROUP",
        default="kwire-aggregate",
        help="consumer group that shows the job's progress (default: %(default)s)",
    )
    outputs.add_argument("--once", action="store_true", help="process what is there now, then end")
    outputs.add_argument(
        "--interval",
        metavar="TIME",
        type=duration_ms,
        default=10_000,
        help="time between two batches (default: 10s)",
    )


def run(options: Namespace) -> int:
    """Run the job until it is stopped or, with `--once`, until it has read what is there."""
    look_first(options)
    spark = start_session(options, f"aggregate {options.kind}")
    if spark.sparkContext.getConf().get("spark.sql.shuffle.partitions") is None:
        spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    try:
        counts = aggregate(spark, options)
        still_open = _still_open(options) if options.once else None
    finally:
        spark.stop()
    print(f"aggregate {options.kind}: {counts}")
    if still_open:
        print(still_open)
    return 0


def look_first(options: Namespace) -> None:
    """Check everything that needs no Spark, because Spark takes seconds to start. Raises Problem."""
    check_options(options)
    try:
        form, grouping = plan(options)
    except NeedsSpark:
        form = None
    with Cluster(options.bootstrap_server, options.client_properties) as cluster:
        cluster.say_if_none(options, _check_names(cluster, options))
    if form is not None and is_local(options.checkpoint_dir) and is_local(options.to_parquet or ""):
        _checkpoint(options, grouping, form.schema, look_only=True)


def _still_open(options: Namespace) -> str | None:
    """What a run that has read everything has not written; None if nothing was read."""
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
        raise Problem("give --to-topic, --to-parquet or both, so that results go somewhere")
    if options.late == "dead-letter" and not options.dead_letter_topic:
        raise Problem("--late dead-letter needs --dead-letter-topic")
    if options.to_topic and options.to_topic == options.dead_letter_topic:
        raise Problem("--to-topic and --dead-letter-topic are the same")


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
            follow(spark, query.start, cluster, options.group, options.quiet, SCANS)
        except Exception as error:
            if DATA_LOSS.search(whole_text(error)):
                raise Problem(
                    "records that were to be read are gone, deleted by retention or with their topic; with --on-data-loss go-on"
                    " the rest is counted"
                ) from error
            raise
    return writer.counts


def plan(options: Namespace) -> tuple[Format, Grouping]:
    """How values are read and grouped. Raises Problem, and NeedsSpark if that needs a running Spark."""
    default = SCHEMAS[options.kind]
    if options.pattern and options.schema is None and options.schema_file is None:
        columns = [StructField(name, StringType()) for name in group_numbers(options.pattern)]
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
            raise Problem(f"topic {name} would be both read and written")
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
