"""The answer to a Fetch: which partitions it includes, and the content of their rows.

Source: FetchContext, KafkaApis.processResponseCallback.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

from ..replication.fetch_session import FetchContext, Key
from ..replication.read import (
    MISSING,
    WRONG_BROKER,
    FetchRow,
    Reading,
    close_slices,
    count_throttled,
)
from .context import RequestContext
from .endpoints import add_endpoint, leader_of
from .gate import fetch_throttle_time_ms

#: The approximate size of an answer without records, and of each partition in it.
ANSWER_BYTES = 12
ROW_BYTES = 60

#: Clients of this and earlier versions do not know KAFKA_STORAGE_ERROR.
NO_STORAGE_ERROR_UP_TO = 5

#: From this version on an answer can say where histories diverge.
DIVERGES_SINCE = 12

#: The first version in which the answer names the current leader.
NAMES_LEADER_SINCE = 16

#: With these errors for old clients, records are null instead of empty.
REFUSES_OLD = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_VERSION)


def throttled_answer(
    ctx: RequestContext, context: FetchContext, reading: Reading
) -> FetchResponse | None:
    """Count the bytes to be sent, and return the answer to a consumer that exceeds a quota.

    Shape: the quotas are checked once per request. A session that the request would have begun is not kept, because its
    partitions have not been answered. Source: FullFetchContext.getThrottledResponse.
    """
    charge, services, session = ctx.charge, ctx.services, context.session
    if charge is None or charge.throttle_ms is not None:
        return None
    rows = [len(result.data) for _, _, _, result in reading.rows if len(result.data)]
    size = ANSWER_BYTES + sum(rows) + len(rows) * ROW_BYTES
    if not fetch_throttle_time_ms(ctx, charge, services.quotas, services.clock, size):
        return None
    close_slices(reading)
    session_id = 0
    if session is not None:
        if context.incremental:
            session_id = session.id
        else:
            services.fetch_sessions.sessions.pop(session.id, None)
    return FetchResponse(session_id=session_id, responses=[])


def refused_answer(
    ctx: RequestContext, request: FetchRequest | None, context: FetchContext, reading: Reading
) -> FetchResponse | None:
    """The answer to a request that is refused as a whole after it was read; None if it is not.

    Shape: `request` is None only if no row of an old version can diverge (`take_fetch` of server/native/fetch.pxi).
    """
    if context.session is not None and context.overtaken:
        close_slices(reading)
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if ctx.charge is not None:
        throttled = throttled_answer(ctx, context, reading)
        if throttled is not None:
            return throttled
    if ctx.version < DIVERGES_SINCE and any(row[3].diverging for row in reading.rows):
        # A session that an earlier request began in a newer version.
        close_slices(reading)
        assert request is not None
        refused: FetchResponse = ctx.handler.refuse(ctx, request, ErrorCode.UNSUPPORTED_VERSION)
        return refused
    return None


def rows_with_news(context: FetchContext, rows: list[FetchRow]) -> list[FetchRow]:
    """The rows of an answer: in a session, after its first answer, only those with news.

    Shape: notes what is answered, and moves partitions with records behind the session's other partitions.
    """
    session = context.session
    if session is None:
        return rows
    incremental = context.incremental
    news: list[FetchRow] = []
    behind: list[Key] = []
    for row in rows:
        key, asked, _, result = row
        has_data = len(result.data) > 0
        differs = asked.differs(
            result.error,
            result.high_watermark,
            result.log_start_offset,
            has_news=has_data or result.diverging is not None or result.preferred_replica >= 0,
        )
        if incremental and not differs:
            continue
        if has_data if incremental else result.error in MISSING:
            behind.append(key)
        news.append(row)
    if behind:
        session.put_behind(behind)
    return news


def answer_of(
    ctx: RequestContext, request: FetchRequest | None, context: FetchContext, reading: Reading
) -> FetchResponse:
    refused = refused_answer(ctx, request, context, reading)
    if refused is not None:
        return refused
    return response_of(ctx, context, reading, rows_with_news(context, reading.rows))


def response_of(
    ctx: RequestContext, context: FetchContext, reading: Reading, rows: list[FetchRow]
) -> FetchResponse:
    session = context.session
    response = FetchResponse(session_id=0 if session is None else session.id, responses=[])
    topics = response.responses
    by_name: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for key, asked, topic_name, result in rows:
        diverging, aborted = result.diverging, result.aborted
        name, topic_id, _ = key
        topic = by_name.get((name, topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
            by_name[(name, topic_id)] = topic
            topics.append(topic)
        data = PartitionData(
            partition_index=asked.partition,
            error_code=result.error,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            diverging_epoch=None if diverging is None else _epoch_end(diverging),
            aborted_transactions=None if aborted is None else _aborted(aborted),
            preferred_read_replica=result.preferred_replica,
            records=result.data,
        )
        topic.partitions.append(data)
        if result.error:
            _explain(ctx, response, topic_name, data)
    if reading.throttle is not None:
        count_throttled(ctx.services.replica_manager, reading)
    return response


def _explain(ctx: RequestContext, response: FetchResponse, topic: str, data: PartitionData) -> None:
    """Translate an error for the version; name the leader if this is the wrong broker."""
    if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and ctx.version <= NO_STORAGE_ERROR_UP_TO:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if data.error_code in REFUSES_OLD:
        data.records = None
    if data.error_code in WRONG_BROKER and ctx.version >= NAMES_LEADER_SINCE:
        leader = leader_of(ctx, ctx.services.metadata(), topic, data.partition_index)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        add_endpoint(response.node_endpoints, leader, NodeEndpoint)


def _epoch_end(diverging: tuple[int, int]) -> EpochEndOffset:
    return EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])


def _aborted(aborted: list[tuple[int, int]]) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in aborted
    ]
