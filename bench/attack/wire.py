"""Requests as bytes, and answers that are read but decoded only on request."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode, encode
from kwire.schema import schema_of
from server.client.wire import open_socket
from tests.support.wire_client import build, plain

#: The size of a read, when an answer is only counted.
CHUNK = 1 << 20


def body_of(api: ApiKey, version: int, **values: Any) -> bytes:
    """The body of a request made from nested dicts and lists."""
    return encode(build(request_class(api), values, version), version)


def frame(api: ApiKey, version: int, body: bytes, client_id: bytes = b"attack") -> bytes:
    """A whole frame."""
    header = struct.pack(">hhih", api, version, 1, len(client_id)) + client_id
    if version in schema_of(request_class(api)).flexible:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


class Wire:
    """One connection. Errors: OSError; ConnectionError if the broker closes it."""

    def __init__(self, port: int, timeout_s: float = 120.0) -> None:
        self.socket = open_socket(("127.0.0.1", port), timeout_s)

    def send(self, api: ApiKey, version: int, body: bytes) -> None:
        self.socket.sendall(frame(api, version, body))

    def answer_size(self) -> int:
        """Read an answer and return its size in bytes."""
        size = left = struct.unpack(">i", self._exactly(4))[0]
        while left:
            part = self.socket.recv(min(left, CHUNK))
            if not part:
                raise ConnectionError("closed")
            left -= len(part)
        return int(size)

    def call(self, api: ApiKey, version: int, **values: Any) -> dict[str, Any]:
        """Send a request and return its answer as dicts and lists."""
        self.send(api, version, body_of(api, version, **values))
        return self.receive(api, version)

    def receive(self, api: ApiKey, version: int) -> dict[str, Any]:
        data = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        cls = response_class(api)
        # ApiVersions is answered with the old header in all versions.
        flexible = version in schema_of(cls).flexible and api is not ApiKey.API_VERSIONS
        return plain(decode(cls, data[5 if flexible else 4 :], version), version)

    def pipeline(self, frames: Sequence[bytes], window: int = 50) -> None:
        """Send many requests and read their answers, with a limited number in flight."""
        for begin in range(0, len(frames), window):
            some = frames[begin : begin + window]
            self.socket.sendall(b"".join(some))
            for _ in some:
                self.answer_size()

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), CHUNK))
            if not part:
                raise ConnectionError("closed")
            data += part
        return bytes(data)


def errors_in(answer: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        found = {v for k, v in answer.items() if k.endswith("error_code") and isinstance(v, int)}
        return found.union(*map(errors_in, answer.values()))
    if isinstance(answer, list):
        return set(itertools.chain.from_iterable(map(errors_in, answer)))
    return set()
