"""RenewDelegationToken (API key 39): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bytes, Int16, Int32, Int64


@message(api_key=ApiKey.RENEW_DELEGATION_TOKEN, kind="request", versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Extends the life of a delegation token.

    Source: RenewDelegationTokenRequest.json; KIP-48.
    """

    hmac: bytes = field(Bytes)
    renew_period_ms: int = field(Int64)


@message(api_key=ApiKey.RENEW_DELEGATION_TOKEN, kind="response", versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The new expiry time. Source: RenewDelegationTokenResponse.json."""

    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32)
