"""A client that sends any request in any version and shows the answer as plain Python values."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode, encode
from kwire.header import RequestHeader, decode_response_header, encode_request_header
from kwire.schema import schema_of
from kwire.types import Array

CLIENT_ID = "differential"


def build(cls: type, values: dict[str, Any], version: int) -> Any:
    """Return a message made of nested dicts and lists.

    Shape: fields that the version does not have are left out, so that one description serves all
    versions. Errors: KeyError names a field that no version has.
    """
    fields = {declared.name: declared for declared in schema_of(cls).fields}
    unknown = values.keys() - fields.keys()
    if unknown:
        raise KeyError(f"{cls.__name__} has no {sorted(unknown)}")
    arguments = {}
    for name, value in values.items():
        declared = fields[name]
        if version not in declared.versions:
            continue
        kind = declared.type.element if isinstance(declared.type, Array) else declared.type
        if isinstance(kind, type) and value is not None:
            if isinstance(value, list):
                value = [build(kind, one, version) for one in value]
            else:
                value = build(kind, value, version)
        arguments[name] = value
    return cls(**arguments)


def plain(message: Any, version: int) -> dict[str, Any]:
    """Return a message as nested dicts and lists of the fields that its version has."""
    values: dict[str, Any] = {}
    for declared in schema_of(type(message)).fields:
        if version in declared.versions:
            values[declared.name] = _plain_value(getattr(message, declared.name), version)
    if message.unknown_tags:
        values["unknown_tags"] = message.unknown_tags
    return values


def _plain_value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_plain_value(one, version) for one in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return plain(value, version) if hasattr(value, "unknown_tags") else value


class Exchange(NamedTuple):
    """One request and its answer as they were on the wire, without the length in front."""

    request: bytes
    response: bytes


class WireClient:
    """One connection to a broker."""

    def __init__(self, host: str, port: int, timeout_s: float = 8.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation_id = 0
        self.last: Exchange | None = None

    def call(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request and return the answer; None when the broker closed the connection.

        Errors: TimeoutError when nothing comes.
        """
        return self.call_bytes(
            api, version, encode(build(request_class(api), values, version), version)
        )

    def call_bytes(self, api: ApiKey, version: int, body: bytes) -> dict[str, Any] | None:
        """Send a request whose body is given as bytes."""
        self.send(api, version, body)
        return self.receive(api, version)

    def send(self, api: ApiKey, version: int, body: bytes) -> None:
        """Send a request and do not wait."""
        self._correlation_id += 1
        header = encode_request_header(RequestHeader(api, version, self._correlation_id, CLIENT_ID))
        self._request = header + body
        self._socket.sendall(struct.pack(">i", len(self._request)) + self._request)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self, api: ApiKey, version: int) -> dict[str, Any] | None:
        """Return the answer to the last request; None when the broker closed the connection."""
        frame = self._frame()
        if frame is None:
            return None
        self.last = Exchange(self._request, frame)
        correlation_id, offset = decode_response_header(frame, api, version)
        assert correlation_id == self._correlation_id
        return plain(decode(response_class(api), frame, version, offset), version)

    def _frame(self) -> bytes | None:
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
