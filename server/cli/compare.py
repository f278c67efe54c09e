"""`kwire compare`: sends the same recorded requests to two brokers, and reports how their replies differ."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from importlib import import_module
from typing import Any

from .output import failure


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire compare`."""
    parser.add_argument(
        "one", metavar="A", help="HOST:PORT of a broker, or - for the replies in the recording"
    )
    parser.add_argument("other", metavar="B", help="HOST:PORT of another broker")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a recording of kwire.testing, saved with its frames: recorder.save(FILE, frames=True)",
    )
    parser.add_argument(
        "--summary", action="store_true", help="only count the differences, by API and field"
    )


def run(options: Namespace) -> int:
    """Compare; return 1 if there are differences, 2 if the comparison is not possible."""
    # Not imported by name, because the broker does not depend on its test kit.
    recording: Any = import_module("kwire.testing.recording")
    replay: Any = import_module("kwire.testing.replay")
    compare: Any = import_module("kwire.testing.compare")
    connections: Any = import_module("kwire.testing.client.connections")
    try:
        loaded = recording.load(options.file)
        played = [
            compare.recorded(loaded.exchanges) if each == "-" else replay.play(loaded, each)
            for each in (options.one, options.other)
        ]
    except (OSError, ValueError, connections.KafkaError) as error:
        print(f"kwire: {failure(error)}", file=sys.stderr)
        return 2
    differences = compare.compare(*played)
    if options.summary:
        for (api, path), count in sorted(Counter(each.kind for each in differences).items()):
            print(f"{count:6} {api} {path}")
    else:
        for each in differences:
            print(each)
    print(f"{len(loaded.exchanges)} requests, {len(differences)} differences")
    return 1 if differences else 0
