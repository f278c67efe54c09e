"""Metadata (API key 3) and DescribeCluster (API key 60).

Behavior: answered from the current image. This broker's own address is the one it advertises on the
connection's listener; a single broker without advertised.listeners gives the address at which the
client reached it, which is right unless address or port are translated on the way. A topic that
does not exist is created if the client and auto.create.topics.enable allow it, and then the answer
waits until the topic can be used. The answer for all topics is encoded once for each image, version
and set of addresses. A broker that has just started waits for the controller to send the cluster's
metadata; Apache Kafka answers that there are no brokers and no topics, which some clients take for
the truth.
Versions: for all topics, Metadata 0 takes an empty list, later versions null; topics by id from 12
on; from 13 on a request that is refused as a whole has its error in the response (KIP-1102).
DescribeCluster 2 lists fenced brokers if asked to (KIP-1073); here no broker is ever fenced.
A topic that the client may not describe is left out of the answer for all topics, and is
refused without a word on whether it exists if it is asked for by name.
Source: KafkaApis.handleTopicMetadataRequest, handleDescribeCluster, AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.codec import encode_steps
from kwire.errors import ErrorCode
from kwire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kwire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.types import ZERO_UUID

from ..cause import Address
from ..controller.topics import invalid_topic_name
from ..metadata.image import NO_LEADER
from ..metadata.internal_topics import INTERNAL_TOPICS
from ..net.output_memory import SharedBytes
from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ..turns import Steps
from .authorization import AllowAll
from .context import Encoded, Later, RequestContext
from .endpoints import address_for, registered_address
from .registry import handles
from .repeats import without_repeats

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage, TopicImage

T = TypeVar("T")

NOT_ASKED = -(1 << 31)

#: The number of rows that are made in one step.
STEP = 64

#: The first Metadata version that finds topics by id.
TOPIC_IDS_SINCE = 12

#: The maximum number of encoded answers that an image keeps, and their maximum size in bytes.
KEPT_ANSWERS = 8
KEPT_BYTES = 8 * 1024 * 1024

#: How long a request waits for the first image. The controller sends it as soon as it notices that this broker has
#: started. The wait is short, so that clients soon try another broker if there is no controller.
FIRST_IMAGE_S = 2.0

BROKERS_ENDPOINT = 1
CONTROLLERS_ENDPOINT = 2


@handles(MetadataRequest, versions="0-13", authorize=None)
def metadata(
    ctx: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse | Encoded | Later[Any]]:
    """Describe brokers and topics; a broker that does not know the cluster yet waits for that a moment."""
    services = ctx.services
    if not services.metadata().brokers and not services.controller.knows_cluster:
        known = services.controller.known(FIRST_IMAGE_S)
        return ctx.later(known, lambda _: _describe(ctx, request))
    return (yield from _describe(ctx, request))


def _describe(
    ctx: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse | Encoded | Later[Any]]:
    topics = request.topics
    if topics is None or (ctx.version == 0 and not topics):
        return (yield from _all_topics(ctx, request))
    by_id = []
    for number, topic in enumerate(topics):
        if not number % STEP:
            yield
        if topic.topic_id != ZERO_UUID:
            by_id.append(topic)
        elif topic.name is not None:
            continue
        if ctx.version < TOPIC_IDS_SINCE:
            refused: MetadataResponse = yield from ctx.handler.refuse_in_steps(
                ctx, request, ErrorCode.INVALID_REQUEST
            )
            return refused
    if by_id:
        topics = by_id  # Apache Kafka ignores names if there are ids
    image = ctx.services.metadata()
    missing: dict[str, None] = {}
    for number, topic in enumerate(topics):
        if not number % STEP:
            yield
        name = topic.name
        if name is not None and topic.topic_id == ZERO_UUID and name not in image.topics:
            missing[name] = None
    errors: dict[str, ErrorCode] = {}
    if (
        missing
        and request.allow_auto_topic_creation
        and ctx.services.config.get_bool("auto.create.topics.enable")
    ):
        creatable = yield from _creatable(ctx, missing, errors)
        if creatable:
            asked = topics
            return ctx.later(
                ctx.services.topics.auto_create(creatable),
                lambda failed: _respond(ctx, request, asked, ChainMap(failed, errors)),
            )
    return (yield from _respond(ctx, request, topics, errors))


def _creatable(
    ctx: RequestContext, missing: Iterable[str], errors: dict[str, ErrorCode]
) -> Steps[list[str]]:
    """The missing topics that can be created; puts into `errors` those that the client may not create."""
    creates_any = ctx.allows(
        AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    creatable = []
    for name in missing:
        yield
        if not _may_describe(ctx, name):
            continue  # it is refused anyway
        if not (creates_any or ctx.allows(AclOperation.CREATE, ResourceType.TOPIC, name)):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif invalid_topic_name(name) is None:
            creatable.append(name)
    return creatable


def _may_describe(ctx: RequestContext, topic: str, *, log_denied: bool = True) -> bool:
    return ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, log_denied=log_denied)


def _all_topics(
    ctx: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse | Encoded | Later[Any]]:
    """Describe all topics that the client may describe.

    Without an authorizer, the answer for an image depends on the request's version and options, and on
    the broker addresses for the client's listener; on nothing else. Then an equal answer that was encoded
    before, or that is being made, is used.
    """
    image = ctx.services.metadata()
    brokers = _brokers(ctx, image)
    if type(ctx.services.authorizer) is not AllowAll:
        rows = yield from _rows_of_all(ctx, request, image)
        return _response(ctx, request, image, brokers, rows)
    key = (
        ctx.version,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        *((broker.node_id, broker.host, broker.port) for broker in brokers),
    )
    body = image.answers.get(key)
    if body is not None:
        return Encoded(body)
    # An address makes its own, so that no client waits for the turns of another; all connections of an address share it.
    made_for = ctx.connection.client_host, key
    making = image.answers_being_made.get(made_for)
    if making is None:
        steps = _encode_all(ctx, request, image, brokers, key)
        # It belongs to the client, but not to this connection, which may end.
        owner = Address(ctx.connection.client_host)
        started = ctx.services.turns.start(steps, owner, can_wait=True)
        if not isinstance(started, asyncio.Future):
            return Encoded(started)
        making = image.answers_being_made[made_for] = started
        making.add_done_callback(lambda _: image.answers_being_made.pop(made_for, None))
    return ctx.later(making, Encoded)


def _encode_all(
    ctx: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    brokers: list[MetadataResponseBroker],
    key: Any,
) -> Steps[bytes]:
    """Make the answer for all topics, unless it has been made for another client by now, and keep it."""
    made = image.answers.get(key)
    if made is not None:
        return made
    rows = yield from _rows_of_all(ctx, request, image)
    response = _response(ctx, request, image, brokers, rows)
    parts = yield from encode_steps(response, ctx.version)
    body = SharedBytes(b"".join(parts))
    kept = image.answers
    kept[key] = body
    while len(kept) > KEPT_ANSWERS or sum(map(len, kept.values())) > KEPT_BYTES:
        del kept[next(iter(kept))]
    return body


def _rows_of_all(
    ctx: RequestContext, request: MetadataRequest, image: MetadataImage
) -> Steps[list[MetadataResponseTopic]]:
    rows = []
    for topic in image.topics.values():
        if _may_describe(ctx, topic.name, log_denied=False):
            row = yield from _topic(ctx, request, image, topic)
            if row is not None:
                rows.append(row)
        else:
            yield
    return rows


def _respond(
    ctx: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataRequestTopic],
    creation_errors: Mapping[str, ErrorCode],
) -> Steps[MetadataResponse]:
    image = ctx.services.metadata()
    # One row for each topic, however often it is named.
    asked = yield from without_repeats(topics, lambda topic: (topic.name, topic.topic_id))
    rows = []
    for topic in asked:
        row = yield from _asked(ctx, request, image, topic, creation_errors)
        rows.append(row)
    return _response(ctx, request, image, _brokers(ctx, image), rows)


def _brokers(ctx: RequestContext, image: MetadataImage) -> list[MetadataResponseBroker]:
    """The live brokers, and those that have just left, that have the connection's listener."""
    brokers = []
    for broker in ctx.services.departed.listed(image.brokers).values():
        if broker.id in image.brokers:
            address = address_for(ctx, image, broker.id)
        else:
            address = registered_address(ctx, broker)
        if address is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.id, host=address.host, port=address.port, rack=broker.rack
                )
            )
    return brokers


def _response(
    ctx: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    brokers: list[MetadataResponseBroker],
    rows: list[MetadataResponseTopic],
) -> MetadataResponse:
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=rows,
        cluster_authorized_operations=_cluster_operations(
            ctx, request.include_cluster_authorized_operations
        ),
    )


def _cluster_operations(ctx: RequestContext, asked: bool) -> int:
    """The operations allowed on the cluster; empty for a client that may not describe it."""
    if not asked:
        return NOT_ASKED
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return ctx.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _asked(
    ctx: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    asked: MetadataRequestTopic,
    creation_errors: Mapping[str, ErrorCode],
) -> Steps[MetadataResponseTopic]:
    yield
    topic: TopicImage | None
    if asked.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(asked.topic_id)
        if topic is None:
            return _no_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        if not _may_describe(ctx, topic.name):
            return _no_topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id)
        row = yield from _topic(ctx, request, image, topic)
        return row or _no_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
    name = asked.name
    if name is None:
        return _no_topic(ErrorCode.INVALID_REQUEST, None)
    if not _may_describe(ctx, name):  # whether it exists is not disclosed either
        return _no_topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = image.topics.get(name)
    row = None if topic is None else (yield from _topic(ctx, request, image, topic))
    if row is not None:
        return row
    error = creation_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED and invalid_topic_name(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    missing = _no_topic(error, name)
    missing.is_internal = name in INTERNAL_TOPICS
    missing.topic_authorized_operations = _topic_operations(ctx, request, name)
    return missing


def _no_topic(
    error: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _topic_operations(ctx: RequestContext, request: MetadataRequest, name: str) -> int:
    """The operations allowed on a topic, even on one that does not exist."""
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return ctx.authorized_operations(ResourceType.TOPIC, name)


def _topic(
    ctx: RequestContext, request: MetadataRequest, image: MetadataImage, topic: TopicImage
) -> Steps[MetadataResponseTopic | None]:
    """Describe a topic, or return None if none of its partitions ever had a leader."""
    partitions = yield from _partitions(ctx, image, topic)
    if not partitions and topic.partitions:
        return None
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_topic_operations(ctx, request, topic.name),
    )


def _partitions(
    ctx: RequestContext, image: MetadataImage, topic: TopicImage
) -> Steps[list[MetadataResponsePartition]]:
    rows: list[MetadataResponsePartition] = []
    alive = image.brokers
    reachable = {broker for broker in alive if address_for(ctx, image, broker) is not None}
    for number, partition in enumerate(topic.partitions.values()):
        if not number % STEP:
            yield
        leader = partition.leader
        if leader == NO_LEADER and not partition.isr:
            # None of its replicas is alive. ZooKeeper brokers do not receive such partitions.
            continue
        error = ErrorCode.NONE
        if leader not in reachable:
            known = leader in alive
            error = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        rows.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=partition.partition,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(image.offline_replicas(partition)),
            )
        )
    return rows


@handles(DescribeClusterRequest, versions="0-2", authorize=None)
def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the cluster's brokers and controller."""
    image = ctx.services.metadata()
    endpoint_type = request.endpoint_type
    if endpoint_type == CONTROLLERS_ENDPOINT:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an"
            " endpoint of type CONTROLLER",
        )
    if endpoint_type != BROKERS_ENDPOINT:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {endpoint_type}",
        )
    brokers = []
    for broker in image.brokers.values():
        address = address_for(ctx, image, broker.id)
        if address is not None:
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.id, host=address.host, port=address.port, rack=broker.rack
                )
            )
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=_cluster_operations(
            ctx, request.include_cluster_authorized_operations
        ),
    )
