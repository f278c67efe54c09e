"""The state of the active controller besides the image; pure. Source: ControllerContext.scala."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ..metadata.image import MetadataImage, PartitionImage, TopicImage
from ..metadata.topic_partition import TopicPartition
from .deletion import TopicDeletion


@dataclass(slots=True)
class ControllerContext:
    """The state of the active controller that the image does not contain.

    Shape: `shutting_down` brokers are alive but may no longer lead; `suspected` brokers are registered but refuse
    connections, so they may not lead either; `deleting` are topics, by name, that are no longer in the image but still
    have replicas. Replicas on failed log directories are in the image (`PartitionImage.offline`).
    """

    shutting_down: set[int] = field(default_factory=set)
    suspected: set[int] = field(default_factory=set)
    deleting: dict[str, TopicDeletion] = field(default_factory=dict)

    def online_brokers(self, image: MetadataImage) -> Collection[int]:
        """Brokers that may lead: alive and neither shutting down nor suspected."""
        return image.brokers.keys() - self.leaving if self.leaving else image.brokers.keys()

    @property
    def leaving(self) -> set[int]:
        """Brokers that are registered but may not lead."""
        return self.shutting_down | self.suspected


def online_replicas(partition: PartitionImage, brokers: Collection[int]) -> tuple[int, ...]:
    """The replicas on these brokers, without those on failed log directories."""
    if not partition.offline:
        return tuple(replica for replica in partition.replicas if replica in brokers)
    return tuple(
        replica
        for replica in partition.replicas
        if replica in brokers and replica not in partition.offline
    )


def all_partitions(
    topics: Mapping[str, TopicImage],
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """Every partition with its TopicPartition."""
    for topic in topics.values():
        for number, partition in topic.partitions.items():
            yield TopicPartition(topic.name, number), partition
