"""The options of audit."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path

from .durations import duration_ms
from .options import CLUSTER_NAMES, add_cluster, add_spark, add_topics, key_value
from .tables.options import add_tables, without_iceberg


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the job."""
    parser.epilog = (
        "Places that have the same topic are compared. Exit status: 0 nothing is wrong, 1 something is wrong"
        " or the audit failed."
    )
    add_cluster(parser)
    add_topics(parser)
    parser.add_argument(
        "--archive",
        metavar="DIR",
        dest="archives",
        action="append",
        default=[],
        help="an archive that kwire pipeline archive wrote; repeatable",
    )
    parser.add_argument(
        "--log-dir",
        metavar="GLOB",
        dest="log_dirs",
        action="append",
        default=[],
        help="log directories of brokers, each a separate place; repeatable",
    )
    parser.add_argument(
        "--map",
        metavar="SOURCE=TARGET",
        dest="renamed",
        type=key_value,
        action="append",
        default=[],
        help="TARGET is a replay of SOURCE: same records in the same order; repeatable",
    )
    parser.add_argument(
        "--with-offsets", action="store_true", help="with --map: offsets must be equal too"
    )
    parser.add_argument(
        "--ignore",
        choices=("timestamp", "headers"),
        action="append",
        default=[],
        help="ignore these when records are compared; repeatable",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of aborted and open transactions count (default: %(default)s)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="a range of offsets that one place has and the other does not is also wrong",
    )
    parser.add_argument(
        "--time-order",
        metavar="SPAN",
        type=_span,
        help="producers' timestamps that go back by more than this, such as 5m, are also wrong",
    )
    parser.add_argument(
        "--open-after",
        metavar="SPAN",
        type=_span,
        help="transactions open for longer than this are wrong (default: 15m in topics, never in log directories)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report as JSON")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write the report as one HTML file with plots"
    )
    add_tables(parser, "also audit the archives' tables, those")
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
