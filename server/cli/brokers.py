"""The cluster, asked over blocking connections with kwire's own codec.

For commands that need more of the protocol than kafka-python's admin client gives, and start faster without it.
"""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kwire.api import ApiKey
from kwire.errors import ErrorCode, WireError
from kwire.messages.metadata import MetadataRequest
from kwire.schema import schema_of

from ..explain.live import Ask, Asking, Unavailable, words_of
from .client import (
    BOOTSTRAP_TIMEOUT_MS,
    NOT_AUTHORIZED,
    CommandError,
    arguments_of,
    connected,
    first_contact,
    terminate,
)
from .client_properties import UsageError
from .contact import ContactError, Wire, reason

T = TypeVar("T")

#: Errors that a cluster has for a moment, while leaders or coordinators move.
PATIENCE_S = BOOTSTRAP_TIMEOUT_MS / 1000


class Brokers:
    """The brokers of a cluster. Errors: CommandError where nobody at all answers."""

    def __init__(self, bootstrap: str, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._first = first_contact(bootstrap, arguments)
        self._wires: dict[int, Wire] = {}
        self.nodes: dict[int, Any] = {}
        """Brokers by id, as Metadata has them; empty until that was asked for."""
        self.controller = -1

    def close(self) -> None:
        """Close every connection."""
        for wire in (self._first, *self._wires.values()):
            wire.close()

    def learn_nodes(self) -> None:
        """Ask who is in the cluster. Errors: Unavailable."""
        response = self.ask(MetadataRequest(topics=[]))
        self.nodes = {row.node_id: row for row in response.brokers}
        self.controller = response.controller_id

    def ask(self, request: object, to: int | None = None, max_version: int = 100) -> Any:
        """The response of a broker, or of any if `to` is None. Errors: Unavailable."""
        wire = self.wire(to)
        version = version_for(wire, request, max_version)
        try:
            return wire.ask(request, version)
        except (OSError, WireError) as error:
            raise Unavailable(f"{self.place(to)}: {reason(error)}") from None

    def ask_controller(self, request: object, max_version: int = 100) -> Any:
        """The response of the controller. Errors: Unavailable."""
        if not self.nodes:
            self.learn_nodes()
        to = self.controller if self.controller in self.nodes else None
        return self.ask(request, to, max_version)

    def run(self, asking: Asking[T]) -> T:
        """Run a generator that asks brokers. Errors: Unavailable, if it does not deal with that."""
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
            return self._first
        if node not in self._wires:
            if node not in self.nodes:
                self.learn_nodes()
            if node not in self.nodes:
                raise Unavailable(f"broker {node} is not in the cluster")
            row = self.nodes[node]
            try:
                self._wires[node] = connected(row.host, row.port, self._arguments, PATIENCE_S)
            except (OSError, ContactError) as error:
                said = error if isinstance(error, ContactError) else reason(error)
                raise Unavailable(f"{self.place(node)}: {said}") from None
        return self._wires[node]

    def place(self, node: int | None) -> str:
        """A broker in words."""
        if node is None:
            return "the broker"
        row = self.nodes.get(node)
        return f"broker {node}" + ("" if row is None else f" ({row.host}:{row.port})")


def version_for(wire: Wire, request: object, max_version: int) -> int:
    """The highest version of a request that both sides know. Errors: Unavailable."""
    schema = schema_of(type(request))
    key = schema.api_key
    assert key is not None
    lowest, highest = wire.versions.get(key, (0, -1))
    version = min(highest, schema.versions.highest, max_version)
    if version < max(lowest, schema.versions.lowest):
        name = ApiKey(key).name.title().replace("_", "")
        raise Unavailable(f"the broker does not serve {name} as this command needs it")
    return version


def check(error_code: int, message: str | None = None, about: str = "") -> None:
    """Errors: CommandError for an error code of a response."""
    if error_code:
        said = message or NOT_AUTHORIZED.get(error_code) or words_of(error_code)
        raise CommandError(f"{about}: {said}" if about else said)


def is_error(error_code: int, *errors: ErrorCode) -> bool:
    """Whether an error code is one of these."""
    return error_code in errors


def with_brokers(command: Callable[[Brokers, Namespace], int], options: Namespace) -> int:
    """Run a command that asks brokers; a failure or refusal becomes one line and exit code 1, wrong use 2."""
    before = signal.signal(signal.SIGTERM, terminate)
    brokers = None
    try:
        brokers = Brokers(options.bootstrap, arguments_of(options))
        return command(brokers, options)
    except UsageError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    except (CommandError, Unavailable) as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    finally:
        if brokers is not None:
            brokers.close()
        signal.signal(signal.SIGTERM, before)
