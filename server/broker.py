"""The composition root: builds the rooms of one broker, starts and stops them. No rules live here."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from .clock import Clock, SystemClock
from .config import BrokerConfig, ConfigError
from .controller.auto_topics import AutoTopics
from .controller.controller import Controller, ControllerSettings
from .coordination.cluster import Cluster
from .coordinator.group.config import GroupConfig
from .coordinator.group_coordinator import GroupCoordinator
from .coordinator.internal_topic import InternalTopicLog
from .coordinator.transaction.config import TransactionConfig
from .coordinator.transaction.producer_ids import ProducerIds
from .coordinator.transaction_coordinator import TransactionCoordinator
from .coordinator.transaction_markers import TransactionMarkerWriter
from .executor import Executor
from .handlers.authorization import AllowAll
from .handlers.ceilings import CEILING_3_9, CEILING_4_3
from .handlers.context import Features, Services
from .handlers.dispatch import RequestDispatcher
from .handlers.registry import HandlerTable
from .handlers.table import HANDLERS
from .log.file_layer import FileLayer
from .log.log_config import LogConfig
from .log.log_directory import LogDirectory
from .log.log_manager import LogManager
from .log.upkeep import LogUpkeep
from .metadata.image import BROKERS, BrokerRegistration, MetadataImage
from .metadata.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from .metadata.publisher import MetadataPublisher
from .metadata.topic_partition import TopicPartition
from .net.limits import ConnectionQuotas, NetLimits, descriptors_for_connections
from .net.listener import Listener, frame_memory
from .net.network import Network
from .net.sockets import SocketNetwork
from .replication.fetch_session import FetchSessionCache
from .replication.partition import Partition
from .replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from .coordination.store import Store
    from .interbroker.cluster_links import ClusterLinks
    from .log.cleaner.task import CleanerTask
    from .log.recovery.process import RecoveryProcesses

logger = logging.getLogger(__name__)

CLEANER_START_S = 2.0
WILDCARDS = ("", "0.0.0.0", "::")
STOP_GRACE_S = 0.5
STRAY_ADVICE = (
    ". If the directory comes from a cluster in ZooKeeper, bring its metadata here with the brokers"
    " stopped: kwire coordination export --zookeeper HOSTS FILE, then kwire coordination import"
    " --data-dir DIR FILE"
)
#: How long the ready line waits for the controller to tell this broker of the cluster.
FIRST_METADATA_S = 10.0


class Broker:
    """One broker, on the running event loop.

    The seams (clock, file layer, store, executor, network) are chosen here and nowhere else.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        file_layer: FileLayer | None = None,
        store: Store | None = None,
        executor: Executor | None = None,
        network: Network | None = None,
    ) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.executor = executor or Executor()
        self.network = network or SocketNetwork(self.executor)
        self.node_id = config.node_id
        #: Which release this broker stands in for: Apache Kafka brokers may stand beside ZooKeeper.
        self.ceiling = CEILING_3_9 if self._zookeeper else CEILING_4_3
        self.handlers = HandlerTable(HANDLERS, self.ceiling)
        self.listeners: list[Listener] = []
        self.log_manager = LogManager(
            config.log_dirs, file_layer or FileLayer(), on_offline=self._directory_failed
        )
        self.upkeep = LogUpkeep(config, self.log_manager, self.executor, self.clock)
        self.cleaner: CleanerTask | None = None
        self.recovery: RecoveryProcesses | None = None
        self.publisher = MetadataPublisher()
        #: The ways to other brokers, where there may be any.
        self.links: ClusterLinks | None = None
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        #: Set with the reason when the broker cannot go on and must be stopped.
        self.failed: asyncio.Future[Exception] | None = None
        self._locked = False
        self._serving = False
        self._logs_loaded = False
        self._opening: asyncio.Future[None] | None = None

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come up until clients can be served. Errors: those of the rooms, as they name them."""
        self.failed = asyncio.get_running_loop().create_future()
        self.log_manager.lock()
        self._locked = True
        self._store = store = self._store or await self._open_store()
        self.cluster = Cluster(store, self.clock)
        await self.cluster.ensure_paths()
        meta = self.log_manager.meta_properties()
        preferred = meta.cluster_id if meta is not None and not self._zookeeper else None
        cluster_id = await self.cluster.cluster_id(preferred)
        if self.node_id < 0:
            self.node_id = await self._generated_id(None if meta is None else meta.broker_id)
        self.log_manager.claim(self.node_id, cluster_id)
        self._build_rooms(cluster_id)
        self._bind()
        self._report_addresses()
        await self._open_logs()
        self.config.subscribe(self._config_changed)
        await self.controller.start(preferred)
        for listener in self.listeners:
            listener.start()
        if self.links is not None:
            self.links.start()
        self._start_tasks()
        self._serving = True
        if not await self.controller.known(FIRST_METADATA_S):
            logger.warning("no controller has told this broker of the cluster yet")

    async def _open_logs(self) -> None:
        """Read, and after an unclean stop mend, what is on disk; the loop stays awake."""
        processes = self.config.get_int("num.recovery.threads.per.data.dir")
        recover = None
        if processes > 1:
            from .log.recovery.process import RecoveryProcesses

            self.recovery = RecoveryProcesses(processes)
            recover = self.recovery.recover
        config = LogConfig.of(self.config, {})  # those of the topics are known later
        self._opening = self.executor.in_thread(
            self.log_manager.open_logs, lambda _: config, self.clock.now_ms(), recover
        )
        await asyncio.shield(self._opening)

    async def _give_up_opening(self) -> None:
        if self._opening is not None and not self._opening.done():
            self.log_manager.abandon_opening()
            if self.recovery is not None:
                self.recovery.close()
            await asyncio.wait([self._opening])

    @property
    def _zookeeper(self) -> str | None:
        return self.config.get_optional_str("zookeeper.connect") or None

    async def _open_store(self) -> Store:
        if self._zookeeper is None:
            from .coordination.embedded import EmbeddedStore
            from .coordination.store import EMBEDDED_STORE

            store = await EmbeddedStore.open(
                Path(self.config.log_dirs[0], EMBEDDED_STORE), self.clock
            )
            store.on_failure(self._fail)
            return store
        from .coordination.zookeeper import ZooKeeperStore

        try:
            return await ZooKeeperStore.connect(
                self._zookeeper,
                session_timeout_ms=self.config.get_int("zookeeper.session.timeout.ms"),
            )
        except ValueError as error:
            raise ConfigError(f"zookeeper.connect={self._zookeeper}: {error}") from None

    async def _generated_id(self, known: int | None) -> int:
        if known is not None:
            return known
        if self._zookeeper is None:
            return 1
        return await self.cluster.next_broker_id(self.config.get_int("reserved.broker.max.id"))

    def _build_rooms(self, cluster_id: str) -> None:
        config, clock = self.config, self.clock
        self.replica_manager = ReplicaManager(
            self.node_id, self.log_manager, self.topic_settings, clock, executor=self.executor
        )
        if not self._zookeeper:
            self.replica_manager.stray_advice = STRAY_ADVICE
        if self._zookeeper:
            from .interbroker.cluster_links import ClusterLinks

            self.links = ClusterLinks(
                config,
                clock,
                self.publisher,
                self.replica_manager,
                lambda: self.controller,
                self.network,
            )
        self.group_coordinator = GroupCoordinator(
            GroupConfig.of(config),
            InternalTopicLog(GROUP_METADATA_TOPIC, self.replica_manager),
            clock,
        )
        producer_ids = ProducerIds(lambda: self.cluster.allocate_producer_ids(self.node_id))
        local_markers = TransactionMarkerWriter(
            self.replica_manager, self.group_coordinator, self.publisher.current, clock
        )
        self.transaction_coordinator = TransactionCoordinator(
            TransactionConfig.of(config, self.ceiling.transaction_version),
            InternalTopicLog(TRANSACTION_STATE_TOPIC, self.replica_manager),
            clock,
            producer_ids,
            local_markers if self.links is None else self.links.markers(local_markers),
        )
        coordinator, links = self.transaction_coordinator, self.links
        self.replica_manager.membership.flush = self.upkeep.flush_ahead
        self.replica_manager.on_leadership(self._leadership_changed)
        self.publisher.subscribe(self._apply_configs)
        if self.links is not None:
            self.publisher.subscribe(self.links.quotas.on_image)
        self.publisher.subscribe(self.replica_manager.on_image)
        self.publisher.subscribe(self._coordinators_topics_changed)
        self.controller = Controller(
            self.cluster,
            self.publisher,
            self.node_id,
            self._registration,
            settings=self._controller_settings(),
            local=self.replica_manager,
            open_channel=None if links is None else lambda peer: links.controller_channel(peer),
            on_fatal=self._fail,
        )
        self.services = Services(
            node_id=self.node_id,
            cluster_id=cluster_id,
            # In a cluster all brokers have to name the same address: clients drop a connection whose address changes.
            advertises=bool(config.advertised_listeners) or self._zookeeper is not None,
            ceiling=self.ceiling.name,
            features=Features.of(self.ceiling.features),
            config=config,
            clock=clock,
            executor=self.executor,
            api_ranges=self.handlers.ranges,
            metadata=self.publisher.current,
            publisher=self.publisher,
            cluster=self.cluster,
            log_manager=self.log_manager,
            replica_manager=self.replica_manager,
            controller=self.controller,
            group_coordinator=self.group_coordinator,
            transaction_coordinator=coordinator,
            partition_verifier=coordinator if links is None else links.verifier(coordinator),
            local_markers=local_markers,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessionCache(
                config.get_int("max.incremental.fetch.session.cache.slots")
            ),
            authorizer=AllowAll(),
            topics=AutoTopics(
                self.controller,
                self.publisher,
                config,
                to_controller=None if links is None else links.to_controller,
                alone=self._zookeeper is None,
            ),
        )

    def _controller_settings(self) -> ControllerSettings:
        config = self.config
        return ControllerSettings(
            listener="" if self.links is None else config.inter_broker_listener.listener,
            unclean_leader_election=config.get_bool("unclean.leader.election.enable"),
            delete_topic_enable=config.get_bool("delete.topic.enable"),
            auto_leader_rebalance=config.get_bool("auto.leader.rebalance.enable"),
            leader_imbalance_percentage=config.get_int("leader.imbalance.per.broker.percentage"),
            leader_imbalance_check_s=config.get_int("leader.imbalance.check.interval.seconds"),
        )

    def topic_settings(self, topic: str) -> tuple[LogConfig, int]:
        """The log config of a topic and its min.insync.replicas, as they are now."""
        overrides = self.publisher.image.topic_config(topic)
        minimum = self.config.topic_config(overrides)["min.insync.replicas"]
        assert isinstance(minimum, int)
        return LogConfig.of(self.config, overrides), minimum

    # -- listening -------------------------------------------------------------------------------

    def _limits(self) -> NetLimits:
        config = self.config
        receive_buffer_bytes = -1  # 102400 would have clients wait for a window to open
        if "socket.receive.buffer.bytes" in config.effective:
            receive_buffer_bytes = config.get_int("socket.receive.buffer.bytes")
        return NetLimits(
            request_max_bytes=config.get_int("socket.request.max.bytes"),
            queued_max_request_bytes=config.get_int("queued.max.request.bytes"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
            idle_ms=config.get_int("connections.max.idle.ms"),
            send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
            receive_buffer_bytes=receive_buffer_bytes,
            backlog=config.get_int("socket.listen.backlog.size"),
        )

    def _bind(self) -> None:
        config = self.config
        limits = self._limits()
        memory = frame_memory(limits, self.clock)
        self.quotas = quotas = ConnectionQuotas(limits, descriptors_for_connections())
        dispatcher = RequestDispatcher(self.handlers, self.services, self.clock)
        for endpoint in config.listeners:
            listener = Listener(
                self.network,
                endpoint,
                dispatcher,
                limits,
                self.clock,
                memory=memory,
                quotas=quotas,
            )
            listener.bind()
            self.listeners.append(listener)

    def _report_addresses(self) -> None:
        for listener in self.listeners:
            if listener.endpoint.host not in WILDCARDS or self.config.advertised_listeners:
                continue
            if self._zookeeper is not None:
                logger.info(
                    "listening on every interface; clients and other brokers are told to come to %s:%d. "
                    "Where they cannot, start with --advertise HOST:%d",
                    socket.getfqdn(),
                    listener.port,
                    listener.port,
                )
            else:
                logger.info(
                    "listening on every interface; clients are told the address they connected "
                    "to. Where address or port is translated on the way (a container's published "
                    "port, a tunnel to another port) start with --advertise HOST:%d",
                    listener.port,
                )

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, as a client on this machine would write it."""
        endpoint = self.listeners[0].endpoint
        if endpoint.host in WILDCARDS:
            endpoint = endpoint._replace(host="localhost")
        return endpoint.address

    def _registration(self) -> BrokerRegistration:
        """What other brokers are told: always a fixed address, whatever clients are told."""
        advertised = {endpoint.listener: endpoint for endpoint in self.config.advertised_listeners}
        endpoints = []
        for own in (listener.endpoint for listener in self.listeners):
            told = advertised.get(own.listener)
            if told is not None:
                host, port = told.host, told.port or own.port
            else:
                host = socket.getfqdn() if own.host in WILDCARDS else own.host
                port = own.port
            endpoints.append(own._replace(host=host, port=port))
        return BrokerRegistration(
            self.node_id, tuple(endpoints), self.config.get_optional_str("broker.rack")
        )

    # -- what follows from a new image -----------------------------------------------------------

    def _apply_configs(self, before: MetadataImage, after: MetadataImage) -> None:
        if not self._logs_loaded:
            self._logs_loaded = True
            self._take_dynamic(after)
            # The image names the topics' settings, which the logs need when they are opened.
            self.log_manager.load(lambda topic: self.topic_settings(topic)[0], self.clock.now_ms())
        elif any(kind == BROKERS for kind, _ in after.changes_since(before).configs):
            self._take_dynamic(after)
            self.replica_manager.reconfigure()
            self.group_coordinator.reconfigure(GroupConfig.of(self.config))
            self.transaction_coordinator.reconfigure(
                TransactionConfig.of(self.config, self.ceiling.transaction_version)
            )

    def _config_changed(self, changed: frozenset[str]) -> None:
        if any(name.startswith("max.connections") for name in changed):
            self.quotas.limits = self._limits()
        if "unclean.leader.election.enable" in changed:
            self.controller.settings.unclean_leader_election = self.config.get_bool(
                "unclean.leader.election.enable"
            )
            self.controller.settings_changed()

    def _take_dynamic(self, image: MetadataImage) -> None:
        self.config.set_dynamic(
            broker=image.broker_config(self.node_id), default=image.default_broker_config()
        )

    def _leadership_changed(self, partition: Partition, leads: bool) -> None:
        coordinator: GroupCoordinator | TransactionCoordinator
        if partition.tp.topic == GROUP_METADATA_TOPIC:
            coordinator = self.group_coordinator
        elif partition.tp.topic == TRANSACTION_STATE_TOPIC:
            coordinator = self.transaction_coordinator
        else:
            return
        if leads:
            coordinator.lead(partition.tp.partition, partition.state.leader_epoch)
        else:
            coordinator.resign(partition.tp.partition)

    def _coordinators_topics_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        delta = after.changes_since(before)
        if delta.deleted:
            self.group_coordinator.partitions_deleted(
                TopicPartition(topic.name, number)
                for topic in delta.deleted.values()
                for number in topic.partitions
            )
        if GROUP_METADATA_TOPIC in delta.changed:
            topic = after.topics[GROUP_METADATA_TOPIC]
            self.group_coordinator.offsets_topic_partitions = len(topic.partitions)
        if TRANSACTION_STATE_TOPIC in delta.changed:
            topic = after.topics[TRANSACTION_STATE_TOPIC]
            self.transaction_coordinator.state_topic_partitions = len(topic.partitions)

    # -- what is done from time to time ----------------------------------------------------------

    def _start_tasks(self) -> None:
        self.upkeep.start()
        if self.config.get_bool("log.cleaner.enable"):
            self._tasks.append(asyncio.create_task(self._clean()))

    async def _clean(self) -> None:
        await asyncio.sleep(CLEANER_START_S)  # nothing of it is needed to come up
        from .log.cleaner.task import CleanerTask

        self.cleaner = CleanerTask(self.config, self.log_manager, self.executor, self.clock)
        await self.cleaner.run()

    def _directory_failed(self, directory: LogDirectory) -> None:
        if all(each.offline for each in self.log_manager.directories):
            self._fail(OSError(f"all log directories have failed, {directory.path} last"))
        elif self._serving:  # while it starts, it is asked for its replicas anyway
            # In a moment: whoever met the error is in the middle of something.
            loop = asyncio.get_running_loop()
            loop.call_soon(self.replica_manager.directory_failed)
            self.controller.log_directory_failed()

    def _fail(self, reason: Exception) -> None:
        if self.failed is not None and not self.failed.done():
            self._serving = False
            self.failed.set_result(reason)

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand over to others, stop serving, put everything on disk, mark the directories clean."""
        await self._give_up_opening()
        if self.links is not None and self._serving:
            await self.links.hand_over()
        self.upkeep.close()
        for task in self._tasks:
            task.cancel()
        if self.cleaner is not None:
            self.cleaner.close()
        for listener in self.listeners:
            listener.stop_accepting()
        if hasattr(self, "group_coordinator"):
            self.group_coordinator.close()
        if hasattr(self, "transaction_coordinator"):
            self.transaction_coordinator.close()
        for listener in self.listeners:
            await listener.close(STOP_GRACE_S)
        if self.links is not None:
            await self.links.close()
        if hasattr(self, "controller"):
            await self.controller.shutdown()
        # Before the logs close: nothing that still waits for a worker may append afterwards.
        self.executor.close()
        if self._locked:
            if hasattr(self, "replica_manager"):
                self.replica_manager.close()
                threads = self.config.get_int("num.recovery.threads.per.data.dir")
                self.log_manager.shutdown(self.clock.now_ms(), threads=threads)
            self.log_manager.unlock()
        if self._store is not None:
            await self._store.close()
