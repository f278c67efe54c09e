"""Refusals of topics and their replicas."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kwire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kwire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kwire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kwire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kwire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from kwire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kwire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

from ...turns import ROWS_IN_STEP, Steps, exhaust, nested_in_steps

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..context import RequestContext


def metadata(ctx: RequestContext, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    """See `metadata_in_steps`."""
    return exhaust(metadata_in_steps(request, error))


def metadata_in_steps(
    request: MetadataRequest, error: ErrorCode
) -> Generator[None, None, MetadataResponse]:
    """Each topic has the error, since version 13 the response too, and no broker is named."""
    rows = []
    for topic in request.topics or ():
        yield
        rows.append(
            MetadataResponseTopic(
                error_code=error, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
            )
        )
    return MetadataResponse(brokers=[], topics=rows, error_code=error)


def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Each topic has the error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name, partitions=[])
            for topic in request.topics
        ]
    )


def create_topics(
    ctx: RequestContext, request: CreateTopicsRequest, error: ErrorCode
) -> CreateTopicsResponse:
    """Each topic has the error."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error, error_message=None)
            for topic in request.topics
        ]
    )


def delete_topics(
    ctx: RequestContext, request: DeleteTopicsRequest, error: ErrorCode
) -> DeleteTopicsResponse:
    """Each topic has the error."""
    rows = [DeletableTopicResult(name=name, error_code=error) for name in request.topic_names]
    rows += [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
        for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=rows)


def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest, error: ErrorCode
) -> CreatePartitionsResponse:
    """Each topic has the error."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error)
            for topic in request.topics
        ]
    )


def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, error: ErrorCode
) -> Steps[AlterReplicaLogDirsResponse]:
    """Each partition of the request has the error, once."""
    topics: dict[str, dict[int, None]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            yield
            numbers = topics.setdefault(topic.name, {})
            for first in range(0, len(topic.partitions), ROWS_IN_STEP):
                yield
                numbers.update(dict.fromkeys(topic.partitions[first : first + ROWS_IN_STEP]))
    results = yield from nested_in_steps(
        topics.items(),
        lambda topic: topic[1],
        lambda number: AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error),
        lambda topic, rows: AlterReplicaLogDirTopicResult(topic_name=topic[0], partitions=rows),
    )
    return AlterReplicaLogDirsResponse(results=results)


def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest, error: ErrorCode
) -> DescribeLogDirsResponse:
    """The error; before version 3 there is no field for it, and no directory is listed."""
    return DescribeLogDirsResponse(error_code=error, results=[])


def elect_leaders(
    ctx: RequestContext, request: ElectLeadersRequest, error: ErrorCode
) -> Steps[ElectLeadersResponse]:
    """Each named partition has the error, and from version 1 on also the response."""
    results = yield from nested_in_steps(
        request.topic_partitions or (),
        lambda topic: topic.partitions,
        lambda number: PartitionResult(partition_id=number, error_code=error, error_message=None),
        lambda topic, rows: ReplicaElectionResult(topic=topic.topic, partition_result=rows),
    )
    return ElectLeadersResponse(
        error_code=error if ctx.version >= 1 else 0, replica_election_results=results
    )


def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> Steps[AlterPartitionReassignmentsResponse]:
    """The response has the error, and so has each partition."""
    responses = yield from nested_in_steps(
        request.topics,
        lambda topic: topic.partitions,
        lambda row: ReassignablePartitionResponse(
            partition_index=row.partition_index, error_code=error
        ),
        lambda topic, rows: ReassignableTopicResponse(name=topic.name, partitions=rows),
    )
    return AlterPartitionReassignmentsResponse(
        error_code=error,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )
