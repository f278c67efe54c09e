"""The options of aggregate."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path

from ..durations import duration_ms
from ..options import add_cluster, add_reading, add_spark, add_topics, positive
from .defaults import GROUPS, SCHEMAS, TIME_UNITS


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
        help="where to start with a new checkpoint (default: %(default)s)",
    )
    add_reading(parser, most=1_000_000, go_on="count the rest")
    _add_values(parser)
    _add_windows(parser)
    _add_outputs(parser)
    add_spark(parser)


def without_effect(options: Namespace) -> Iterator[tuple[str, str]]:
    """Options that have no effect in combination with others, each with the reason."""
    if options.once:
        yield "--interval", "with --once"
    if options.record_time:
        yield from (
            (f"--time-{name}", "with --record-time") for name in ("column", "unit", "format")
        )
    of_kinds = {
        "metrics": ("value-column", "percentiles", "accuracy", "exact"),
        "sessions": ("gap",),
        "logs": (),
    }
    for kind, options_of in of_kinds.items():
        if kind != options.kind:
            yield from ((f"--{name}", f"for {options.kind}") for name in options_of)
    if options.kind == "sessions":
        yield from ((f"--{name}", "for sessions") for name in ("window", "slide"))
    elif options.kind == "metrics" and options.exact:
        yield "--accuracy", "with --exact"


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
        help="the values are lines of text instead of JSON, split by this regular expression with named groups",
    )
    values.add_argument(
        "--require",
        metavar="COLUMN[,COLUMN]",
        type=names,
        default=[],
        help="a record without these columns is malformed; columns that other options name and NOT NULL columns are always required",
    )
    values.add_argument(
        "--time-column",
        metavar="COLUMN",
        default="time",
        help="column with the event time: a timestamp, a string or a whole number (default: %(default)s)",
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
        help="unit of event times that are whole numbers, counted from 1970 (default: %(default)s)",
    )
    values.add_argument(
        "--time-format",
        metavar="PATTERN",
        help="format of event times that are text, such as dd/MMM/yyyy:HH:mm:ss Z (default: ISO 8601; without a zone, UTC)",
    )
    values.add_argument(
        "--max-ahead",
        metavar="TIME",
        type=duration_ms,
        default=3_600_000,
        help="a record is malformed if its event time is later than its own timestamp by more than this, so that one wrong clock"
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
        help="length of each window, such as 30s, 5m or 1h (default: 1m)",
    )
    windows.add_argument(
        "--slide",
        metavar="TIME",
        type=positive_ms,
        help="time between the starts of two windows (default: their length)",
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
        help="how late a record may arrive, compared with newer records, and still be counted (default: 10m)",
    )
    windows.add_argument(
        "--value-column",
        metavar="COLUMN",
        default="value",
        help="column with the number (for metrics; default: %(default)s)",
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
        "--to-topic",
        metavar="TOPIC",
        help="write results to this topic, as JSON with the group as key; at least once",
    )
    outputs.add_argument(
        "--to-parquet",
        metavar="DIR",
        help="write results, and for logs all records, as Parquet; exactly once",
    )
    outputs.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="topic for malformed records, with headers for their error and origin; without it, the first"
        " malformed record ends the job",
    )
    outputs.add_argument(
        "--late",
        choices=("count", "dead-letter"),
        default="count",
        help="whether records whose window is closed are only counted, or also sent to --dead-letter-topic"
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
    outputs.add_argument(
        "--once", action="store_true", help="process the records that exist now, then end"
    )
    outputs.add_argument(
        "--interval",
        metavar="TIME",
        type=duration_ms,
        default=10_000,
        help="time between two batches (default: 10s)",
    )
