"""CreateTopics (API key 19), DeleteTopics (20), CreatePartitions (37).

Behavior: each topic is its own row. The answer comes when the new partitions can be used, so that
    a produce right after it never meets an unknown partition; after a deletion nothing of the topic
    is found any more, and its files go after file.delete.delay.ms. A broker that is not the
    controller refuses with NOT_CONTROLLER, and clients ask Metadata who is.
Versions: CreateTopics 5 and up describe the new topic's configs; DeleteTopics 6 takes topic ids.
Omitted: create and alter policies; the controller mutation quota.
Source: KafkaApis.handleCreateTopicsRequest, handleDeleteTopicsRequest, ZkAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kwire.errors import ErrorCode
from kwire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kwire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kwire.types import ZERO_UUID

from ..config.describe import describe_topic
from ..controller.controller import NOT_CONTROLLER
from ..controller.refusal import Refusal
from ..controller.topic_plan import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    asks_for_too_many,
    plan_partitions,
    plan_topic,
)
from ..controller.topics import TakenNames
from ..coordination.cluster import random_id
from ..coordination.paths import NewTopic
from .context import Later, RequestContext
from .registry import handles

UNKNOWN_TOPIC = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
FOUND_TWICE = "Found multiple entries for this topic."


# -- CreateTopics --------------------------------------------------------------------------------


@handles(CreateTopicsRequest, versions="0-7")
def create_topics(
    ctx: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | Later[CreateTopicsResponse]:
    """Create topics, or with validate_only say whether they could be."""
    services = ctx.services
    if not services.controller.is_active:
        return CreateTopicsResponse(
            topics=[_refused_topic(topic.name, NOT_CONTROLLER) for topic in request.topics]
        )
    if asks_for_too_many(request.topics, services.config.get_int("num.partitions")):
        return CreateTopicsResponse(
            topics=[_refused_topic(topic.name, TOO_MANY_PARTITIONS) for topic in request.topics]
        )
    image = services.metadata()
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, NewTopic | Refusal] = {}
    wanted: list[NewTopic] = []
    taken = TakenNames(image.topics)
    for topic in request.topics:
        if times[topic.name] > 1:
            rows[topic.name] = Refusal(ErrorCode.INVALID_REQUEST, FOUND_TWICE)
            continue
        row = rows[topic.name] = plan_topic(
            topic, image, services.config, taken, topic_id=random_id()
        )
        if isinstance(row, NewTopic):
            wanted.append(row)
            taken.add(topic.name)
    if request.validate_only or not wanted:
        return CreateTopicsResponse(
            topics=[
                _created(ctx, topic.name, rows[topic.name], created=False)
                for topic in request.topics
            ]
        )
    return ctx.later(_create(ctx, request, rows, wanted))


async def _create(
    ctx: RequestContext,
    request: CreateTopicsRequest,
    rows: dict[str, NewTopic | Refusal],
    wanted: Sequence[NewTopic],
) -> CreateTopicsResponse:
    made = await ctx.services.controller.create_topics(wanted)
    for topic, result in zip(wanted, made, strict=True):
        if isinstance(result, Refusal):
            rows[topic.name] = result
    return CreateTopicsResponse(
        topics=[
            _created(ctx, topic.name, rows[topic.name], created=True) for topic in request.topics
        ]
    )


def _refused_topic(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=refusal.error, error_message=refusal.message, configs=[]
    )


def _created(
    ctx: RequestContext, name: str, row: NewTopic | Refusal, *, created: bool
) -> CreatableTopicResult:
    if isinstance(row, Refusal):
        return _refused_topic(name, row)
    configs = None
    if ctx.version >= 5:
        configs = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(ctx.services.config, row.configs)
        ]
    return CreatableTopicResult(
        name=name,
        topic_id=row.topic_id if created else ZERO_UUID,
        error_code=0,
        error_message=None,
        num_partitions=len(row.partitions),
        replication_factor=len(row.partitions[0].replicas),
        configs=configs,
    )


# -- DeleteTopics --------------------------------------------------------------------------------


@handles(DeleteTopicsRequest, versions="0-6")
def delete_topics(
    ctx: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse | Later[DeleteTopicsResponse]:
    """Delete topics by name, or from version 6 on by id."""
    services = ctx.services
    image = services.metadata()
    asked: list[tuple[str | None, bytes]]
    if ctx.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    rows: list[tuple[str | None, bytes, Refusal | None]] = []
    for name, topic_id in asked:
        refused: Refusal | None = None
        if name is not None and topic_id != ZERO_UUID:
            refused = Refusal(
                ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified."
            )
        elif not services.controller.is_active:
            refused = NOT_CONTROLLER
        elif not services.config.get_bool("delete.topic.enable"):
            # Older clients do not know the name of the reason.
            disabled = ErrorCode.TOPIC_DELETION_DISABLED
            error = disabled if ctx.version >= 3 else ErrorCode.INVALID_REQUEST
            refused = Refusal(error, "Topic deletion is disabled.")
        elif name is None:
            by_id = image.topics_by_id.get(topic_id)
            if by_id is None:
                refused = UNKNOWN_ID
            else:
                name = by_id.name
        elif name in image.topics:
            topic_id = image.topics[name].topic_id
        else:
            refused = UNKNOWN_TOPIC
        rows.append((name, topic_id, refused))
    # A topic that is named twice is deleted once, and both rows say so.
    names = list(
        dict.fromkeys(name for name, _, refused in rows if refused is None and name is not None)
    )
    if not names:
        return _deleted(rows, {})
    return ctx.later(
        services.controller.delete_topics(names),
        lambda results: _deleted(rows, dict(zip(names, results, strict=True))),
    )


def _deleted(
    rows: list[tuple[str | None, bytes, Refusal | None]], results: dict[str, Refusal | None]
) -> DeleteTopicsResponse:
    responses = []
    for name, topic_id, refused in rows:
        if refused is None and name is not None:
            refused = results[name]
        responses.append(
            DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=refused.error if refused is not None else 0,
                error_message=refused.message if refused is not None else None,
            )
        )
    return DeleteTopicsResponse(responses=responses)


# -- CreatePartitions ----------------------------------------------------------------------------


@handles(CreatePartitionsRequest, versions="0-3")
def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Later[CreatePartitionsResponse]:
    """Add partitions to topics, or with validate_only say whether they could be."""
    services = ctx.services
    image = services.metadata()
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, dict[int, tuple[int, ...]] | Refusal] = {}
    room = MAX_PARTITIONS_PER_REQUEST
    for topic in request.topics:
        if times[topic.name] > 1:
            rows[topic.name] = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif not services.controller.is_active:
            rows[topic.name] = NOT_CONTROLLER
        else:
            row = rows[topic.name] = plan_partitions(topic, image, room)
            if not isinstance(row, Refusal):
                room -= len(row)
    if request.validate_only or all(isinstance(row, Refusal) for row in rows.values()):
        return _grown(rows)
    return ctx.later(_grow(ctx, rows))


async def _grow(
    ctx: RequestContext, rows: dict[str, dict[int, tuple[int, ...]] | Refusal]
) -> CreatePartitionsResponse:
    for name, row in rows.items():
        if not isinstance(row, Refusal):
            result = await ctx.services.controller.create_partitions(name, row)
            if isinstance(result, Refusal):
                rows[name] = result
    return _grown(rows)


def _grown(rows: dict[str, dict[int, tuple[int, ...]] | Refusal]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name,
                error_code=row.error if isinstance(row, Refusal) else 0,
                error_message=row.message if isinstance(row, Refusal) else None,
            )
            for name, row in rows.items()
        ]
    )
