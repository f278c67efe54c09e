"""ShareAcknowledge (API key 79), and the acknowledgements that come with a ShareFetch.

Behavior: the acknowledgements of a partition are taken all or none, and are answered when they are stored. A request
belongs to the member's share session (server/share/sessions.py); one with the final epoch ends the session, and what the
member still has is released.
Versions: 1-2; 2 renews locks (KIP-1222).
Source: KafkaApis.handleShareAcknowledgeRequest, handleAcknowledgements, validateAcknowledgementBatches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages import share_fetch
from kwire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgeTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from ..share.acknowledgement import RENEW, Acknowledged, ShareRefusal
from ..share.manager import Outcome
from ..share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, next_epoch
from ..turns import Steps
from .authorization import DENIED, AclOperation, ResourceType
from .endpoints import add_endpoint, leader_of
from .registry import handles
from .share_version import refusal_of

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage
    from .context import Later, RequestContext

#: The version from which locks can be renewed.
RENEWS_SINCE = 2

MAX_MEMBER_ID = 36

#: How many acknowledge types are checked in one step.
STEP = 65_536

#: The client has to look for the leader.
WRONG_BROKER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

#: How the acknowledgements of each partition fare: at once or when they are stored.
Outcomes = dict[PartitionKey, "Outcome | asyncio.Future[Outcome]"]

AnyTopic = AcknowledgeTopic | share_fetch.FetchTopic
AnyBatch = AcknowledgementBatch | share_fetch.AcknowledgementBatch


def may_consume(
    ctx: RequestContext, request: share_fetch.ShareFetchRequest | ShareAcknowledgeRequest
) -> ErrorCode:
    """Whether a request of a member of a share group may be handled."""
    refusal = refusal_of(ctx.services)
    if refusal is not None:
        return refusal.error
    if request.group_id is None:
        return ErrorCode.INVALID_REQUEST
    if not ctx.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return DENIED[ResourceType.GROUP]
    # The empty id stands for no member, and a UUID has 36 characters.
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


@handles(ShareAcknowledgeRequest, versions="1-2", authorize=may_consume)
def share_acknowledge(
    ctx: RequestContext, request: ShareAcknowledgeRequest
) -> Steps[ShareAcknowledgeResponse | Later[ShareAcknowledgeResponse]]:
    """Accept, release or reject records, or renew their locks."""
    shares = ctx.services.share_partitions
    assert request.group_id is not None and request.member_id is not None
    key = request.group_id, request.member_id
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = shares.sessions.find(key, epoch)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    if epoch != FINAL_EPOCH:
        session.epoch = next_epoch(session.epoch)
    outcomes = yield from acknowledge(ctx, *key, request.topics, is_renew=request.is_renew_ack)

    def answer(_: object) -> Steps[ShareAcknowledgeResponse]:
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=shares.settings_of(key[0]).lock_duration_ms, responses=[]
        )
        image = ctx.services.metadata()
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        for (topic_id, number), outcome in outcomes.items():
            yield
            error, message = told(outcome)
            row = PartitionData(partition_index=number, error_code=error, error_message=message)
            if error in WRONG_BROKER:
                leader = leader_of(ctx, image, name_of(image, topic_id), number)
                row.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
                add_endpoint(response.node_endpoints, leader, NodeEndpoint)
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareAcknowledgeTopicResponse(
                    topic_id=topic_id, partitions=[]
                )
                response.responses.append(topic)
            topic.partitions.append(row)
        if epoch == FINAL_EPOCH:
            shares.end_session(key)
        return response

    pending = pending_of(outcomes)
    if not pending:
        return (yield from answer(None))
    return ctx.later(all_of(pending), answer)


def acknowledge(
    ctx: RequestContext,
    group_id: str,
    member_id: str,
    topics: Iterable[AnyTopic],
    *,
    is_renew: bool,
) -> Steps[Outcomes]:
    """Apply the acknowledgements of a request, each partition by itself."""
    image = ctx.services.metadata()
    failed: Outcomes = {}
    empty: Outcomes = {}
    asked: dict[PartitionKey, list[Acknowledged]] = {}
    most = RENEW if ctx.version >= RENEWS_SINCE else RENEW - 1
    for topic in topics:
        yield
        name = name_of(image, topic.topic_id)
        denied = name and not ctx.allows(AclOperation.READ, ResourceType.TOPIC, name)
        for row in topic.partitions:
            yield
            key = topic.topic_id, row.partition_index
            if not name:
                failed[key] = ShareRefusal(ErrorCode.UNKNOWN_TOPIC_ID, "")
                continue
            batches = yield from _checked(row.acknowledgement_batches, most, is_renew=is_renew)
            if batches is None:
                failed[key] = ShareRefusal(ErrorCode.INVALID_REQUEST, "")
            elif denied:
                failed[key] = ShareRefusal(DENIED[ResourceType.TOPIC], "")
            elif image.partition(name, row.partition_index) is None:
                failed[key] = ShareRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            elif batches:
                asked[key] = batches
            else:
                empty[key] = None
    if not asked:
        return failed  # as Apache Kafka: without the partitions for which there was nothing to do
    taken: Outcomes = {}
    for key, batches in asked.items():
        taken[key] = yield from ctx.services.share_partitions.acknowledge(
            group_id, member_id, key, batches
        )
    return {**taken, **failed, **empty}


def _checked(
    batches: Iterable[AnyBatch], most: int, *, is_renew: bool
) -> Steps[list[Acknowledged] | None]:
    """The acknowledgements of one partition; None if they are invalid."""
    checked: list[Acknowledged] = []
    before = -1
    for batch in batches:
        yield
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < before or not types:
            return None
        if len(types) > 1 and last - first != len(types) - 1:
            return None
        for begin in range(0, len(types), STEP):
            yield
            some = types if len(types) <= STEP else types[begin : begin + STEP]
            if min(some) < 0 or max(some) > most or (not is_renew and RENEW in some):
                return None
        before = last
        checked.append(Acknowledged(first, last, types))
    return checked


def told(outcome: Outcome | asyncio.Future[Outcome]) -> tuple[ErrorCode, str | None]:
    """The error code and message of a partition after its acknowledgements."""
    if isinstance(outcome, asyncio.Future):
        outcome = outcome.result()
    if outcome is None:
        return ErrorCode.NONE, None
    return outcome.error, outcome.message or None


def pending_of(outcomes: Outcomes) -> list[asyncio.Future[Outcome]]:
    """The awaitables to wait for."""
    return [
        each for each in outcomes.values() if isinstance(each, asyncio.Future) and not each.done()
    ]


def all_of(futures: list[asyncio.Future[Outcome]]) -> asyncio.Future[object]:
    """One future for several."""
    return futures[0] if len(futures) == 1 else asyncio.gather(*futures)  # type: ignore[return-value]


def name_of(image: MetadataImage, topic_id: bytes) -> str:
    """The name of a topic, empty if there is none with this id."""
    topic = image.topics_by_id.get(topic_id)
    return "" if topic is None else topic.name
