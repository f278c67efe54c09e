"""The options of audit."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path

from ..durations import duration_ms
from ..options import CLUSTER_NAMES, add_cluster, add_spark, add_topics, key_value
from ..tables.options import add_tables, without_iceberg


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the job."""
    parser.epilog = (
        "Places that have the same topic are compared. Exit status: 0 if nothing is wrong, 1 if something is wrong"
        " or the audit itself failed."
    )
    add_cluster(parser)
    add_topics(parser)
    parser.add_argument(
        "--archive",
        metavar="DIR",
        dest="archives",
        action="append",
        default=[],
        help="an archive written by `kwire pipeline archive`; repeatable",
    )
    parser.add_argument(
        "--log-dir",
        metavar="GLOB",
        dest="log_dirs",
        action="append",
        default=[],
        help="log directories of brokers, each of which is compared with the other places; repeatable",
    )
    parser.add_argument(
        "--map",
        metavar="SOURCE=TARGET",
        dest="renamed",
        type=key_value,
        action="append",
        default=[],
        help="TARGET is a replay of SOURCE and must have the same records in the same order; repeatable",
    )
    parser.add_argument(
        "--with-offsets", action="store_true", help="with --map: offsets must also be equal"
    )
    parser.add_argument(
        "--ignore",
        choices=("timestamp", "headers"),
        action="append",
        default=[],
        help="ignore this when records are compared; repeatable",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether to include records of aborted and open transactions (default: %(default)s)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also report a range of offsets that only one of the compared places has as wrong",
    )
    parser.add_argument(
        "--time-order",
        metavar="SPAN",
        type=_span,
        help="also report timestamps of producers that go back by more than this, such as 5m, as wrong",
    )
    parser.add_argument(
        "--open-after",
        metavar="SPAN",
        type=_span,
        help="report transactions that are open for longer than this as wrong (default: 15m in topics, never in log directories)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report as JSON")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write the report as one HTML file with plots"
    )
    add_tables(parser, "also audit the archives' tables")
    add_spark(parser)


def without_effect(options: Namespace) -> Iterator[tuple[str, str]]:
    """Options that have no effect in combination with others, each with the reason."""
    if not (options.topics or options.topics_pattern):
        yield from ((name, "without --topics: no broker is asked") for name in CLUSTER_NAMES)
    if not options.renamed:
        yield "--with-offsets", "without --map"
    yield from without_iceberg(options)


def _span(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
