"""Runs a command that asks brokers: errors in words, exit codes."""

from __future__ import annotations

import io
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from typing import Any

from ..client.brokers import Brokers
from ..client.errors import ClientError, Unavailable, Unreached, words_of
from ..client.properties import UsageError
from .client import DEAD_BROKER_S, CommandError, arguments_of, note, terminate

#: How an error message of Apache Kafka and kwire begins.
UNKNOWN_CONFIG = "Unknown topic config name: "


def said_by(error_code: int, message: str | None) -> str:
    """An error in words. For a topic config that a broker does not know, with the nearest known one."""
    said = words_of(error_code, message)
    unknown = said.partition(UNKNOWN_CONFIG)[2]
    if not unknown:
        return said
    from ..config.tables import TOPIC, nearest

    guess = nearest(unknown, TOPIC)
    return f"{said}; the nearest known one is {guess}" if guess else said


def check(error_code: int, message: str | None = None, about: str = "") -> None:
    """Errors: CommandError for an error code of a response."""
    if error_code:
        said = said_by(error_code, message)
        raise CommandError(f"{about}: {said}" if about else said)


def refusals(rows: Iterable[Any], name: str = "name") -> int:
    """Print the rows of a response that have an error; returns the exit code. Shape: `name` is the field that names a
    row.
    """
    from .output import printable

    code = 0
    for row in rows:
        error = row.error_code
        if error:
            said = said_by(error, getattr(row, "error_message", None))
            print(f"kwire: {printable(f'{getattr(row, name)}: {said}')}", file=sys.stderr)
            code = 1
    return code


def in_words(action: Callable[[], int]) -> int:
    """Run an action; a failure or refusal becomes one line and exit code 1, wrong usage 2."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return action()
    except UsageError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    except (ClientError, Unavailable) as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def with_brokers(command: Callable[[Brokers, Namespace], int], options: Namespace) -> int:
    """Run a command that uses brokers, with the error handling of `in_words`.

    Shape: if the command sent a request to a broker that has just died, it is run again. Commands print at the end, so
    nothing is printed twice.
    """
    return in_words(lambda: until_reached(command, options))


def until_reached(command: Callable[[Brokers, Namespace], int], options: Namespace) -> int:
    give_up = time.monotonic() + DEAD_BROKER_S
    while True:
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                return run_once(command, options)
        except Unreached:
            if time.monotonic() > give_up:
                raise
            printed = io.StringIO()
            time.sleep(0.1)
        finally:
            print(printed.getvalue(), end="")


def open_brokers(options: Namespace) -> Brokers:
    """The cluster that the options name. Errors: UsageError, CommandError."""
    arguments = arguments_of(options)
    return Brokers(options.bootstrap, arguments, note=note)


def run_once(command: Callable[[Brokers, Namespace], int], options: Namespace) -> int:
    brokers = open_brokers(options)
    try:
        return command(brokers, options)
    finally:
        brokers.close()
