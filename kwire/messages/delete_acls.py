"""DeleteAcls (API key 31): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@struct
class DeleteAclsFilter:
    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, "1+", default=3)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@message(api_key=ApiKey.DELETE_ACLS, kind="request", versions="0-3", flexible="2+")
class DeleteAclsRequest:
    """Removes the ACLs that match filters.

    Source: DeleteAclsRequest.json; KIP-140, KIP-290 (v1 pattern types).
    """

    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, "1+", default=3)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@struct
class DeleteAclsFilterResult:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl))


@message(api_key=ApiKey.DELETE_ACLS, kind="response", versions="0-3", flexible="2+")
class DeleteAclsResponse:
    """The ACLs that each filter removed. Source: DeleteAclsResponse.json."""

    throttle_time_ms: int = field(Int32)
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult))
