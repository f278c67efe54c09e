"""ShareFetch (API key 78): acquires records for a member of a share group, and takes acknowledgements.

Behavior: a request belongs to a share session, which ends with its connection or a request with the final epoch; then
what the member has is released. Records are sent as they are stored, in whole batches; the answer says which of
them the member has acquired, for how long, and how often they were delivered (server/share/partition.py). If there is
nothing to acquire, the request waits (server/share/manager.py). Acknowledgements in it are taken first, and the answer
waits until they are stored.
Versions: 1-2; 2 renews locks (KIP-1222), and acquires no more records than asked for (KIP-1206).
Omitted: a member over its quota is throttled, but gets its records. Apache Kafka empties the response, so the records
that the member has acquired stay locked without being delivered.
Source: KafkaApis.handleShareFetchRequest, processShareFetchResponse; ShareSessionContext.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from ..share.acquisition import AcquireLimits
from ..share.led import Rows, ShareFetchParams, WaitingShareFetch, error_row
from ..share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionKey,
    ShareSession,
    next_epoch,
    rotated,
)
from ..turns import Steps
from .authorization import DENIED, AclOperation, ResourceType
from .endpoints import add_endpoint, leader_of
from .gate import fetch_throttle_time_ms, quota_user
from .registry import handles
from .share_acknowledge import (
    RENEWS_SINCE,
    WRONG_BROKER,
    Outcomes,
    acknowledge,
    may_consume,
    name_of,
    pending_of,
    told,
)

if TYPE_CHECKING:
    from .context import Later, RequestContext

#: Acquire modes. Source: ShareAcquireMode.
BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1

#: The approximate size of an answer without records, and of each partition in it.
ANSWER_BYTES = 20
ROW_BYTES = 60


@handles(ShareFetchRequest, versions="1-2", authorize=may_consume)
def share_fetch(
    ctx: RequestContext, request: ShareFetchRequest
) -> Steps[ShareFetchResponse | Later[ShareFetchResponse]]:
    """Acknowledge records, and acquire more."""
    assert request.group_id is not None and request.member_id is not None
    renews = ctx.version >= RENEWS_SINCE and request.is_renew_ack
    if renews and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    session = yield from _session(ctx, request)
    if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        # Clients try again at once, so they are kept waiting as long as a fetch would.
        full = ShareFetchResponse(error_code=session)
        waiting_s = max(request.max_wait_ms, 0) / 1000
        nap = asyncio.ensure_future(asyncio.sleep(waiting_s))
        return ctx.later(nap, lambda _: full, nap.cancel)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    shares, key = ctx.services.share_partitions, (request.group_id, request.member_id)
    outcomes: Outcomes = {}
    if any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
        outcomes = yield from acknowledge(ctx, *key, request.topics, is_renew=request.is_renew_ack)
    errors: Rows = {}
    found: Rows | WaitingShareFetch = {}
    if session is not None and not renews:
        asked = yield from _readable(ctx, session, errors)
        if asked:
            params = _params(ctx, request)
            epoch = request.share_session_epoch
            found = yield from shares.fetch(request.group_id, params, rotated(asked, epoch))

    def answer(_: object) -> Steps[ShareFetchResponse]:
        rows = found
        if isinstance(rows, WaitingShareFetch):
            assert rows.future is not None
            rows = rows.future.result()
        response = yield from _answer(ctx, request, session, {**rows, **errors}, outcomes)
        if request.share_session_epoch == FINAL_EPOCH:
            shares.end_session(key)
        return response

    pending: list[asyncio.Future[object]] = [*pending_of(outcomes)]  # type: ignore[list-item]
    end = None
    if isinstance(found, WaitingShareFetch):
        assert found.future is not None
        pending.append(found.future)  # type: ignore[arg-type]
        end = found.end
    if not pending:
        return (yield from answer(None))
    wait = pending[0] if len(pending) == 1 else asyncio.gather(*pending)
    return ctx.later(wait, answer, end)


def _session(
    ctx: RequestContext, request: ShareFetchRequest
) -> Steps[ShareSession | ErrorCode | None]:
    """Begin, continue or find the session of a request; None for its last request.

    Errors: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; INVALID_REQUEST for
    acknowledgements in the first request. Source: SharePartitionManager.newContext.
    """
    shares = ctx.services.share_partitions
    sessions, epoch = shares.sessions, request.share_session_epoch
    assert request.group_id is not None and request.member_id is not None
    key = request.group_id, request.member_id
    is_new = epoch == INITIAL_EPOCH
    if is_new:
        if any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
            return ErrorCode.INVALID_REQUEST
        connection = ctx.connection
        owner = connection.account
        begun = sessions.create(key, connection, owner)
        if begun is None and (other := sessions.in_the_way(owner)) is not None:
            shares.end_session(other)
            begun = sessions.create(key, connection, owner)
        if begun is None:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        connection.on_close = lambda: shares.disconnected(connection)
        for group_id in sessions.idle_groups(connection):
            shares.forget_group(group_id)
        session = begun
    else:
        known = sessions.find(key, epoch)
        if isinstance(known, ErrorCode):
            return known
        if epoch == FINAL_EPOCH:
            return None
        session = known
        session.epoch = next_epoch(session.epoch)
    image = ctx.services.metadata()
    for topic in request.topics:
        yield
        name = name_of(image, topic.topic_id)
        for row in topic.partitions:
            yield
            place = topic.topic_id, row.partition_index
            if not sessions.add(session, place, name, tells=not is_new):
                shares.end_session(key)
                return ErrorCode.SHARE_SESSION_LIMIT_REACHED
    for gone in () if is_new else request.forgotten_topics_data:
        for number in gone.partitions:
            yield
            sessions.forget(session, (gone.topic_id, number))
    return session


def _readable(
    ctx: RequestContext, session: ShareSession, errors: Rows
) -> Steps[list[tuple[PartitionKey, str]]]:
    """The partitions of a session that may be fetched, with their topics; `errors` gets rows for the others."""
    image = ctx.services.metadata()
    allowed: dict[str, bool] = {}
    asked = []
    for key, known in list(session.partitions.items()):
        yield
        topic, number = known.topic, key[1]
        if not topic:
            errors[key] = error_row(number, ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        if topic not in allowed:
            allowed[topic] = ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic)
        if not allowed[topic]:
            errors[key] = error_row(number, DENIED[ResourceType.TOPIC])
        elif image.partition(topic, number) is None:
            errors[key] = error_row(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif name_of(image, key[0]) != topic:  # deleted and created again
            errors[key] = error_row(number, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            asked.append((key, topic))
    return asked


def _params(ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchParams:
    services = ctx.services
    max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
    if ctx.charge is not None:
        now_ms = services.clock.monotonic_ms()
        most = services.quotas.fetch.max_in_window(quota_user(ctx), ctx.client_id or "", now_ms)
        max_bytes = max_bytes if most is None else int(min(max_bytes, most))
    assert request.member_id is not None
    return ShareFetchParams(
        request.member_id,
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        AcquireLimits(
            request.max_records,
            request.batch_size,
            exact=ctx.version >= RENEWS_SINCE and request.share_acquire_mode == RECORD_LIMIT,
        ),
        ctx.connection.account,
    )


def _answer(
    ctx: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession | None,
    rows: Rows,
    outcomes: Outcomes,
) -> Steps[ShareFetchResponse]:
    """Combine the acquired records and the results of the acknowledgements."""
    epoch = request.share_session_epoch
    is_first = epoch == INITIAL_EPOCH
    if session is not None and not is_first and session.epoch != next_epoch(epoch):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    services = ctx.services
    assert request.group_id is not None
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=services.share_partitions.settings_of(
            request.group_id
        ).lock_duration_ms,
        responses=[],
    )
    image = services.metadata()
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    size = ANSWER_BYTES

    def add(topic_id: bytes, row: PartitionData) -> None:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
            response.responses.append(topic)
        topic.partitions.append(row)

    for key, row in rows.items():
        yield
        topic_id, number = key
        has_error = row.error_code != ErrorCode.NONE
        if session is not None and not is_first:
            has_records = bool(row.acquired_records)
            included = session.includes(key, has_records=has_records, has_error=has_error)
            if not included and key not in outcomes:
                continue
        if row.error_code in WRONG_BROKER:
            leader = leader_of(ctx, image, name_of(image, topic_id), number)
            row.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
            add_endpoint(response.node_endpoints, leader, NodeEndpoint)
        if key in outcomes:
            row.acknowledge_error_code, row.acknowledge_error_message = told(outcomes.pop(key))
        size += ROW_BYTES + len(row.records or b"")
        add(topic_id, row)
    for (topic_id, number), outcome in outcomes.items():
        yield
        error, message = told(outcome)
        add(
            topic_id,
            PartitionData(
                partition_index=number,
                acknowledge_error_code=error,
                acknowledge_error_message=message,
                records=b"",
                acquired_records=[],
            ),
        )
    if ctx.charge is not None and ctx.charge.throttle_ms is None:
        fetch_throttle_time_ms(ctx, ctx.charge, services.quotas, services.clock, size)
    return response
