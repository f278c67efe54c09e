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
from typing import TYPE_CHECKING, Any

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
from ..turns import ROWS_IN_STEP, Steps, each_in_steps
from .authorization import AclOperation, cluster
from .registry import handles

if TYPE_CHECKING:
    from .context import Later, RequestContext

#: Only brokers send these requests.
BROKERS = cluster(AclOperation.CLUSTER_ACTION)


@handles(
    initializing.InitializeShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
)
def initialize_share_group_state(
    ctx: RequestContext, request: initializing.InitializeShareGroupStateRequest
) -> Steps[Later[initializing.InitializeShareGroupStateResponse]]:
    """Create the state of share partitions, or reset it."""
    answers = yield from _each(
        request,
        ctx.services.share_coordinator.initialize_state,
        lambda topic_id, asked: InitializeState(
            topic_id, asked.partition, asked.state_epoch, asked.start_offset
        ),
    )
    return ctx.later(_all(ctx, answers), _initialized)


@handles(
    reading.ReadShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
)
def read_share_group_state(
    ctx: RequestContext, request: reading.ReadShareGroupStateRequest
) -> Steps[Later[reading.ReadShareGroupStateResponse]]:
    """Read the state of share partitions as their leader, and fence earlier leaders."""
    answers = yield from _each(
        request,
        ctx.services.share_coordinator.read_state,
        lambda topic_id, asked: ReadState(topic_id, asked.partition, asked.leader_epoch),
    )
    return ctx.later(_all(ctx, answers), _read)


@handles(
    writing.WriteShareGroupStateRequest,
    versions="0-1",
    authorize=BROKERS,
)
def write_share_group_state(
    ctx: RequestContext, request: writing.WriteShareGroupStateRequest
) -> Steps[Later[writing.WriteShareGroupStateResponse]]:
    """Change the state of share partitions."""
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            batches = yield from each_in_steps(
                lambda batch: StateBatch(
                    batch.first_offset,
                    batch.last_offset,
                    batch.delivery_state,
                    batch.delivery_count,
                ),
                asked.state_batches,
            )
            row = WriteState(
                topic.topic_id,
                asked.partition,
                asked.state_epoch,
                asked.leader_epoch,
                asked.start_offset,
                tuple(batches),
                asked.delivery_complete_count,
            )
            answers.append(ctx.services.share_coordinator.write_state(request.group_id, row))
    return ctx.later(_all(ctx, answers), _written)


@handles(
    deleting.DeleteShareGroupStateRequest,
    versions="0",
    authorize=BROKERS,
)
def delete_share_group_state(
    ctx: RequestContext, request: deleting.DeleteShareGroupStateRequest
) -> Steps[Later[deleting.DeleteShareGroupStateResponse]]:
    """Remove the state of share partitions."""
    answers = yield from _each(
        request,
        ctx.services.share_coordinator.delete_state,
        lambda topic_id, asked: StatePartition(topic_id, asked.partition),
    )
    return ctx.later(_all(ctx, answers), _deleted)


@handles(
    summing.ReadShareGroupStateSummaryRequest,
    versions="0-1",
    authorize=BROKERS,
)
def read_share_group_state_summary(
    ctx: RequestContext, request: summing.ReadShareGroupStateSummaryRequest
) -> Steps[Later[summing.ReadShareGroupStateSummaryResponse]]:
    """Read the state of share partitions without its batches."""
    answers = yield from _each(
        request,
        ctx.services.share_coordinator.read_summary,
        lambda topic_id, asked: ReadState(topic_id, asked.partition, asked.leader_epoch),
    )
    return ctx.later(_all(ctx, answers), _summed)


def _each(
    request: Any, ask: Callable[[str, Any], Any], row_of: Callable[[bytes, Any], StatePartition]
) -> Steps[list[Any]]:
    """Ask the coordinator for each row of a request, one in a step."""
    answers = []
    for topic in request.topics:
        for asked in topic.partitions:
            yield
            answers.append(ask(request.group_id, row_of(topic.topic_id, asked)))
    return answers


async def _all(ctx: RequestContext, answers: Iterable[Any]) -> list[Any]:
    """The rows, when all of them are there; one for each share partition, the last, as Apache Kafka does."""
    rows: dict[tuple[bytes, int], Any] = {}
    for number, each in enumerate(answers, start=1):
        row = await each if isinstance(each, Awaitable) else each
        rows[row.topic_id, row.partition] = row
        if not number % ROWS_IN_STEP:
            await ctx.services.turns.pause(ctx.connection)
    return list(rows.values())


# Responses


def _results(
    rows: Iterable[StateOutcome],
    of_topic: Callable[..., Any],
    of_partition: Callable[..., Any],
    more: Callable[[Any], dict[str, Any]] = lambda row: {},
) -> Steps[list[Any]]:
    """A result for each topic, with one for each of its partitions; `more` returns the fields that not all APIs have."""
    topics: dict[bytes, list[Any]] = {}
    for row in rows:
        yield
        made = of_partition(
            partition=row.partition,
            error_code=row.error_code,
            error_message=row.error_message,
            **more(row),
        )
        topics.setdefault(row.topic_id, []).append(made)
    return (
        yield from each_in_steps(
            lambda each: of_topic(topic_id=each[0], partitions=each[1]), topics.items()
        )
    )


def _initialized(rows: list[StateOutcome]) -> Steps[initializing.InitializeShareGroupStateResponse]:
    return initializing.InitializeShareGroupStateResponse(
        results=(
            yield from _results(
                rows, initializing.InitializeStateResult, initializing.PartitionResult
            )
        )
    )


def _written(rows: list[StateOutcome]) -> Steps[writing.WriteShareGroupStateResponse]:
    return writing.WriteShareGroupStateResponse(
        results=(yield from _results(rows, writing.WriteStateResult, writing.PartitionResult))
    )


def _deleted(rows: list[StateOutcome]) -> Steps[deleting.DeleteShareGroupStateResponse]:
    return deleting.DeleteShareGroupStateResponse(
        results=(yield from _results(rows, deleting.DeleteStateResult, deleting.PartitionResult))
    )


def _read(rows: list[StateRead]) -> Steps[reading.ReadShareGroupStateResponse]:
    batches = []
    for row in rows:
        yield
        made = yield from each_in_steps(
            lambda batch: reading.StateBatch(**batch._asdict()), row.state_batches
        )
        batches.append(made)
    in_order = iter(batches)

    def more(row: StateRead) -> dict[str, Any]:
        return {
            "state_epoch": row.state_epoch,
            "start_offset": _start_offset(row),
            "state_batches": next(in_order),
        }

    return reading.ReadShareGroupStateResponse(
        results=(yield from _results(rows, reading.ReadStateResult, reading.PartitionResult, more))
    )


def _summed(rows: list[StateSummary]) -> Steps[summing.ReadShareGroupStateSummaryResponse]:
    def more(row: StateSummary) -> dict[str, Any]:
        return {
            "state_epoch": row.state_epoch,
            "leader_epoch": row.leader_epoch,
            "start_offset": _start_offset(row),
            "delivery_complete_count": row.delivery_complete_count,
        }

    return summing.ReadShareGroupStateSummaryResponse(
        results=(
            yield from _results(rows, summing.ReadStateSummaryResult, summing.PartitionResult, more)
        )
    )


def _start_offset(row: StateRead | StateSummary) -> int:
    """In a row with an error, Apache Kafka has the fields' defaults."""
    return 0 if row.error_code else row.start_offset
