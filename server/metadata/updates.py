"""Applies a controller's UpdateMetadata to the image; pure."""

from __future__ import annotations

from collections.abc import Iterable

from kwire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.types import ZERO_UUID

from .endpoint import SECURITY_PROTOCOLS, Endpoint
from .image import (
    TOPICS,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicImage,
    sorted_partitions,
)

#: Instead of a leader: the partition's topic is being deleted. Source: LeaderAndIsr.LeaderDuringDelete.
LEADER_DURING_DELETE = -2

#: Names of org.apache.kafka.common.security.auth.SecurityProtocol by id.


def updated(image: MetadataImage, request: UpdateMetadataRequest) -> MetadataImage:
    """The image after a request of any version.

    Shape: the request names all live brokers and the partitions that changed. Before version 5 it
    has no topics, before 7 no topic ids: known ones are kept.
    Source: ZkMetadataCache.updateMetadata.
    """
    edit = image.edit().put_controller(request.controller_id)
    brokers = {broker.id: registration(broker) for broker in request.live_brokers}
    edit.put_brokers(brokers)
    changed: list[TopicImage] = []
    deleted: list[str] = []
    for topic in request.topic_states or by_topic(request.ungrouped_partition_states):
        before = image.topics.get(topic.topic_name)
        topic_id = topic.topic_id
        partitions: dict[int, PartitionImage] = {}
        if before is not None and topic_id in (ZERO_UUID, before.topic_id):
            partitions = dict(before.partitions)
            topic_id = before.topic_id
        for state in topic.partition_states:
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
            else:
                partitions[state.partition_index] = partition_image(state)
        if partitions:
            changed.append(TopicImage(topic.topic_name, topic_id, sorted_partitions(partitions)))
        elif before is not None:
            deleted.append(topic.topic_name)
    if deleted:
        edit.remove_topics(deleted)
        for name in deleted:
            edit.put_config(TOPICS, name, {})
    if changed:
        edit.put_topics(changed)
    return edit.build()


def registration(broker: UpdateMetadataBroker) -> BrokerRegistration:
    """A live broker as the controller describes it, which does not include its epoch."""
    endpoints = [
        Endpoint(
            endpoint.listener or SECURITY_PROTOCOLS[endpoint.security_protocol],
            endpoint.host,
            endpoint.port,
            SECURITY_PROTOCOLS[endpoint.security_protocol],
        )
        for endpoint in broker.endpoints
        if 0 <= endpoint.security_protocol < len(SECURITY_PROTOCOLS)
    ]
    if not endpoints:
        endpoints = [Endpoint("PLAINTEXT", broker.v0_host, broker.v0_port)]
    return BrokerRegistration(broker.id, tuple(endpoints), broker.rack)


def partition_image(state: UpdateMetadataPartitionState) -> PartitionImage:
    """A partition as the controller describes it."""
    return PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.zk_version,
        tuple(state.offline_replicas),
    )


def by_topic(states: Iterable[UpdateMetadataPartitionState]) -> list[UpdateMetadataTopicState]:
    """Group the partition states of old requests (versions 0 to 4)."""
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in states:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = UpdateMetadataTopicState(
                topic_name=state.topic_name, partition_states=[]
            )
        topic.partition_states.append(state)
    return list(topics.values())
