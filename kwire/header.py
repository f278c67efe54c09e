"""The header before each request and response, and the version of the header for each message.

request header   int16 api_key · int16 api_version · int32 correlation_id
                 · string client_id (from v1; never compact) · tagged fields (v2)
response header  int32 correlation_id · tagged fields (v1)

A message in a flexible version has a header with tagged fields. Exceptions: ControlledShutdown v0
has request header v0; an ApiVersions response always has header v0, so that a client that does not
know the broker's version can read it.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode_prefix
from kwire.errors import BadVersion, Truncated, WireError
from kwire.messages import headers
from kwire.schema import schema_of
from kwire.varint import uvarint

_START = struct.Struct(">hhi")
_WITH_CLIENT_ID = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")

_first_flexible: dict[tuple[int, bool], int] = {}


class RequestHeader(NamedTuple):
    """The client that sent a request, and the request's format."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


#: `RequestHeader` from a tuple, without a call in Python, because every request has one.
_request_header = partial(tuple.__new__, RequestHeader)


def request_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before a request.

    Errors: BadVersion if there is no such API. An API version above the known ones is assumed to be flexible, so that
    the header of a newer ApiVersions can be read.
    """
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api_version >= _flexible_from(api_key, False) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before a response.

    Errors: BadVersion if there is no such API.
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version >= _flexible_from(api_key, True) else 0


#: The maximum memory of a request header: a client id, and tagged fields, which have no use.
MAX_HEADER_BYTES = 256 * 1024


def _flexible_from(api_key: int, response: bool) -> int:
    first = _first_flexible.get((api_key, response))
    if first is None:
        try:
            cls = response_class(api_key) if response else request_class(api_key)
        except KeyError:
            raise BadVersion(f"there is no API with key {api_key}") from None
        flexible = schema_of(cls).flexible
        first = flexible.lowest if flexible else 1 << 16
        _first_flexible[api_key, response] = first
    return first


def decode_request_header(buffer: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Read the header at the start of a request, and return it with the offset of the body.

    Errors: WireError; BadVersion if there is no such API.
    """
    try:
        api_key, api_version, correlation_id = _START.unpack_from(buffer)
    except struct.error:
        raise Truncated(
            f"{len(buffer)} bytes are too few for a request header", api="RequestHeader", offset=0
        ) from None
    first_flexible = _first_flexible.get((api_key, False))
    if first_flexible is None or api_version == 0:
        version = request_header_version(api_key, api_version)
        if version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None), 8
    else:
        version = 2 if api_version >= first_flexible else 1
    # Written by hand, because every request has one: a client id and rarely a tagged field.
    if len(buffer) > 10:
        size = _WITH_CLIENT_ID.unpack_from(buffer)[3]
        body = 10 + size if size > 0 else 10
        if size >= -1 and body + version - 1 <= len(buffer) and not (version == 2 and buffer[body]):
            try:
                client_id = None if size < 0 else str(buffer[10:body], "utf-8")
            except UnicodeDecodeError:
                pass  # The general decoder replaces invalid UTF-8.
            else:
                header = _request_header((api_key, api_version, correlation_id, client_id))
                return header, body + version - 1
    message, body = decode_prefix(headers.RequestHeader, buffer, version, 0, MAX_HEADER_BYTES)
    return RequestHeader(api_key, api_version, correlation_id, message.client_id), body


def encode_request_header(header: RequestHeader) -> bytes:
    """Write the header of a request."""
    version = request_header_version(header.api_key, header.api_version)
    start = _START.pack(header.api_key, header.api_version, header.correlation_id)
    if version == 0:
        return start
    if header.client_id is None:
        client_id = b"\xff\xff"
    else:
        text = header.client_id.encode()
        if len(text) > 32767:
            raise WireError(f"client id of {len(text)} bytes", api="RequestHeader")
        client_id = len(text).to_bytes(2, "big") + text
    return start + client_id + (b"\0" if version == 2 else b"")


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Write the header of a response."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + uvarint(0) if response_header_version(api_key, api_version) else header


def decode_response_header(
    buffer: bytes | memoryview, api_key: int, api_version: int
) -> tuple[int, int]:
    """Read the header at the start of a response; return its correlation id and the body's offset."""
    version = response_header_version(api_key, api_version)
    message, body = decode_prefix(headers.ResponseHeader, buffer, version)
    return message.correlation_id, body
