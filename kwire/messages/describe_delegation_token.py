"""DescribeDelegationToken (API key 41): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int16, Int32, Int64, String


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = field(String)
    principal_name: str = field(String)


@message(api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, kind="request", versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Asks for delegation tokens; null owners means all.

    Source: DescribeDelegationTokenRequest.json; KIP-48, KIP-373 (v3 requester).
    """

    owners: list[DescribeDelegationTokenOwner] | None = field(
        Array(DescribeDelegationTokenOwner), nullable="0+"
    )


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = field(String)
    principal_name: str = field(String)


@struct
class DescribedDelegationToken:
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, "3+")
    token_requester_principal_name: str = field(String, "3+")
    issue_timestamp: int = field(Int64)
    expiry_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    renewers: list[DescribedDelegationTokenRenewer] = field(Array(DescribedDelegationTokenRenewer))


@message(api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, kind="response", versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens. Source: DescribeDelegationTokenResponse.json."""

    error_code: int = field(Int16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(Int32)
