"""Functions shared by the client commands: connecting, explaining errors, tables, progress."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ..arguments import fault_of, of_any_length, shown
from .client_properties import UsageError, client_arguments, read_properties
from .contact import CommandError as CommandError
from .contact import ContactError, Wire, make_contact

BOOTSTRAP = "localhost:9092"
BOOTSTRAP_TIMEOUT_MS = 10_000
#: How long other brokers may still list a broker that has died: until its session ends.
DEAD_BROKER_S = 30.0
#: The help of options whose meaning a command has in any case.
NO_EFFECT = "accepted for compatibility with Apache Kafka's tool; no effect"
#: The largest numbers of the protocol.
INT16, INT32, INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1


def no_partition(topic: str, partition: int, count: int) -> CommandError:
    """The error for a nonexistent partition. Shape: the topic's partitions are 0 to `count` - 1."""
    there = "its only partition is 0" if count == 1 else f"its partitions are 0 to {count - 1}"
    return CommandError(f"{topic}: no partition {partition}; {there}")


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
            print(f"kwire: without effect here: {', '.join(idle)}", file=sys.stderr)
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
        print(f"kwire: without effect here: {', '.join(sorted(idle))}", file=sys.stderr)


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


def first_contact(
    bootstrap: str,
    arguments: Mapping[str, Any],
    patience: float = BOOTSTRAP_TIMEOUT_MS / 1000,
) -> Wire:
    """A connection to the first address that accepts it and a login; prints a note if that takes long.

    Shape: `arguments` are those of `client_arguments`. Errors: CommandError with the last reason.
    """
    begun = time.monotonic()
    told = False
    while True:
        for part in bootstrap.split(","):
            match = re.fullmatch(r"\[?([^\[\]]+?)\]?(?::([0-9]+))?", part.strip())
            assert match is not None
            host, port = match[1], match[2] or "9092"
            try:
                return connected(host, int(port), arguments, BOOTSTRAP_TIMEOUT_MS / 1000)
            except ContactError as error:
                raise CommandError(f"{part.strip()}: {error}") from None
            except OSError as error:
                reason = error
        waited = time.monotonic() - begun
        where = bootstrap if {":", ","} & set(bootstrap) else f"{bootstrap}:9092"
        said = f"{where}: {reason.strerror or reason}"
        if waited >= patience or isinstance(reason, socket.gaierror):
            raise CommandError(said)
        if waited >= 1 and not told:
            print(f"kwire: {said}; trying for {patience:.0f} seconds", file=sys.stderr)
            told = True
        time.sleep(0.1)


def connected(host: str, port: int, arguments: Mapping[str, Any], patience: float) -> Wire:
    """A connection to a broker, after the login. Errors: OSError, ContactError."""
    try:
        sock = socket.create_connection((host, port), timeout=patience)
    except ValueError:  # also of the codec for names outside ASCII
        raise ContactError(f"{shown(host)} is not the name of a host") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return make_contact(sock, host, arguments)
    except BaseException:
        sock.close()
        raise


class Terminated(KeyboardInterrupt):
    """SIGTERM: the command ends as after Ctrl-C, so that a consumer leaves its group."""

    exit_code = 128 + signal.SIGTERM


def terminate(*_: object) -> NoReturn:
    raise Terminated


class Progress:
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

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
