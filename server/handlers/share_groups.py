"""ShareGroupHeartbeat, ShareGroupDescribe, and the offsets of share groups: describe, alter, delete.

Behavior: the rules are in server/coordinator/group/share; what is asked of share coordinators, in
server/coordinator/group/share_requests.py. A partition is assigned when its share coordinator has a state for it, a moment
after a member has named its topic. A group that is large gets its target a moment after the request that asks for it.
Versions: ShareGroupHeartbeat and ShareGroupDescribe 1: 0 was an early release's. DescribeShareGroupOffsets 0-1: v1 lag.
AlterShareGroupOffsets and DeleteShareGroupOffsets 0.
Omitted: the members of one group can read at most 10,000 topics with 20,000 partitions in total.
Source: KafkaApis.handleShareGroupHeartbeat and its like; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kwire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kwire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kwire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kwire.types import ZERO_UUID

from ..coordinator.group.modern.context import GroupClient
from ..coordinator.group.share.heartbeat import MEMBER_ID_LENGTH, refused
from ..coordinator.group.share.sentences import sentence
from ..coordinator.group.share_requests import ShareOffset
from ..turns import ROWS_IN_STEP, Steps, each_in_steps
from .authorization import DENIED, AclOperation, ResourceType, group
from .context import encoded_in_steps
from .registry import handles
from .repeats import without_many_repeats, without_repeats
from .share_version import refusal_of, unless_refused

if TYPE_CHECKING:
    from .context import Later, RequestContext

DENIED_GROUP, DENIED_TOPIC = DENIED[ResourceType.GROUP], DENIED[ResourceType.TOPIC]
DENIED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@handles(
    ShareGroupHeartbeatRequest, versions="1", authorize=unless_refused(group(AclOperation.READ))
)
def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> Steps[ShareGroupHeartbeatResponse | Later[ShareGroupHeartbeatResponse]]:
    """Let a member join, stay or leave, and return its assignment."""
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return refused(refusal)
    if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    for name in request.subscribed_topic_names or ():
        yield
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return ShareGroupHeartbeatResponse(error_code=DENIED_TOPIC)
    client = GroupClient(
        ctx.client_id or "",
        f"/{ctx.connection.client_host}",
        ctx.version,
        lambda name: True,
        ctx.connection.account,
    )
    answer = ctx.services.group_coordinator.share.heartbeat(request, client)
    return answer if isinstance(answer, ShareGroupHeartbeatResponse) else ctx.later(answer)


@handles(
    ShareGroupDescribeRequest,
    versions="1",
    authorize=None,
)
def share_group_describe(
    ctx: RequestContext, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    """Describe each group separately."""
    asked = yield from without_many_repeats(request.group_ids)
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        message = refusal.message or sentence(refusal.error)
        error = refusal.error
        rows = yield from each_in_steps(
            lambda each: DescribedGroup(group_id=each, error_code=error, error_message=message),
            asked,
        )
        return ShareGroupDescribeResponse(groups=rows)
    allowed, denied = yield from ctx.partition_by_authorized(
        AclOperation.DESCRIBE, ResourceType.GROUP, asked
    )
    rows = yield from each_in_steps(
        lambda each: DescribedGroup(group_id=each, error_code=DENIED_GROUP), denied
    )
    for group_id in allowed:
        yield
        row = yield from ctx.services.group_coordinator.share.describe(group_id)
        if request.include_authorized_operations and row.error_code == ErrorCode.NONE:
            row.authorized_operations = ctx.authorized_operations(ResourceType.GROUP, group_id)
        if not (yield from _may_see_topics(ctx, row)):
            row = DescribedGroup(
                group_id=group_id, error_code=DENIED_TOPIC, error_message=DENIED_TOPICS
            )
        rows.append(row)
    return ShareGroupDescribeResponse(groups=rows)


def _may_see_topics(ctx: RequestContext, row: DescribedGroup) -> Steps[bool]:
    """Whether the client may see all topics in the members' assignments."""
    names: set[str] = set()
    for member in row.members:
        yield
        names.update(each.topic_name for each in member.assignment.topic_partitions)
    for name in names:
        yield
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return False
    return True


# Offsets


@handles(
    DescribeShareGroupOffsetsRequest,
    versions="0-1",
    authorize=None,
)
def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Steps[DescribeShareGroupOffsetsResponse | Later[DescribeShareGroupOffsetsResponse]]:
    """Say where groups are in partitions; of all that have a state, if none are named."""
    groups = yield from without_repeats(request.groups, lambda each: each.group_id)
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        refused_error = refusal.error
        rows = yield from each_in_steps(
            lambda each: DescribeShareGroupOffsetsResponseGroup(
                group_id=each.group_id, error_code=refused_error
            ),
            groups,
        )
        return DescribeShareGroupOffsetsResponse(groups=rows)
    response = DescribeShareGroupOffsetsResponse()
    allowed: list[
        tuple[DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsResponseGroup]
    ] = []
    for asked in groups:
        yield
        row = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        response.groups.append(row)
        if ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
            allowed.append((asked, row))
        else:
            row.error_code = DENIED_GROUP
    if not allowed:
        return response

    async def described() -> DescribeShareGroupOffsetsResponse:
        for asked, row in allowed:
            await ctx.services.turns.pause(ctx.connection)
            if asked.topics is None:
                await _describe_all(ctx, row)
            else:
                await _describe_some(ctx, asked.topics, row)
        return response

    return ctx.later(described(), encoded_in_steps)


async def _describe_all(ctx: RequestContext, row: DescribeShareGroupOffsetsResponseGroup) -> None:
    """Fill in the partitions that have a state, of topics that the client may see."""
    answer = ctx.services.group_coordinator.share.describe_all_offsets(row.group_id)
    if isinstance(answer, ErrorCode):
        row.error_code = answer
        row.error_message = sentence(answer)
        return
    topics = ctx.services.metadata().topics_by_id
    found = await answer
    names: dict[bytes, str] = {}
    for topic_id in {each.topic_id for each in found}:
        await ctx.services.turns.pause(ctx.connection)
        if topic_id in topics and ctx.allows(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topics[topic_id].name
        ):
            names[topic_id] = topics[topic_id].name
    row.topics = await _topics(ctx, (each for each in found if each.topic_id in names), names)


async def _describe_some(
    ctx: RequestContext,
    topics: Iterable[DescribeShareGroupOffsetsRequestTopic],
    row: DescribeShareGroupOffsetsResponseGroup,
) -> None:
    """Fill in the requested partitions; nothing is known about topics that do not exist."""
    known = ctx.services.metadata().topics
    partitions: list[tuple[bytes, int]] = []
    names: dict[bytes, str] = {}
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    denied: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic in topics:
        await ctx.services.turns.pause(ctx.connection)
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
            denied.append(await _unknown(ctx, topic, DENIED_TOPIC))
        elif topic.topic_name not in known:
            unknown.append(await _unknown(ctx, topic, ErrorCode.NONE))
        else:
            topic_id = known[topic.topic_name].topic_id
            names[topic_id] = topic.topic_name
            for first in range(0, len(topic.partitions), ROWS_IN_STEP):
                await ctx.services.turns.pause(ctx.connection)
                some = topic.partitions[first : first + ROWS_IN_STEP]
                partitions += ((topic_id, number) for number in some)
    found: list[ShareOffset] = []
    if partitions:
        requests = ctx.services.group_coordinator.share
        found = await requests.describe_offsets(row.group_id, partitions)
    row.topics = [*(await _topics(ctx, found, names)), *unknown, *denied]


async def _unknown(
    ctx: RequestContext, topic: DescribeShareGroupOffsetsRequestTopic, error: ErrorCode
) -> DescribeShareGroupOffsetsResponseTopic:
    message = sentence(error)
    made = DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=[]
    )
    for number in topic.partitions:
        await ctx.services.turns.pause(ctx.connection)
        made.partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=-1, error_code=error, error_message=message
            )
        )
    return made


async def _topics(
    ctx: RequestContext, found: Iterable[ShareOffset], names: Mapping[bytes, str]
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    topics: dict[bytes, DescribeShareGroupOffsetsResponseTopic] = {}
    for each in found:
        await ctx.services.turns.pause(ctx.connection)
        topic = topics.get(each.topic_id)
        if topic is None:
            topic = topics[each.topic_id] = DescribeShareGroupOffsetsResponseTopic(
                topic_name=names[each.topic_id], topic_id=each.topic_id
            )
        topic.partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=each.start_offset,
                leader_epoch=each.leader_epoch,
                lag=each.lag,
                error_code=each.error,
                error_message=sentence(each.error),
            )
        )
    return list(topics.values())


@handles(
    AlterShareGroupOffsetsRequest,
    versions="0",
    authorize=unless_refused(group(AclOperation.READ)),
)
def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Steps[AlterShareGroupOffsetsResponse | Later[AlterShareGroupOffsetsResponse]]:
    """Have an empty group begin elsewhere."""
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return AlterShareGroupOffsetsResponse(
            error_code=refusal.error, error_message=refusal.message or sentence(refusal.error)
        )
    known = ctx.services.metadata().topics
    topics = yield from without_repeats(request.topics, lambda each: each.topic_name)
    request.topics = []
    refused_topics: list[AlterShareGroupOffsetsResponseTopic] = []
    for topic in topics:
        yield
        topic.partitions = list(
            (yield from without_many_repeats(topic.partitions, lambda each: each.partition_index))
        )
        if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            error = DENIED_TOPIC
        elif topic.topic_name not in known:
            error = UNKNOWN_TOPIC
        else:
            request.topics.append(topic)
            continue
        existing = known.get(topic.topic_name)
        rows = yield from each_in_steps(
            lambda row, error=error: AlterShareGroupOffsetsResponsePartition(  # type: ignore[misc]
                partition_index=row.partition_index,
                error_code=error,
                error_message=sentence(error),
            ),
            topic.partitions,
        )
        refused_topics.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ZERO_UUID if existing is None else existing.topic_id,
                partitions=rows,
            )
        )

    def together(
        response: AlterShareGroupOffsetsResponse,
    ) -> Steps[AlterShareGroupOffsetsResponse]:
        if response.error_code == ErrorCode.NONE:
            response.responses = [*refused_topics, *response.responses]
        return (yield from encoded_in_steps(response))

    answer = ctx.services.group_coordinator.share.alter_offsets(request, ctx.connection.account)
    if isinstance(answer, AlterShareGroupOffsetsResponse):
        return (yield from together(answer))
    return ctx.later(answer, together)


@handles(
    DeleteShareGroupOffsetsRequest,
    versions="0",
    authorize=unless_refused(group(AclOperation.DELETE)),
)
def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Steps[DeleteShareGroupOffsetsResponse | Later[DeleteShareGroupOffsetsResponse]]:
    """Delete the offsets of an empty group in topics."""
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return DeleteShareGroupOffsetsResponse(
            error_code=refusal.error, error_message=refusal.message or sentence(refusal.error)
        )
    topics = yield from without_repeats(request.topics, lambda each: each.topic_name)
    allowed, denied = yield from ctx.partition_by_authorized(
        AclOperation.READ, ResourceType.TOPIC, (each.topic_name for each in topics)
    )
    refused_topics = yield from each_in_steps(
        lambda name: _deleted(name, ZERO_UUID, DENIED_TOPIC, None), denied
    )

    async def deleted() -> DeleteShareGroupOffsetsResponse:
        outcome = await ctx.services.group_coordinator.share.delete_offsets(
            request.group_id, allowed
        )
        if outcome.error is not ErrorCode.NONE:
            return DeleteShareGroupOffsetsResponse(
                error_code=outcome.error, error_message=outcome.message
            )
        rows = await ctx.services.turns.run(
            each_in_steps(lambda each: _deleted(*each), outcome.topics), ctx.connection
        )
        return DeleteShareGroupOffsetsResponse(responses=[*refused_topics, *rows])

    return ctx.later(deleted(), encoded_in_steps)


def _deleted(
    name: str, topic_id: bytes, error: ErrorCode, message: str | None
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        error_code=error,
        error_message=message or sentence(error),
    )
