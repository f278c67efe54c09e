"""Additional components of a broker in a cluster: its connections to other brokers.

Built only with ZooKeeper; a single broker does not import this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kwire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

from ..coordination.store import StoreError
from ..coordinator.transaction.marker_channels import MarkerChannels
from ..coordinator.transaction.partition_verifier import PartitionVerifier
from ..net.broker_channel import BrokerChannels, ChannelError
from ..replication.alter_partition import AlterPartitions
from ..replication.fetcher import FetchLimits
from ..replication.fetcher_task import FetcherTasks
from ..replication.replication_quota import ReplicationQuotas
from .login import InThread, login_of, missing_super_user

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config import BrokerConfig
    from ..controller.controller import Controller
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..coordinator.transaction.markers import MarkerSender
    from ..metadata.image import BrokerRegistration, MetadataImage
    from ..net.network import Network
    from ..replication.replica_manager import ReplicaManager
    from ..turns import Turns

logger = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_VERSION = 3
#: How long a stopping broker waits for the controller's answer before it asks again.
CONTROLLER_PATIENCE_S = 10.0
ASK_AGAIN_S = 0.5


class ControllerChannel:
    """The controller's connection to one broker."""

    def __init__(self, channels: BrokerChannels, broker_id: int) -> None:
        self._channels = channels
        self._broker_id = broker_id

    async def send(self, request: object, api_version: int) -> object:
        """Send a request and return its response. Errors: OSError."""
        return await self._channels.send(self._broker_id, request, api_version)

    def close(self) -> None:
        """Do nothing, since the owner of the connection keeps one to each broker."""


class InterBrokerClients:
    """Following leaders, changing in-sync replicas, and transactions across brokers.

    Shape: `controller()` is this broker's own controller, active or not; it is called only once the broker is
    registered.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        network: Network,
        metadata: Callable[[], MetadataImage],
        controller: Callable[[], Controller],
        in_thread: InThread,
    ) -> None:
        """Errors: ConfigError if this broker cannot log in at others with its settings."""
        self._node_id = node_id
        self._config = config
        self._network = network
        self._clock = clock
        self._metadata = metadata
        self._controller = controller
        self._login = login_of(config, clock, in_thread)
        if (advice := missing_super_user(config, self._login)) is not None:
            logger.warning("%s", advice)
        if self._login is not None:
            config.subscribe(self._login.take_up)
        #: For fetching: the leader may hold a request back, so this connection has no other use.
        self._fetching = self._channels("fetcher")
        #: For everything else.
        self._requests = self._channels("requests")
        #: For the controller's messages, while this broker is the controller.
        self._controlling = self._channels("controller")
        # Markers wait for in-sync replicas, whose changes use `_requests`.
        self._marking = self._channels("markers")
        self._verifying = self._channels("verification")
        # These requests also wait for in-sync replicas.
        self._share_states = self._channels("share-states")
        self._looking: BrokerChannels | None = None
        self.alter_partitions = AlterPartitions(
            node_id, self._broker_epoch, self._alter_partition, clock
        )
        #: To be called with images after this broker's settings are applied.
        self.quotas = ReplicationQuotas(node_id, config)
        self.fetchers = FetcherTasks(
            node_id,
            self._fetching,
            clock,
            self._fetch_limits,
            self._broker_epoch,
            self.quotas.follower,
        )
        self._laggards: asyncio.Task[None] | None = None
        #: Set while no other broker is alive.
        self._alone = asyncio.Event()
        self._alone.set()

    def _channels(self, purpose: str) -> BrokerChannels:
        """Connections to the other brokers, opened on first use."""
        config = self._config
        return BrokerChannels(
            self._network,
            self._metadata,
            config.inter_broker_listener.listener,
            client_id=f"broker-{self._node_id}-{purpose}",
            request_timeout_ms=config.get_int(
                "controller.socket.timeout.ms"
                if purpose == "controller"
                else "replica.socket.timeout.ms"
            ),
            login=self._login,
        )

    def markers(self, local: MarkerSender, turns: Turns) -> MarkerChannels:
        """The sender of markers to this broker and others."""
        return MarkerChannels(self._node_id, local, self._metadata, self._marking.send, turns)

    def verifier(self, coordinator: TransactionCoordinator) -> PartitionVerifier:
        """The verifier of transactions' partitions, with coordinators on this broker and on others."""
        return PartitionVerifier(self._node_id, coordinator, self._metadata, self._verifying.send)

    async def share_states(self, broker_id: int, request: object, version: int) -> object:
        """Send a request to a share coordinator on another broker. Errors: OSError."""
        return await self._share_states.send(broker_id, request, version)

    def looking(self) -> BrokerChannels:
        """Channels for the requests of operators who inspect this broker and need the view of others."""
        if self._looking is None:
            self._looking = self._channels("console")
        return self._looking

    def start(self, replicas: ReplicaManager) -> None:
        """Start to check regularly for followers that have fallen behind."""
        self._laggards = asyncio.get_running_loop().create_task(drop_laggards(replicas))

    async def close(self) -> None:
        """Stop following and sending requests."""
        if self._laggards is not None:
            self._laggards.cancel()
        self.alter_partitions.close()
        await self.fetchers.close()
        for channels in (
            self._fetching,
            self._requests,
            self._controlling,
            self._marking,
            self._verifying,
            self._share_states,
        ):
            channels.close()
        if self._looking is not None:
            self._looking.close()

    def controller_channel(self, broker: BrokerRegistration) -> ControllerChannel:
        """The channel from this broker as controller to another."""
        return ControllerChannel(self._controlling, broker.id)

    async def hand_over(self) -> None:
        """Ask the controller to move this broker's leaderships away before it stops.

        Source: KafkaServer.controlledShutdown.
        """
        config, controller = self._config, self._controller()
        if controller.broker_epoch < 0 or not config.get_bool("controlled.shutdown.enable"):
            return
        backoff_s = config.get_int("controlled.shutdown.retry.backoff.ms") / 1000
        tries = config.get_int("controlled.shutdown.max.retries") + 1
        give_up_s = self._clock.monotonic_ms() / 1000 + backoff_s
        while not self._alone.is_set():
            try:
                async with asyncio.timeout(CONTROLLER_PATIENCE_S):
                    remaining = await self._ask_to_shut_down(controller)
            except (OSError, StoreError) as error:
                # The controller may also be stopping, and a new one may be elected soon.
                if self._clock.monotonic_ms() / 1000 > give_up_s:
                    logger.warning("cannot hand over to other brokers: %s", error)
                    return
                await asyncio.sleep(min(backoff_s, ASK_AGAIN_S))
                continue
            if not remaining:
                await controller.told()
                return
            logger.info("other brokers are not in sync for %d partitions yet", remaining)
            tries -= 1
            if not tries:
                logger.warning("stopping although other brokers could not take over all partitions")
                return
            try:
                await asyncio.wait_for(self._alone.wait(), backoff_s)
            except TimeoutError:
                pass

    def on_image(self, _: MetadataImage, image: MetadataImage) -> None:
        """Note whether another broker is alive."""
        if image.brokers.keys() - {self._node_id}:
            self._alone.clear()
        else:
            self._alone.set()

    async def _ask_to_shut_down(self, controller: Controller) -> int:
        """The number of partitions that only this broker can lead. Errors: OSError."""
        own_id, epoch = self._node_id, controller.broker_epoch
        if controller.is_active:
            shutdown = await controller.controlled_shutdown(own_id, epoch)
            error, remaining = shutdown.error, len(shutdown.remaining)
        else:
            request = ControlledShutdownRequest(broker_id=own_id, broker_epoch=epoch)
            response = await self.to_controller(request, CONTROLLED_SHUTDOWN_VERSION)
            assert isinstance(response, ControlledShutdownResponse)
            error = ErrorCode(response.error_code)
            remaining = len(response.remaining_partitions)
        if error:
            raise OSError(f"the controller answered {error.name}")
        return remaining

    def _broker_epoch(self) -> int:
        return self._controller().broker_epoch

    def _fetch_limits(self) -> FetchLimits:
        config = self._config
        return FetchLimits(
            max_bytes=config.get_int("replica.fetch.max.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            wait_max_ms=config.get_int("replica.fetch.wait.max.ms"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
        )

    async def to_controller(self, request: object, version: int) -> object:
        """Send a request to the controller, which is another broker. Errors: ChannelError."""
        controller_id = self._metadata().controller_id
        if controller_id < 0 or controller_id == self._node_id:
            raise ChannelError("no controller is known")
        return await self._requests.send(controller_id, request, version)

    async def _alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        controller = self._controller()
        response: object
        if controller.is_active:
            response = await controller.alter_partition(request, version)
        else:
            response = await self.to_controller(request, version)
        assert isinstance(response, AlterPartitionResponse)
        return response


async def drop_laggards(replicas: ReplicaManager) -> None:
    """Check for followers that have fallen behind, at intervals."""
    while True:
        await asyncio.sleep(replicas.membership.max_lag_ms / 2000)
        try:
            replicas.drop_laggards()
        except Exception:
            logger.exception("the search for followers that lag failed")
