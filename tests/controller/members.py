"""The controllers of a cluster's brokers, with images, recorded roles and a network without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kwire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from server.controller.controller import Controller, ControllerSettings
from server.controller.refusal import ControllerRefusal
from server.coordination.cluster import ClusterStore, random_id
from server.coordination.paths import NewTopic, ReplicaAssignment
from server.coordination.store import Store
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from server.metadata.publisher import MetadataPublisher
from server.metadata.topic_partition import TopicPartition
from server.metadata.updates import updated
from tests.coordination.conftest import StoreMaker
from tests.support.clock import ManualClock

Role = tuple[int, int]  # leader and leader epoch


class Replicas:
    """A broker's replicas without logs: records requests, and answers with the errors that a test sets."""

    def __init__(self) -> None:
        self.roles: dict[TopicPartition, Role] = {}
        self.new: list[TopicPartition] = []
        self.stopped: list[tuple[TopicPartition, bool]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.epochs: list[int] = []

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, *, more_follows: bool = False
    ) -> LeaderAndIsrResponse:
        """Take roles, or answer the error that is set for a partition."""
        self.epochs.append(request.controller_epoch)
        rows = []
        for topic in request.topic_states:
            row = LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[])
            rows.append(row)
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                error = self.errors.get(tp, ErrorCode.NONE)
                if not error and state.leader_epoch <= self.roles.get(tp, (-1, -1))[1]:
                    error = ErrorCode.STALE_CONTROLLER_EPOCH
                if not error:
                    self.roles[tp] = (state.leader, state.leader_epoch)
                    if state.is_new:
                        self.new.append(tp)
                row.partition_errors.append(
                    LeaderAndIsrPartitionError(partition_index=tp.partition, error_code=error)
                )
        return LeaderAndIsrResponse(topics=rows)

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop, or answer the error that is set for a partition."""
        rows = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                error = self.errors.get(tp, ErrorCode.NONE)
                if not error:
                    self.stopped.append((tp, state.delete_partition))
                    if state.delete_partition:
                        self.roles.pop(tp, None)
                rows.append(
                    StopReplicaPartitionError(
                        topic_name=tp.topic, partition_index=tp.partition, error_code=error
                    )
                )
        return StopReplicaResponse(partition_errors=rows)


class Network:
    """Channels between all brokers; brokers that are cut off cannot be reached."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.cut_off: set[int] = set()
        self.sent: list[tuple[int, str]] = []

    def open(self, broker: BrokerRegistration) -> Way:
        """The channel of a controller to a broker."""
        return Way(self, broker.id)


class Way:
    """One channel."""

    def __init__(self, network: Network, target: int) -> None:
        self._network = network
        self._target = target

    async def send(self, request: Any, api_version: int) -> Any:
        """Have the other broker handle a request."""
        await asyncio.sleep(0)
        network = self._network
        member = network.members.get(self._target)
        if member is None or self._target in network.cut_off:
            raise ConnectionRefusedError(f"broker {self._target} is not there")
        network.sent.append((self._target, type(request).__name__.removesuffix("Request")))
        return member.handle(request)

    def close(self) -> None:
        """Do nothing; no resource is held."""


class Member:
    """One broker's controller with its image."""

    def __init__(self, store: Store, broker_id: int = 1, network: Network | None = None) -> None:
        self.store = store
        self.id = broker_id
        self.network = network or Network()
        self.cluster = ClusterStore(store, ManualClock())
        self.publisher = MetadataPublisher()
        self.replicas = Replicas()
        self.settings = ControllerSettings(auto_leader_rebalance=False)
        self.fatal: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.controller = Controller(
            self.cluster,
            self.publisher,
            broker_id,
            lambda: BrokerRegistration(
                broker_id, (Endpoint("PLAINTEXT", "localhost", 9090 + broker_id),)
            ),
            settings=self.settings,
            local=self.replicas,
            open_channel=self.network.open,
            on_fatal=self.fatal.set_result,
        )
        self._changed = asyncio.Event()
        self.publisher.subscribe(self.controller.on_image, lambda old, new: self._changed.set())
        self.network.members[broker_id] = self

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        return self.publisher.image

    def handle(self, request: Any) -> Any:
        """Do the same as the handlers of controller requests."""
        if isinstance(request, UpdateMetadataRequest):
            self.publisher.publish(updated(self.image, request))
            return UpdateMetadataResponse()
        if isinstance(request, LeaderAndIsrRequest):
            return self.replicas.become_leader_or_follower(request)
        return self.replicas.stop_replicas(request)

    async def until(self, condition: Callable[[MetadataImage], object]) -> MetadataImage:
        """The first image for which the condition holds."""
        while not condition(self.image):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 5)
        return self.image

    async def eventually(self, condition: Callable[[], object]) -> None:
        """Wait for something that does not appear in an image."""
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)

    async def turn(self) -> None:
        """Wait until the controller has done everything that is in its queue now."""
        await self.controller.delete_topics([])

    async def stop(self) -> None:
        """Leave the cluster."""
        self.network.members.pop(self.id, None)
        await self.controller.shutdown()
        await self.store.close()


async def join(maker: StoreMaker, broker_id: int = 1, network: Network | None = None) -> Member:
    """Add a broker; return when it knows the cluster, if it is not the controller."""
    member = Member(await maker.session(), broker_id, network)
    await member.controller.start()
    assert await member.controller.known(5)
    return member


def new_topic(name: str, *replicas: tuple[int, ...], **configs: str) -> NewTopic:
    """A topic to create."""
    return NewTopic(
        name, random_id(), {n: ReplicaAssignment(r) for n, r in enumerate(replicas)}, configs
    )


async def create(member: Member, name: str, *replicas: tuple[int, ...]) -> TopicImage:
    """Create a topic; must not be refused."""
    made = (await member.controller.create_topics([new_topic(name, *replicas)]))[0]
    assert not isinstance(made, ControllerRefusal)
    return made
