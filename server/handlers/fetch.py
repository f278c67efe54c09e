"""Fetch (API key 1), for consumers and for followers.

Behavior: stored batches are sent as they are in the segment, whole, as slices of the file. If fewer
than min_bytes can be read and nothing is wrong, the request waits in the purgatory until enough was
appended or max_wait_ms is over; a topic that does not exist does not end the wait. The first
partition with data always gives one batch, even one larger than allowed (KIP-74). Incremental
sessions as in KIP-227. A follower reads up to the log end, and its fetch offset shows its progress;
a consumer may read from a follower, or be sent to one in its rack (KIP-392). A throttled follower
that is not in sync gets no records while the quota is used up (KIP-73). A consumer that is over a quota
gets an answer without partitions, and the read bytes do not count (KIP-219).
Versions: below 4 (2) batches are converted to magic 1 (0), see old_fetch.py; below 10 topics with
compression.type=zstd are refused; from 12 on a diverging epoch is answered; from 13 on topics are
named by id; from 16 on a client that asks the wrong broker is told the leader (KIP-951); 18 has a
follower's high watermark (KIP-1166), which is not used: brokers of a cluster use version 17.
Omitted: remote (tiered) storage.
Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kwire.codec import decode_at_once
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)

from .. import native
from ..replication.fetch_session import TOPIC_IDS_SINCE, FetchContext, FetchedPartition
from ..replication.read import (
    STEP,
    FetchParams,
    Reading,
    WaitingFetch,
    close_slices,
    fetch_params,
    fetch_records,
    give_up_pending,
    read_many,
)
from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType
from .authorization import AllowAll
from .context import Later, RequestContext
from .fetch_answer import answer_of, throttled_answer
from .fetch_plain import written_answer, written_answer_later
from .gate import quota_user
from .old_fetch import MAX_CONVERTED_BYTES, READS_MAGIC_2_SINCE, Conversion, refuses_old
from .registry import handles

Steps = Generator[None, None, Any]

#: Fetches of more partitions than this are answered in turns of the loop.
MANY_PARTITIONS = 512

READS_ZSTD_SINCE = 10

#: From this version on a consumer may read from a follower (KIP-392).
READS_FOLLOWERS_SINCE = 11
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@handles(FetchRequest, versions="0-18", authorize=None)
def fetch(
    ctx: RequestContext, request: FetchRequest, context: FetchContext | None = None
) -> FetchResponse | Later[FetchResponse] | Steps:
    """Read from partitions that this broker leads, at once or when there is enough."""
    answer: FetchResponse | Later[FetchResponse] | Steps
    answer = _fetch(ctx, request, context, answer_of, _answer_later)
    return answer


def plain_fetch(ctx: RequestContext, frame: memoryview, at: int) -> Any:
    """Do the same, and write the answer without message objects if all of its rows are plain."""
    if native.take_fetch is not None:
        answer = _fetch_natively(ctx, frame, at, native.take_fetch)
        if answer is not None:
            return answer
    request = decode_at_once(FetchRequest, frame, ctx.version, at)
    if request is None:
        return None
    ctx.message = request
    if request.replica_id >= 0 or request.replica_state is not None:
        return _fetch(ctx, request, None, answer_of, _answer_later)
    return _fetch(ctx, request, None, written_answer, written_answer_later)


fetch.plain = plain_fetch


def _fetch_natively(
    ctx: RequestContext, frame: memoryview, at: int, take: Callable[..., tuple[Any, ...] | None]
) -> Any:
    """Do the same for a consumer in no rack, of which there is no message; None if the request is not plain."""
    version, services = ctx.version, ctx.services
    sessions = services.fetch_sessions
    taken = take(frame, at, version, sessions.sessions, FetchedPartition)
    if taken is None:
        return None
    max_wait_ms, min_bytes, max_bytes, read_committed, partitions, session = taken
    if session is None:
        context = FetchContext(partitions)
    else:
        context = sessions.go_on(session, ctx.now_ms)
    max_bytes = min(max_bytes, services.config.get_int("fetch.max.bytes"))
    if ctx.charge is not None:
        max_bytes = _within_quota(ctx, max_bytes)
    params = fetch_params(
        (
            max_bytes,
            max_bytes,
            min_bytes,
            max_wait_ms,
            read_committed,
            version < READS_FOLLOWERS_SINCE,
            False,
            version >= TOPIC_IDS_SINCE,
            -1,
            -1,
            (),
            None,
            None,
            None
            if type(services.authorizer) is AllowAll
            else partial(_denies, ctx, of_replica=False),
        )
    )
    return _answer(ctx, None, context, params, written_answer, written_answer_later)


def _fetch(
    ctx: RequestContext,
    request: FetchRequest,
    context: FetchContext | None,
    answer: Callable[..., Any],
    answer_later: Callable[..., Any],
) -> Any:
    if context is None:
        context = ctx.services.fetch_sessions.context(request, ctx.version, ctx.now_ms)
    if context.error:
        return FetchResponse(error_code=context.error)
    version, services = ctx.version, ctx.services
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    allowed = max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
    charge = ctx.charge
    if charge is not None:
        if replica_id >= 0:
            charge.throttle_ms = 0
        else:
            allowed = max_bytes = _within_quota(ctx, allowed)
    refuse = convert = None
    if version < READS_ZSTD_SINCE:
        refuse = partial(refuses_old, ctx)
        if version < READS_MAGIC_2_SINCE:
            max_bytes = min(max_bytes, MAX_CONVERTED_BYTES)
            convert = Conversion(ctx)
    params = fetch_params(
        (
            max_bytes,
            allowed,
            request.min_bytes,
            request.max_wait_ms,
            request.isolation_level == 1,
            replica_id >= 0 or version < READS_FOLLOWERS_SINCE,
            # Before version 3 a client has no other way past a batch larger than it allows.
            version < 3,
            version >= TOPIC_IDS_SINCE,
            replica_id,
            -1 if state is None else state.replica_epoch,
            _brokers_in_rack(ctx, request) if request.rack_id and replica_id < 0 else (),
            refuse,
            convert,
            None
            if type(services.authorizer) is AllowAll
            else partial(_denies, ctx, of_replica=replica_id >= 0),
        )
    )
    return _answer(ctx, request, context, params, answer, answer_later)


def _answer(
    ctx: RequestContext,
    request: FetchRequest | None,
    context: FetchContext,
    params: FetchParams,
    answer: Callable[..., Any],
    answer_later: Callable[..., Any],
) -> Any:
    """Read, now or later, and answer."""
    services = ctx.services
    if len(context.partitions) > MANY_PARTITIONS:
        return _fetch_many(ctx, request, context, params)
    found = fetch_records(services.replica_manager, services.metadata, context, params, ctx.now_ms)
    if type(found) is Reading:
        return answer(ctx, request, context, found)
    assert type(found) is WaitingFetch
    return ctx.later(
        found.future,
        lambda result: answer_later(ctx, request, context, params, found, result),
        found.end,
    )


@fetch.many_rows
def fetch_in_steps(ctx: RequestContext, request: FetchRequest) -> Steps:
    """Do the same for a request that names many partitions."""
    sessions = ctx.services.fetch_sessions
    context = yield from sessions.context_in_steps(request, ctx.version, ctx.now_ms)
    answer = fetch.function(ctx, request, context)  # type: ignore[call-arg]
    return (yield from answer) if isinstance(answer, Generator) else answer


def _fetch_many(
    ctx: RequestContext, request: FetchRequest | None, context: FetchContext, params: FetchParams
) -> Steps:
    """Read many partitions in steps, and again after a wait."""
    where = ctx.services.replica_manager, ctx.services.metadata, context, params
    reading = yield from read_many(*where, ctx.now_ms)
    found = fetch_records(*where, ctx.now_ms, reading)
    if isinstance(found, Reading):
        return (yield from _answer_many(ctx, request, context, found))

    def again(_: object) -> Generator[None, None, FetchResponse]:
        if isinstance(found.future, asyncio.Task):  # records that were delayed or converted
            reading = found.read()
        else:
            reading = yield from read_many(*where, None)
            give_up_pending(reading)
        return (yield from _answer_many(ctx, request, context, reading))

    return ctx.later(found.future, again, found.end)


def _answer_many(
    ctx: RequestContext, request: FetchRequest | None, context: FetchContext, reading: Reading
) -> Generator[None, None, FetchResponse]:
    """Make an answer with many rows in steps."""
    throttled = throttled_answer(ctx, context, reading)
    if throttled is not None:
        return throttled
    whole: FetchResponse | None = None
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    first = 0
    try:
        while whole is None or first < len(reading.rows):
            yield
            rows = reading.rows[first : first + STEP]
            part = answer_of(ctx, request, context, reading._replace(rows=rows))
            first += STEP
            if whole is None:
                whole = FetchResponse(session_id=part.session_id, responses=[])
            if part.error_code:
                close_slices(reading._replace(rows=reading.rows[first:]))
                return part
            for topic in part.responses:
                known = topics.setdefault((topic.topic, topic.topic_id), topic)
                if known is topic:
                    whole.responses.append(topic)
                else:
                    known.partitions += topic.partitions
            nodes = {endpoint.node_id for endpoint in whole.node_endpoints}
            whole.node_endpoints += [e for e in part.node_endpoints if e.node_id not in nodes]
    except GeneratorExit:
        close_slices(reading)
        raise
    return whole


def _denies(ctx: RequestContext, topic: str, *, of_replica: bool) -> bool:
    """Whether the client may not read a topic; a replica may read all, or none."""
    if of_replica:
        return not ctx.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return topic != "" and not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic)


def _brokers_in_rack(ctx: RequestContext, request: FetchRequest) -> tuple[int, ...]:
    """Live brokers in the consumer's rack, if replicas are to be selected by rack."""
    if ctx.services.config.get_optional_str("replica.selector.class") != RACK_AWARE_SELECTOR:
        return ()
    brokers = ctx.services.metadata().brokers.values()
    return tuple(b.id for b in brokers if b.rack == request.rack_id)


def _within_quota(ctx: RequestContext, max_bytes: int) -> int:
    """The maximum that a consumer may read without exceeding its quota for certain, which could go on forever."""
    services = ctx.services
    now_ms = services.clock.monotonic_ms()
    most = services.quotas.fetch.max_in_window(quota_user(ctx), ctx.client_id or "", now_ms)
    return max_bytes if most is None else int(min(max_bytes, most))


def _answer_later(
    ctx: RequestContext,
    request: FetchRequest | None,
    context: FetchContext,
    _params: FetchParams,
    found: WaitingFetch,
    _result: object,
) -> FetchResponse:
    return answer_of(ctx, request, context, found.read())
