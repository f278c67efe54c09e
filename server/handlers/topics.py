"""CreateTopics (API key 19), DeleteTopics (20), CreatePartitions (37).

Behavior: each topic has its own row. The answer comes when the new partitions can be used, so that
a produce right after it never meets an unknown partition; after a deletion nothing of the topic can
be found, and its files are removed after file.delete.delay.ms. A broker that is not the controller
refuses with NOT_CONTROLLER, and clients look for the controller with Metadata.
Versions: CreateTopics 5 and up describe the new topic's configs; DeleteTopics 6 takes topic ids.
Omitted: create and alter policies.
Source: KafkaApis.handleCreateTopicsRequest, handleDeleteTopicsRequest, ZkAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

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
    DeleteTopicState,
)
from kwire.types import ZERO_UUID

from ..config.describe import describe_topic
from ..controller.controller import NOT_CONTROLLER
from ..controller.refusal import ControllerRefusal
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
from ..metadata.image import TopicImage
from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ..turns import Steps, each_in_steps
from .context import Later, RequestContext
from .gate import may_mutate
from .registry import handles

QUOTA_EXCEEDED = ControllerRefusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
NAMED_TWICE = ControllerRefusal(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
NOT_AUTHORIZED_TO_CREATE = ControllerRefusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
)
NOT_AUTHORIZED_TO_ALTER = ControllerRefusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed."
)


# -- CreateTopics --------------------------------------------------------------------------------


@handles(CreateTopicsRequest, versions="0-7", authorize=None)
def create_topics(
    ctx: RequestContext, request: CreateTopicsRequest
) -> Generator[None, None, CreateTopicsResponse | Later[CreateTopicsResponse]]:
    """Create topics, or with validate_only say whether they could be created."""
    services = ctx.services
    if not services.controller.is_active:
        return (yield from _all_refused(request, NOT_CONTROLLER))
    if asks_for_too_many(request.topics, services.config.get_int("num.partitions")):
        return (yield from _all_refused(request, TOO_MANY_PARTITIONS))
    image = services.metadata()
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, NewTopic | ControllerRefusal] = {}
    wanted: list[NewTopic] = []
    taken = TakenNames(image.topics)
    creates_any = ctx.allows(
        AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    for topic in request.topics:
        yield
        if times[topic.name] > 1:
            rows[topic.name] = NAMED_TWICE
            continue
        if not (creates_any or ctx.allows(AclOperation.CREATE, ResourceType.TOPIC, topic.name)):
            rows[topic.name] = NOT_AUTHORIZED_TO_CREATE
            continue
        # In a cluster a missing broker may still join; a single broker has none to wait for.
        row = rows[topic.name] = plan_topic(
            topic,
            image,
            services.config,
            taken,
            topic_id=random_id(),
            any_broker=services.ceiling == "3.9",
        )
        if isinstance(row, NewTopic) and not request.validate_only:
            if not may_mutate(ctx, len(row.partitions), strict_since=6):
                rows[topic.name] = QUOTA_EXCEEDED
                continue
            wanted.append(row)
            taken.add(topic.name)
    if not wanted:
        return (yield from _all_created(ctx, request, rows, created=False))

    def finish(
        made: Sequence[TopicImage | ControllerRefusal],
    ) -> Generator[None, None, CreateTopicsResponse]:
        for topic, result in zip(wanted, made, strict=True):
            if isinstance(result, ControllerRefusal):
                rows[topic.name] = result
        return (yield from _all_created(ctx, request, rows, created=True))

    return ctx.later(services.controller.create_topics(wanted), finish)


def _all_created(
    ctx: RequestContext,
    request: CreateTopicsRequest,
    rows: dict[str, NewTopic | ControllerRefusal],
    *,
    created: bool,
) -> Generator[None, None, CreateTopicsResponse]:
    topics = []
    for topic in request.topics:
        yield
        topics.append(_created(ctx, topic.name, rows[topic.name], created=created))
    return CreateTopicsResponse(topics=topics)


def _all_refused(
    request: CreateTopicsRequest, refusal: ControllerRefusal
) -> Steps[CreateTopicsResponse]:
    topics = yield from each_in_steps(
        lambda topic: _refused_topic(topic.name, refusal), request.topics
    )
    return CreateTopicsResponse(topics=topics)


def _refused_topic(name: str, refusal: ControllerRefusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=refusal.error, error_message=refusal.message, configs=[]
    )


def _created(
    ctx: RequestContext, name: str, row: NewTopic | ControllerRefusal, *, created: bool
) -> CreatableTopicResult:
    described = ctx.allows(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, log_denied=False
    )
    if isinstance(row, ControllerRefusal):
        refused = _refused_topic(name, row)
        if not described and row in (NOT_AUTHORIZED_TO_CREATE, NAMED_TWICE):
            refused.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return refused
    topic_id = row.topic_id if created else ZERO_UUID
    if not described:
        return CreatableTopicResult(
            name=name,
            # Apache Kafka before 4.0 counts the id among what DESCRIBE_CONFIGS is needed for.
            topic_id=ZERO_UUID if ctx.services.ceiling == "3.9" else topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
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
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(row.partitions),
        replication_factor=len(row.partitions[0].replicas),
        configs=configs,
    )


# -- DeleteTopics --------------------------------------------------------------------------------


@handles(DeleteTopicsRequest, versions="0-6", authorize=None)
def delete_topics(
    ctx: RequestContext, request: DeleteTopicsRequest
) -> Generator[None, None, DeleteTopicsResponse | Later[DeleteTopicsResponse]]:
    """Delete topics by name, or from version 6 on by id."""
    asked = yield from _topics_to_delete(ctx, request)
    refused = _why_no_deletion(ctx, asked)
    if refused is not None:
        made = yield from each_in_steps(
            lambda topic: DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=refused
            ),
            asked,
        )
        return DeleteTopicsResponse(responses=made)
    rows = []
    for topic in asked:
        yield
        rows.append(_found_topic(ctx, topic))
    # A topic that is named twice is deleted once, and both rows say so.
    names = list(dict.fromkeys(row.name for row in rows if row.name and not row.error_code))
    if ctx.charge is not None:
        names = yield from _within_quota(ctx, names, rows)
    if not names:
        return DeleteTopicsResponse(responses=rows)

    def finish(results: Sequence[ControllerRefusal | None]) -> Steps[DeleteTopicsResponse]:
        failed = {
            name: result.error
            for name, result in zip(names, results, strict=True)
            if result is not None
        }
        for row in rows:
            yield
            if row.name is not None and not row.error_code:
                row.error_code = failed.get(row.name, ErrorCode.NONE)
        return DeleteTopicsResponse(responses=rows)

    return ctx.later(ctx.services.controller.delete_topics(names), finish)


def _within_quota(
    ctx: RequestContext, names: Sequence[str], rows: Sequence[DeletableTopicResult]
) -> Steps[list[str]]:
    """The topics that the client's quota lets it delete; the rows of others get the error."""
    image = ctx.services.metadata()
    allowed = {}
    for name in names:
        yield
        topic = image.topic(name)
        partitions = 0 if topic is None else len(topic.partitions)
        allowed[name] = may_mutate(ctx, partitions, strict_since=5)
    for row in rows:
        yield
        if row.name is not None and not allowed.get(row.name, True):
            row.error_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return [name for name in names if allowed[name]]


def _topics_to_delete(
    ctx: RequestContext, request: DeleteTopicsRequest
) -> Steps[list[DeleteTopicState]]:
    """The rows in the form of version 6; in older versions they have only names."""
    if ctx.version >= 6:
        return request.topics
    return (
        yield from each_in_steps(
            lambda name: DeleteTopicState(name=name, topic_id=ZERO_UUID), request.topic_names
        )
    )


def _why_no_deletion(ctx: RequestContext, asked: list[DeleteTopicState]) -> ErrorCode | None:
    """The error that refuses the whole request; None if there is none."""
    if not ctx.services.controller.is_active:
        return ErrorCode.NOT_CONTROLLER
    if not ctx.services.config.get_bool("delete.topic.enable"):
        # Older clients do not know this error code.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        return disabled if ctx.version >= 3 else ErrorCode.INVALID_REQUEST
    if any(topic.name is not None and topic.topic_id != ZERO_UUID for topic in asked):
        return ErrorCode.INVALID_REQUEST
    return None


def _found_topic(ctx: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    """The row of a topic that can be deleted, or the error; the id is the one in the request.

    A client that may not describe a topic does not learn the name behind an id.
    """
    image = ctx.services.metadata()
    name, error = asked.name, ErrorCode.NONE
    if name is None and asked.topic_id != ZERO_UUID:
        found = image.topics_by_id.get(asked.topic_id)
        if found is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, found.name):
            name = found.name
    if not error:
        # Without a name and an id as well: it is not among the topics that may be deleted.
        if name is None or not ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in image.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeletableTopicResult(name=name, topic_id=asked.topic_id, error_code=error)


# -- CreatePartitions ----------------------------------------------------------------------------


@handles(CreatePartitionsRequest, versions="0-3", authorize=None)
def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> Generator[None, None, CreatePartitionsResponse | Later[CreatePartitionsResponse]]:
    """Add partitions to topics, or with validate_only say whether they could be added."""
    services = ctx.services
    image = services.metadata()
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, dict[int, tuple[int, ...]] | ControllerRefusal] = {}
    room = MAX_PARTITIONS_PER_REQUEST
    for topic in request.topics:
        yield
        if times[topic.name] > 1:
            rows[topic.name] = ControllerRefusal(
                ErrorCode.INVALID_REQUEST, "Duplicate topic in request."
            )
        elif not services.controller.is_active:
            rows[topic.name] = NOT_CONTROLLER
        elif not ctx.allows(AclOperation.ALTER, ResourceType.TOPIC, topic.name):
            rows[topic.name] = NOT_AUTHORIZED_TO_ALTER
        else:
            row = rows[topic.name] = plan_partitions(topic, image, room)
            if not isinstance(row, ControllerRefusal):
                if not request.validate_only and not may_mutate(ctx, len(row), strict_since=3):
                    rows[topic.name] = QUOTA_EXCEEDED
                    continue
                room -= len(row)
    if request.validate_only or all(isinstance(row, ControllerRefusal) for row in rows.values()):
        return (yield from _grown(rows))
    return ctx.later(_grow(ctx, rows), _grown)


Growth = dict[str, dict[int, tuple[int, ...]] | ControllerRefusal]


async def _grow(ctx: RequestContext, rows: Growth) -> Growth:
    for name, row in rows.items():
        await ctx.services.turns.pause(ctx.connection)
        if not isinstance(row, ControllerRefusal):
            result = await ctx.services.controller.create_partitions(name, row)
            if isinstance(result, ControllerRefusal):
                rows[name] = result
    return rows


def _grown(rows: Growth) -> Steps[CreatePartitionsResponse]:
    results = []
    for name, row in rows.items():
        yield
        results.append(
            CreatePartitionsTopicResult(
                name=name,
                error_code=row.error if isinstance(row, ControllerRefusal) else 0,
                error_message=row.message if isinstance(row, ControllerRefusal) else None,
            )
        )
    return CreatePartitionsResponse(results=results)
