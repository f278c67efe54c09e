"""The messages to each broker when the image changes; pure. Source: ControllerBrokerRequestBatch.

The difference between two images produces, for each live broker and in this order:

- LeaderAndIsr (v7) for the broker's partitions whose leader epoch or replicas have changed. A change of the in-sync
  replicas that the leader proposed is not sent this way, since the leader gets it in the answer to its AlterPartition.
- UpdateMetadata (v8) for all partitions that have changed in any way, or have a replica on a broker that came or went;
  leader -2 means that a topic is being deleted.
- StopReplica (v4) for replicas that were removed from an assignment (deleted), that are on a failed log directory (not
  deleted), and for replicas that the caller names.

A broker that has just started gets everything: UpdateMetadata first, so that it knows the leaders to fetch from, then
LeaderAndIsr for each of its replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kwire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kwire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

from ..metadata.endpoint import SECURITY_PROTOCOLS
from ..metadata.image import (
    EMPTY,
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ..metadata.topic_partition import TopicPartition
from .context import ControllerContext, online_replicas

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

#: The versions of the messages, those of inter.broker.protocol.version 3.9.
LEADER_AND_ISR_VERSION = 7
UPDATE_METADATA_VERSION = 8
STOP_REPLICA_VERSION = 4

#: As leader: the topic is being deleted. Source: LeaderAndIsr.LEADER_DURING_DELETE.
LEADER_DURING_DELETE = -2
RECOVERING = 1


class ControllerSender(NamedTuple):
    """The active controller; `listener` is the name of the inter-broker listener."""

    broker_id: int
    epoch: int
    listener: str = "PLAINTEXT"


class Extra(NamedTuple):
    """Input that the difference between the images does not contain.

    Shape: `starting` treats every broker as newly started; `new` are partitions whose first state has just been
    written. `probed` brokers get all their replicas again (a log directory failed). `stops` maps broker -> partition ->
    whether to delete it.
    """

    starting: bool = False
    new: Collection[TopicPartition] = ()
    probed: Collection[int] = ()
    stops: Mapping[int, Mapping[TopicPartition, bool]] = EMPTY


NOTHING = Extra()


def version_of(request: ControlRequest) -> int:
    """The version at which a message of the controller is sent."""
    if isinstance(request, LeaderAndIsrRequest):
        return LEADER_AND_ISR_VERSION
    if isinstance(request, UpdateMetadataRequest):
        return UPDATE_METADATA_VERSION
    return STOP_REPLICA_VERSION


def messages_for(
    sender: ControllerSender,
    before: MetadataImage,
    after: MetadataImage,
    context: ControllerContext,
    extra: Extra = NOTHING,
) -> Generator[None, None, dict[int, list[ControlRequest]]]:
    """The messages that follow from a change, for each broker in the order of sending; built in steps."""
    newcomers = {
        broker_id
        for broker_id, broker in after.brokers.items()
        if extra.starting
        or broker_id not in before.brokers
        or before.brokers[broker_id].epoch != broker.epoch
    }
    batch = MessageBatch(sender, after, context)
    full = newcomers | set(extra.probed)
    moved = newcomers | (before.brokers.keys() ^ after.brokers.keys())
    stops: dict[int, dict[TopicPartition, bool]] = {
        broker_id: dict(partitions) for broker_id, partitions in extra.stops.items()
    }
    delta = after.changes_since(before)
    names: Iterable[str] = after.topics if full or moved else delta.changed
    for name in names:
        yield
        topic = after.topics[name]
        old = before.topics.get(name) if name in delta.changed else topic
        if old is not None and old.topic_id != topic.topic_id:
            old = None
        for number, partition in topic.partitions.items():
            was = None if old is None else old.partitions.get(number)
            tp = TopicPartition(name, number)
            if was is not None and was is not partition and not extra.starting:
                _stop_removed(stops, tp, was, partition)
            if partition.partition_epoch < 0:
                continue  # none of its replicas has ever been alive
            untold = was is None or was.partition_epoch < 0
            if not extra.starting and (was != partition or moved.intersection(partition.replicas)):
                batch.update(topic, partition)
            recipients: Collection[int] = full
            if not extra.starting and (untold or _differs(was, partition)):
                recipients = after.brokers
            for replica in partition.replicas:
                if replica not in recipients or tp in stops.get(replica, EMPTY):
                    continue
                if replica in partition.offline and replica not in full:
                    continue
                is_new = replica in partition.adding or tp in extra.new
                if not is_new and not extra.starting:
                    is_new = untold or (was is not None and replica not in was.replicas)
                batch.lead_or_follow(replica, topic, partition, is_new)
    for deleted in delta.deleted.values():
        batch.update_deleted(deleted)
    changed = bool(batch.updates) or moved or delta.brokers or extra.starting
    return (yield from batch.finish(newcomers, bool(changed), stops, before))


def _differs(was: PartitionImage | None, now: PartitionImage) -> bool:
    return was is None or (
        (was.leader_epoch, was.replicas, was.adding, was.removing)
        != (now.leader_epoch, now.replicas, now.adding, now.removing)
    )


def _stop_removed(
    stops: dict[int, dict[TopicPartition, bool]],
    tp: TopicPartition,
    was: PartitionImage,
    now: PartitionImage,
) -> None:
    for replica in was.replicas:
        if replica not in now.replicas:
            stops.setdefault(replica, {})[tp] = True
    for replica in now.offline:
        if replica not in was.offline:
            stops.setdefault(replica, {}).setdefault(tp, False)


class MessageBatch:
    """Messages being built: each partition's state is made once and shared by all messages."""

    def __init__(
        self, sender: ControllerSender, image: MetadataImage, context: ControllerContext
    ) -> None:
        self._sender = sender
        self._image = image
        self._context = context
        self._online = context.online_brokers(image)
        #: Per broker and topic, the partitions to lead or follow.
        self._roles: dict[int, dict[str, list[LeaderAndIsrPartitionState]]] = {}
        self._leaders: dict[int, set[int]] = {}
        self.updates: dict[str, list[UpdateMetadataPartitionState]] = {}
        self._ids: dict[str, bytes] = {}

    def lead_or_follow(
        self, broker_id: int, topic: TopicImage, partition: PartitionImage, is_new: bool
    ) -> None:
        """Add the state of one of a broker's own partitions to its messages."""
        self._ids[topic.name] = topic.topic_id
        roles = self._roles.setdefault(broker_id, {})
        roles.setdefault(topic.name, []).append(
            LeaderAndIsrPartitionState(
                partition_index=partition.partition,
                controller_epoch=self._sender.epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                partition_epoch=partition.partition_epoch,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
                is_new=is_new,
                leader_recovery_state=RECOVERING if partition.recovering else 0,
            )
        )
        self._leaders.setdefault(broker_id, set()).add(partition.leader)

    def update(self, topic: TopicImage, partition: PartitionImage) -> None:
        """Add the state of a partition to the messages for all brokers."""
        self._ids[topic.name] = topic.topic_id
        self.updates.setdefault(topic.name, []).append(self._metadata(partition))

    def update_deleted(self, topic: TopicImage) -> None:
        """Add to the messages for all brokers that a topic is being deleted."""
        if topic.name in self.updates:
            return  # a new topic has the same name
        states = deleted_states(self._sender.epoch, topic)
        if states:
            self._ids[topic.name] = topic.topic_id
            self.updates[topic.name] = states

    def _metadata(self, partition: PartitionImage) -> UpdateMetadataPartitionState:
        online = online_replicas(partition, self._online)
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._sender.epoch,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            zk_version=partition.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=[each for each in partition.replicas if each not in online],
        )

    def finish(
        self,
        newcomers: Collection[int],
        changed: bool,
        stops: Mapping[int, Mapping[TopicPartition, bool]],
        before: MetadataImage,
    ) -> Generator[None, None, dict[int, list[ControlRequest]]]:
        """The messages for each broker, in steps."""
        brokers = self._image.brokers
        live = [self._live_broker(broker_id) for broker_id in brokers]
        topics = self._topics(self.updates)
        everything = (yield from self._everything()) if newcomers else []
        made: dict[int, list[ControlRequest]] = {}
        for broker_id, broker in brokers.items():
            yield
            messages: list[ControlRequest] = []
            update = self._update_request(broker.epoch, topics, live) if changed else None
            if broker_id in newcomers:
                messages.append(self._update_request(broker.epoch, everything, live))
                update = None
            if broker_id in self._roles:
                messages.append(self._roles_request(broker_id, broker.epoch))
            if update is not None:
                messages.append(update)
            if stops.get(broker_id):
                messages.append(self._stop_request(broker.epoch, stops[broker_id], before))
            if messages:
                made[broker_id] = messages
        return made

    def _everything(self) -> Generator[None, None, list[UpdateMetadataTopicState]]:
        states = {}
        for topic in self._image.topics.values():
            yield
            self._ids[topic.name] = topic.topic_id
            states[topic.name] = [
                self._metadata(partition)
                for partition in topic.partitions.values()
                if partition.partition_epoch >= 0
            ]
        for deletion in self._context.deleting.values():
            topic = deletion.topic
            if topic.name not in states:
                self._ids[topic.name] = topic.topic_id
                states[topic.name] = deleted_states(self._sender.epoch, topic)
        return self._topics({name: rows for name, rows in states.items() if rows})

    def _topics(
        self, states: Mapping[str, list[UpdateMetadataPartitionState]]
    ) -> list[UpdateMetadataTopicState]:
        return [
            UpdateMetadataTopicState(
                topic_name=name, topic_id=self._ids[name], partition_states=partitions
            )
            for name, partitions in states.items()
        ]

    def _update_request(
        self,
        broker_epoch: int,
        topics: list[UpdateMetadataTopicState],
        live: list[UpdateMetadataBroker],
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self._sender.broker_id,
            controller_epoch=self._sender.epoch,
            broker_epoch=broker_epoch,
            topic_states=topics,
            live_brokers=live,
        )

    def _roles_request(self, broker_id: int, broker_epoch: int) -> LeaderAndIsrRequest:
        leaders = []
        for leader in sorted(self._leaders[broker_id] & self._image.brokers.keys()):
            endpoint = self._image.brokers[leader].endpoint(self._sender.listener)
            if endpoint is not None:
                leaders.append(
                    LeaderAndIsrLiveLeader(
                        broker_id=leader, host_name=endpoint.host, port=endpoint.port
                    )
                )
        return LeaderAndIsrRequest(
            controller_id=self._sender.broker_id,
            controller_epoch=self._sender.epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=name, topic_id=self._ids[name], partition_states=states
                )
                for name, states in self._roles[broker_id].items()
            ],
            live_leaders=leaders,
        )

    def _stop_request(
        self, broker_epoch: int, stops: Mapping[TopicPartition, bool], before: MetadataImage
    ) -> StopReplicaRequest:
        topics: dict[str, list[StopReplicaPartitionState]] = {}
        for tp, delete in stops.items():
            topics.setdefault(tp.topic, []).append(
                StopReplicaPartitionState(
                    partition_index=tp.partition,
                    leader_epoch=self._stop_epoch(tp, before),
                    delete_partition=delete,
                )
            )
        return StopReplicaRequest(
            controller_id=self._sender.broker_id,
            controller_epoch=self._sender.epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                StopReplicaTopicState(topic_name=name, partition_states=states)
                for name, states in topics.items()
            ],
        )

    def _stop_epoch(self, tp: TopicPartition, before: MetadataImage) -> int:
        if tp.topic in self._context.deleting:
            return EPOCH_DURING_DELETE
        found = self._image.partition(*tp) or before.partition(*tp)
        if found is None or found.partition_epoch < 0:
            return NO_EPOCH
        return found.leader_epoch

    def _live_broker(self, broker_id: int) -> UpdateMetadataBroker:
        broker = self._image.brokers[broker_id]
        return UpdateMetadataBroker(
            id=broker_id,
            endpoints=[
                UpdateMetadataEndpoint(
                    port=endpoint.port,
                    host=endpoint.host,
                    listener=endpoint.listener,
                    security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
                )
                for endpoint in broker.endpoints
            ],
            rack=broker.rack,
        )


def deleted_states(controller_epoch: int, topic: TopicImage) -> list[UpdateMetadataPartitionState]:
    """The partitions of a topic that is being deleted. Source: LeaderAndIsr.duringDelete."""
    return [
        UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=controller_epoch,
            leader=LEADER_DURING_DELETE,
            leader_epoch=0,
            isr=list(partition.isr),
            zk_version=0,
            replicas=list(partition.replicas),
            offline_replicas=[],
        )
        for partition in topic.partitions.values()
        if partition.partition_epoch >= 0
    ]
