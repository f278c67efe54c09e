"""Refusals of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.messages import consumer_group_describe as described_consumer_group
from kwire.messages import share_group_describe as described_share_group
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kwire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kwire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kwire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kwire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from kwire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kwire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kwire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

from ...coordinator.group.share.sentences import sentence
from ...turns import Steps, each_in_steps, nested_in_steps

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..context import RequestContext


def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest, error: ErrorCode
) -> Steps[OffsetCommitResponse]:
    """Each partition has the error."""
    topics = yield from nested_in_steps(
        request.topics,
        lambda topic: topic.partitions,
        lambda row: OffsetCommitResponsePartition(
            partition_index=row.partition_index, error_code=error
        ),
        lambda topic, rows: OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=rows
        ),
    )
    return OffsetCommitResponse(topics=topics)


def offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest, error: ErrorCode
) -> OffsetFetchResponse:
    """Each group has the error; before version 8 the response, and before 2 each partition."""
    if ctx.version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
                for group in request.groups
            ]
        )
    topics = (request.topics or []) if ctx.version < 2 else []
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=error
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in topics
        ],
    )


def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest, error: ErrorCode
) -> Steps[FindCoordinatorResponse]:
    """Each key has the error; before version 4 the response."""
    if ctx.version < 4:
        return FindCoordinatorResponse(error_code=error, node_id=-1, port=-1)
    rows = yield from each_in_steps(
        lambda key: Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error),
        request.coordinator_keys,
    )
    return FindCoordinatorResponse(coordinators=rows)


def join_group(
    ctx: RequestContext, request: JoinGroupRequest, error: ErrorCode
) -> JoinGroupResponse:
    """The error, without a generation; before version 7 the protocol name cannot be null."""
    return JoinGroupResponse(
        error_code=error,
        generation_id=-1,
        protocol_name=None if ctx.version >= 7 else "",
        leader="",
        member_id="",
    )


def describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest, error: ErrorCode
) -> DescribeGroupsResponse:
    """Each group has the error."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=name, error_code=error) for name in request.groups]
    )


def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest, error: ErrorCode
) -> ConsumerGroupDescribeResponse:
    """Each group has the error."""
    return ConsumerGroupDescribeResponse(
        groups=[
            described_consumer_group.DescribedGroup(group_id=each, error_code=error)
            for each in request.group_ids
        ]
    )


def share_group_describe(
    ctx: RequestContext, request: ShareGroupDescribeRequest, error: ErrorCode
) -> ShareGroupDescribeResponse:
    """Each group has the error."""
    return ShareGroupDescribeResponse(
        groups=[
            described_share_group.DescribedGroup(group_id=each, error_code=error)
            for each in request.group_ids
        ]
    )


def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest, error: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    """Each group has the error."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=error)
            for each in request.groups
        ]
    )


def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest, error: ErrorCode
) -> AlterShareGroupOffsetsResponse:
    """The response has the error and its sentence."""
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=sentence(error))


def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest, error: ErrorCode
) -> DeleteShareGroupOffsetsResponse:
    """The response has the error and its sentence."""
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=sentence(error))


def delete_groups(
    ctx: RequestContext, request: DeleteGroupsRequest, error: ErrorCode
) -> DeleteGroupsResponse:
    """Each group has the error."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error) for name in request.groups_names
        ]
    )
