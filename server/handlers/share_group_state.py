"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (API keys 83 to 87).

Behavior: brokers ask the share coordinator of share partitions, which is the leader of their partition of
__share_group_state. Each row is an operation of its own and has its own error; the response waits until all of them
are committed. The rules are in server/coordinator/share/shard.py.
Versions: 0; WriteShareGroupState and ReadShareGroupStateSummary 0-1, where v1 brings the number of records whose
delivery is complete.
Source: KafkaApis, ShareCoordinatorService (4.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.errors import ErrorCode
from kwire.messages import delete_share_group_state as deleting
from kwire.messages import initialize_share_group_state as initializing
from kwire.messages import read_share_group_state as reading
from kwire.messages import read_share_group_state_summary as summing
from kwire.messages import write_share_group_state as writing

from ..coordinator.share.rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from ..turns import Steps
from .authorization import AclOperation, cluster
from .registry import handles

if TYPE_CHECKING:
    from .context import Later, RequestContext

T = TypeVar("T")

#: Only brokers ask.
BROKERS = cluster(AclOperation.CLUSTER_ACTION)


def _refused_initialize(
    ctx: RequestContext, request: initializing.InitializeShareGroupStateRequest, error: ErrorCode
) -> initializing.InitializeShareGroupStateResponse:
    return _initialized(_all_refused(request, error))


def _refused_read(
    ctx: RequestContext, request: reading.ReadShareGroupStateRequest, error: ErrorCode
) -> reading.ReadShareGroupStateResponse:
    return _read(_all_refused(request, error, StateRead))


def _refused_write(
    ctx: RequestContext, request: writing.WriteShareGroupStateRequest, error: ErrorCode
) -> writing.WriteShareGroupStateResponse:
    return _written(_all_refused(request, error))


def _refused_delete(
    ctx: RequestContext, request: deleting.DeleteShareGroupStateRequest, error: ErrorCode
) -> deleting.DeleteShareGroupStateResponse:
    return _deleted(_all_refused(request, error))


def _refused_summary(
    ctx: RequestContext, request: summing.ReadShareGroupStateSummaryRequest, error: ErrorCode
) -> summing.ReadShareGroupStateSummaryResponse:
    return _summed(_all_refused(request, error, StateSummary))


@handles(
    initializing.InitializeShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
    refusal=_refused_initialize,
)
def initialize_share_group_state(
    ctx: RequestContext, request: initializing.InitializeShareGroupStateRequest
) -> Steps[Later[initializing.InitializeShareGroupStateResponse]]:
    """Create the state of share partitions, or begin anew."""
    coordinator = ctx.services.share_coordinator
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            row = InitializeState(
                topic.topic_id, asked.partition, asked.state_epoch, asked.start_offset
            )
            answers.append(coordinator.initialize_state(request.group_id, row))
    return ctx.later(_all(answers), _initialized)


@handles(
    reading.ReadShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
    refusal=_refused_read,
)
def read_share_group_state(
    ctx: RequestContext, request: reading.ReadShareGroupStateRequest
) -> Steps[Later[reading.ReadShareGroupStateResponse]]:
    """Read the state of share partitions as their leader, and fence earlier leaders."""
    coordinator = ctx.services.share_coordinator
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            row = ReadState(topic.topic_id, asked.partition, asked.leader_epoch)
            answers.append(coordinator.read_state(request.group_id, row))
    return ctx.later(_all(answers), _read)


@handles(
    writing.WriteShareGroupStateRequest,
    versions="0-1",
    authorize=BROKERS,
    refusal=_refused_write,
)
def write_share_group_state(
    ctx: RequestContext, request: writing.WriteShareGroupStateRequest
) -> Steps[Later[writing.WriteShareGroupStateResponse]]:
    """Change the state of share partitions."""
    coordinator = ctx.services.share_coordinator
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            row = WriteState(
                topic.topic_id,
                asked.partition,
                asked.state_epoch,
                asked.leader_epoch,
                asked.start_offset,
                tuple(
                    StateBatch(
                        batch.first_offset,
                        batch.last_offset,
                        batch.delivery_state,
                        batch.delivery_count,
                    )
                    for batch in asked.state_batches
                ),
                asked.delivery_complete_count,
            )
            answers.append(coordinator.write_state(request.group_id, row))
    return ctx.later(_all(answers), _written)


@handles(
    deleting.DeleteShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
    refusal=_refused_delete,
)
def delete_share_group_state(
    ctx: RequestContext, request: deleting.DeleteShareGroupStateRequest
) -> Steps[Later[deleting.DeleteShareGroupStateResponse]]:
    """Remove the state of share partitions."""
    coordinator = ctx.services.share_coordinator
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            row = StatePartition(topic.topic_id, asked.partition)
            answers.append(coordinator.delete_state(request.group_id, row))
    return ctx.later(_all(answers), _deleted)


@handles(
    summing.ReadShareGroupStateSummaryRequest,
    versions="0-1",
    authorize=BROKERS,
    refusal=_refused_summary,
)
def read_share_group_state_summary(
    ctx: RequestContext, request: summing.ReadShareGroupStateSummaryRequest
) -> Steps[Later[summing.ReadShareGroupStateSummaryResponse]]:
    """Read the state of share partitions without its batches."""
    coordinator = ctx.services.share_coordinator
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            row = ReadState(topic.topic_id, asked.partition, asked.leader_epoch)
            answers.append(coordinator.read_summary(request.group_id, row))
    return ctx.later(_all(answers), _summed)


async def _all(answers: Iterable[Any]) -> list[Any]:
    """The rows, when all of them are there."""
    return [await each if isinstance(each, Awaitable) else each for each in answers]


def _all_refused(request: Any, error: ErrorCode, kind: type[Any] = StateOutcome) -> list[Any]:
    return [
        kind(topic.topic_id, asked.partition, error, error.name)
        for topic in request.topics
        for asked in topic.partitions
    ]


# Responses


def _by_topic(rows: Iterable[StateOutcome], made: Callable[[Any], T]) -> dict[bytes, list[T]]:
    topics: dict[bytes, list[T]] = {}
    for row in rows:
        topics.setdefault(row.topic_id, []).append(made(row))
    return topics


def _initialized(rows: list[StateOutcome]) -> initializing.InitializeShareGroupStateResponse:
    return initializing.InitializeShareGroupStateResponse(
        results=[
            initializing.InitializeStateResult(topic_id=topic_id, partitions=of_topic)
            for topic_id, of_topic in _by_topic(
                rows,
                lambda row: initializing.PartitionResult(
                    partition=row.partition,
                    error_code=row.error_code,
                    error_message=row.error_message,
                ),
            ).items()
        ]
    )


def _read(rows: list[StateRead]) -> reading.ReadShareGroupStateResponse:
    return reading.ReadShareGroupStateResponse(
        results=[
            reading.ReadStateResult(topic_id=topic_id, partitions=of_topic)
            for topic_id, of_topic in _by_topic(
                rows,
                lambda row: reading.PartitionResult(
                    partition=row.partition,
                    error_code=row.error_code,
                    error_message=row.error_message,
                    state_epoch=row.state_epoch,
                    # In a row with an error, Apache Kafka has the fields' defaults.
                    start_offset=0 if row.error_code else row.start_offset,
                    state_batches=[
                        reading.StateBatch(**batch._asdict()) for batch in row.state_batches
                    ],
                ),
            ).items()
        ]
    )


def _written(rows: list[StateOutcome]) -> writing.WriteShareGroupStateResponse:
    return writing.WriteShareGroupStateResponse(
        results=[
            writing.WriteStateResult(topic_id=topic_id, partitions=of_topic)
            for topic_id, of_topic in _by_topic(
                rows,
                lambda row: writing.PartitionResult(
                    partition=row.partition,
                    error_code=row.error_code,
                    error_message=row.error_message,
                ),
            ).items()
        ]
    )


def _deleted(rows: list[StateOutcome]) -> deleting.DeleteShareGroupStateResponse:
    return deleting.DeleteShareGroupStateResponse(
        results=[
            deleting.DeleteStateResult(topic_id=topic_id, partitions=of_topic)
            for topic_id, of_topic in _by_topic(
                rows,
                lambda row: deleting.PartitionResult(
                    partition=row.partition,
                    error_code=row.error_code,
                    error_message=row.error_message,
                ),
            ).items()
        ]
    )


def _summed(rows: list[StateSummary]) -> summing.ReadShareGroupStateSummaryResponse:
    return summing.ReadShareGroupStateSummaryResponse(
        results=[
            summing.ReadStateSummaryResult(topic_id=topic_id, partitions=of_topic)
            for topic_id, of_topic in _by_topic(
                rows,
                lambda row: summing.PartitionResult(
                    partition=row.partition,
                    error_code=row.error_code,
                    error_message=row.error_message,
                    state_epoch=row.state_epoch,
                    leader_epoch=row.leader_epoch,
                    start_offset=0 if row.error_code else row.start_offset,
                    delivery_complete_count=row.delivery_complete_count,
                ),
            ).items()
        ]
    )
