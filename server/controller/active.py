"""The state of the active controller, and its only way to change the cluster.

Every change takes the same steps: decide (pure), write to the store unless another writer was faster, then `publish`:
this broker's replicas take their roles, its image is published, and the other brokers receive messages. When `publish`
returns, the partitions that this broker leads are ready for use.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kwire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kwire.messages.update_metadata import UpdateMetadataRequest

from ..cause import Own
from ..coordination.cluster import ClusterStore
from ..coordination.controller_writes import ControllerWrites
from ..coordination.paths import LeaderAndIsr
from ..coordination.store import BadVersion, NoNode
from ..metadata.image import BrokerRegistration, MetadataImage, PartitionImage
from ..metadata.topic_partition import TopicPartition
from ..replication.role_slices import LocalReplicas, stop_replicas, take_roles
from ..security.identity import told_by_a_broker
from ..turns import Turns
from .channels import ControllerChannels, OpenChannel
from .context import ControllerContext
from .images import state_of, with_state
from .messages import NOTHING, ControllerSender, ControlRequest, Extra, messages_for

if TYPE_CHECKING:
    from ..metadata.publisher import MetadataPublisher

#: The maximum number of writes to the store in flight. Apache Kafka has ten (zookeeper.max.in.flight.requests).
WRITES_IN_FLIGHT = 32

#: The owner of the controller's work: its queue is shared by all, so that no client may hold it up.
CONTROLLER = Own("controller")

logger = logging.getLogger(__name__)

#: Returns the new state of a partition; None for no change.
Rule: TypeAlias = Callable[[TopicPartition, PartitionImage, LeaderAndIsr], LeaderAndIsr | None]


@dataclass(slots=True)
class ControllerSettings:
    """The settings of the controller, named after their keys; they may change at run time.

    Shape: `listener` is the name of the listener that brokers use among themselves.
    """

    listener: str = "PLAINTEXT"
    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance: bool = True
    leader_imbalance_percentage: int = 10
    leader_imbalance_check_s: int = 300


@dataclass(slots=True)
class ControllerServices:
    """The services that a controller uses, active or not.

    Shape: `local` is None if the broker has no replicas (tests); `later` puts work at the end of the controller's
    queue.
    """

    broker_id: int
    cluster: ClusterStore
    publisher: MetadataPublisher
    settings: ControllerSettings
    local: LocalReplicas | None
    open_channel: OpenChannel | None
    later: Callable[[Callable[[], Awaitable[Any]]], None]
    turns: Turns
    #: The number of leaders that were elected although they were not in sync.
    unclean_elections: int = 0


class BrokerAnswer:
    """A broker's answer to a message of the controller."""

    __slots__ = ("broker_epoch", "broker_id", "request", "response")

    def __init__(
        self, broker_id: int, broker_epoch: int, request: ControlRequest, response: Any
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.request = request
        self.response = response


class ActiveController:
    """The controller of one controller epoch. All its writes may raise NotController."""

    def __init__(self, services: ControllerServices, writes: ControllerWrites) -> None:
        self.services = services
        self.cluster = services.cluster
        self.writes = writes
        self.context = ControllerContext()
        self.closed = False
        #: This broker's answers to itself, handled after the current work.
        self.own_answers: deque[BrokerAnswer] = deque()
        self._channels: ControllerChannels | None = None
        if services.open_channel is not None:
            self._channels = ControllerChannels(services.open_channel, self._answered)
        self.on_answer: Callable[[BrokerAnswer], Awaitable[None]] | None = None

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        return self.services.publisher.image

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.writes.controller.epoch

    @property
    def sender(self) -> ControllerSender:
        """The sender of the messages."""
        return ControllerSender(
            self.services.broker_id, self.epoch, self.services.settings.listener
        )

    @property
    def online(self) -> Collection[int]:
        """Brokers that may lead."""
        return self.context.online_brokers(self.image)

    async def pause(self) -> None:
        """Let other requests run if the controller has used up its share of this turn of the loop."""
        await self.services.turns.pause(CONTROLLER)

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        if self._channels is not None:
            self._channels.close()

    async def told(self, timeout_s: float) -> None:
        """Wait until all reachable brokers have received what was published."""
        if self._channels is not None:
            await self._channels.drain(timeout_s)

    # -- publishing ------------------------------------------------------------------------------

    async def publish(self, after: MetadataImage, extra: Extra = NOTHING) -> None:
        """Publish `after` here and to all brokers; do not await anything between making it and publishing it.

        This broker's own replicas take their roles first. If there are many partitions, other requests are answered in
        the meantime, from the previous image.
        """
        made = await self.services.turns.run(
            messages_for(self.sender, self.image, after, self.context, extra), CONTROLLER
        )
        own = made.pop(self.services.broker_id, [])
        try:
            if extra.starting and not any(isinstance(each, LeaderAndIsrRequest) for each in own):
                # announces the new epoch
                own = [*own, LeaderAndIsrRequest(controller_epoch=self.epoch)]
            await self._tell_own_replicas(own)
        finally:
            try:
                self.services.publisher.publish(after)
            finally:
                if self._channels is not None:
                    self._channels.keep(after.brokers)
                    for broker_id, requests in made.items():
                        self._channels.send(after.brokers[broker_id], requests)

    async def _tell_own_replicas(self, requests: Iterable[ControlRequest]) -> None:
        local = self.services.local
        if local is None:
            return
        for request in requests:
            response: LeaderAndIsrResponse | StopReplicaResponse
            if isinstance(request, LeaderAndIsrRequest):
                response = await take_roles(local, request, request.topic_states, self.pause)
            elif isinstance(request, StopReplicaRequest):
                response = await stop_replicas(local, request, request.topic_states, self.pause)
            else:
                continue  # the image itself is published
            self.own_answers.append(
                BrokerAnswer(self.services.broker_id, request.broker_epoch, request, response)
            )

    def _answered(self, broker: BrokerRegistration, request: ControlRequest, response: Any) -> None:
        if isinstance(request, UpdateMetadataRequest):
            if response.error_code:
                logger.error(
                    "Broker %d refused UpdateMetadata: %s",
                    broker.id,
                    told_by_a_broker(ErrorCode(response.error_code)),
                )
            return
        answer = BrokerAnswer(broker.id, broker.epoch, request, response)

        async def take() -> None:
            if self.on_answer is not None:
                await self.on_answer(answer)

        self.later(take)

    def later(self, work: Callable[[], Awaitable[None]]) -> None:
        """Put work at the end of the queue; it is skipped if this controller has stepped down by then."""

        async def if_active() -> None:
            if not self.closed:
                await work()

        self.services.later(if_active)

    async def settle(self) -> None:
        """Handle this broker's answers to itself, which may cause more of them."""
        while self.own_answers and not self.closed and self.on_answer is not None:
            await self.on_answer(self.own_answers.popleft())

    # -- states ----------------------------------------------------------------------------------

    async def decide(
        self, partitions: Mapping[TopicPartition, PartitionImage], rule: Rule
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Write the states that a rule returns; apply it again to states that others have written since.

        Shape: returns the states that are new to the image, and the partitions for which the rule returned none. A
        partition that another writer changed, and that the rule then leaves unchanged, is in both.
        """
        known: dict[TopicPartition, LeaderAndIsr] = {}
        left: list[TopicPartition] = []
        asked = dict(partitions)
        while asked:
            wanted: dict[TopicPartition, LeaderAndIsr] = {}
            for tp, partition in asked.items():
                await self.pause()
                state = state_of(partition)
                decided = None if state is None else rule(tp, partition, state)
                if decided is None:
                    left.append(tp)
                else:
                    wanted[tp] = decided
            written, overtaken = await self.write_states(wanted)
            known.update(written)
            asked = {}
            for tp, state in (await self.cluster.states(overtaken)).items():
                known[tp] = state
                asked[tp] = with_state(partitions[tp], state)
        return known, left

    async def write_states(
        self, wanted: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Write states whose partition epoch is still current; returns the written states, and the other partitions."""
        written: dict[TopicPartition, LeaderAndIsr] = {}
        overtaken: list[TopicPartition] = []
        left = iter(wanted.items())

        async def write() -> None:
            for tp, state in left:
                try:
                    written[tp] = await self.writes.cas_partition_state(tp, state)
                except (BadVersion, NoNode):
                    overtaken.append(tp)
                await self.pause()

        await asyncio.gather(*(write() for _ in range(min(len(wanted), WRITES_IN_FLIGHT))))
        return written, overtaken
