"""Connections to the brokers of a cluster, and the patience with one that has just been started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.server.client.answers import addresses_in
from kwire.server.client.requests import metadata_of
from kwire.server.client.wire import Wire, open_socket

from ..durations import Duration, to_ms
from ..real_time import time

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
Address = tuple[str, int]

#: The client id of the helpers. Rules do not see their requests, nor are they shown; see handlers.py.
HELPERS = "kwire-testing"
PATIENCE: Duration = "10s"
#: How often a condition is checked if no request shows that it may have changed.
LOOK_AGAIN_S = 0.02

# Versions that Apache Kafka 2.4 and later all serve.
API_VERSIONS, METADATA = 0, 9

#: A broker that has just been started, or a topic just made, may answer these for a moment.
TRANSIENT = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class KafkaError(Exception):
    """A broker answered with an error. Shape: `code` is Kafka's."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        super().__init__(f"{what}: {self.code.name}" + (f" ({message})" if message else ""))


class Connection(Wire):
    """One blocking connection to a broker, with TLS if `tls` is given. Errors: OSError."""

    CLOSED = "the broker has closed the connection of the test's helper"

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None = None, timeout_s: float = 30.0
    ) -> None:
        sock = open_socket(address, timeout_s)
        super().__init__(
            sock if tls is None else tls.wrap_socket(sock, server_hostname=address[0]), HELPERS
        )


class Client:
    """The helpers' connections to a cluster. Errors: KafkaError, ConnectionError, TimeoutError."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        self.bootstrap = [address_of(each) for each in bootstrap.split(",")]
        self._tls = tls
        self._connections: dict[Address, Connection] = {}
        self._apis: frozenset[int] | None = None

    def close(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    def leave(self) -> None:
        """Close only this process's copies of the connections."""
        for each in self._connections.values():
            each.leave()

    def forget(self, address: Address) -> None:
        """Close the connection to a broker that has been killed."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def ask(self, request: object, version: int, address: Address | None = None) -> Any:
        """Send a request to a broker, by default to any that answers."""
        failed: OSError | None = None
        for each in self.bootstrap if address is None else [address]:
            try:
                if each not in self._connections:
                    self._connections[each] = Connection(each, self._tls)
                return self._connections[each].ask(request, version)
            except BaseException as error:
                # Also when a signal's handler ends the wait, as pytest-timeout's does: the answer that still comes
                # must not be taken for that of the next request.
                if each in self._connections:
                    self._connections.pop(each).close()
                if not isinstance(error, OSError):
                    raise
                failed = error
        assert failed is not None
        raise failed

    def ask_controller(self, request: object, version: int) -> Any:
        """Send a request to the controller; one that has just been killed is named until there is another."""
        end = time.monotonic() + to_ms(PATIENCE) / 1000
        while True:
            try:
                return self.ask(request, version, self._controller())
            except ConnectionRefusedError:
                if time.monotonic() >= end:
                    raise
            time.sleep(LOOK_AGAIN_S)

    def controller_id(self) -> int:
        """The id of the controller; -1 if there is none."""
        return int(self.ask(metadata_of([]), METADATA).controller_id)

    def _controller(self) -> Address | None:
        answer = self.ask(metadata_of([]), METADATA)
        address: Address | None = addresses_in(answer).get(answer.controller_id)
        return address

    def patiently(self, look: Callable[[], T], timeout: Duration = PATIENCE) -> T:
        """Call until there is no transient error any more. Errors: the last one."""
        end = time.monotonic() + to_ms(timeout) / 1000
        while True:
            try:
                return look()
            except KafkaError as error:
                if error.code not in TRANSIENT or time.monotonic() >= end:
                    raise
            except ConnectionError:
                if time.monotonic() >= end:
                    raise
            time.sleep(LOOK_AGAIN_S)

    def serves(self, key: ApiKey) -> bool:
        """Whether the cluster answers an API."""
        if self._apis is None:
            answer = self.ask(ApiVersionsRequest(), API_VERSIONS)
            self._apis = frozenset(each.api_key for each in answer.api_keys)
        return key in self._apis


def address_of(text: str) -> Address:
    """Read HOST:PORT."""
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)
