"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and DeleteGroups.

Behavior: the rules are in server/coordinator/group; these handlers bring requests of all versions
into one form.
Versions: JoinGroup 0-9: v1 rebalance timeout (KIP-62), v4 member id required (KIP-394), v5 static
members (KIP-345), v7 protocol type and nullable name (KIP-559), v8 reason (KIP-800), v9
skip_assignment (KIP-814). SyncGroup 0-5: v5 protocol type and name are mandatory. LeaveGroup 0-5: v3
several members. DescribeGroups 0-6: v6 error messages (KIP-1043). ListGroups 0-5: v4 states (KIP-518),
v5 types (KIP-848). DeleteGroups 0-2. Heartbeat 0-4.
Omitted: nothing of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kwire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kwire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from ..turns import Steps, each_in_steps
from .authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType, group
from .context import Sight
from .registry import handles
from .repeats import without_many_repeats, without_repeats

if TYPE_CHECKING:
    from .context import Later, RequestContext

T = TypeVar("T")

#: The number of members that are removed in one step.
MEMBERS_AT_ONCE = 256

DENIED_GROUP = DENIED[ResourceType.GROUP]


@handles(
    JoinGroupRequest,
    versions="0-9",
    authorize=group(AclOperation.READ),
)
def join_group(
    ctx: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Later[JoinGroupResponse]:
    """Answer when the group's next generation begins, or immediately if the member has to act first."""
    if ctx.version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    answer = ctx.services.group_coordinator.join_group(
        request,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.connection.client_host}",
        require_member_id=ctx.version >= 4,
        can_skip_assignment=ctx.version >= 9,
        may_describe=Sight(ctx.services.authorizer, ctx.connection),
        account=ctx.connection.account,
    )
    if isinstance(answer, JoinGroupResponse):
        return empty_protocol_name(answer) if ctx.version < 7 else answer
    finish = empty_protocol_name if ctx.version < 7 else None
    return ctx.later(answer.answer, finish, answer.abandon)


def empty_protocol_name(response: JoinGroupResponse) -> JoinGroupResponse:
    """Put "" for a missing protocol name, in versions that have no null."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


@handles(SyncGroupRequest, versions="0-5", authorize=group(AclOperation.READ))
def sync_group(
    ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    """Answer with the member's assignment when the leader has sent it."""
    if ctx.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = ctx.services.group_coordinator.sync_group(request)
    return answer if isinstance(answer, SyncGroupResponse) else ctx.later(answer)


@handles(HeartbeatRequest, versions="0-4", authorize=group(AclOperation.READ))
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answer whether the member still belongs to the group, and whether it must rejoin."""
    return ctx.services.group_coordinator.heartbeat(request)


@handles(LeaveGroupRequest, versions="0-5", authorize=group(AclOperation.READ))
def leave_group(
    ctx: RequestContext, request: LeaveGroupRequest
) -> Steps[LeaveGroupResponse | Later[LeaveGroupResponse]]:
    """Remove members; before version 3 there is one, and its error is the response's."""
    if ctx.version >= 3:
        if len(request.members) > MEMBERS_AT_ONCE:
            return (yield from leave_many(ctx, request))
        answer = ctx.services.group_coordinator.leave_group(request)
        return answer if isinstance(answer, LeaveGroupResponse) else ctx.later(answer)
    request.members = [MemberIdentity(member_id=request.member_id)]
    answer = ctx.services.group_coordinator.leave_group(request)
    if isinstance(answer, LeaveGroupResponse):
        return only_member(answer)
    return ctx.later(answer, only_member)


def leave_many(
    ctx: RequestContext, request: LeaveGroupRequest
) -> Steps[LeaveGroupResponse | Later[LeaveGroupResponse]]:
    """Remove an unusually large number of members, a few at a time."""
    answers: list[LeaveGroupResponse | Awaitable[LeaveGroupResponse]] = []
    for first in range(0, len(request.members), MEMBERS_AT_ONCE):
        yield
        part = copy(request)
        part.members = request.members[first : first + MEMBERS_AT_ONCE]
        answers.append(ctx.services.group_coordinator.leave_group(part))

    def together(responses: list[LeaveGroupResponse]) -> Steps[LeaveGroupResponse]:
        response = LeaveGroupResponse(members=[])
        for each in responses:
            yield
            if each.error_code:
                return each
            response.members += each.members
        return response

    async def left() -> list[LeaveGroupResponse]:
        return [each if isinstance(each, LeaveGroupResponse) else await each for each in answers]

    done = [each for each in answers if isinstance(each, LeaveGroupResponse)]
    if len(done) == len(answers):
        return (yield from together(done))
    return ctx.later(left(), together)


def only_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Make the only row's error the response's."""
    if response.members:
        response.error_code = response.members[0].error_code
        response.members = []
    return response


@handles(DescribeGroupsRequest, versions="0-6", authorize=None)
def describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    """Describe each group separately."""
    coordinator = ctx.services.group_coordinator
    allowed, denied = yield from ctx.partition_by_authorized(
        AclOperation.DESCRIBE,
        ResourceType.GROUP,
        (yield from without_many_repeats(request.groups)),
    )
    rows = yield from each_in_steps(
        lambda group_id: DescribedGroup(group_id=group_id, error_code=DENIED_GROUP), denied
    )
    for group_id in allowed:
        yield
        row = coordinator.describe_group(group_id, ctx.version)
        if request.include_authorized_operations and row.error_code == ErrorCode.NONE:
            row.authorized_operations = ctx.authorized_operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return DescribeGroupsResponse(groups=rows)


@handles(ListGroupsRequest, versions="0-5", authorize=None)
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """List the groups that this broker coordinates."""
    error, rows = yield from ctx.services.group_coordinator.list_groups(
        request.states_filter or (), request.types_filter or ()
    )
    sees_all = ctx.allows(
        AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    if not sees_all:
        names = (row.group_id for row in rows)
        shown, _ = yield from ctx.partition_by_authorized(
            AclOperation.DESCRIBE, ResourceType.GROUP, names, log_denied=False
        )
        may_see = set(shown)
        rows = [row for row in rows if row.group_id in may_see]
    return ListGroupsResponse(error_code=error, groups=rows)


@handles(DeleteGroupsRequest, versions="0-2", authorize=None)
def delete_groups(
    ctx: RequestContext, request: DeleteGroupsRequest
) -> Steps[DeleteGroupsResponse | Later[DeleteGroupsResponse]]:
    """Remove groups without members; each has a row with its own error."""
    coordinator = ctx.services.group_coordinator
    allowed, denied = yield from ctx.partition_by_authorized(
        AclOperation.DELETE,
        ResourceType.GROUP,
        (yield from without_repeats(request.groups_names)),
    )
    rows = []
    waiting: list[tuple[DeletableGroupResult, Awaitable[ErrorCode]]] = []
    for name in allowed:
        yield
        row = DeletableGroupResult(group_id=name)
        answer = coordinator.delete_group(name)
        if isinstance(answer, ErrorCode):
            row.error_code = answer
        else:
            waiting.append((row, answer))
        rows.append(row)
    for name in denied:
        yield
        rows.append(DeletableGroupResult(group_id=name, error_code=DENIED_GROUP))
    response = DeleteGroupsResponse(results=rows)
    return ctx.later(all_deleted(ctx, response, waiting)) if waiting else response


async def all_deleted(
    ctx: RequestContext,
    response: DeleteGroupsResponse,
    waiting: list[tuple[DeletableGroupResult, Awaitable[ErrorCode]]],
) -> DeleteGroupsResponse:
    """Wait for every group's tombstones."""
    for row, answer in waiting:
        row.error_code = await answer
        await ctx.services.turns.pause(ctx.connection)
    return response
