"""SaslAuthenticate (API key 36): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bytes, Int16, Int64, String


@message(api_key=ApiKey.SASL_AUTHENTICATE, kind="request", versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """Carries one SASL message of the client.

    Source: SaslAuthenticateRequest.json; KIP-152, KIP-368 (v1 re-authentication).
    """

    auth_bytes: bytes = field(Bytes)


@message(api_key=ApiKey.SASL_AUTHENTICATE, kind="response", versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """Carries one SASL message of the broker. Source: SaslAuthenticateResponse.json."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, "1+", ignorable=True)
