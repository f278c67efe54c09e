"""`kwire dump-log`: the content of files of a log directory, as text."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire dump-log`."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots, checkpoints",
    )
    parser.add_argument(
        "-b", "--batches-only", action="store_true", help="show batches without their records"
    )


def run(options: Namespace) -> int:
    """Print every file; an unreadable file causes exit code 1, but the others are still printed."""
    from ..log.dump import UnknownFile, dump_file

    code = 0
    for path in options.files:
        try:
            Path(path).stat()
            dump_file(path, not options.batches_only, sys.stdout)
        except BrokenPipeError:
            raise
        except OSError as error:
            print(f"kwire: {path}: {error.strerror or error}", file=sys.stderr)
            code = 1
        except UnknownFile as error:
            print(f"kwire: {error}", file=sys.stderr)
            code = 1
    return code
