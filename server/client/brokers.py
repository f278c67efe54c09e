"""Requests to the brokers of a cluster over blocking connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kwire.errors import ErrorCode, WireError

from .answers import coordinator_is_coming, errors_of, version_for
from .asking import Ask, Asking
from .contact import RETRY_S, connected, first_contact, no_note
from .errors import ClientError, ContactError, Unavailable, Unreached
from .requests import metadata_of
from .wire import Wire
from .words import TIMEOUT_S, reason

T = TypeVar("T")

PATIENCE_S = TIMEOUT_S


class Brokers:
    """The brokers of a cluster. Errors: Unavailable if no broker answers, ClientError if one refuses TLS or the login.

    Shape: `arguments` are those of `client_arguments`; `note` gets a line if the first contact takes long. Unit:
    `patience_s` is the time to wait for a first contact.
    """

    def __init__(
        self,
        bootstrap: str,
        arguments: Mapping[str, Any],
        *,
        note: Callable[[str], None] = no_note,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.note = note
        self._arguments = arguments
        self._bootstrap = bootstrap
        self._patience_s = patience_s
        self._first: Wire | None = first_contact(bootstrap, arguments, patience_s, note)
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
        self.take_nodes(self.ask(metadata_of([])))

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
        version = version_for(wire.versions, request, max_version, min_version)
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
        patience_s = 0.0 if self.nodes else self._patience_s
        try:
            self._first = first_contact(self._bootstrap, self._arguments, patience_s, self.note)
        except ClientError as error:
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
