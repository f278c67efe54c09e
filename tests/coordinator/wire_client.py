"""A client of one connection that sends any message in any version, and reads answers in order."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

from kwire.api import ApiKey, response_class
from kwire.codec import decode, encode
from kwire.header import RequestHeader, decode_response_header, encode_request_header
from kwire.schema import schema_of

T = TypeVar("T")


class WireClient:
    """One connection; `send` and `receive` apart for answers that come late."""

    def __init__(self, host: str, port: int, client_id: str = "client") -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.client_id = client_id
        self.waiting: list[tuple[int, int]] = []

    def send(self, request: Any, version: int) -> None:
        """Send a request."""
        key = schema_of(type(request)).api_key
        assert key is not None
        header = encode_request_header(RequestHeader(key, version, 7, self.client_id))
        frame = header + encode(request, version)
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        self.waiting.append((key, version))

    def receive(self) -> Any:
        """Read the answer to the oldest request that has none."""
        key, version = self.waiting.pop(0)
        frame = self.read(int.from_bytes(self.read(4), "big"))
        _, body = decode_response_header(frame, key, version)
        return decode(response_class(ApiKey(key)), frame, version, body)

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and read its answer."""
        self.send(request, version)
        return self.receive()

    def has_answer(self, within_s: float) -> bool:
        """Tell whether an answer begins to arrive in that time."""
        self.socket.settimeout(within_s)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(30)

    def read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("closed while an answer was due")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self.socket.close()
