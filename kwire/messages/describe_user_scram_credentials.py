"""DescribeUserScramCredentials (API key 50): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@struct
class UserName:
    name: str = field(String)


@message(
    api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, kind="request", versions="0", flexible="0+"
)
class DescribeUserScramCredentialsRequest:
    """Asks for the SCRAM credentials of users; null users means all.

    Source: DescribeUserScramCredentialsRequest.json; KIP-554.
    """

    users: list[UserName] | None = field(Array(UserName), nullable="0+")


@struct
class CredentialInfo:
    mechanism: int = field(Int8)
    iterations: int = field(Int32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


@message(
    api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, kind="response", versions="0", flexible="0+"
)
class DescribeUserScramCredentialsResponse:
    """Mechanism and iterations of each user's credentials.

    Source: DescribeUserScramCredentialsResponse.json.
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(
        Array(DescribeUserScramCredentialsResult)
    )
