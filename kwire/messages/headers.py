"""The headers before each request and response."""

from __future__ import annotations

from kwire.schema import field, message
from kwire.types import Int16, Int32, String


@message(kind="header", versions="0-2", flexible="2+")
class RequestHeader:
    """The header before every request.

    Shape: only ControlledShutdown used v0; v2 adds tagged fields, but client_id is unchanged.
    Source: RequestHeader.json.
    """

    request_api_key: int = field(Int16)
    request_api_version: int = field(Int16)
    correlation_id: int = field(Int32)
    client_id: str | None = field(String, "1+", nullable="1+", flexible="none")


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader:
    """The header before every response; v1 adds tagged fields. Source: ResponseHeader.json."""

    correlation_id: int = field(Int32)
