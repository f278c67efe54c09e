"""SaslHandshake (API key 17): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Array, Int16, String


@message(api_key=ApiKey.SASL_HANDSHAKE, kind="request", versions="0-1")
class SaslHandshakeRequest:
    """Names the SASL mechanism that the client requests.

    Source: SaslHandshakeRequest.json; KIP-43, KIP-152 (v1 SaslAuthenticate follows).
    """

    mechanism: str = field(String)


@message(api_key=ApiKey.SASL_HANDSHAKE, kind="response", versions="0-1")
class SaslHandshakeResponse:
    """The mechanisms that the broker offers. Source: SaslHandshakeResponse.json."""

    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))
