"""The answer to a Produce request: one row a partition, with what a client needs to go on after an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..log.append import AppendInfo
from ..log.validator import AppendError
from .context import NO_REPLY, NoReply, RequestContext
from .endpoints import add_endpoint, leader_of

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..replication.partition import Partition

ZERO_ID = bytes(16)


#: Refusals that do not say where the log begins. Source: ReplicaManager.appendToLocalLog.
WITHOUT_START_OFFSET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Row(NamedTuple):
    """One partition of the request, with the replica that it is for or the reason it is refused.

    Shape: `topic` is the topic's id as bytes where it was asked for by an id that nobody has.
    """

    topic: str | bytes
    number: int
    partition: Partition | None
    records: RecordsBytes
    error: AppendError | None


def answer_of(
    ctx: RequestContext, acks: int, rows: list[Row], results: list[AppendInfo | AppendError]
) -> ProduceResponse | NoReply:
    if acks == 0:
        for row, result in zip(rows, results, strict=True):
            if type(result) is AppendError:
                return NoReply(
                    f"produce with acks=0 to {_name(row)}-{row.number} failed with "
                    f"{result.error.name}" + (f": {result.message}" if result.message else "")
                )
        return NO_REPLY
    response = ProduceResponse(responses=[])
    topic: TopicProduceResponse | None = None
    name: str | bytes | None = None
    for row, result in zip(rows, results, strict=True):
        if topic is None or name != row.topic:
            name = row.topic
            topic = _topic_response(ctx, name)
            response.responses.append(topic)
        answer = _response_row(row, result)
        topic.partition_responses.append(answer)
        if answer.error_code:
            _explain(ctx, response, row, answer)
    return response


def _explain(
    ctx: RequestContext, response: ProduceResponse, row: Row, answer: PartitionProduceResponse
) -> None:
    """Say with an error who the leader is, or where the log begins, as far as that belongs to it."""
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.version >= 10:
        _add_leader(ctx, response, row, answer)
    elif answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and row.partition is None:
        replica = ctx.services.replica_manager.get(_name(row), row.number)
        if replica is not None:  # refused before the append, but for what the log knows
            answer.log_start_offset = replica.log.log_start_offset


def _name(row: Row) -> str:
    return row.topic if isinstance(row.topic, str) else row.topic.hex()


def _topic_response(ctx: RequestContext, name: str | bytes) -> TopicProduceResponse:
    if isinstance(name, bytes):
        return TopicProduceResponse(name="", topic_id=name, partition_responses=[])
    if ctx.version < 13:
        return TopicProduceResponse(name=name, partition_responses=[])
    known = ctx.services.metadata().topic(name)
    topic_id = ZERO_ID if known is None else known.topic_id
    return TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[])


def _response_row(row: Row, result: AppendInfo | AppendError) -> PartitionProduceResponse:
    if isinstance(result, AppendInfo):
        return PartitionProduceResponse(
            index=row.number,
            error_code=0,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
    start_offset = -1
    if row.partition is not None and result.error not in WITHOUT_START_OFFSET:
        start_offset = row.partition.log.log_start_offset
    return PartitionProduceResponse(
        index=row.number,
        error_code=result.error,
        base_offset=-1,
        log_start_offset=start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        error_message=result.message,
    )


def _add_leader(
    ctx: RequestContext, response: ProduceResponse, row: Row, answer: PartitionProduceResponse
) -> None:
    leader = leader_of(ctx, ctx.services.metadata(), _name(row), row.number)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    add_endpoint(response.node_endpoints, leader, NodeEndpoint)
