"""Functions shared by the client commands: connecting, explaining errors, tables, progress."""

from __future__ import annotations

import os
import re
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ..arguments import fault_of, of_any_length, shown
from ..client.errors import ClientError
from ..client.properties import UsageError, client_arguments
from .property_files import read_properties

BOOTSTRAP = "localhost:9092"
#: How long other brokers may still list a broker that has died: until its session ends.
DEAD_BROKER_S = 30.0
#: The help of options whose meaning a command has in any case.
NO_EFFECT = "accepted for compatibility with Apache Kafka's tool; no effect"
#: The largest numbers of the protocol.
INT16, INT32, INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1


class CommandError(ClientError):
    """An error message for the user; the command ends with exit code 1."""


def add_bootstrap(parser: ArgumentParser, *properties: str) -> None:
    """Add the options for the cluster's address and client properties. Shape: `properties` are more names for -X."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        type=bootstrap_address,
        help=f"a broker to connect to first (default: $KWIRE_BOOTSTRAP, or else {BOOTSTRAP})",
    )
    parser.add_argument(
        "-X",
        "--command-property",
        *properties,
        metavar="KEY=VALUE",
        dest="properties",
        type=key_value,
        action="append",
        default=[],
        help="client property, such as security.protocol=SASL_SSL; repeatable",
    )
    parser.add_argument(
        "--command-config",
        "--consumer.config",
        "--producer.config",
        metavar="FILE",
        action="append",
        default=[],
        help="file with client properties, in particular passwords; repeatable",
    )


def arguments_of(options: Namespace) -> dict[str, Any]:
    """The arguments from the client properties, read once; sets `bootstrap` without an option. Errors: UsageError."""
    if "arguments" not in options:
        properties, idle = read_properties(options.command_config, options.properties)
        if idle:
            note(f"without effect here: {', '.join(idle)}")
        options.arguments = client_arguments(properties)
        if options.bootstrap is None:
            named = options.arguments.get("bootstrap_servers") or os.environ.get("KWIRE_BOOTSTRAP")
            try:
                options.bootstrap = bootstrap_address(named or BOOTSTRAP)
            except ArgumentTypeError as error:
                raise UsageError(f"bootstrap address: {error}") from None
    arguments: dict[str, Any] = options.arguments
    return arguments


#: The properties for connections, which every command uses.
CONNECTING = ("client_id", "security_protocol", "bootstrap_servers")


def tell_idle(arguments: Mapping[str, Any], used: Iterable[str]) -> None:
    """Report client properties that have no effect on a command. Shape: `used` are those that the command uses itself."""
    idle = [
        name.replace("_", ".")
        for name in arguments.keys() - {*used, *CONNECTING}
        if not name.startswith(("sasl_", "ssl_"))
    ]
    if idle:
        note(f"without effect here: {', '.join(sorted(idle))}")


def bootstrap_address(text: str) -> str:
    """Accept `HOST[:PORT]`, or several with commas. Errors: ArgumentTypeError."""
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:\[[^\[\]]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?\s*", part)
        if match is None or not 0 < int(match[1] or 1) < 65536:
            raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def whole_number(text: str) -> int:
    """Parse a number from 0 to the protocol's largest. Errors: ArgumentTypeError."""
    if not re.fullmatch("[0-9]+", text):
        raise ArgumentTypeError(f"{shown(text)} is not a number of 0 or more")
    if len(text) > len(str(INT64)) or int(text) > INT64:
        raise ArgumentTypeError(f"{shown(text)} is more than {INT64}")
    return int(text)


def id_number(text: str) -> int:
    """Parse the number of a partition or broker. Errors: ArgumentTypeError."""
    number = whole_number(text)
    if number > INT32:
        raise ArgumentTypeError(f"{text} is more than {INT32}")
    return number


def count_from(least: int, most: int) -> Callable[[str], int]:
    """A parser of numbers in a range. Its errors: ArgumentTypeError."""

    def parse(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{shown(text)} is not a number from {least} to {most}")
        return int(text)

    return parse


@of_any_length
def pair(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`, of any length. Errors: ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{shown(text)} is not KEY=VALUE")
    return key, value


@of_any_length
def key_value(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE` into two strings of the protocol. Errors: ArgumentTypeError, without the value."""
    key, value = pair(text)
    for what, word in ((shown(key), key), (f"the value of {shown(key)}", value)):
        if refused := fault_of(word):
            raise ArgumentTypeError(f"{what} {refused}")
    return key, value


def note(text: str) -> None:
    """Tell the user something that does not end the command."""
    print(f"kwire: {text}", file=sys.stderr)


class Terminated(KeyboardInterrupt):
    """SIGTERM: the command ends as after Ctrl-C, so that a consumer leaves its group."""

    exit_code = 128 + signal.SIGTERM


def terminate(*_: object) -> NoReturn:
    raise Terminated


class ProgressBar:
    """A progress bar on standard error, if that is a terminal; otherwise it does nothing.

    Shape: `shown` is false if the terminal already shows the command's input or output.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str,
        *,
        bytes_too: bool = False,
        shown: bool = True,
    ) -> None:
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                desc=label,
                total=total,
                unit=unit,
                unit_scale=bytes_too,
                file=sys.stderr,
                mininterval=0.2,
            )

    def advance(self, amount: int = 1) -> None:
        """Advance the bar."""
        if self._bar is not None:
            self._bar.update(amount)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
