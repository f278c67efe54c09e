"""Requests to the cluster over blocking connections, with kwire's own codec."""

from __future__ import annotations

import io
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from typing import Any, TypeVar

from kwire.api import ApiKey
from kwire.errors import ErrorCode, WireError
from kwire.messages.metadata import MetadataRequest
from kwire.schema import schema_of

from ..explain.asking import Ask, Asking, Unavailable, words_of
from .client import (
    BOOTSTRAP_TIMEOUT_MS,
    DEAD_BROKER_S,
    CommandError,
    arguments_of,
    connected,
    first_contact,
    terminate,
)
from .client_properties import UsageError
from .contact import ContactError, Wire, reason

T = TypeVar("T")

PATIENCE_S = BOOTSTRAP_TIMEOUT_MS / 1000
RETRY_S = 0.1
COMING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Brokers:
    """The brokers of a cluster. Errors: CommandError if no broker answers."""

    def __init__(self, bootstrap: str, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._bootstrap = bootstrap
        self._first: Wire | None = first_contact(bootstrap, arguments)
        self._wires: dict[int, Wire] = {}
        self.nodes: dict[int, Any] = {}
        """Brokers by id, from Metadata; empty until the first request for it."""
        self.controller = -1

    def close(self) -> None:
        """Close every connection."""
        for wire in (self._first, *self._wires.values()):
            if wire is not None:
                wire.close()

    def learn_nodes(self) -> None:
        """Request the list of brokers. Errors: Unavailable."""
        self.take_nodes(self.ask(MetadataRequest(topics=[])))

    def take_nodes(self, metadata: Any) -> None:
        """Store the list of brokers from a response to Metadata."""
        self.nodes = {row.node_id: row for row in metadata.brokers}
        self.controller = metadata.controller_id

    def ask(
        self,
        request: object,
        to: int | None = None,
        max_version: int = 100,
        *,
        min_version: int = 0,
    ) -> Any:
        """The response of a broker, or of any broker if `to` is None. Errors: Unavailable.

        Shape: if the coordinator is not available yet, as after the first request about any group, this waits for it.
        """
        give_up = time.monotonic() + PATIENCE_S
        while True:
            response = self._ask(request, to, min_version, max_version)
            if not coordinator_is_coming(response) or time.monotonic() > give_up:
                return response
            time.sleep(RETRY_S)

    def _ask(self, request: object, to: int | None, min_version: int, max_version: int) -> Any:
        wire = self.wire(to)
        version = version_for(wire, request, max_version, min_version)
        try:
            return wire.ask(request, version)
        except (OSError, WireError) as error:
            self._drop(wire)
            raise Unavailable(f"{self.place(to)}: {reason(error)}") from None

    def _drop(self, wire: Wire) -> None:
        wire.close()
        if wire is self._first:
            self._first = None
        self._wires = {node: kept for node, kept in self._wires.items() if kept is not wire}

    def ask_controller(
        self, request: object, max_version: int = 100, *, timeout_s: float = PATIENCE_S
    ) -> Any:
        """The response of the controller, even if another broker has just become the controller. Errors: Unavailable.

        Unit: `timeout_s` is the time that the controller may take.
        """
        give_up = time.monotonic() + PATIENCE_S
        while True:
            self.learn_nodes()
            to = self.controller if self.controller in self.nodes else None
            self.wire(to).sock.settimeout(timeout_s)
            response = self.ask(request, to, max_version)
            has_moved = ErrorCode.NOT_CONTROLLER in errors_of(response)
            if not has_moved or time.monotonic() > give_up:
                return response
            time.sleep(RETRY_S)

    def run(self, asking: Asking[T]) -> T:
        """Run a generator that yields requests. Errors: Unavailable, if the generator does not handle it."""
        try:
            ask = next(asking)
            while True:
                ask = self._step(asking, ask)
        except StopIteration as end:
            result: T = end.value
            return result

    def _step(self, asking: Asking[Any], ask: Ask) -> Ask:
        try:
            response = self.ask(ask.request, ask.to, ask.max_version)
        except Unavailable as error:
            return asking.throw(error)
        return asking.send(response)

    def wire(self, node: int | None) -> Wire:
        """The connection to a broker. Errors: Unavailable."""
        if node is None:
            return self._first or self._any_wire()
        if node not in self._wires:
            self._wires[node] = self.connect(node)
        return self._wires[node]

    def _any_wire(self) -> Wire:
        """A connection to a known broker, since the first one is lost. Errors: Unavailable."""
        for node in self.nodes:
            try:
                return self.wire(node)
            except Unavailable:
                continue
        # Other clients may depend on this one, so it does not wait here once it knows the cluster.
        patience = 0.0 if self.nodes else PATIENCE_S
        try:
            self._first = first_contact(self._bootstrap, self._arguments, patience)
        except CommandError as error:
            raise Unavailable(str(error)) from None
        return self._first

    def connect(self, node: int) -> Wire:
        """A new connection to a broker, for the caller to close. Errors: Unavailable."""
        if node not in self.nodes:
            self.learn_nodes()
        if node not in self.nodes:
            raise Unavailable(f"broker {node} is not in the cluster")
        row = self.nodes[node]
        try:
            return connected(row.host, row.port, self._arguments, PATIENCE_S)
        except ConnectionRefusedError as error:
            raise Unreached(f"{self.place(node)}: {reason(error)}") from None
        except (OSError, ContactError) as error:
            said = error if isinstance(error, ContactError) else reason(error)
            raise Unavailable(f"{self.place(node)}: {said}") from None

    def forget(self, node: int) -> None:
        """Close the connection to a broker, so that the next request opens a new one."""
        wire = self._wires.pop(node, None)
        if wire is not None:
            wire.close()

    def place(self, node: int | None) -> str:
        """A broker in words."""
        if node is None:
            return "the broker"
        row = self.nodes.get(node)
        return f"broker {node}" + ("" if row is None else f" ({row.host}:{row.port})")


def errors_of(response: Any) -> list[int]:
    """The error codes of a response, of its first rows, and of the partitions of the first row."""
    found = [response]
    for name in ("groups", "results", "responses", "transaction_states", "topics"):
        rows = getattr(response, name, None)
        if rows:
            found += [*rows, *(getattr(rows[0], "partitions", None) or ())]
            break
    return [getattr(row, "error_code", 0) for row in found]


def coordinator_is_coming(response: Any) -> bool:
    """Whether a response, or one of its rows, says that a coordinator will be available soon."""
    return any(error in COMING for error in errors_of(response))


def version_for(wire: Wire, request: object, max_version: int, min_version: int = 0) -> int:
    """The highest version of a request that both sides know. Errors: Unavailable, also if that version is too low."""
    schema = schema_of(type(request))
    key = schema.api_key
    assert key is not None
    lowest, highest = wire.versions.get(key, (0, -1))
    version = min(highest, schema.versions.highest, max_version)
    if version < max(lowest, schema.versions.lowest, min_version):
        name = ApiKey(key).name.title().replace("_", "")
        raise Unavailable(f"the broker does not serve {name} as this command needs it")
    return version


def check(error_code: int, message: str | None = None, about: str = "") -> None:
    """Errors: CommandError for an error code of a response."""
    if error_code:
        said = words_of(error_code, message)
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
            said = words_of(error, getattr(row, "error_message", None))
            print(f"kwire: {printable(f'{getattr(row, name)}: {said}')}", file=sys.stderr)
            code = 1
    return code


class Unreached(Unavailable):
    """A broker refuses connections, so nothing was sent to it: it has died, and the others do not know that yet."""


def in_words(action: Callable[[], int]) -> int:
    """Run an action; a failure or refusal becomes one line and exit code 1, wrong usage 2."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return action()
    except UsageError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    except (CommandError, Unavailable) as error:
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
    return Brokers(options.bootstrap, arguments)


def run_once(command: Callable[[Brokers, Namespace], int], options: Namespace) -> int:
    brokers = open_brokers(options)
    try:
        return command(brokers, options)
    finally:
        brokers.close()
