"""Refusals of configs, users, ACLs and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kwire.messages import alter_configs as alter
from kwire.messages import incremental_alter_configs as incremental
from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kwire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kwire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kwire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kwire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kwire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from ...turns import ROWS_IN_STEP, Steps, each_in_steps

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..context import RequestContext

RowT = TypeVar("RowT")


def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest, error: ErrorCode
) -> DescribeConfigsResponse:
    """Each resource has the error, with an empty message, as in Apache Kafka."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error,
                error_message="",
                resource_type=row.resource_type,
                resource_name=row.resource_name,
                configs=[],
            )
            for row in request.resources
        ]
    )


def alter_configs(
    ctx: RequestContext, request: alter.AlterConfigsRequest, error: ErrorCode
) -> alter.AlterConfigsResponse:
    """Each resource has the error."""
    return alter.AlterConfigsResponse(
        responses=_resources(alter.AlterConfigsResourceResponse, request, error)
    )


def incremental_alter_configs(
    ctx: RequestContext, request: incremental.IncrementalAlterConfigsRequest, error: ErrorCode
) -> incremental.IncrementalAlterConfigsResponse:
    """Each resource has the error."""
    return incremental.IncrementalAlterConfigsResponse(
        responses=_resources(incremental.AlterConfigsResourceResponse, request, error)
    )


def _resources(
    row: Callable[..., RowT],
    request: alter.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
    error: ErrorCode,
) -> list[RowT]:
    return [
        row(
            error_code=error,
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.resources
    ]


def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest, error: ErrorCode
) -> Steps[DescribeUserScramCredentialsResponse]:
    """The answer has the error, and so has a row for each user, which does not name it."""
    rows = yield from each_in_steps(
        lambda _: DescribeUserScramCredentialsResult(
            user="", error_code=error, error_message=None, credential_infos=[]
        ),
        request.users or (),
    )
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=rows)


def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> Steps[AlterUserScramCredentialsResponse]:
    """Each user has the error."""
    names: dict[str, None] = {}
    for rows in (request.upsertions, request.deletions):
        for first in range(0, len(rows), ROWS_IN_STEP):
            yield
            names.update((row.name, None) for row in rows[first : first + ROWS_IN_STEP])
    results = yield from each_in_steps(
        lambda user: AlterUserScramCredentialsResult(
            user=user, error_code=error, error_message=None
        ),
        names,
    )
    return AlterUserScramCredentialsResponse(results=results)


def create_acls(
    ctx: RequestContext, request: CreateAclsRequest, error: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Each ACL has the error: the same row, as often as there are ACLs."""
    row = AclCreationResult(error_code=error, error_message=message)
    return CreateAclsResponse(results=[row] * len(request.creations))


def delete_acls(
    ctx: RequestContext, request: DeleteAclsRequest, error: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Each filter has the error: the same row, as often as there are filters."""
    row = DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=[])
    return DeleteAclsResponse(filter_results=[row] * len(request.filters))


def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest, error: ErrorCode
) -> DescribeClientQuotasResponse:
    """The error, and no list of entities rather than an empty one."""
    return DescribeClientQuotasResponse(error_code=error, error_message=None, entries=None)


def alter_client_quotas(
    ctx: RequestContext, request: AlterClientQuotasRequest, error: ErrorCode
) -> Steps[AlterClientQuotasResponse]:
    """Each entity has the error."""
    rows = yield from each_in_steps(
        lambda entry: AlterClientQuotasResponseEntryData(
            error_code=error, error_message=None, entity=entry.entity
        ),
        request.entries,
    )
    return AlterClientQuotasResponse(entries=rows)
