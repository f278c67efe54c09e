"""Envelope (API key 58): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bytes, Int16


@message(api_key=ApiKey.ENVELOPE, kind="request", versions="0", flexible="0+")
class EnvelopeRequest:
    """Forwards a client's request to the controller.

    Source: EnvelopeRequest.json; KIP-590.
    """

    request_data: bytes = field(Bytes)
    request_principal: bytes | None = field(Bytes, nullable="0+")
    client_host_address: bytes = field(Bytes)


@message(api_key=ApiKey.ENVELOPE, kind="response", versions="0", flexible="0+")
class EnvelopeResponse:
    """The controller's answer to the forwarded request. Source: EnvelopeResponse.json."""

    response_data: bytes | None = field(Bytes, nullable="0+", default=None)
    error_code: int = field(Int16)
