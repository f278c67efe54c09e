"""`kwire pipeline JOB`: finds the job, adds options from a config file, runs it, and reports what went wrong."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from kwire.server.arguments import Parser
from kwire.server.streams import StreamFailed

from .interrupts import Interrupts
from .options import CLUSTER
from .problems import Problem, WrongCall, explain, unknown
from .spark_log import SparkLog

#: Job -> its description in `kwire pipeline --help`. A job is a folder: `job.py`, and `options.py`, which needs no Spark.
JOBS = {
    "archive": "copy topics to partitioned Parquet, each record once",
    "replay": "write an archive or segments back to a topic, each record once",
    "aggregate": "compute counts, windows and sessions of topics, into topics and Parquet",
    "audit": "find gaps, duplicates, damage and differences in topics, archives and logs",
    "status": "show the progress of the jobs: offsets processed, lag, what retention is about to delete",
}

#: What a job needs that `pip install kwire` does not install.
SPARK = ("pyspark", "pyarrow", "confluent_kafka")
NEEDED = {"status": ("confluent_kafka",)}


class _Parser(Parser):
    """Says in one line what is wrong, without the list of all options above it."""

    any_path = False  # Java's are text

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"kwire pipeline: {message} (see {self.prog} --help)\n")
        raise SystemExit(2)


def make_parser(chosen: str | None) -> ArgumentParser:
    """The parser of all jobs, with the arguments of the chosen one only."""
    parser = _Parser(
        prog="kwire pipeline",
        description="Move data through a cluster with Spark.",
        epilog="Options of a job can also be given in a TOML file: kwire pipeline --config FILE JOB ...",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with options")
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, summary in JOBS.items():
        job = jobs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            allow_abbrev=False,
        )
        if name == chosen:
            import_module(f".{name}.options", __package__).add_arguments(job)
    return parser


def words_of(path: Path, job: str, typed: Sequence[str] = ()) -> list[str]:
    """The options that a config file gives one job, as they would be written on the command line.

    Keys are option names (`topics`, `checkpoint-dir`); a list repeats its option, true sets a flag. Keys at the top are for
    every job, those in the table with a job's name only for that job. `[spark]` holds Spark's own settings. The cluster of
    every job is left out for one that reads log directories in its place, by its own table or by what is `typed`.
    """
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not TOML: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise Problem(f"{path} is not TOML: {error}") from error
    for key in ("spark", *JOBS):
        if not isinstance(tree.get(key, {}), dict):
            raise Problem(f"{path}: {key} must be a table: [{key}]")
    words = [f"--conf={key}={value}" for key, value in _flat(tree.pop("spark", {}))]
    own = tree.pop(job, {})
    without = CLUSTER if "from-logs" in own or _has(typed, "--from-logs") else ()
    shared = {k: value for k, value in tree.items() if k not in JOBS and k not in without}
    for key, value in (*shared.items(), *own.items()):
        if isinstance(value, dict):
            raise Problem(f"{path}: [{key}] is not a job; jobs are {', '.join(JOBS)}")
        for item in value if isinstance(value, list) else [value]:
            if item is not False:
                option = "--" + key.replace("_", "-")
                words.append(option if item is True else f"{option}={item}")
    return words


def _has(words: Sequence[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words)


def _flat(tree: dict[str, Any], prefix: str = "spark.") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = key if key.startswith("spark.") else prefix + key
        if isinstance(value, dict):
            yield from _flat(value, name + ".")
        else:
            yield name, str(value).lower() if isinstance(value, bool) else value


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code.

    0 done, 1 failed (or something was found wrong), 2 wrongly called; ended before it was done: 130 by Ctrl-C, 143 by SIGTERM,
    129 by SIGHUP.
    """
    try:
        return _main(argv)
    except KeyboardInterrupt:
        # Before the job began, or after it had ended.
        return _ended("interrupted", 130)


def _main(argv: Sequence[str] | None) -> int:
    typed = list(sys.argv[1:] if argv is None else argv)
    arguments = list(typed)
    chosen = next((word for word in arguments if word in JOBS), None)
    try:
        options = _parsed(arguments, chosen)
    except Problem as problem:
        return _ended(str(problem), 2)
    try:
        log = SparkLog(options.job, getattr(options, "spark_log", None))
    except WrongCall as problem:
        return _ended(str(problem), 2)
    missing = [name for name in NEEDED.get(options.job, SPARK) if not find_spec(name)]
    if missing:
        how = "pip install '.[spark]' in the folder with kwire's sources"
        return _ended(f"{options.job} needs {', '.join(missing)}: {how}", 2)
    for option, why in without_effect(options, typed):
        print(f"kwire pipeline: {option} has no effect {why}", file=sys.stderr, flush=True)
    if log.path is not None:
        options.spark_log = str(log.path)
    with log, Interrupts() as interrupts:
        try:
            job = import_module(f".{options.job}.job", __package__)
            if interrupts.seen() is not None:
                # A module that was being imported has swallowed the exception.
                raise KeyboardInterrupt
            code: int = job.run(options)
            sys.stdout.flush()
        except KeyboardInterrupt:
            log.discard()
            return _interrupted(options.job, interrupts)
        except WrongCall as problem:
            return _ended(str(problem), 2)
        except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes to the log
            if interrupts.seen() is not None:
                log.discard()
                return _interrupted(options.job, interrupts)
            unwritten = _give_output_up()
            if unwritten is None and isinstance(error, BrokenPipeError | StreamFailed):
                unwritten = error
            if unwritten is not None:
                log.discard()
                return _ended(
                    f"{options.job}: standard output cannot be written: {unwritten.strerror}", 1
                )
            return _failed(options.job, error, log)
    log.discard()
    return code


def without_effect(options: Namespace, typed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What was typed and changes nothing, with the words that say why.

    Options of a file are not meant: it is for several calls, and may have more than one of them needs.
    """
    of_job = import_module(f".{options.job}.options", __package__)
    for option, why in getattr(of_job, "without_effect", lambda _: ())(options):
        if _has(typed, option):
            yield option, why


def _interrupted(job: str, interrupts: Interrupts) -> int:
    """Say that a signal ended a job; the exit status is that of a shell whose command the signal ended."""
    number = interrupts.seen() or signal.SIGINT
    how = "was interrupted" if number == signal.SIGINT else f"was ended by {number.name}"
    return _ended(f"{job} {how}", 128 + number)


def _failed(job: str, error: Exception, log: SparkLog) -> int:
    """Say why a job failed, and where the rest is written."""
    message = str(error) if isinstance(error, Problem) else explain(error)
    if message is None:
        message = f"{job} failed unexpectedly: {unknown(error)}"
        log.add(error)
    elif log.kept() is not None:
        log.add(error)
    if (path := log.kept()) is not None:
        message = f"{message}\nkwire pipeline: what Spark and Java said is in {path}"
    else:
        log.discard()
    return _ended(message, 1)


def _give_output_up() -> OSError | StreamFailed | None:
    """Why standard output takes nothing any more; None if it does.

    What waits to be written there is dropped: Python would try again at its end, and print a traceback.
    """
    try:
        sys.stdout.flush()
    except (OSError, StreamFailed) as error:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        return error
    return None


def _ended(message: str, code: int) -> int:
    # The terminal may be gone.
    with suppress(OSError):
        print(f"kwire pipeline: {message}", file=sys.stderr, flush=True)
    return code


def _parsed(arguments: list[str], chosen: str | None) -> Namespace:
    """The options of the command line and of the file that it names. Raises Problem for a wrong file."""
    if chosen is not None:
        at = arguments.index(chosen)
        head = ArgumentParser(add_help=False, allow_abbrev=False)
        head.add_argument("--config", type=Path)
        file = head.parse_known_args(arguments)[0].config
        if file is not None:
            # What is typed comes later, and so overrides the file.
            arguments[at + 1 : at + 1] = words_of(file, chosen, arguments)
    parser = make_parser(chosen)
    options, unknown_words = parser.parse_known_args(arguments)
    if unknown_words:
        parser.prog += f" {options.job}"  # whose help has the options
        parser.error(f"unrecognized arguments: {' '.join(unknown_words)}")
    return options
