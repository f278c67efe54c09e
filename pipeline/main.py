"""`kwire pipeline JOB`: finds the job, adds options from a config file, runs it, and reports what went wrong."""

from __future__ import annotations

import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .interrupts import Interrupts
from .problems import Problem, explain

#: Job -> (module, its description in `kwire pipeline --help`).
JOBS = {
    "archive": ("archive", "topics to partitioned Parquet, each record once"),
    "replay": ("replay", "an archive or segments back to a topic, each record once"),
    "aggregate": ("aggregate", "counts, windows and sessions, from topics to topics and Parquet"),
    "audit": ("audit", "gaps, duplicates, damage and differences in topics, archives and logs"),
    "status": (
        "status",
        "progress of the jobs: offsets processed, lag, what retention is about to delete",
    ),
}


def make_parser(chosen: str | None) -> ArgumentParser:
    """The parser of all jobs, with the arguments of the chosen one only."""
    parser = ArgumentParser(
        prog="kwire pipeline",
        description="Move data through a cluster with Spark.",
        epilog="Options of a job can also be given in a TOML file: kwire pipeline --config FILE JOB ...",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with options")
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, (module, summary) in JOBS.items():
        job = jobs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            allow_abbrev=False,
        )
        if name == chosen:
            room = import_module(f".{module}", __package__)
            room.add_arguments(job)
            job.set_defaults(run=room.run, parser=job)
    return parser


def words_of(path: Path, job: str) -> list[str]:
    """The options that a config file gives one job, as they would be written on the command line.

    Keys are option names (`topics`, `checkpoint-dir`); a list repeats its option, true sets a flag. Keys at the top are for
    every job, those in the table with a job's name only for that job. `[spark]` holds Spark's own settings.
    """
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise Problem(f"{path} is not TOML: {error}") from error
    for key in ("spark", *JOBS):
        if not isinstance(tree.get(key, {}), dict):
            raise Problem(f"{path}: {key} must be a table: [{key}]")
    words = [f"--conf={key}={value}" for key, value in _flat(tree.pop("spark", {}))]
    own = tree.pop(job, {})
    shared = {key: value for key, value in tree.items() if key not in JOBS}
    for key, value in (*shared.items(), *own.items()):
        if isinstance(value, dict):
            raise Problem(f"{path}: [{key}] is not a job; jobs are {', '.join(JOBS)}")
        for item in value if isinstance(value, list) else [value]:
            if item is not False:
                option = "--" + key.replace("_", "-")
                words.append(option if item is True else f"{option}={item}")
    return words


def _flat(tree: dict[str, Any], prefix: str = "spark.") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = key if key.startswith("spark.") else prefix + key
        if isinstance(value, dict):
            yield from _flat(value, name + ".")
        else:
            yield name, str(value).lower() if isinstance(value, bool) else value


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code.

    0 done, 1 failed (or something was found wrong), 2 wrongly called, 130 ended by Ctrl-C before it was done.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if word in JOBS), None)
    with Interrupts() as interrupts:
        try:
            return _run(arguments, chosen)
        except KeyboardInterrupt:
            message, code = f"{chosen} was interrupted", 130
        except Problem as problem:
            message, code = str(problem), 1
        except Exception as error:
            explained = explain(error)
            if explained is None and not interrupts.seen():
                raise
            message, code = explained or f"{chosen} was interrupted", 1 if explained else 130
    print(f"kwire pipeline: {message}", file=sys.stderr)
    return code


def _run(arguments: list[str], chosen: str | None) -> int:
    if chosen is not None:
        at = arguments.index(chosen)
        head = ArgumentParser(add_help=False, allow_abbrev=False)
        head.add_argument("--config", type=Path)
        file = head.parse_known_args(arguments)[0].config
        if file is not None:
            # What is typed comes later, and so overrides the file.
            arguments[at + 1 : at + 1] = words_of(file, chosen)
    options = make_parser(chosen).parse_args(arguments)
    code: int = options.run(options)
    return code
