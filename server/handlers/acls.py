"""DescribeAcls (API key 29), CreateAcls (30) and DeleteAcls (31).

Behavior: that of `security/acl_authorizer.py` with the ACLs of the coordination store. Without an
authorizer each creation and filter gets SECURITY_DISABLED: from this, applications know that ACLs are
off, not out of reach (MirrorMaker 2 then leaves them alone). Code 0 (UNKNOWN) as a type, operation or
permission closes the connection, as it does in Apache Kafka. A code that names nothing is UNKNOWN too,
but does not close it: such a filter matches no ACL, and such a creation is INVALID_REQUEST.
Versions: 0-3: v1 pattern types (KIP-290), v3 users as resources (KIP-373). Version 0 cannot show
prefixed patterns, and answers UNSUPPORTED_VERSION if it had to.
Source: AclApis; DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest (Java); KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

from kwire.errors import ErrorCode
from kwire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kwire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kwire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from ..security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    InvalidAcl,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_new,
)
from ..turns import Steps, each_in_steps
from .authorization import cluster
from .context import Later, NoReply, RequestContext
from .registry import handles

NO_AUTHORIZER = "No Authorizer is configured on the broker"
LITERAL_ONLY = "Version 0 only supports literal resource pattern types"
CLOSED = NoReply("an ACL of unknown kind")

E = TypeVar("E", bound=IntEnum)


class UnknownKind(Exception):
    """Code 0 as a type, operation or permission."""


@handles(DescribeAclsRequest, versions="0-3", authorize=cluster(AclOperation.DESCRIBE))
def describe_acls(
    ctx: RequestContext, request: DescribeAclsRequest
) -> Steps[DescribeAclsResponse | NoReply]:
    """Answer with the ACLs that match, by pattern."""
    try:
        wanted = filter_of(request)
    except UnknownKind:
        return CLOSED
    acls = ctx.services.acls
    if acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
        )
    resources: dict[ResourcePattern, list[AclDescription]] = {}
    for pattern, entry in (yield from acls.matching(wanted)):
        yield
        row = AclDescription(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        resources.setdefault(pattern, []).append(row)
    if ctx.version == 0 and has_prefixed(resources):
        return DescribeAclsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=LITERAL_ONLY, resources=[]
        )
    described = yield from each_in_steps(lambda row: resource(*row), resources.items())
    return DescribeAclsResponse(error_message=None, resources=described)


def resource(pattern: ResourcePattern, acls: list[AclDescription]) -> DescribeAclsResource:
    """The rows of a pattern."""
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=acls,
    )


@handles(
    CreateAclsRequest,
    versions="0-3",
    authorize=cluster(AclOperation.ALTER),
)
def create_acls(
    ctx: RequestContext, request: CreateAclsRequest
) -> Steps[CreateAclsResponse | Later[CreateAclsResponse] | NoReply]:
    """Add the ACLs that are valid; the answer waits until they are stored and apply here."""
    try:
        bindings = yield from each_in_steps(binding_of, request.creations)
    except UnknownKind:
        return CLOSED
    acls = ctx.services.acls
    if acls is None:
        row = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER}."
        )
        return CreateAclsResponse(results=[row] * len(request.creations))
    results: list[AclCreationResult] = []
    valid: list[AclBinding] = []
    for binding in bindings:
        yield
        try:
            check_new(binding)
        except InvalidAcl as error:
            results.append(
                AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
            )
        else:
            valid.append(binding)
            results.append(AclCreationResult(error_message=None))
    response = CreateAclsResponse(results=results)
    return ctx.later(acls.create(valid), lambda _: response) if valid else response


@handles(
    DeleteAclsRequest,
    versions="0-3",
    authorize=cluster(AclOperation.ALTER),
)
def delete_acls(
    ctx: RequestContext, request: DeleteAclsRequest
) -> Steps[DeleteAclsResponse | Later[DeleteAclsResponse] | NoReply]:
    """Remove the ACLs that match; each is listed with the first filter that matches it."""
    try:
        filters = yield from each_in_steps(filter_of, request.filters)
    except UnknownKind:
        return CLOSED
    acls = ctx.services.acls
    if acls is None:
        row = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message=f"{NO_AUTHORIZER}.",
            matching_acls=[],
        )
        return DeleteAclsResponse(filter_results=[row] * len(request.filters))
    version = ctx.version
    return ctx.later(acls.delete(filters), lambda deleted: deletions(deleted, version))


def deletions(deleted: Sequence[Sequence[AclBinding]], version: int) -> Steps[DeleteAclsResponse]:
    """One row for each filter, in steps."""
    rows = []
    for bindings in deleted:
        yield
        if version == 0 and has_prefixed(binding.pattern for binding in bindings):
            row = DeleteAclsFilterResult(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=LITERAL_ONLY,
                matching_acls=[],
            )
        else:
            found = yield from each_in_steps(deletion, bindings)
            row = DeleteAclsFilterResult(error_message=None, matching_acls=found)
        rows.append(row)
    return DeleteAclsResponse(filter_results=rows)


def deletion(binding: AclBinding) -> DeleteAclsMatchingAcl:
    """The row of an ACL that was deleted."""
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def has_prefixed(patterns: Iterable[ResourcePattern]) -> bool:
    """Whether any of the patterns cannot be shown in version 0."""
    return any(pattern.pattern_type is not PatternType.LITERAL for pattern in patterns)


def known(kind: type[E], code: int) -> E:
    """The member of a code, UNKNOWN for a code that has none. Errors: UnknownKind (code 0)."""
    if code == 0:
        raise UnknownKind
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter in a request. Errors: UnknownKind."""
    return AclFilter(
        known(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        known(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        known(AclOperation, asked.operation),
        known(Permission, asked.permission_type),
    )


def binding_of(row: AclCreation) -> AclBinding:
    """The ACL to be created. Errors: UnknownKind."""
    pattern = ResourcePattern(
        known(ResourceType, row.resource_type),
        row.resource_name,
        known(PatternType, row.resource_pattern_type),
    )
    entry = AclEntry(
        row.principal,
        row.host,
        known(AclOperation, row.operation),
        known(Permission, row.permission_type),
    )
    return AclBinding(pattern, entry)
