"""`kwire pipeline`: runs the jobs on Spark, which need the packages of `.[spark]`."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: everything after `pipeline` belongs to the jobs' own parser."""
    parser.epilog = "kwire pipeline --help lists the jobs; kwire pipeline JOB --help lists the options of a job."


def run(_: Namespace) -> int:
    """Without a job, print the help."""
    return main(["--help"])


def main(words: Sequence[str]) -> int:
    """Run a job."""
    # By its installed name, because in a checkout `pipeline` is next to `server`, not above it.
    code: int = import_module("kwire.pipeline.main").main(words)
    if threading.current_thread() is threading.main_thread():
        # All is said. While Python waits for its threads, another Ctrl-C would only print tracebacks.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code
