"""CreateAcls (API key 30): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@struct
class AclCreation:
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    resource_pattern_type: int = field(Int8, "1+", default=3)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@message(api_key=ApiKey.CREATE_ACLS, kind="request", versions="0-3", flexible="2+")
class CreateAclsRequest:
    """Adds ACLs.

    Source: CreateAclsRequest.json; KIP-140, KIP-290 (v1 pattern types).
    """

    creations: list[AclCreation] = field(Array(AclCreation))


@struct
class AclCreationResult:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@message(api_key=ApiKey.CREATE_ACLS, kind="response", versions="0-3", flexible="2+")
class CreateAclsResponse:
    """The outcome for each ACL. Source: CreateAclsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[AclCreationResult] = field(Array(AclCreationResult))
