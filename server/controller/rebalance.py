"""The search for brokers that lead too few of the partitions that prefer them; pure.

Source: KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from ..metadata.image import PartitionImage, TopicImage
from ..metadata.topic_partition import TopicPartition
from .context import all_partitions


def imbalanced(
    topics: Mapping[str, TopicImage], percentage: int
) -> Generator[None, None, list[tuple[TopicPartition, PartitionImage]]]:
    """The partitions not led by their preferred replica, of brokers with many such partitions, in steps.

    Shape: many means more than `percentage` of the partitions that prefer the broker.
    """
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[tuple[TopicPartition, PartitionImage]]] = {}
    for tp, partition in all_partitions(topics):
        yield
        broker_id = partition.replicas[0]
        preferred[broker_id] = preferred.get(broker_id, 0) + 1
        if partition.partition_epoch >= 0 and partition.leader != broker_id:
            elsewhere.setdefault(broker_id, []).append((tp, partition))
    return [
        row
        for broker_id, rows in elsewhere.items()
        if len(rows) * 100 > percentage * preferred[broker_id]
        for row in rows
    ]
