"""Conversions between the content of the store and of the image; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..coordination.cluster_state import ClusterState
from ..coordination.paths import LeaderAndIsr, TopicAssignment
from ..metadata.image import (
    NO_LEADER,
    ImageEditor,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ..metadata.topic_partition import TopicPartition

#: A partition whose replicas were all dead at its creation has no state yet.
STATELESS = LeaderAndIsr(NO_LEADER, 0, (), -1)


def topic_image(
    name: str,
    topic_id: bytes,
    assignment: TopicAssignment,
    states: Mapping[TopicPartition, LeaderAndIsr],
) -> TopicImage:
    """Make a topic of the image from its assignment and its partitions' states."""
    partitions: dict[int, PartitionImage] = {}
    for number in sorted(assignment.partitions):
        replicas, adding, removing = assignment.partitions[number]
        state = states.get(TopicPartition(name, number), STATELESS)
        partitions[number] = PartitionImage(
            number,
            state.leader,
            state.leader_epoch,
            replicas,
            state.isr,
            state.partition_epoch,
            recovering=state.recovering,
            adding=adding,
            removing=removing,
        )
    return TopicImage(name, topic_id, partitions)


def with_state(partition: PartitionImage, state: LeaderAndIsr) -> PartitionImage:
    """A partition of the image with another state."""
    return partition._replace(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering,
    )


def state_of(partition: PartitionImage) -> LeaderAndIsr | None:
    """The state of a partition of the image, without the controller's epoch."""
    if partition.partition_epoch < 0:
        return None
    return LeaderAndIsr(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        -1,
        partition.recovering,
        partition.partition_epoch,
    )


def shows(topic: TopicImage | None, assignment: TopicAssignment) -> bool:
    """Whether the image has this assignment for the topic."""
    return (
        topic is not None
        and topic.topic_id == assignment.topic_id
        and topic.partitions.keys() == assignment.partitions.keys()
        and all(
            (partition.replicas, partition.adding, partition.removing)
            == assignment.partitions[number]
            for number, partition in topic.partitions.items()
        )
    )


def settings_image(before: MetadataImage, cluster_id: str, state: ClusterState) -> MetadataImage:
    """The image that follows `before`, with the settings that every broker reads for itself."""
    edit = before.edit().put_cluster_id(cluster_id).put_controller(state.controller_id)
    for entity_type, entities in before.configs.items():
        for name in entities:
            if (entity_type, name) not in state.configs:
                edit.put_config(entity_type, name, {})
    for (entity_type, name), config in state.configs.items():
        edit.put_config(entity_type, name, config)
    if state.features is not None:
        edit.put_features(state.features.levels, state.features.epoch)
    return edit.build()


def topics_image(
    before: MetadataImage, state: ClusterState, *, keep_offline: bool
) -> MetadataImage:
    """The image that follows `before`, with the brokers and topics that were read.

    Shape: `keep_offline` means that `before` was this controller's own image, which contains the replicas on failed log
    directories; the store does not contain them.
    """
    edit = before.edit().put_brokers(state.brokers)
    edit.remove_topics([name for name in before.topics if name not in state.topics])
    topics = [
        topic_image(name, assignment.topic_id, assignment, state.states)
        for name, assignment in state.topics.items()
        if assignment.topic_id is not None
    ]
    if keep_offline:
        topics = [with_offline(topic, before.topics.get(topic.name)) for topic in topics]
    return edit.put_topics(topics).build()


def with_offline(topic: TopicImage, before: TopicImage | None) -> TopicImage:
    """A topic with its previous offline replicas, as far as they still are its replicas."""
    if before is None or before.topic_id != topic.topic_id:
        return topic
    partitions = dict(topic.partitions)
    for number, partition in before.partitions.items():
        now = partitions.get(number)
        if partition.offline and now is not None:
            offline = tuple(each for each in partition.offline if each in now.replicas)
            partitions[number] = now._replace(offline=offline)
    return topic._replace(partitions=partitions)


def with_states(edit: ImageEditor, states: Mapping[TopicPartition, LeaderAndIsr]) -> ImageEditor:
    """Put states into the topics of an image editor; unknown partitions are ignored."""
    changed: dict[str, list[PartitionImage]] = {}
    for tp, state in states.items():
        topic = edit.topic(tp.topic)
        found = None if topic is None else topic.partitions.get(tp.partition)
        if found is not None:
            changed.setdefault(tp.topic, []).append(with_state(found, state))
    return with_partitions(edit, changed)


def with_partitions(
    edit: ImageEditor, partitions: Mapping[str, Iterable[PartitionImage]]
) -> ImageEditor:
    """Put partitions into their topics, copying each topic once."""
    for name, changed in partitions.items():
        edit.put_partitions(name, changed)
    return edit
