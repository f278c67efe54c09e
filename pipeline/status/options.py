"""The options of status."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..durations import duration_ms
from ..options import add_cluster


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the job."""
    parser.epilog = "Exit status: 0 if all is well, 1 if records that a job needs are deleted or soon will be. Does not need Spark."
    add_cluster(parser)
    parser.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        dest="checkpoint_dirs",
        type=Path,
        action="append",
        required=True,
        help="the checkpoint of a query, or a folder with several checkpoints; repeatable",
    )
    parser.add_argument(
        "--warn-within",
        metavar="SPAN",
        type=duration_ms,
        default=duration_ms("1h"),
        help="warn about partitions whose next records will be deleted within this time (default: 1h)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="write JSON to a file, or to standard output instead of the table",
    )
