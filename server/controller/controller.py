"""Every broker's part in the cluster's metadata: a queue of events and requests, processed one at a time.

Every broker runs this part: it registers the broker, takes part in the election, and follows the state that each broker
reads for itself (configs, and the controller's id). The winner of the election is active: only the active controller
reads topics and brokers from the store, and sends them to the others (`active.py` and the modules that use it). Only
one piece of work runs at a time, so no step has to consider concurrent ones. Decisions are in the pure modules of this
folder; access to the store is in `coordination`.
Source: KafkaController.scala, ControllerEventManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from ..coordination.cluster import BrokerIdInUse, ClusterStore, ConfigChange
from ..coordination.controller_writes import NotController
from ..coordination.events import ChangeKind, ClusterEvent
from ..coordination.paths import NewTopic, ProducerIdBlock, ReplicaAssignment
from ..coordination.store import SessionExpired, StoreClosed
from ..metadata.image import TOPICS, BrokerRegistration, MetadataImage, TopicImage
from ..metadata.topic_partition import TopicPartition
from ..replication.role_slices import LocalReplicas
from ..turns import Turns
from .active import CONTROLLER, ControllerServices, ControllerSettings
from .active_epoch import ActiveEpoch
from .channels import OpenChannel
from .images import settings_image
from .leadership import Shutdown
from .refusal import ControllerRefusal
from .topic_changes import NOT_CONTROLLER

if TYPE_CHECKING:
    from ..metadata.publisher import MetadataPublisher

__all__ = ["NOT_CONTROLLER", "Controller", "ControllerSettings"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: The broker cannot continue after these: its id is taken, or the store's file failed.
FATAL = (BrokerIdInUse, StoreClosed)

#: How long a stopping controller waits until brokers have received its last decisions.
TELL_S = 2.0

Listed = dict[TopicPartition, ReplicaAssignment]


class Controller:
    """Registers this broker, takes part in the election, and is the controller while elected.

    Shape: `registration()` returns this broker's registration, and is called when it registers; `local` are the
    replicas of this broker, which receive messages without a network; `open_channel` makes connections to other
    brokers; `on_fatal` is called with the reason when this broker must stop.
    """

    def __init__(
        self,
        cluster: ClusterStore,
        publisher: MetadataPublisher,
        broker_id: int,
        registration: Callable[[], BrokerRegistration],
        *,
        settings: ControllerSettings | None = None,
        local: LocalReplicas | None = None,
        open_channel: OpenChannel | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.settings = settings or ControllerSettings()
        self._registration = registration
        self._publisher = publisher
        self._on_fatal = on_fatal
        self._services = ControllerServices(
            broker_id,
            cluster,
            publisher,
            self.settings,
            local,
            open_channel,
            self._later,
            turns or Turns(lambda: 0),
        )
        self._active_epoch: ActiveEpoch | None = None
        self._queue: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any] | None]]
        self._queue = asyncio.Queue()
        self._planned: set[ClusterEvent] = set()
        self._config_seen = -1
        self._cluster_id = ""
        self._shown_controller = -1
        self._task: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        #: Brokers whose ports refuse connections.
        self._suspects: set[int] = set()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, to its own knowledge, and has loaded everything."""
        return self._active_epoch is not None and self._active_epoch.begun

    @property
    def holds_office(self) -> bool:
        """Whether this broker is the controller, to its own knowledge; it may not have loaded everything yet."""
        return self._active_epoch is not None

    @property
    def epoch(self) -> int:
        """The controller epoch while active, else -1."""
        return -1 if self._active_epoch is None else self._active_epoch.active.epoch

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        return self._publisher.image

    # Start and stop

    async def start(self, cluster_id: str | None = None) -> None:
        """Read the settings, register, take part in the election, and load everything if elected.

        `cluster_id`, if the data directories contain one, is used for a cluster that has none yet.
        Errors: BrokerIdInUse, StoreClosed.
        """
        self.cluster.on_event(self._on_event)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")
        await self._submit(partial(self._begin, cluster_id))

    async def known(self, timeout_s: float) -> bool:
        """Wait until this broker knows the cluster: it is active, or the controller has sent the state."""
        try:
            await asyncio.wait_for(self._known.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    @property
    def unclean_elections(self) -> int:
        """The number of leaders that this broker, as controller, has elected although they were not in sync."""
        return self._services.unclean_elections

    @property
    def knows_cluster(self) -> bool:
        """Whether `known` would not have to wait."""
        return self._known.is_set()

    async def shutdown(self) -> None:
        """Stop working; the owner of the store closes its session, which removes the registration."""
        self._step_down()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        while not self._queue.empty():
            _, future = self._queue.get_nowait()
            if future is not None:
                future.cancel()

    # Requests

    async def create_topics(
        self, topics: Sequence[NewTopic]
    ) -> list[TopicImage | ControllerRefusal]:
        """Create topics and return when they are ready for use: every listener has seen them.

        Shape: one result for each topic, in order. Errors: NOT_CONTROLLER, TOPIC_ALREADY_EXISTS; KAFKA_STORAGE_ERROR
        for a topic that now exists, but for which this broker could not open a log.
        """
        refused: list[TopicImage | ControllerRefusal] = [NOT_CONTROLLER for _ in topics]

        async def create(epoch: ActiveEpoch) -> list[TopicImage | ControllerRefusal]:
            made = await epoch.topics.create(topics)
            if NOT_CONTROLLER in made:
                self._lost_office()
            return made

        return [self._usable(each) for each in await self._as_controller(create, refused)]

    async def create_partitions(
        self, topic: str, partitions: Mapping[int, Sequence[int]]
    ) -> TopicImage | ControllerRefusal:
        """Add these partitions with their replicas and return when they are ready for use.

        Errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS for a number that already exists;
        KAFKA_STORAGE_ERROR as for create_topics.
        """
        refused: TopicImage | ControllerRefusal = NOT_CONTROLLER
        grown = await self._as_controller(
            lambda epoch: epoch.topics.grow(topic, partitions), refused
        )
        return self._usable(grown)

    def _usable(self, made: TopicImage | ControllerRefusal) -> TopicImage | ControllerRefusal:
        """The created topic, or a refusal that lists its partitions without a log."""
        if isinstance(made, ControllerRefusal):
            return made
        now = self.image.topics.get(made.name, made)
        lost = [each for each in now.partitions.values() if each.offline and each.leader < 0]
        if not lost:
            return made
        return ControllerRefusal(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"Topic '{made.name}' exists, but the logs of {len(lost)} of its {len(now.partitions)}"
            f" partitions could not be opened (the log of broker {self.broker_id} says why).",
        )

    async def delete_topics(self, names: Sequence[str]) -> list[ControllerRefusal | None]:
        """Delete topics and return when no live broker shows them; the logs of dead brokers are deleted later.

        Errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION.
        """
        refused: list[ControllerRefusal | None] = [NOT_CONTROLLER for _ in names]
        return await self._as_controller(lambda epoch: epoch.topics.delete(names), refused)

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Change in-sync replicas for leaders. Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH."""
        refused = AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
        return await self._as_controller(
            lambda epoch: epoch.leadership.alter_partition(request, version), refused
        )

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Shutdown:
        """Move leaderships away from a broker that is about to stop.

        Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """
        return await self._as_controller(
            lambda epoch: epoch.leadership.controlled_shutdown(broker_id, broker_epoch),
            Shutdown(ErrorCode.NOT_CONTROLLER, []),
        )

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, change_factor: bool = True
    ) -> dict[TopicPartition, ControllerRefusal | None] | ControllerRefusal:
        """Start reassignments, or cancel them (None). Errors: NOT_CONTROLLER for the whole request."""
        return await self._as_controller(
            lambda epoch: epoch.reassignments.alter(wanted, change_factor=change_factor),
            NOT_CONTROLLER,
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> Listed | ControllerRefusal:
        """The ongoing reassignments, of these partitions or of all. Errors: NOT_CONTROLLER."""

        async def find(epoch: ActiveEpoch) -> Listed | ControllerRefusal:
            found = await epoch.reassignments.going_on()
            if partitions is None:
                return found
            asked: Listed = {}
            for tp in partitions:
                await self._services.turns.pause(CONTROLLER)
                if tp in found:
                    asked[tp] = found[tp]
            return asked

        return await self._as_controller(find, NOT_CONTROLLER)

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election: int
    ) -> dict[TopicPartition, ControllerRefusal | None]:
        """Elect preferred (0) or unclean (1) leaders of these partitions, or of all.

        Errors: for each partition NOT_CONTROLLER and those of `Leadership.elect`.
        """
        refused: dict[TopicPartition, ControllerRefusal | None] = dict.fromkeys(
            partitions or (), NOT_CONTROLLER
        )
        return await self._as_controller(
            lambda epoch: epoch.leadership.elect(partitions, election), refused
        )

    async def update_features(
        self, change: Callable[[Mapping[str, int]], Mapping[str, int] | ControllerRefusal]
    ) -> ControllerRefusal | None:
        """Replace the stored levels of features; return when every listener of this broker has seen them.

        Errors: NOT_CONTROLLER, and those of `change`.
        """
        return await self._as_controller(
            lambda epoch: epoch.update_features(change), NOT_CONTROLLER
        )

    async def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int
    ) -> ProducerIdBlock | ErrorCode:
        """Reserve a block of producer ids for a broker.

        Errors: NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """

        async def allocate(epoch: ActiveEpoch) -> ProducerIdBlock | ErrorCode:
            broker = self.image.brokers.get(broker_id)
            if broker is None:
                return ErrorCode.BROKER_ID_NOT_REGISTERED
            if broker.epoch != broker_epoch:
                return ErrorCode.STALE_BROKER_EPOCH
            return await self.cluster.allocate_producer_ids(broker_id)

        return await self._as_controller(allocate, ErrorCode.NOT_CONTROLLER)

    async def is_deposed(self, epoch: int) -> bool:
        """Whether another controller may be in office, as the epoch in a request suggests.

        While this broker is the controller, only the store can confirm that; this broker then steps down. Its decisions
        never rely on values from a request.
        """
        if self._active_epoch is None:
            return True
        if epoch <= self.epoch:
            return False

        async def look() -> bool:
            if self._active_epoch is None:
                return True
            try:
                await self._active_epoch.active.writes.confirm()
            except NotController as error:
                logger.info("No longer the controller: %s", error)
                self._lost_office()
                return True
            return False

        try:
            return await self._submit(look)
        except SessionExpired:
            return True  # the event that ends this epoch is in the queue

    async def told(self, timeout_s: float = TELL_S) -> None:
        """While this broker is the controller, wait until the others have received its decisions."""
        if self._active_epoch is not None:
            await self._active_epoch.active.told(timeout_s)

    def peer_lost(self, broker_id: int) -> None:
        """Handle a broker whose port refuses connections: its process is probably dead.

        Its leaderships are moved. If it is the controller, another one is elected without waiting for the end of its
        session.
        """
        self._suspects.add(broker_id)

        async def act() -> None:
            if broker_id not in self._suspects:
                return
            if self._active_epoch is not None:
                await self._active_epoch.leadership.suspect(broker_id)
            elif broker_id == self.image.controller_id and await self.cluster.depose_controller(
                broker_id
            ):
                logger.warning("The controller refuses connections: another one is elected")

        self._later(act)

    def peer_found(self, broker_id: int) -> None:
        """Handle a broker that accepts connections again, or is no longer registered."""
        self._suspects.discard(broker_id)

        async def act() -> None:
            if self._active_epoch is not None and broker_id not in self._suspects:
                await self._active_epoch.leadership.trust(broker_id)

        self._later(act)

    def log_directory_failed(self) -> None:
        """Make the controller ask this broker which of its replicas are lost."""
        self._later(partial(self.cluster.inbox.announce_log_dir_failure, self.broker_id))

    def reconfigure(self, *, unclean_leader_election: bool) -> None:
        """Apply a setting changed at run time; if unclean elections are now allowed, hold them."""
        self.settings.unclean_leader_election = unclean_leader_election

        async def elect() -> None:
            if self._active_epoch is not None and self.settings.unclean_leader_election:
                await self._active_epoch.leadership.elect_offline()

        self._later(elect)

    async def alter_config(
        self,
        entity_type: str,
        name: str,
        change: ConfigChange,
    ) -> dict[str, str]:
        """Replace an entity's dynamic config with the result of `change` for the current one.

        Any broker can do this. The new config is returned when every listener of this broker has seen it. `change` may
        be called more than once, and may return an awaitable; nothing else is changed in the meantime.
        """
        while True:
            try:
                return await self._submit(partial(self._alter_config, entity_type, name, change))
            except SessionExpired:
                continue  # queued behind the event that starts the next session

    # The queue

    async def _as_controller(self, work: Callable[[ActiveEpoch], Awaitable[T]], refused: T) -> T:
        """Do work if this broker is the controller both when the work begins and when it ends."""

        async def in_turn() -> T:
            return refused if self._active_epoch is None else await work(self._active_epoch)

        try:
            return await self._submit(in_turn)
        except (NotController, SessionExpired):
            return refused

    async def _submit(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._task is None:
            raise StoreClosed(message="the controller is not running")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((work, future))
        return await future

    def _later(self, work: Callable[[], Awaitable[Any]]) -> None:
        self._queue.put_nowait((work, None))

    def _on_event(self, event: ClusterEvent) -> None:
        # one handling covers all equal events queued before it
        if event not in self._planned:
            self._planned.add(event)
            self._queue.put_nowait((partial(self._handle, event), None))

    async def _run(self) -> None:
        while True:
            work, future = await self._queue.get()
            try:
                result = await work()
                if self._active_epoch is not None:
                    await self._active_epoch.active.settle()
            except asyncio.CancelledError:
                if future is not None:
                    future.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - the root of the controller's task
                self._failed(error, future)
            else:
                if future is not None and not future.done():
                    future.set_result(result)

    def _failed(self, error: Exception, future: asyncio.Future[Any] | None) -> None:
        if isinstance(error, NotController):
            logger.info("No longer the controller: %s", error)
            self._lost_office()
        if future is not None:
            if not future.done():
                future.set_exception(error)
        elif isinstance(error, FATAL):
            logger.error("This broker cannot continue: %s", error)
            if self._on_fatal is not None:
                self._on_fatal(error)
        elif not isinstance(error, NotController | SessionExpired):
            # An expired session has its own event, which repairs everything.
            logger.error("The controller could not handle an event", exc_info=error)

    async def _handle(self, event: ClusterEvent) -> None:
        self._planned.discard(event)
        match event.change:
            case ChangeKind.CONFIG:
                await self._config_changed()
            case ChangeKind.CONTROLLER:
                await self._controller_changed()
            case ChangeKind.RECONNECTED:
                await self._reconnected()
            case ChangeKind.SESSION_EXPIRED:
                await self._session_expired()
            case _:
                if self._active_epoch is not None:
                    await self._active_epoch.handle(event)

    # Membership and election

    async def _begin(self, cluster_id: str | None) -> None:
        await self.cluster.ensure_paths()
        self._cluster_id = await self.cluster.cluster_id(cluster_id)
        await self._load_settings()
        await self._join()

    async def _join(self) -> None:
        self.broker_epoch = await self.cluster.register_broker(self._registration())
        logger.info("Registered broker %d (epoch %d)", self.broker_id, self.broker_epoch)
        self._show_controller(await self._elect())

    async def _session_expired(self) -> None:
        logger.warning("The coordination session expired; registering again")
        self._step_down()
        await self.cluster.renew_session()
        await self._load_settings()
        await self._join()

    def _step_down(self) -> None:
        if self._active_epoch is not None:
            logger.info("Controller of epoch %d steps down", self.epoch)
            self._active_epoch.close()
            self._active_epoch = None

    def _lost_office(self) -> None:
        self._step_down()
        self._on_event(ClusterEvent(ChangeKind.CONTROLLER))

    async def _elect(self) -> int:
        """Become controller if there is none, and load everything; returns the controller's id."""
        while True:
            controller = await self.cluster.elect_controller(self.broker_id)
            if controller is not None:
                logger.info("Controller of epoch %d", controller.epoch)
                self._active_epoch = ActiveEpoch(
                    self._services, self.cluster.as_controller(controller)
                )
                try:
                    await self._active_epoch.begin()
                    self._known.set()
                    for suspect in sorted(self._suspects):
                        await self._active_epoch.leadership.suspect(suspect)
                except NotController as error:
                    logger.info("No longer the controller: %s", error)
                    self._step_down()
            controller_id = await self.cluster.controller_id()
            if controller_id >= 0:
                return controller_id

    async def _controller_changed(self) -> None:
        self._show_controller(await self._look_at_controller())

    def _show_controller(self, controller_id: int) -> None:
        # Not compared with the image, since the controller may have announced itself earlier.
        if controller_id != self._shown_controller:
            self._shown_controller = controller_id
            logger.info("The controller is broker %d", controller_id)
        self._publisher.publish(self.image.with_controller(controller_id))

    async def _look_at_controller(self) -> int:
        """Step down if another broker is controller; stand for election if there is none."""
        controller_id = await self.cluster.controller_id()
        if controller_id != self.broker_id:
            self._step_down()
        if controller_id >= 0:
            return controller_id
        elected = await self._elect()
        if self._active_epoch is not None:
            await (
                self._load_settings()
            )  # an earlier controller's requests may have changed the image
        return elected

    async def _reconnected(self) -> None:
        """Read everything again that was watched, since watches do not survive a connection."""
        self._show_controller(await self._look_at_controller())
        await self._load_settings()
        if self._active_epoch is not None:
            await self._active_epoch.load()

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Read the configs of new topics that the controller announces; subscribe this before `start`."""
        if not self._known.is_set() and self.broker_id in after.brokers:
            self._known.set()
        if self._active_epoch is not None:
            return
        # Every broker reads the configs itself.
        new = [name for name in after.changes_since(before).changed if name not in before.topics]
        if new:
            self._later(partial(self._take_configs, [(TOPICS, name) for name in new]))

    # Configs

    async def _load_settings(self) -> None:
        state = await self.cluster.load_settings()
        self._config_seen = state.config_change
        self._publisher.publish(settings_image(self.image, self._cluster_id, state))

    async def _config_changed(self) -> None:
        changes = await self.cluster.config_changes()
        new = [path for number, path in changes.items() if number > self._config_seen]
        if new:
            self._config_seen = max(changes)
            entities = await self.cluster.changed_entities(new)
            await self._take_configs(entities)
            await self.cluster.purge_config_changes(changes.values())

    async def _take_configs(self, entities: Iterable[tuple[str, str]]) -> None:
        listed = list(entities)
        found = await self.cluster.configs(listed)
        edit = self.image.edit()
        for entity in listed:
            edit.put_config(*entity, found.get(entity, {}))
        self._publisher.publish(edit.build())
        if self._active_epoch is not None:
            await self._active_epoch.configs_changed(listed)

    async def _alter_config(
        self,
        entity_type: str,
        name: str,
        change: ConfigChange,
    ) -> dict[str, str]:
        config = await self.cluster.alter_config(entity_type, name, change)
        self._publisher.publish(self.image.with_config(entity_type, name, config))
        if self._active_epoch is not None:
            await self._active_epoch.configs_changed([(entity_type, name)])
        return config
