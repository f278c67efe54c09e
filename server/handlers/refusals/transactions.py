"""Refusals of producers and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.messages import describe_producers as described_producers
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kwire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kwire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kwire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ...turns import Steps, nested_in_steps

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..context import RequestContext


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
) -> Steps[AddPartitionsToTxnResponse]:
    """The response has the error; before version 4 each partition."""
    if ctx.version >= 4:
        return AddPartitionsToTxnResponse(error_code=error)
    results = yield from nested_in_steps(
        request.v3_and_below_topics,
        lambda topic: topic.partitions,
        lambda number: AddPartitionsToTxnPartitionResult(
            partition_index=number, partition_error_code=error
        ),
        lambda topic, rows: AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=rows
        ),
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, error: ErrorCode
) -> Steps[TxnOffsetCommitResponse]:
    """Each partition has the error."""
    topics = yield from nested_in_steps(
        request.topics,
        lambda topic: topic.partitions,
        lambda row: TxnOffsetCommitResponsePartition(
            partition_index=row.partition_index, error_code=error
        ),
        lambda topic, rows: TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows),
    )
    return TxnOffsetCommitResponse(topics=topics)


def write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest, error: ErrorCode
) -> Steps[WriteTxnMarkersResponse]:
    """Each partition of each marker has the error."""
    markers = []
    for marker in request.markers:
        yield
        topics = yield from nested_in_steps(
            marker.topics,
            lambda topic: topic.partition_indexes,
            lambda number: WritableTxnMarkerPartitionResult(
                partition_index=number, error_code=error
            ),
            lambda topic, rows: WritableTxnMarkerTopicResult(name=topic.name, partitions=rows),
        )
        markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=markers)


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
