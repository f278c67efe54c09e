"""Refusals of records, and of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from kwire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

from ...turns import Steps, each_in_steps, nested_in_steps

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..context import RequestContext


def fetch(ctx: RequestContext, request: FetchRequest | None, error: ErrorCode) -> FetchResponse:
    """The error is top-level, and before version 13 each partition has it too, if there is a message."""
    if request is None:
        return FetchResponse(error_code=error, responses=[])
    topics = request.topics if ctx.version < 13 else []
    return FetchResponse(
        error_code=error,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=row.partition,
                        error_code=error,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=None,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def list_offsets(
    ctx: RequestContext, request: ListOffsetsRequest, error: ErrorCode
) -> ListOffsetsResponse:
    """Each partition has the error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, error_code=error
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest, error: ErrorCode
) -> OffsetForLeaderEpochResponse:
    """Each partition has the error."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=row.partition, error_code=error)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def leader_and_isr(
    ctx: RequestContext, request: LeaderAndIsrRequest, error: ErrorCode
) -> Steps[LeaderAndIsrResponse]:
    """The response and each partition have the error."""
    if ctx.version >= 5:
        topics = yield from nested_in_steps(
            request.topic_states,
            lambda topic: topic.partition_states,
            lambda row: LeaderAndIsrPartitionError(
                partition_index=row.partition_index, error_code=error
            ),
            lambda topic, rows: LeaderAndIsrTopicError(
                topic_id=topic.topic_id, partition_errors=rows
            ),
        )
        return LeaderAndIsrResponse(error_code=error, topics=topics)
    rows = [(row.topic_name, row.partition_index) for row in request.ungrouped_partition_states]
    rows += [
        (topic.topic_name, row.partition_index)
        for topic in request.topic_states
        for row in topic.partition_states
    ]
    errors = yield from each_in_steps(
        lambda row: LeaderAndIsrPartitionError(
            topic_name=row[0], partition_index=row[1], error_code=error
        ),
        rows,
    )
    return LeaderAndIsrResponse(error_code=error, partition_errors=errors)


def stop_replica(
    ctx: RequestContext, request: StopReplicaRequest, error: ErrorCode
) -> Steps[StopReplicaResponse]:
    """The response and each partition have the error."""
    rows = [(row.topic_name, row.partition_index) for row in request.ungrouped_partitions]
    rows += [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    rows += [
        (topic.topic_name, row.partition_index)
        for topic in request.topic_states
        for row in topic.partition_states
    ]
    errors = yield from each_in_steps(
        lambda row: StopReplicaPartitionError(
            topic_name=row[0], partition_index=row[1], error_code=error
        ),
        rows,
    )
    return StopReplicaResponse(error_code=error, partition_errors=errors)


def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest, error: ErrorCode
) -> DeleteRecordsResponse:
    """Each partition has the error."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=row.partition_index, low_watermark=-1, error_code=error
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
