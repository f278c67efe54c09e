"""AlterUserScramCredentials (API key 51): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion:
    name: str = field(String)
    mechanism: int = field(Int8)


@struct
class ScramCredentialUpsertion:
    name: str = field(String)
    mechanism: int = field(Int8)
    iterations: int = field(Int32)
    salt: bytes = field(Bytes)
    salted_password: bytes = field(Bytes)


@message(api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, kind="request", versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Sets or removes SCRAM credentials of users.

    Source: AlterUserScramCredentialsRequest.json; KIP-554.
    """

    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult:
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@message(api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, kind="response", versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The outcome for each user. Source: AlterUserScramCredentialsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))
