"""`kwire dump-log`: the content of files of a log directory, as text."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from ..metadata.internal_topics import CLUSTER_METADATA_TOPIC


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire dump-log`."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots, checkpoints, snapshots of"
        " a KRaft cluster's metadata (.checkpoint); for a directory, all such files in it",
    )
    parser.add_argument(
        "--files",
        dest="more",
        metavar="FILE,FILE",
        help="the same, as for kafka-dump-log.sh",
    )
    parser.add_argument(
        "-b", "--batches-only", action="store_true", help="show batches without their records"
    )
    parser.add_argument(
        "--print-data-log",
        "--deep-iteration",
        action="store_true",
        help="show records (the default)",
    )
    decoders = parser.add_mutually_exclusive_group()
    decoders.add_argument(
        "--offsets-decoder",
        dest="topic",
        action="store_const",
        const="__consumer_offsets",
        help="read records as those of __consumer_offsets (default: derived from the name of the directory)",
    )
    decoders.add_argument(
        "--transaction-log-decoder",
        dest="topic",
        action="store_const",
        const="__transaction_state",
        help="read records as those of __transaction_state (default: derived in the same way)",
    )
    decoders.add_argument(
        "--cluster-metadata-decoder",
        "--metadata",
        dest="topic",
        action="store_const",
        const=CLUSTER_METADATA_TOPIC,
        help="read records as those of __cluster_metadata (default: derived in the same way)",
    )
    decoders.add_argument(
        "--raw",
        action="store_true",
        help="show the bytes of records in internal topics, without decoding them",
    )


def run(options: Namespace) -> int:
    """Print every file; an unreadable file causes exit code 1, but the others are still printed."""
    names = options.files + [name for name in (options.more or "").split(",") if name]
    if not names:
        print("kwire: dump-log: name a file or directory", file=sys.stderr)
        return 2
    return max([dump(path, options) for name in names for path in files_of(Path(name))])


def files_of(path: Path, seen: set[Path] | None = None) -> Iterator[Path]:
    """The files to show: the log's files in a directory, or the path itself.

    Shape: each directory once, even if several links lead to it. Pipes and devices in a directory are skipped, since
    reading them may never end. `seen` are the directories that were already visited.
    """
    from ..log.dump import UnknownFile, expect_known

    if not os.path.isdir(path):  # noqa: PTH112 - unlike is_dir, False for what may not be read
        yield path
        return
    try:
        entries = sorted(path.iterdir())
    except OSError:
        yield path
        return
    seen = set() if seen is None else seen
    where = path.resolve()
    if where in seen:
        return
    seen.add(where)
    for entry in entries:
        if os.path.isdir(entry):  # noqa: PTH112
            yield from files_of(entry, seen)
            continue
        if os.path.exists(entry) and not os.path.isfile(entry):  # noqa: PTH110, PTH113
            continue
        try:
            expect_known(str(entry))
        except UnknownFile:
            continue
        yield entry


def dump(path: Path, options: Namespace) -> int:
    """Print a file."""
    from ..log.dump import METADATA_BOOTSTRAP, UnknownFile, dump_file
    from ..log.log_directory import parse_directory_name
    from .stored_records import decoder_of

    topic = options.topic
    if topic is None and not options.raw:
        tp = parse_directory_name(path.absolute().parent.name)
        topic = None if tp is None else tp.topic
        if path.name == METADATA_BOOTSTRAP:
            topic = CLUSTER_METADATA_TOPIC
    try:
        path.stat()
        if path.is_dir():
            os.listdir(path)  # noqa: PTH208 - it may not be read, which is the error to report
        dump_file(str(path), not options.batches_only, sys.stdout, text_of=decoder_of(topic))
    except OSError as error:
        print(f"kwire: {path}: {error.strerror or error}", file=sys.stderr)
        return 1
    except UnknownFile as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    return 0
