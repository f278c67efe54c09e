"""DescribeAcls (API key 29): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@message(api_key=ApiKey.DESCRIBE_ACLS, kind="request", versions="0-3", flexible="2+")
class DescribeAclsRequest:
    """Asks for the ACLs that match a filter.

    Source: DescribeAclsRequest.json; KIP-140, KIP-290 (v1 pattern types), KIP-373 (v3 user
    resources).
    """

    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, "1+", default=3)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@struct
class AclDescription:
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@struct
class DescribeAclsResource:
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, "1+", default=3)
    acls: list[AclDescription] = field(Array(AclDescription))


@message(api_key=ApiKey.DESCRIBE_ACLS, kind="response", versions="0-3", flexible="2+")
class DescribeAclsResponse:
    """The matching ACLs. Source: DescribeAclsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))
