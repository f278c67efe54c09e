"""A client that sends any request in any version and shows the answer as plain Python values."""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.api import ApiKey, request_class
from kwire.codec import encode
from kwire.schema import schema_of
from kwire.types import Array
from server.client.wire import Wire

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
        self._client = Wire.open((host, port), timeout_s, CLIENT_ID)
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
        self._request = self._client.send_body(api, version, [body])[4:]

    def receive(self, api: ApiKey, version: int) -> dict[str, Any] | None:
        """Return the answer to the last request; None if the broker closed the connection."""
        try:
            response = self._client.receive_frame()
        except ConnectionError:
            return None
        self.last = Exchange(self._request, bytes(response.frame))
        assert (response.api_key, response.api_version) == (api, version)
        return plain(response.message(), version)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
