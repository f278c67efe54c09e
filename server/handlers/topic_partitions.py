"""DescribeTopicPartitions (API key 75).

Behavior: describes topics in the order of their names, page by page. A page ends after
response_partition_limit partitions, at most max.request.partition.size.limit, and its cursor names
the partition with which the next page begins. A topic that does not exist gets a row with an error,
unless all topics were asked for. So does one that the client may not DESCRIBE, whether it exists or not;
these rows come last.
Omitted: eligible leader replicas: the lists are empty, as Apache Kafka's are while all replicas are
in sync (docs/omissions.md).
Source: DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse, KIP-966.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from heapq import merge
from itertools import islice

from kwire.errors import ErrorCode
from kwire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from ..controller.topics import invalid_topic_name
from ..metadata.image import MetadataImage, PartitionImage, TopicImage
from ..metadata.internal_topics import INTERNAL_TOPICS
from ..security.acl import AclOperation, ResourceType
from .context import RequestContext
from .endpoints import address_for
from .registry import handles

#: How many names are sorted in one step, and how many partitions are described in one.
NAMES_IN_STEP = 1024
PARTITIONS_IN_STEP = 64


@handles(
    DescribeTopicPartitionsRequest,
    versions="0",
    authorize=None,
)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """Describe the partitions of topics, starting at the cursor, up to the end of one page."""
    services = ctx.services
    image = services.metadata()
    asked: Sequence[str] = [topic.name for topic in request.topics] or list(image.topics)
    first, start = "", 0
    if request.cursor is not None:
        first, start = request.cursor.topic_name, request.cursor.partition_index
        if start < 0 or (request.topics and first not in asked):
            refused: DescribeTopicPartitionsResponse = yield from ctx.handler.refuse_in_steps(
                ctx, request, ErrorCode.INVALID_REQUEST
            )
            return refused
    limit = services.config.get_int("max.request.partition.size.limit")
    left = max(min(limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse(topics=[])
    denied = []
    before = None
    for name in (yield from _sorted(asked)):
        yield
        if name < first or name == before:
            continue
        before = name
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                denied.append(_denied(name))
            continue
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(ctx, name))
            continue
        begin = start if name == first else 0
        row = yield from _topic(ctx, image, topic, begin, left)
        response.topics.append(row)
        if begin + left < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=begin + left)
            break
        left -= len(row.partitions)
    response.topics += denied
    return response


def _sorted(names: Sequence[str]) -> Generator[None, None, Iterator[str]]:
    """Sort names; what remains to be done is done as they are asked for."""
    runs = []
    for first in range(0, len(names), NAMES_IN_STEP):
        yield
        runs.append(sorted(names[first : first + NAMES_IN_STEP]))
    return merge(*runs)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[]
    )


def _missing(ctx: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if invalid_topic_name(name) is None
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=ctx.authorized_operations(ResourceType.TOPIC, name),
    )


def _topic(
    ctx: RequestContext, image: MetadataImage, topic: TopicImage, begin: int, count: int
) -> Generator[None, None, DescribeTopicPartitionsResponseTopic]:
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    for partition in islice(topic.partitions.values(), begin, begin + count):
        if not len(partitions) % PARTITIONS_IN_STEP:
            yield
        partitions.append(_partition(ctx, image, partition))
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=ctx.authorized_operations(ResourceType.TOPIC, topic.name),
    )


def _partition(
    ctx: RequestContext, image: MetadataImage, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    reachable = address_for(ctx, image, partition.leader) is not None
    return DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=partition.partition,
        leader_id=partition.leader if reachable else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(image.offline_replicas(partition)),
    )
