"""The answer to a Produce request: a row for each partition, with what a client needs after an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..log.validator import AppendError, AppendInfo
from .context import NO_REPLY, NoReply, RequestContext
from .endpoints import add_endpoint, leader_of

if TYPE_CHECKING:
    from ..replication.partition import Partition

ZERO_ID = bytes(16)


#: Errors for which the row does not give the log start offset. Source:
#: ReplicaManager.appendToLocalLog.
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


#: One row of the request: topic, partition number, and the replica unless the row was refused
#: before. The topic is its id as bytes if no topic has the requested id. A plain tuple, since one
#: is made for each batch.
Place = tuple[str | bytes, int, "Partition | None"]


def answer_of(
    ctx: RequestContext,
    acks: int,
    places: list[Place],
    results: list[AppendInfo | AppendError],
) -> ProduceResponse | NoReply:
    """The response with the result of each row; with acks=0 a reason to close, or none."""
    if acks == 0:
        for place, result in zip(places, results, strict=True):
            if type(result) is AppendError:
                return NoReply(
                    f"produce with acks=0 to {_name(place[0])}-{place[1]} failed with "
                    f"{result.error.name}" + (f": {result.message}" if result.message else "")
                )
        return NO_REPLY
    response = ProduceResponse(responses=[])
    topic: TopicProduceResponse | None = None
    name: str | bytes | None = None
    for place, result in zip(places, results, strict=True):
        if topic is None or name != place[0]:
            name = place[0]
            topic = _topic_response(ctx, name)
            response.responses.append(topic)
        if type(result) is AppendInfo:
            row = PartitionProduceResponse(
                index=place[1],
                error_code=0,
                base_offset=result.first_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
        else:
            assert type(result) is AppendError
            row = _refused_row(place, result)
            if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.version >= 10:
                _add_leader(ctx, response, name, row)
        topic.partition_responses.append(row)
    return response


def add_part(whole: ProduceResponse, part: ProduceResponse) -> None:
    """Add the response of the next rows of a request to that of the rows before."""
    topics = part.responses
    if whole.responses and topics:
        last, first = whole.responses[-1], topics[0]
        if (last.name, last.topic_id) == (first.name, first.topic_id):
            last.partition_responses += first.partition_responses
            topics = topics[1:]
    whole.responses += topics
    known = {endpoint.node_id for endpoint in whole.node_endpoints}
    whole.node_endpoints += [each for each in part.node_endpoints if each.node_id not in known]


def _name(topic: str | bytes) -> str:
    return topic if isinstance(topic, str) else topic.hex()


def _topic_response(ctx: RequestContext, name: str | bytes) -> TopicProduceResponse:
    if isinstance(name, bytes):
        return TopicProduceResponse(name="", topic_id=name, partition_responses=[])
    if ctx.version < 13:
        return TopicProduceResponse(name=name, partition_responses=[])
    known = ctx.services.metadata().topic(name)
    topic_id = ZERO_ID if known is None else known.topic_id
    return TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[])


def _refused_row(place: Place, result: AppendError) -> PartitionProduceResponse:
    _, number, partition = place
    start_offset = -1
    if (
        partition is not None
        and not result.before_append
        and result.error not in WITHOUT_START_OFFSET
    ):
        start_offset = partition.log.log_start_offset
    return PartitionProduceResponse(
        index=number,
        error_code=result.error,
        base_offset=-1,
        log_start_offset=start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        # As in Apache Kafka: of the log's errors, only those of single records have a message.
        error_message=result.message if result.record_errors or result.before_append else None,
    )


def _add_leader(
    ctx: RequestContext,
    response: ProduceResponse,
    topic: str | bytes,
    answer: PartitionProduceResponse,
) -> None:
    """Name the leader (KIP-951)."""
    leader = leader_of(ctx, ctx.services.metadata(), _name(topic), answer.index)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    add_endpoint(response.node_endpoints, leader, NodeEndpoint)
