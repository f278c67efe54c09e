"""The options of archive."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator

from ..durations import duration_ms
from ..offsets import Offsets
from ..options import CLUSTER_NAMES, add_cluster, add_reading, add_spark, add_topics, positive
from ..tables.options import add_tables, add_values, without_iceberg


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire pipeline archive`."""
    add_cluster(parser)
    add_topics(parser)
    parser.add_argument(
        "--path",
        required=True,
        metavar="DIR",
        help="the archive: a folder, or a URI such as hdfs://...",
    )
    parser.add_argument(
        "--from-logs",
        metavar="DIR[,DIR]",
        help="read these log directories of brokers instead of asking brokers; patterns are allowed",
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument(
        "--once", action="store_true", help="archive the records that exist now, then end"
    )
    how_long.add_argument(
        "--compact", action="store_true", help="merge small files into larger ones, then end"
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=duration_ms,
        default=60_000,
        help="time between two batches, such as 30s or 5m (default: 1m)",
    )
    parser.add_argument(
        "--starting-offsets",
        metavar="WHERE",
        type=_starting_offsets,
        default="earliest",
        help='where to start in partitions that the archive does not have yet: earliest, latest or {"topic":{"0":17}} (default: earliest)',
    )
    add_reading(parser, most=None, go_on="record the gap")
    parser.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="where Spark keeps its checkpoint (default: _checkpoints/GROUP in the archive)",
    )
    parser.add_argument(
        "--group",
        default="archive",
        help="consumer group that shows the job's progress (default: %(default)s)",
    )
    parser.add_argument(
        "--compression",
        choices=("zstd", "snappy", "gzip", "lz4", "lz4_raw", "none"),
        default="zstd",
        help="compression of the files (default: %(default)s)",
    )
    parser.add_argument(
        "--target-size",
        metavar="MB",
        type=positive,
        default=128,
        help="with --compact: maximum size of a file (default: %(default)s)",
    )
    parser.add_argument(
        "--keep-replaced",
        metavar="TIME",
        type=duration_ms,
        default=86_400_000,
        help="how long replaced files are kept for readers that still use them (default: 1d)",
    )
    add_tables(parser, "also make each topic a table")
    add_values(parser)
    add_spark(parser)


def without_effect(options: Namespace) -> Iterator[tuple[str, str]]:
    """Options that have no effect in combination with others, each with the reason."""
    if options.compact:
        yield from (
            (name, "with --compact")
            for name in (
                *CLUSTER_NAMES,
                "--from-logs",
                "--interval",
                "--starting-offsets",
                "--max-offsets-per-trigger",
                "--isolation-level",
                "--on-data-loss",
                "--checkpoint-dir",
                "--group",
            )
        )
    else:
        yield "--target-size", "without --compact"
    if options.once:
        yield "--interval", "with --once"
    if not options.value_schemas:
        yield "--value-framing", "without --value-schema"
    yield from without_iceberg(options)


def _starting_offsets(text: str) -> str | Offsets:
    if text in ("earliest", "latest"):
        return text
    try:
        return {
            (topic, int(number)): int(offset)
            for topic, partitions in json.loads(text).items()
            for number, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ArgumentTypeError(
            f'{text!r} is neither earliest, latest nor {{"topic":{{"0":17}}}}'
        ) from error
