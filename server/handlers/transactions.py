"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers; DescribeTransactions.

Behavior: a transaction opens with the first partition that is added; a group's offsets count as a
partition of __consumer_offsets. It ends when EndTxn is stored, or when it takes too long. If one
partition cannot be added, none is. The rules are in server/coordinator/transaction/shard.py.
Versions: AddPartitionsToTxn 0-3 from clients, 4-5 from brokers: several transactions, or only to
verify (KIP-890). AddOffsetsToTxn 0-4, EndTxn 0-5: an outdated producer gets INVALID_PRODUCER_EPOCH
up to version 1, then PRODUCER_FENCED; from 5 on each end gives the epoch of the next transaction.
TxnOffsetCommit 0-5: v3 member and generation (KIP-447), v5 adds the group's offsets to the
transaction. WriteTxnMarkers 0-2: v2 the transaction version, which decides which epochs a marker
may have. DescribeTransactions 0 (KIP-664).
Omitted: two-phase commit with another coordinator (KIP-939).
Source: KafkaApis, TransactionCoordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kwire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kwire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
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

from ..coordinator.group.offsets import transactional_commit_error
from ..coordinator.transaction.markers import Markers
from ..coordinator.transaction.records import by_topic
from ..coordinator.transaction.state import BUMPS_EPOCHS
from ..coordinator.transaction.tickets import End, EndedTransaction
from ..metadata.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from ..metadata.topic_partition import TopicPartition
from ..turns import Steps
from .authorization import (
    DENIED,
    AclOperation,
    ResourceType,
    cluster,
    depending,
    each_of,
    group,
    transactional_id,
)
from .offsets import MAY_NOT_READ, UNKNOWN, errors_by_row, some_rows, usable
from .registry import handles
from .repeats import without_many_repeats
from .transaction_verification import add_partitions, error_for_client, verify_offsets_partition

if TYPE_CHECKING:
    from ..coordinator.transaction.coordinator import DescribedTransaction
    from .context import Later, RequestContext

T = TypeVar("T")

#: Errors that a client does not expect from a group coordinator, and retriable ones in their place. Source:
#: GroupMetadataManager.maybeConvertOffsetCommitError.
VERIFICATION_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

#: The permissions for AddPartitionsToTxn; since version 4, brokers send it.
AS_BROKER = cluster(AclOperation.CLUSTER_ACTION)
AS_PRODUCER = transactional_id(AclOperation.WRITE, "v3_and_below_transactional_id")

ResponseT = TypeVar("ResponseT")
Errors = dict[TopicPartition, ErrorCode]


def answer(
    ctx: RequestContext,
    error: ErrorCode | Awaitable[ErrorCode],
    respond: Callable[[ErrorCode], ResponseT],
) -> ResponseT | Later[ResponseT]:
    """Respond with an error code now, or when it is known."""
    if isinstance(error, ErrorCode):
        return respond(error)
    return ctx.later(error, respond)


def fenced_as_of(version: int, error: ErrorCode) -> ErrorCode:
    """The error for an outdated producer, in the form that clients of the version know."""
    if version < 2 and error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


# -- AddPartitionsToTxn --------------------------------------------------------------------------


@handles(
    AddPartitionsToTxnRequest,
    versions="0-5",
    authorize=depending(lambda ctx, request: AS_BROKER if ctx.version >= 4 else AS_PRODUCER),
)
def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]]:
    """Add partitions to one producer's transaction, or from version 4 on to those of several."""
    if ctx.version < 4:
        topics = request.v3_and_below_topics
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=topics,
        )

        def respond_to_one(errors: Errors) -> Steps[AddPartitionsToTxnResponse]:
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=(yield from topic_results(topics, errors))
            )

        errors = yield from add_to_transaction(ctx, transaction)
        if isinstance(errors, dict):
            return (yield from respond_to_one(errors))
        return ctx.later(errors, respond_to_one)
    asked = request.transactions
    begun = []
    for transaction in asked:
        yield
        errors = yield from add_to_transaction(ctx, transaction)
        begun.append(errors)

    def respond(found: list[Errors]) -> Steps[AddPartitionsToTxnResponse]:
        response = AddPartitionsToTxnResponse(results_by_transaction=[])
        for transaction, errors in zip(asked, found, strict=True):
            yield
            results = yield from topic_results(transaction.topics, errors)
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=results
                )
            )
        return response

    done = [errors for errors in begun if isinstance(errors, dict)]
    if len(done) == len(begun):
        return (yield from respond(done))
    return ctx.later(all_of(ctx, begun), respond)


async def all_of(ctx: RequestContext, begun: Iterable[Errors | Awaitable[Errors]]) -> list[Errors]:
    found = []
    for errors in begun:
        found.append(errors if isinstance(errors, dict) else await errors)
        await ctx.services.turns.pause(ctx.connection)
    return found


def may_write(ctx: RequestContext, topic: str) -> bool:
    """Whether a client may write to a topic; to internal ones none may."""
    if topic in INTERNAL_TOPICS:
        return False
    return ctx.allows(AclOperation.WRITE, ResourceType.TOPIC, topic)


def add_to_transaction(
    ctx: RequestContext, asked: AddPartitionsToTxnTransaction
) -> Steps[Errors | Awaitable[Errors]]:
    """Add or verify the partitions of one transaction; returns an error for each.

    Errors: TOPIC_AUTHORIZATION_FAILED for a topic that the client may not write to,
    UNKNOWN_TOPIC_OR_PARTITION, and OPERATION_NOT_ATTEMPTED for the other partitions of the same
    transaction.
    """
    tps: list[TopicPartition] = []
    image = ctx.services.metadata()
    errors: Errors = {}
    for tp in tps_of(asked.topics):
        yield
        tps.append(tp)
        if ctx.version < 4 and not may_write(ctx, tp.topic):
            errors[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(tp.topic, tp.partition) is None:
            errors[tp] = UNKNOWN
    if errors:
        for tp in tps:
            yield
            errors.setdefault(tp, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return errors
    coordinator = ctx.services.transaction_coordinator
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if asked.verify_only:
        for tp in tps:
            yield
            errors[tp] = coordinator.verify(*producer, tp)
        return errors
    client_version = BUMPS_EPOCHS if ctx.version >= 4 else 0
    error = coordinator.add_partitions(*producer, frozenset(tps), client_version)
    if isinstance(error, ErrorCode):
        return dict.fromkeys(tps, fenced_as_of(ctx.version, error))

    async def later() -> Errors:
        return dict.fromkeys(tps, fenced_as_of(ctx.version, await error))

    return asyncio.ensure_future(later())


def tps_of(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Errors
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """Give each partition its error, in the order of the request."""
    results = []
    for topic in topics:
        yield
        rows: list[AddPartitionsToTxnPartitionResult] = []
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows))
        for number in topic.partitions:
            yield
            error = errors[TopicPartition(topic.name, number)]
            rows.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=error
                )
            )
    return results


# -- offsets in a transaction --------------------------------------------------------------------


def offsets_partition(ctx: RequestContext, group_id: str) -> TopicPartition:
    """The partition that represents a group's offsets in a transaction."""
    number = ctx.services.group_coordinator.partition_for(group_id)
    return TopicPartition(GROUP_METADATA_TOPIC, number)


@handles(
    AddOffsetsToTxnRequest,
    versions="0-4",
    authorize=each_of(transactional_id(AclOperation.WRITE), group(AclOperation.READ)),
)
def add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Later[AddOffsetsToTxnResponse]:
    """Add a group's offsets to a producer's transaction."""
    version = ctx.version
    added = ctx.services.transaction_coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset((offsets_partition(ctx, request.group_id),)),
    )
    return answer(
        ctx, added, lambda error: AddOffsetsToTxnResponse(error_code=fenced_as_of(version, error))
    )


@handles(
    TxnOffsetCommitRequest,
    versions="0-5",
    authorize=each_of(transactional_id(AclOperation.WRITE), group(AclOperation.READ)),
)
def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse | Later[TxnOffsetCommitResponse]]:
    """Store offsets that take effect when the transaction is committed.

    Errors: those of verification, for all partitions, if the group's offsets were not added.
    """
    asked = request.topics
    known, denied = yield from usable(ctx, asked)
    if not known:
        return (yield from offsets_response(ctx, asked, {}, UNKNOWN, denied))
    coordinator = ctx.services.group_coordinator
    account = ctx.connection.account

    def respond(responses: Iterable[TxnOffsetCommitResponse]) -> Steps[TxnOffsetCommitResponse]:
        errors: dict[tuple[str, int], int] = {}
        for response in responses:
            yield
            errors.update(errors_by_row(response))
        # Unknown partitions have no answer of the coordinator.
        return (yield from offsets_response(ctx, asked, errors, UNKNOWN, denied))

    def commit(
        error: ErrorCode,
    ) -> Steps[TxnOffsetCommitResponse | Later[TxnOffsetCommitResponse]]:
        answers: list[TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]] = []
        for topics in some_rows(known):
            yield
            part = copy(request)
            part.topics = topics
            if error is ErrorCode.NONE:
                answers.append(coordinator.commit_transactional_offsets(part, account))
            else:
                answers.append(transactional_commit_error(part, error))
        done = [answer for answer in answers if isinstance(answer, TxnOffsetCommitResponse)]
        if len(done) == len(answers):
            return (yield from respond(done))

        async def stored() -> list[TxnOffsetCommitResponse]:
            return [
                answer if isinstance(answer, TxnOffsetCommitResponse) else await answer
                for answer in answers
            ]

        return ctx.later(stored(), respond)

    verified = verify_offsets(ctx, request)
    if isinstance(verified, ErrorCode):
        return (yield from commit(verified))
    return ctx.later(verified, commit)


def verify_offsets(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> ErrorCode | Awaitable[ErrorCode]:
    """Check that a group's offsets are part of the transaction; since version 5, add them.

    Errors: those of finding the group's coordinator come before those of the transaction.
    """
    error = ctx.services.group_coordinator.ensure_group(request.group_id, ctx.connection.account)
    if error is not ErrorCode.NONE:
        return error
    coordinator = ctx.services.transaction_coordinator
    if not coordinator.config.partition_verification:
        return ErrorCode.NONE
    tp = offsets_partition(ctx, request.group_id)
    transactional_id = request.transactional_id
    producer = request.producer_id, request.producer_epoch

    def for_client(error: ErrorCode) -> ErrorCode:
        error = VERIFICATION_ERRORS.get(error, error)
        return error_for_client(error, knows_abortable=ctx.version >= 4)

    found: ErrorCode | Awaitable[ErrorCode]
    if ctx.version < 5:
        found = verify_offsets_partition(ctx, transactional_id, producer, tp)
    else:
        found = add_partitions(ctx, transactional_id, producer, frozenset((tp,)))
    if isinstance(found, ErrorCode):
        return for_client(found)

    async def later() -> ErrorCode:
        return for_client(await found)

    return later()


def offsets_response(
    ctx: RequestContext,
    asked: list[TxnOffsetCommitRequestTopic],
    errors: Mapping[tuple[str, int], int],
    otherwise: ErrorCode,
    denied: Container[str] = (),
) -> Steps[TxnOffsetCommitResponse]:
    """Answer in the order of the request; rows without an error of their own get `otherwise`.

    Shape: those of `denied` topics get TOPIC_AUTHORIZATION_FAILED.
    """

    def error_of(topic: str, number: int) -> int:
        if topic in denied:
            return MAY_NOT_READ
        error = errors.get((topic, number), otherwise)
        # Producers before 2.0 do not know that a coordinator may be loading.
        if ctx.version < 2 and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return error

    response = TxnOffsetCommitResponse(topics=[])
    for topic in asked:
        yield
        rows: list[TxnOffsetCommitResponsePartition] = []
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        for row in topic.partitions:
            yield
            rows.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=error_of(topic.name, row.partition_index),
                )
            )
    return response


# -- the end -------------------------------------------------------------------------------------


@handles(EndTxnRequest, versions="0-5", authorize=transactional_id(AclOperation.WRITE))
def end_txn(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Later[EndTxnResponse]:
    """Commit or abort; answered when it is decided, the markers may follow later."""
    version = ctx.version
    ended = ctx.services.transaction_coordinator.end_transaction(
        End(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            BUMPS_EPOCHS if version >= 5 else 0,
        )
    )

    def respond(ended: EndedTransaction) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=fenced_as_of(version, ended.error),
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
        )

    return respond(ended) if isinstance(ended, EndedTransaction) else ctx.later(ended, respond)


@handles(
    WriteTxnMarkersRequest,
    versions="0-2",
    authorize=cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest
) -> Steps[Later[WriteTxnMarkersResponse]]:
    """Write markers on behalf of a coordinator or an administrator."""
    local = ctx.services.marker_writer
    begun = []
    for asked in request.markers:
        marker = Markers(
            "",
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            (),
            asked.transaction_version,
        )
        yield
        for topic in asked.topics:
            yield
            for number in topic.partition_indexes:
                yield
                begun.append(local.write(TopicPartition(topic.name, number), marker))

    async def written() -> list[ErrorCode]:
        errors = []
        for each in begun:
            errors.append(each if isinstance(each, ErrorCode) else await each)
            await ctx.services.turns.pause(ctx.connection)
        return errors

    return ctx.later(written(), lambda errors: markers_response(request, errors))


def markers_response(
    request: WriteTxnMarkersRequest, errors: Iterable[ErrorCode]
) -> Steps[WriteTxnMarkersResponse]:
    """Give each partition its error; errors come in the order of the request."""
    each = iter(errors)
    response = WriteTxnMarkersResponse(markers=[])
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        response.markers.append(result)
        yield
        for topic in marker.topics:
            yield
            rows: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
            for number in topic.partition_indexes:
                yield
                rows.append(
                    WritableTxnMarkerPartitionResult(partition_index=number, error_code=next(each))
                )
    return response


# -- views ---------------------------------------------------------------------------------------


@handles(
    DescribeTransactionsRequest,
    versions="0",
    authorize=None,
)
def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    """Describe each transactional id, in the order of the request."""
    coordinator = ctx.services.transaction_coordinator
    rows = []
    for name in (yield from without_many_repeats(request.transactional_ids)):
        yield
        found: DescribedTransaction | ErrorCode = DENIED[ResourceType.TRANSACTIONAL_ID]
        if ctx.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            found = coordinator.describe(name)
        if isinstance(found, ErrorCode):
            rows.append(TransactionState(error_code=found, transactional_id=name))
            continue
        metadata = found.metadata
        rows.append(
            TransactionState(
                transactional_id=name,
                transaction_state=metadata.state.title,
                transaction_timeout_ms=metadata.timeout_ms,
                transaction_start_time_ms=metadata.start_ms,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.producer_epoch,
                topics=[
                    TopicData(topic=topic, partitions=numbers)
                    for topic, numbers in by_topic(found.partitions).items()
                    if ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
                ],
            )
        )
    return DescribeTransactionsResponse(transaction_states=rows)
