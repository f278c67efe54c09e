"""Fetch (API key 1), for consumers and for followers.

Behavior: stored batches go out as they lie in the segment, whole, as slices of the file. If fewer
    than min_bytes can be read and nothing is wrong, the request waits in the purgatory until enough
    was appended or max_wait_ms is over; a topic that does not exist is no reason not to wait. The
    first partition with data always gives one batch, even a larger one than allowed (KIP-74).
    Incremental sessions as KIP-227. A follower reads up to the log end, and its fetch offset tells
    how far it is; a consumer may read from a follower, or be sent to one in its rack (KIP-392).
    A throttled follower that is not in sync gets no records while there were too many (KIP-73).
Versions: below 4 (2) batches are converted to magic 1 (0), see old_fetch.py; below 10 topics with
    compression.type=zstd are refused; from 12 on a diverging epoch is answered; from 13 on topics
    are named by id; from 16 on the leader is named to who asks the wrong broker (KIP-951).
Omitted: remote (tiered) storage.
Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

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

from ..metadata.image import MetadataImage
from ..replication.fetch_session import TOPIC_IDS_SINCE, FetchContext, FetchedPartition, Key
from ..replication.partition import Partition
from ..replication.purgatory import FetchWaiter
from ..replication.read_result import FollowerFetch, ReadResult, refused
from ..replication.replication_quota import ReplicationQuota
from .context import Later, RequestContext
from .endpoints import add_endpoint, leader_of
from .old_fetch import MAX_CONVERTED_BYTES, READS_MAGIC_2_SINCE, converted, refuses_old
from .registry import handles

READS_ZSTD_SINCE = 10

#: From this version on a consumer may read from a follower (KIP-392).
READS_FOLLOWERS_SINCE = 11
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

#: Up to this version a client does not know KAFKA_STORAGE_ERROR.
NO_STORAGE_ERROR_UP_TO = 5

#: From this version on whoever asks the wrong broker is told the right one.
NAMES_LEADER_SINCE = 16
WRONG_BROKER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


#: One partition of an answer before it is encoded: what it is asked by, what is asked, the topic's
#: name, what was found. A plain tuple, since there is one for each partition of each fetch.
Row = tuple[Key, FetchedPartition, str, ReadResult]


class Reading(NamedTuple):
    """One pass over the partitions of a fetch.

    Shape: `waiting` has each partition that more can be read from, and from which offset on.
    `max_bytes` is what the request may have at most, whatever it asks for. `throttle` is None unless a replica fetches and some are throttled.
    """

    rows: list[Row]
    size: int
    answer_now: bool
    waiting: list[tuple[Partition, int]]
    max_bytes: int
    throttle: Throttle | None = None


class Throttle(NamedTuple):
    """What a leader holds back from a follower at the moment.

    Unit: in `pause_ms` there may be room again.
    """

    quota: ReplicationQuota
    held_back: frozenset[Key]
    pause_ms: int


def _refusal(ctx: RequestContext, request: FetchRequest, error: ErrorCode) -> FetchResponse:
    return FetchResponse(error_code=error)


@handles(FetchRequest, versions="0-17", refusal=_refusal)
def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Later[FetchResponse]:
    """Read from partitions that this broker leads, at once or when there is enough."""
    context = ctx.services.fetch_sessions.context(request, ctx.version, ctx.now_ms)
    if context.error:
        return FetchResponse(error_code=context.error)
    reading = _read(ctx, request, context, first=True)
    waiter = _waiter(ctx, request, reading)
    if ctx.version < READS_MAGIC_2_SINCE:
        return ctx.later(
            _fetch_converted(ctx, request, context, reading, waiter),
            on_disconnect=None if waiter is None else waiter.end,
        )
    if waiter is None:
        return _answer(ctx, context, reading)
    return ctx.later(
        waiter.future,
        lambda _: _answer(ctx, context, _read(ctx, request, context)),
        waiter.end,
    )


def _waiter(ctx: RequestContext, request: FetchRequest, reading: Reading) -> FetchWaiter | None:
    """Wait for what is missing, unless there is enough or nothing to wait for."""
    missing = min(request.min_bytes, reading.max_bytes) - reading.size
    max_wait_ms = request.max_wait_ms
    if missing <= 0 or reading.answer_now or max_wait_ms <= 0:
        return None
    if reading.throttle is not None and reading.throttle.held_back:
        max_wait_ms = min(max_wait_ms, reading.throttle.pause_ms)
    elif not reading.waiting:
        return None
    _close_slices(reading)
    return FetchWaiter(
        asyncio.get_running_loop(),
        reading.waiting,
        missing_bytes=missing,
        max_wait_ms=max_wait_ms,
        read_committed=request.isolation_level == 1,
        of_replica=replica_of(request)[0] >= 0,
    )


def replica_of(request: FetchRequest) -> tuple[int, int]:
    """The broker that fetches as a replica and its epoch, (-1, -1) for a consumer."""
    state = request.replica_state
    if state is None:
        return request.replica_id, -1
    return state.replica_id, state.replica_epoch


async def _fetch_converted(
    ctx: RequestContext,
    request: FetchRequest,
    context: FetchContext,
    reading: Reading,
    waiter: FetchWaiter | None,
) -> FetchResponse:
    if waiter is not None:
        await waiter.future
        reading = _read(ctx, request, context)
    for index, (key, asked, topic, result) in enumerate(reading.rows):
        if result.data:
            partition = ctx.services.replica_manager.get(topic, asked.partition)
            result = await converted(ctx, partition, result, asked.fetch_offset)
            reading.rows[index] = (key, asked, topic, result)
    return _answer(ctx, context, reading)


def _read(
    ctx: RequestContext, request: FetchRequest, context: FetchContext, *, first: bool = False
) -> Reading:
    """Read every partition once, in the session's order, within the limits of the request.

    Shape: `first` notes how far a follower is; a fetch that has waited told it already.
    """
    services = ctx.services
    image = services.metadata()
    partitions: dict[Any, Partition] = services.replica_manager.partitions
    version = ctx.version
    read_committed = request.isolation_level == 1
    budget = max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
    if version < READS_MAGIC_2_SINCE:
        budget = min(budget, MAX_CONVERTED_BYTES)
    min_one_batch = True
    replica_id, replica_epoch = replica_of(request)
    follower: FollowerFetch | None = None
    in_rack = _brokers_in_rack(ctx, request, image) if replica_id < 0 and request.rack_id else ()
    rows: list[Row] = []
    size = 0
    answer_now = False
    waiting: list[tuple[Partition, int]] = []
    noted_ms = ctx.now_ms if first else None
    may_idle = context.incremental and replica_id >= 0
    throttle = _throttle(ctx, context, replica_id) if replica_id >= 0 else None
    held_back: Collection[Key] = () if throttle is None else throttle.held_back
    for key, asked in context:
        if asked.idle is not None and may_idle:
            idle, state, end_offset = asked.idle
            if (
                asked.high_watermark == idle.log.high_watermark
                and asked.log_start_offset == idle.log.log_start_offset
                and idle.idles(state, end_offset, replica_id, replica_epoch, noted_ms)
            ):
                waiting.append((idle, end_offset))
                continue
            asked.idle = None
        topic = asked.topic
        if version >= TOPIC_IDS_SINCE:
            found = image.topics_by_id.get(asked.topic_id)
            topic = "" if found is None else found.name
        # A plain tuple hashes and compares as the TopicPartition, and costs less to make.
        partition = partitions.get((topic, asked.partition))
        if partition is None:
            result = _missing(ctx, image, asked, topic)
            answer_now = answer_now or result.error in WRONG_BROKER
        elif (
            in_rack
            and partition.is_leader
            and (preferred := partition.preferred_replica(asked.fetch_offset, in_rack)) >= 0
        ):
            result = partition.redirected(preferred)
            answer_now = True
        elif version < READS_ZSTD_SINCE and (old := refuses_old(ctx, partition)):
            result = _refused(old)
            answer_now = True
        else:
            if replica_id >= 0:
                follower = FollowerFetch(replica_id, replica_epoch, asked.follower_log_start)
            result = partition.read(
                asked.fetch_offset,
                0 if key in held_back else min(asked.max_bytes, budget),
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                read_committed=read_committed,
                min_one_batch=min_one_batch and key not in held_back,
                leader_only=replica_id >= 0 or version < READS_FOLLOWERS_SINCE,
                follower=follower,
                now_ms=noted_ms,
            )
            read = len(result.data)
            if read:
                size += read
                budget = max(0, budget - read)
                # Before version 3 a client has no other way past a batch larger than it allows.
                min_one_batch = version < 3
            if result.error or result.diverging:
                answer_now = True
            elif key not in held_back:
                if follower is not None:
                    until = partition.log.log_end_offset
                    if asked.fetch_offset == until:
                        asked.idle = (partition, partition.state, until)
                else:
                    until = result.last_stable_offset if read_committed else result.high_watermark
                # What is there already, but in the next segment or beyond a limit, does not wait.
                answer_now = answer_now or result.next_offset < until
                waiting.append((partition, result.next_offset))
        rows.append((key, asked, topic, result))
    return Reading(rows, size, answer_now, waiting, max_bytes, throttle)


def _throttle(ctx: RequestContext, context: FetchContext, replica_id: int) -> Throttle | None:
    """What of a follower's fetch is to be answered without records for now.

    Source: ReplicaManager.shouldLeaderThrottle.
    """
    replicas = ctx.services.replica_manager
    quota = replicas.leader_quota
    if quota is None or not quota.throttled:
        return None
    pause_ms = quota.pause_ms(ctx.services.clock.monotonic_ms())
    held_back: list[Key] = []
    by_id = ctx.services.metadata().topics_by_id
    for key, asked in context if pause_ms else ():
        found = by_id.get(asked.topic_id)
        topic = asked.topic if found is None else found.name
        if quota.is_throttled(topic, asked.partition):
            partition = replicas.get(topic, asked.partition)
            if partition is not None and replica_id not in partition.isr.isr:
                held_back.append(key)
    return Throttle(quota, frozenset(held_back), pause_ms)


def _brokers_in_rack(
    ctx: RequestContext, request: FetchRequest, image: MetadataImage
) -> tuple[int, ...]:
    """Live brokers in the consumer's rack, if replicas are to be selected by rack."""
    if ctx.services.config.get_optional_str("replica.selector.class") != RACK_AWARE_SELECTOR:
        return ()
    return tuple(b.id for b in image.brokers.values() if b.rack == request.rack_id)


def _missing(
    ctx: RequestContext, image: MetadataImage, asked: FetchedPartition, topic: str
) -> ReadResult:
    if not topic and ctx.version >= TOPIC_IDS_SINCE:
        return _refused(ErrorCode.UNKNOWN_TOPIC_ID)
    return _refused(ctx.services.replica_manager.why_missing(image, topic, asked.partition))


def _refused(error: ErrorCode) -> ReadResult:
    # Without a replica there is an empty list of aborted transactions, with one there is none.
    return refused(error)._replace(aborted=[])


def _close_slices(reading: Reading) -> None:
    for _, _, _, result in reading.rows:
        if not isinstance(result.data, bytes):
            result.data.close()


def _answer(ctx: RequestContext, context: FetchContext, reading: Reading) -> FetchResponse:
    session = context.session
    if context.overtaken:
        _close_slices(reading)
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    response = FetchResponse(session_id=0 if session is None else session.id, responses=[])
    topics = response.responses
    by_name: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    served: list[Key] = []
    for key, asked, topic_name, result in reading.rows:
        has_data = len(result.data) > 0
        if session is not None:
            news = asked.differs(
                result.error,
                result.high_watermark,
                result.log_start_offset,
                has_news=has_data or result.diverging is not None or result.preferred_replica >= 0,
            )
            if context.incremental and not news:
                continue
            if has_data:
                served.append(key)
        name, topic_id, _ = key
        topic = by_name.get((name, topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
            by_name[(name, topic_id)] = topic
            topics.append(topic)
        data = _partition_data(asked.partition, result)
        topic.partitions.append(data)
        if result.error:
            _explain(ctx, response, topic_name, data)
    if session is not None:
        session.served(served)
    if reading.throttle is not None:
        _count(ctx, reading, reading.throttle.quota)
    return response


def _count(ctx: RequestContext, reading: Reading, quota: ReplicationQuota) -> None:
    """Take what is sent of throttled partitions into account, whoever follows there."""
    size = sum(
        len(result.data)
        for _, asked, topic, result in reading.rows
        if result.data and quota.is_throttled(topic, asked.partition)
    )
    if size:
        quota.record(size, ctx.services.clock.monotonic_ms())


def _explain(ctx: RequestContext, response: FetchResponse, topic: str, data: PartitionData) -> None:
    """Say an error as the version knows it, and name the leader to who asked the wrong broker."""
    if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and ctx.version <= NO_STORAGE_ERROR_UP_TO:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if data.error_code in WRONG_BROKER and ctx.version >= NAMES_LEADER_SINCE:
        leader = leader_of(ctx, ctx.services.metadata(), topic, data.partition_index)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        add_endpoint(response.node_endpoints, leader, NodeEndpoint)


def _partition_data(partition: int, result: ReadResult) -> PartitionData:
    aborted = result.aborted
    diverging = result.diverging
    return PartitionData(
        partition_index=partition,
        error_code=result.error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=(
            None
            if diverging is None
            else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        ),
        aborted_transactions=(
            None
            if aborted is None
            else [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ]
        ),
        preferred_read_replica=result.preferred_replica,
        records=result.data,
    )
