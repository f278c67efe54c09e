"""DescribeAcls (API key 29), CreateAcls (30) and DeleteAcls (31).

Behavior: that of a broker without an authorizer: SECURITY_DISABLED, in one row for each creation
and filter. From this, applications know that ACLs are off, not out of reach: MirrorMaker 2 then
leaves them alone. A type, operation or permission of 0 (unknown) closes the connection.
Omitted: there is no authorizer, so there is nothing else to answer.
Source: AclApis; DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest (Java); KIP-140, KIP-290.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kwire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kwire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from . import refusals
from .authorization import AclOperation, cluster
from .context import NoReply, RequestContext
from .registry import handles

NO_AUTHORIZER = "No Authorizer is configured on the broker"
UNKNOWN = 0
CLOSED = NoReply("an ACL of unknown kind")


@handles(DescribeAclsRequest, versions="0-3", authorize=cluster(AclOperation.DESCRIBE))
def describe_acls(
    ctx: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse | NoReply:
    """Answer that there are no ACLs."""
    if _is_unknown(request):
        return CLOSED
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )


@handles(
    CreateAclsRequest,
    versions="0-3",
    authorize=cluster(AclOperation.ALTER),
    refusal=refusals.create_acls,
)
def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse | NoReply:
    """Refuse each ACL."""
    for row in request.creations:
        kinds = (row.resource_type, row.resource_pattern_type, row.operation, row.permission_type)
        if UNKNOWN in kinds:
            return CLOSED
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER}."
    )
    return CreateAclsResponse(results=[refused] * len(request.creations))


@handles(
    DeleteAclsRequest,
    versions="0-3",
    authorize=cluster(AclOperation.ALTER),
    refusal=refusals.delete_acls,
)
def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse | NoReply:
    """Refuse each filter."""
    if any(map(_is_unknown, request.filters)):
        return CLOSED
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER}.", matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _is_unknown(asked: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    return UNKNOWN in (
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.operation,
        asked.permission_type,
    )
