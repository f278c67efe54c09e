"""ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Behavior: the rules are in server/coordinator/group/consumer. A group that is large gets its target, and one with
regular expressions its topics, a moment after the request that asks for them.
Versions: ConsumerGroupHeartbeat 0-1: v1 member ids made by clients (KIP-1082), regular expressions.
ConsumerGroupDescribe 0-1: v1 kinds of members.
With ZooKeeper both are refused with UNSUPPORTED_VERSION, as by Apache Kafka 3.9, while a live broker is not kwire and
would not know the records (interbroker/group_support.py).
Source: KafkaApis.handleConsumerGroupHeartbeat, handleConsumerGroupDescribe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kwire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from ..coordinator.group.consumer.heartbeat import refused
from ..coordinator.group.modern.context import GroupClient
from ..coordinator.group.modern.refusal import GroupRefusal
from ..turns import Steps, each_in_steps
from .authorization import DENIED, AclOperation, ResourceType, group
from .ceilings import GROUP_VERSION
from .context import Sight
from .registry import handles
from .repeats import without_many_repeats

if TYPE_CHECKING:
    from .context import Later, RequestContext, Services

DENIED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def refusal_of(services: Services) -> GroupRefusal | None:
    """Why there are no consumer groups; None if there are."""
    if services.group_support is not None:
        return services.group_support.refusal
    if services.features.finalized.get(GROUP_VERSION, 0) > 0:
        return None
    return GroupRefusal(ErrorCode.UNSUPPORTED_VERSION)


_READ_GROUP = group(AclOperation.READ)


def _authorize_heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    """Without consumer groups, the answer is the same for all clients."""
    if refusal_of(ctx.services) is not None:
        return ErrorCode.NONE
    return _READ_GROUP(ctx, request)


HeartbeatAnswer: TypeAlias = (
    "ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]"
)


@handles(ConsumerGroupHeartbeatRequest, versions="0-1", authorize=_authorize_heartbeat)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> HeartbeatAnswer | Steps[HeartbeatAnswer]:
    """Let a member join, stay or leave, and return its assignment."""
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return refused(refusal)
    if request.subscribed_topic_names or request.subscribed_topic_regex:
        return _subscribe(ctx, request, request.subscribed_topic_names or [])
    return _beat(ctx, request)


def _subscribe(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, names: list[str]
) -> Steps[HeartbeatAnswer]:
    """Handle a member that sends its topics, as when it joins; rare after that."""
    for name in names:
        yield
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return ConsumerGroupHeartbeatResponse(error_code=DENIED[ResourceType.TOPIC])
        ctx.services.group_coordinator.remember_topic(name)
    return _beat(ctx, request)


def _beat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> HeartbeatAnswer:
    client = GroupClient(
        ctx.client_id or "",
        f"/{ctx.connection.client_host}",
        ctx.version,
        Sight(ctx.services.authorizer, ctx.connection),
        ctx.connection.account,
    )
    answer = ctx.services.group_coordinator.consumer_group_heartbeat(request, client)
    return answer if isinstance(answer, ConsumerGroupHeartbeatResponse) else ctx.later(answer)


@handles(
    ConsumerGroupDescribeRequest,
    versions="0-1",
    authorize=None,
)
def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    """Describe each group separately."""
    asked = yield from without_many_repeats(request.group_ids)
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedGroup(
                    group_id=each, error_code=refusal.error, error_message=refusal.message
                )
                for each in asked
            ]
        )
    allowed, denied = yield from ctx.partition_by_authorized(
        AclOperation.DESCRIBE, ResourceType.GROUP, asked
    )
    rows = yield from each_in_steps(
        lambda each: DescribedGroup(group_id=each, error_code=DENIED[ResourceType.GROUP]), denied
    )
    for group_id in allowed:
        yield
        row = yield from ctx.services.group_coordinator.describe_consumer_group(group_id)
        if request.include_authorized_operations and row.error_code == ErrorCode.NONE:
            row.authorized_operations = ctx.authorized_operations(ResourceType.GROUP, group_id)
        if not (yield from _may_see_topics(ctx, row)):
            row = DescribedGroup(
                group_id=group_id,
                error_code=DENIED[ResourceType.TOPIC],
                error_message=DENIED_TOPICS,
            )
        rows.append(row)
    return ConsumerGroupDescribeResponse(groups=rows)


def _may_see_topics(ctx: RequestContext, row: DescribedGroup) -> Steps[bool]:
    """Whether the client may see all topics in the members' assignments and targets."""
    names: set[str] = set()
    for member in row.members:
        yield
        for assignment in (member.assignment, member.target_assignment):
            names.update(each.topic_name for each in assignment.topic_partitions)
    for name in names:
        yield
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return False
    return True
