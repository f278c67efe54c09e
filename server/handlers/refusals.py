"""The responses that carry one error for a whole request, for APIs that put it into their rows.

A handler names its function in `@handles(..., refusal=...)`; without one, the error goes into the
response's own error code. `Handler.refuse` makes such a response from an error code, for the
dispatcher (a failed check, a bug of ours) and for handlers. Source: getErrorResponse of each
request (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from kwire.messages import alter_configs as alter
from kwire.messages import consumer_group_describe as described_consumer_group
from kwire.messages import describe_producers as described_producers
from kwire.messages import incremental_alter_configs as incremental
from kwire.messages import share_group_describe as described_share_group
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
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
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kwire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kwire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
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
from kwire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kwire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kwire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kwire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kwire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
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
from kwire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kwire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from kwire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from kwire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kwire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kwire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kwire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.messages.join_group import JoinGroupRequest, JoinGroupResponse
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
from kwire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kwire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kwire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kwire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kwire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kwire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..coordinator.group.offsets import commit_error, transactional_commit_error
from ..coordinator.group.share.sentences import sentence
from ..turns import exhaust

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from .context import RequestContext

RowT = TypeVar("RowT")


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


def leader_and_isr(
    ctx: RequestContext, request: LeaderAndIsrRequest, error: ErrorCode
) -> LeaderAndIsrResponse:
    """The response and each partition have the error."""
    if ctx.version >= 5:
        return LeaderAndIsrResponse(
            error_code=error,
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=row.partition_index, error_code=error
                        )
                        for row in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ],
        )
    rows = [(row.topic_name, row.partition_index) for row in request.ungrouped_partition_states]
    rows += [
        (topic.topic_name, row.partition_index)
        for topic in request.topic_states
        for row in topic.partition_states
    ]
    return LeaderAndIsrResponse(
        error_code=error,
        partition_errors=[
            LeaderAndIsrPartitionError(topic_name=name, partition_index=number, error_code=error)
            for name, number in rows
        ],
    )


def stop_replica(
    ctx: RequestContext, request: StopReplicaRequest, error: ErrorCode
) -> StopReplicaResponse:
    """The response and each partition have the error."""
    rows = [(row.topic_name, row.partition_index) for row in request.ungrouped_partitions]
    rows += [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    rows += [
        (topic.topic_name, row.partition_index)
        for topic in request.topic_states
        for row in topic.partition_states
    ]
    return StopReplicaResponse(
        error_code=error,
        partition_errors=[
            StopReplicaPartitionError(topic_name=name, partition_index=number, error_code=error)
            for name, number in rows
        ],
    )


def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest, error: ErrorCode
) -> OffsetCommitResponse:
    """Each partition has the error."""
    return commit_error(request, error)


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
) -> FindCoordinatorResponse:
    """Each key has the error; before version 4 the response."""
    if ctx.version < 4:
        return FindCoordinatorResponse(error_code=error, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error)
            for key in request.coordinator_keys
        ]
    )


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


def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest, error: ErrorCode
) -> InitProducerIdResponse:
    """The error, without an id or epoch."""
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def describe_producers(
    ctx: RequestContext, request: described_producers.DescribeProducersRequest, error: ErrorCode
) -> described_producers.DescribeProducersResponse:
    """Each partition has the error."""
    return described_producers.DescribeProducersResponse(
        topics=[
            described_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    described_producers.PartitionResponse(partition_index=number, error_code=error)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest, error: ErrorCode
) -> AddPartitionsToTxnResponse:
    """The response has the error; before version 4 each partition."""
    if ctx.version >= 4:
        return AddPartitionsToTxnResponse(error_code=error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=error
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """Each partition has the error."""
    return transactional_commit_error(request, error)


def write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest, error: ErrorCode
) -> WriteTxnMarkersResponse:
    """Each partition of each marker has the error."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=number, error_code=error
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest, error: ErrorCode
) -> DescribeTransactionsResponse:
    """Each transactional id has the error."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=error, transactional_id=name)
            for name in request.transactional_ids
        ]
    )


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
) -> DescribeUserScramCredentialsResponse:
    """The answer has the error, and so has a row for each user, which does not name it."""
    return DescribeUserScramCredentialsResponse(
        error_code=error,
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                user="", error_code=error, error_message=None, credential_infos=[]
            )
            for _ in request.users or ()
        ],
    )


def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Each user has the error."""
    names = [row.name for row in request.upsertions] + [row.name for row in request.deletions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error, error_message=None)
            for user in dict.fromkeys(names)
        ]
    )


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
) -> AlterClientQuotasResponse:
    """Each entity has the error."""
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                error_code=error, error_message=None, entity=entry.entity
            )
            for entry in request.entries
        ]
    )


def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, error: ErrorCode
) -> AlterReplicaLogDirsResponse:
    """Each partition of the request has the error, once."""
    topics: dict[str, dict[int, None]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error)
                    for number in numbers
                ],
            )
            for name, numbers in topics.items()
        ]
    )


def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest, error: ErrorCode
) -> DescribeLogDirsResponse:
    """The error; before version 3 there is no field for it, and no directory is listed."""
    return DescribeLogDirsResponse(error_code=error, results=[])


def elect_leaders(
    ctx: RequestContext, request: ElectLeadersRequest, error: ErrorCode
) -> ElectLeadersResponse:
    """Each named partition has the error, and from version 1 on also the response."""
    return ElectLeadersResponse(
        error_code=error if ctx.version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=error, error_message=None)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """The response has the error, and so has each partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=row.partition_index, error_code=error
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
