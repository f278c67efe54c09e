"""InitProducerId (API key 22) and DescribeProducers (API key 61).

Behavior: an idempotent producer gets an id that was never given before, with epoch 0. Ids come from
blocks of a thousand that the broker reserves in the coordination store before it uses them, so that
no id is given twice, whatever crashes. A transactional producer gets the id of its transactional id
with the next epoch, which fences the holder of the previous one; an open transaction is aborted
first, and the producer has to ask again (CONCURRENT_TRANSACTIONS). DescribeProducers lists the
producers that a partition's leader remembers; a partition that is named twice is answered once.
Versions: InitProducerId 0-5: v3 the producer's current id and epoch (KIP-360), v4 PRODUCER_FENCED
instead of INVALID_PRODUCER_EPOCH. DescribeProducers 0 (KIP-664).
Source: TransactionCoordinator.handleInitProducerId, ZkProducerIdManager.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

from kwire.errors import ErrorCode
from kwire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kwire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ..controller.topics import invalid_topic_name
from ..coordination.store import StoreError
from ..coordinator.transaction.tickets import Initialized, Producer
from .authorization import (
    AclOperation,
    ResourceType,
    any_of,
    any_resource,
    cluster,
    depending,
    transactional_id,
)
from .context import Later, RequestContext
from .registry import handles

logger = logging.getLogger(__name__)

NONE = -1

#: The permissions for InitProducerId. A client that may write to any topic does not need IDEMPOTENT_WRITE.
IDEMPOTENT = any_of(
    cluster(AclOperation.IDEMPOTENT_WRITE, log_denied=False),
    any_resource(AclOperation.WRITE, ResourceType.TOPIC),
)
TRANSACTIONAL = transactional_id(AclOperation.WRITE)


@handles(
    InitProducerIdRequest,
    versions="0-5",
    authorize=depending(
        lambda ctx, request: IDEMPOTENT if request.transactional_id is None else TRANSACTIONAL
    ),
)
def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Later[InitProducerIdResponse]:
    """Give a producer its id and epoch."""
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
        return response_of(ctx, Initialized(ErrorCode.INVALID_REQUEST))
    transactional_id = request.transactional_id
    if transactional_id is None:
        producer_id = ctx.services.producer_ids.next_now()
        if producer_id is not None:
            return given(producer_id)
        return ctx.later(reserve(ctx))
    asked = Producer(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        ctx.connection.account,
    )
    answer = ctx.services.transaction_coordinator.init_producer_id(asked)
    if isinstance(answer, Initialized):
        return response_of(ctx, answer)
    return ctx.later(answer, lambda answer: response_of(ctx, answer))


async def reserve(ctx: RequestContext) -> InitProducerIdResponse:
    """Give an id from the next block; if there is none, the error makes the producer ask again."""
    try:
        return given(await ctx.services.producer_ids.next())
    except StoreError as error:
        logger.warning("cannot reserve producer ids: %s", error)
        # Apache Kafka's answer while its next block is on the way.
        return response_of(ctx, Initialized(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def response_of(ctx: RequestContext, answer: Initialized) -> InitProducerIdResponse:
    error = answer.error
    if ctx.version < 4 and error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


@handles(DescribeProducersRequest, versions="0", authorize=None)
def describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    """List the producers of each partition, once. Errors: as for a fetch of it."""
    topics = []
    answered: set[tuple[str, int]] = set()
    for topic in request.topics:
        yield
        rows = []
        for number in topic.partition_indexes:
            yield
            if (topic.name, number) not in answered:
                answered.add((topic.name, number))
                rows.append((yield from producers_of(ctx, topic.name, number)))
        topics.append(TopicResponse(name=topic.name, partitions=rows))
    return DescribeProducersResponse(topics=topics)


def producers_of(
    ctx: RequestContext, topic: str, number: int
) -> Generator[None, None, PartitionResponse]:
    services = ctx.services
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic):
        return PartitionResponse(
            partition_index=number, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    problem = invalid_topic_name(topic)
    if problem is not None:
        return PartitionResponse(
            partition_index=number,
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            error_message=problem,
        )
    replica = services.replica_manager.get(topic, number)
    if replica is None or not replica.is_leader:
        image = services.metadata()
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if image.partition(topic, number) is not None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif image.topic(topic) is None:
            message = "This server does not host this topic-partition."
        return PartitionResponse(partition_index=number, error_code=error, error_message=message)
    active = []
    for entry in list(replica.log.producers.producers.values()):
        yield
        active.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
        )
    return PartitionResponse(partition_index=number, active_producers=active)
