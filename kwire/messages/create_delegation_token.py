"""CreateDelegationToken (API key 38): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers:
    principal_type: str = field(String)
    principal_name: str = field(String)


@message(api_key=ApiKey.CREATE_DELEGATION_TOKEN, kind="request", versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    """Asks for a delegation token.

    Source: CreateDelegationTokenRequest.json; KIP-48, KIP-373 (v3 owner).
    """

    owner_principal_type: str | None = field(String, "3+", nullable="3+")
    owner_principal_name: str | None = field(String, "3+", nullable="3+")
    renewers: list[CreatableRenewers] = field(Array(CreatableRenewers))
    max_lifetime_ms: int = field(Int64)


@message(api_key=ApiKey.CREATE_DELEGATION_TOKEN, kind="response", versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token and its times. Source: CreateDelegationTokenResponse.json."""

    error_code: int = field(Int16)
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, "3+")
    token_requester_principal_name: str = field(String, "3+")
    issue_timestamp_ms: int = field(Int64)
    expiry_timestamp_ms: int = field(Int64)
    max_timestamp_ms: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    throttle_time_ms: int = field(Int32)
