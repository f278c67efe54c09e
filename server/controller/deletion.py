"""The progress of a topic's deletion; pure. Source: TopicDeletionManager.scala.

A topic disappears from the image immediately. Each replica is told to stop and delete itself as soon as its broker is
alive. If the broker is dead, or could not delete the log, the replica waits until the broker starts again. When all
replicas have answered, the topic's nodes are removed. Unlike in Apache Kafka, a reassignment does not delay the
deletion: the replicas that it adds are deleted with the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from ..metadata.image import TopicImage
from ..metadata.topic_partition import TopicPartition


class DeletionStage(Enum):
    """The progress of one replica's deletion. Source: ReplicaState."""

    #: Its broker is dead, or could not delete it (ReplicaDeletionIneligible).
    WAITING = "waiting"
    #: Its broker was told (ReplicaDeletionStarted).
    TOLD = "told"
    #: Its broker no longer has its log (ReplicaDeletionSuccessful).
    DONE = "done"


class TopicDeletion:
    """The deletion of one topic."""

    def __init__(self, topic: TopicImage) -> None:
        self.topic = topic
        self._stages: dict[tuple[TopicPartition, int], DeletionStage] = {
            (TopicPartition(topic.name, number), replica): DeletionStage.WAITING
            for number, partition in topic.partitions.items()
            for replica in partition.replicas
        }

    @property
    def done(self) -> bool:
        """Whether no replicas are left."""
        return all(stage is DeletionStage.DONE for stage in self._stages.values())

    def waiting_for(self) -> list[int]:
        """The brokers that still have replicas."""
        return sorted(
            {
                replica
                for (_, replica), stage in self._stages.items()
                if stage is not DeletionStage.DONE
            }
        )

    def tell(self, brokers: Collection[int]) -> dict[int, list[TopicPartition]]:
        """Return the replicas that these live brokers have to delete now, by broker, and record that they were told."""
        told: dict[int, list[TopicPartition]] = {}
        for (tp, replica), stage in self._stages.items():
            if stage is DeletionStage.WAITING and replica in brokers:
                self._stages[tp, replica] = DeletionStage.TOLD
                told.setdefault(replica, []).append(tp)
        return told

    def answered(self, broker_id: int, partitions: Iterable[TopicPartition], deleted: bool) -> None:
        """Handle a broker's answer; replicas that it could not delete wait until it restarts."""
        for tp in partitions:
            if self._stages.get((tp, broker_id)) is DeletionStage.TOLD:
                self._stages[tp, broker_id] = (
                    DeletionStage.DONE if deleted else DeletionStage.WAITING
                )

    def lost(self, broker_id: int) -> None:
        """Handle a broker's death: it may not have deleted its replicas."""
        for (tp, replica), stage in self._stages.items():
            if replica == broker_id and stage is DeletionStage.TOLD:
                self._stages[tp, replica] = DeletionStage.WAITING
