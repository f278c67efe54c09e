"""`kwire pipeline`: runs the jobs on Spark, which need what `.[spark]` installs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: everything after `pipeline` belongs to the jobs' own parser."""
    parser.epilog = (
        "kwire pipeline --help lists the jobs, kwire pipeline JOB --help the options of one."
    )


def run(_: Namespace) -> int:
    """Without a job, print the help."""
    return main(["--help"])


def main(words: Sequence[str]) -> int:
    """Run a job; 2 if something it needs is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "confluent_kafka") if not find_spec(name)]
    if missing:
        needs = ", ".join(missing)
        how = "pip install '.[spark]' in the folder with kwire's sources"
        print(f"kwire pipeline needs {needs}: {how}", file=sys.stderr)
        return 2
    # By its installed name: in a checkout `pipeline` is beside `server`, not above it.
    code: int = import_module("kwire.pipeline.main").main(words)
    return code
