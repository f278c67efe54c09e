"""A client on a blocking socket: messages in, messages out."""

from __future__ import annotations

import socket
from typing import Any

from kwire.connection import ClientConnection, ResponseReceived


class BlockingClient:
    """One connection; `send` and `receive` are separate for delayed answers."""

    def __init__(
        self, host: str, port: int, client_id: str = "client", timeout_s: float = 30.0
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = ClientConnection(client_id)

    def send(self, request: Any, version: int) -> None:
        """Send a request."""
        self.connection.request(request, version)
        self.flush()

    def flush(self) -> bytes:
        """Send the bytes that the connection has ready, and return them."""
        data = b"".join(self.connection.take_output())
        self.socket.sendall(data)
        return data

    def receive_response(self) -> ResponseReceived:
        """The answer to the oldest unanswered request, not decoded.

        Errors: ConnectionError if the broker closes first, TimeoutError.
        """
        while (response := self.connection.next_response()) is None:
            count = self.socket.recv_into(self.connection.get_buffer())
            if not count:
                raise ConnectionError("closed while an answer was due")
            self.connection.received(count)
        return response

    def receive(self) -> Any:
        """The answer to the oldest unanswered request."""
        return self.receive_response().message()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and read its answer."""
        self.send(request, version)
        return self.receive()

    def has_answer(self, within_s: float) -> bool:
        """Whether an answer begins to arrive within the time."""
        before = self.socket.gettimeout()
        self.socket.settimeout(within_s)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(before)

    def close(self) -> None:
        self.socket.close()
