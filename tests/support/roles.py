"""The roles that an image gives to one broker, as requests of the controller; pure."""

from __future__ import annotations

from kwire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from server.metadata.image import EPOCH_DURING_DELETE, MetadataImage
from server.replication.replica_manager import ReplicaManager


class ImageRoles:
    """An ImageListener that applies a broker's own image to its replicas."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Stop replicas that are gone, then take new roles."""
        stop, become = roles_between(before, after, self._replicas.broker_id)
        if stop.topic_states:
            self._replicas.stop_replicas(stop)
        self._replicas.become_leader_or_follower(become)


def roles_between(
    before: MetadataImage, after: MetadataImage, broker_id: int
) -> tuple[StopReplicaRequest, LeaderAndIsrRequest]:
    """The requests that take a broker from one image to another."""
    delta = after.changes_since(before)
    stopped = [
        StopReplicaTopicState(
            topic_name=topic.name,
            partition_states=[
                StopReplicaPartitionState(
                    partition_index=number, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
                )
                for number in topic.partitions
            ],
        )
        for topic in delta.deleted.values()
    ]
    told: list[LeaderAndIsrTopicState] = []
    for name in delta.changed:
        changed = after.topics.get(name)
        if changed is None:
            continue
        earlier = before.topics.get(name)
        if name in delta.deleted:
            earlier = None
        rows = []
        for number, partition in changed.partitions.items():
            if broker_id in partition.replicas:
                rows.append(
                    LeaderAndIsrPartitionState(
                        partition_index=number,
                        leader=partition.leader,
                        leader_epoch=partition.leader_epoch,
                        isr=list(partition.isr),
                        partition_epoch=partition.partition_epoch,
                        replicas=list(partition.replicas),
                        # In the first image no replica counts as new: its log may be on a failed
                        # disk.
                        is_new=before.version > 0
                        and (earlier is None or number not in earlier.partitions),
                    )
                )
            elif (
                earlier is not None
                and number in earlier.partitions
                and broker_id in earlier.partitions[number].replicas
            ):
                stopped.append(
                    StopReplicaTopicState(
                        topic_name=name,
                        partition_states=[
                            StopReplicaPartitionState(partition_index=number, delete_partition=True)
                        ],
                    )
                )
        if rows:
            told.append(
                LeaderAndIsrTopicState(
                    topic_name=name, topic_id=changed.topic_id, partition_states=rows
                )
            )
    return StopReplicaRequest(topic_states=stopped), LeaderAndIsrRequest(topic_states=told)
