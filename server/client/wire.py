"""One connection to a broker, on a blocking socket."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

from kwire.connection import ClientConnection, ResponseReceived
from kwire.errors import EncodeError, WireError
from kwire.messages.api_versions import ApiVersionsRequest

from ..clock import time
from .answers import versions_in
from .errors import ClientError, NoWholeAnswer

#: The end of a response that comes in small pieces, for ever; the `request.timeout.ms` of Apache Kafka's clients.
WHOLE_S = 30.0
CLIENT_ID = "kwire-cli"


def open_socket(address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connected socket. Errors: OSError; ValueError for a name that no host can have."""
    sock = socket.create_connection(address, timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class ConnectionEnded(ConnectionResetError):
    """The broker has closed the connection."""


class Wire:
    """Requests and their responses; `send` and `receive` are the halves of `ask`, for several requests in flight."""

    #: What is said of a connection that the broker has closed.
    CLOSED = "the broker has closed the connection"

    def __init__(self, sock: socket.socket, client_id: str | None = CLIENT_ID) -> None:
        self.sock = sock
        self.versions: dict[int, tuple[int, int]] = {}
        """The versions that the broker serves, by API key."""
        self.connection = ClientConnection(client_id)
        """The protocol: turns messages into bytes and back, and knows nothing of the socket."""

    @classmethod
    def open(
        cls, address: tuple[str, int], timeout_s: float = 30.0, client_id: str | None = CLIENT_ID
    ) -> Self:
        """A new connection without TLS. Errors: OSError."""
        return cls(open_socket(address, timeout_s), client_id)

    def learn_versions(self) -> None:
        """Request the versions that the broker serves. Errors: OSError, WireError."""
        self.versions = versions_in(self.ask(ApiVersionsRequest(), 0))

    def close(self) -> None:
        """Close the connection, also while another thread waits for an answer there: that is a ConnectionError."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def leave(self) -> None:
        """Close only this process's copy of the socket."""
        self.sock.close()

    def ask(self, request: object, version: int) -> Any:
        """Send a request and return the response. Errors: OSError, WireError."""
        self.send(request, version)
        return self.receive()

    def send(self, request: object, version: int, *, answered: bool = True) -> None:
        """Send a request. Errors: OSError; ClientError for a value that cannot be sent to any broker."""
        try:
            self.connection.request(request, version, answered=answered)
        except EncodeError as error:
            raise ClientError(f"cannot be sent: {error}") from None
        self._flush()

    def send_body(
        self, api_key: int, version: int, body: Sequence[Any], *, answered: bool = True
    ) -> bytes:
        """Send a request whose body is already encoded, and return its bytes. Errors: OSError."""
        self.connection.request_of(api_key, version, body, answered)
        return self._flush()

    def _flush(self) -> bytes:
        data = b"".join(self.connection.take_output())
        self.sock.sendall(data)
        return data

    def receive(self) -> Any:
        """The response to the oldest unanswered request. Errors: OSError, also for one that never ends; WireError."""
        return self.receive_frame().message()

    def receive_frame(self) -> ResponseReceived:
        """The same, not decoded."""
        whole_s = max(WHOLE_S, self.sock.gettimeout() or 0)
        until = time.monotonic() + whole_s
        while (response := self.connection.next_response()) is None:
            self.read_some()
            if time.monotonic() > until:
                raise NoWholeAnswer(f"no whole answer within {whole_s:.0f} seconds")
        return response

    def read_some(self) -> None:
        """Wait for bytes, and take them. Errors: OSError, among them ConnectionEnded."""
        with self.connection.get_buffer() as buffer:
            count = self.sock.recv_into(buffer)
        if not count:
            raise ConnectionEnded(self.CLOSED)
        self.connection.received(count)

    def can(self, request: object, version: int) -> bool:
        """Whether the broker answers a request, instead of closing the connection."""
        try:
            self.ask(request, version)
        except (OSError, WireError):
            return False
        return True
