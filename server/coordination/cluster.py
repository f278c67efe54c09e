"""The cluster in Kafka's terms, one implementation for both stores, with Apache Kafka's paths and JSON.

Reads also leave watches. A watch that fires becomes one `ClusterEvent`, upon which the owner reads again. Writes
reserved for the controller are in `controller_writes.py`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..metadata.image import BrokerRegistration
from ..metadata.topic_partition import TopicPartition
from . import paths
from .cluster_state import ClusterState
from .commit import commit, stat_of
from .controller_inbox import ControllerInbox
from .controller_writes import ControllerEpoch, ControllerWrites
from .events import ChangeKind, ClusterEvent
from .paths import FinalizedFeatures, LeaderAndIsr, ProducerIdBlock, TopicAssignment
from .store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SessionState,
    SetData,
    Store,
    WatchEvent,
)

if TYPE_CHECKING:
    from ..clock import Clock

logger = logging.getLogger(__name__)

#: Notifications of config changes older than this are purged. Source:
#: ZkNodeChangeNotificationListener.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000
#: The wait between the end of a session and the next attempt with a new one.
NEW_SESSION_WAIT_S = 0.05
#: The number of configs, or of notifications of changed configs, that are processed in a turn of the loop.
NODES_AT_ONCE = 1000
#: Makes an entity's new config from the current one.
ConfigChange: TypeAlias = Callable[
    [Mapping[str, str]], Mapping[str, str] | Awaitable[Mapping[str, str]]
]
#: How much longer than its session to wait for the end of a dead broker's node.
SESSION_GRACE_MS = 2000

#: The types of entities with configs: the nodes below /config. Apache Kafka has no groups there.
CONFIG_TYPES = ("topics", "brokers", "clients", "ips", "users", "client-metrics", "groups")
#: The types whose nodes are removed when they have no configs.
REMOVED_WHEN_EMPTY = ("clients", "ips", "users", "client-metrics", "groups")


class BrokerIdInUse(Exception):
    """Another live broker has this id."""


def random_id() -> bytes:
    """16 random bytes whose text does not begin with a dash, which tools would take for an option."""
    while True:
        made = bytearray(os.urandom(16))
        made[6] = made[6] & 0x0F | 0x40  # a version 4 UUID, like those of Kafka's Uuid.randomUuid
        made[8] = made[8] & 0x3F | 0x80
        if made[0] >> 2 != 0x3E:
            return bytes(made)


class ClusterStore:
    """One broker's view of the cluster's metadata, and its writes to it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._listeners: list[Callable[[ClusterEvent], None]] = []
        self._my_sessions = {store.session_id}
        self._cut_off_ms: int | None = None
        self.inbox = ControllerInbox(store, self._emit)
        store.on_session(self._session_changed)

    def on_event(self, listener: Callable[[ClusterEvent], None]) -> None:
        """Call `listener` with every event, on the event loop."""
        self._listeners.append(listener)

    def _emit(self, event: ClusterEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _session_changed(self, state: SessionState) -> None:
        now_ms = self._clock.monotonic_ms()
        if state is SessionState.SUSPENDED and self._cut_off_ms is None:
            self._cut_off_ms = now_ms
            logger.warning(
                "no connection to the coordination store: records are still served, but no topic, config, leader "
                "or set of in-sync replicas can change until it is back"
            )
        elif state is SessionState.CONNECTED and self._cut_off_ms is not None:
            logger.info(
                "connected to the coordination store again after %.1f s",
                (now_ms - self._cut_off_ms) / 1000,
            )
            self._cut_off_ms = None
        elif state is SessionState.EXPIRED:
            self._emit(ClusterEvent(ChangeKind.SESSION_EXPIRED))

    async def renew_session(self) -> None:
        """Adopt the session after an expired one; all work of the old session must have ended."""
        await self.store.connected()
        self.store.adopt_session()
        self._my_sessions.add(self.store.session_id)

    # Watches: bound methods, so that a watch left twice fires once

    def _fired(self, event: WatchEvent, change: ChangeKind, topic: str = "") -> None:
        if event.kind is EventKind.SESSION:
            self._emit(ClusterEvent(ChangeKind.RECONNECTED))
        else:
            self._emit(ClusterEvent(change, topic))

    def _brokers_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.BROKERS)

    def _topics_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.TOPICS)

    def _topic_fired(self, event: WatchEvent) -> None:
        if event.kind is not EventKind.DELETED:  # the watch on the parent reports it
            self._fired(event, ChangeKind.ASSIGNMENT, event.path[len(paths.TOPICS) + 1 :])

    def _deletions_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.DELETIONS)

    def _config_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.CONFIG)

    def _controller_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.CONTROLLER)

    # Start-up

    async def ensure_paths(self) -> None:
        """Create the nodes that every Kafka cluster has, if they are missing."""
        wanted = paths.with_parents(paths.PERSISTENT_PATHS)
        while True:
            found = await self.store.get_many(wanted)
            missing: list[Op] = [
                Create(path) for path, node in zip(wanted, found, strict=True) if node is None
            ]
            try:
                if missing:
                    await commit(self.store, missing)
                return
            except NodeExists:
                continue  # another broker is starting at the same time

    async def cluster_id(self, preferred: str | None = None) -> str:
        """Read the cluster's id; the first broker writes it: `preferred`, or a random one."""
        while True:
            try:
                return paths.decode_cluster_id((await self.store.get(paths.CLUSTER_ID))[0])
            except NoNode:
                pass
            made = preferred or base64.urlsafe_b64encode(random_id()).rstrip(b"=").decode()
            ops: list[Op] = [Create(paths.CLUSTER_ID, paths.encode_cluster_id(made))]
            if await self.store.exists("/cluster") is None:
                ops.insert(0, Create("/cluster"))
            try:
                await commit(self.store, ops)
            except NodeExists:
                continue
            return made

    async def next_broker_id(self, reserved_max: int = 1000) -> int:
        """Generate a broker id that has never been used, above `reserved.broker.max.id`."""
        while True:
            try:
                stat = await self.store.set(paths.BROKER_SEQUENCE, b"")
            except ConnectionLost:
                await self.store.connected()  # an unused number is harmless
            else:
                return stat.version + reserved_max

    async def register_broker(self, broker: BrokerRegistration) -> int:
        """Register this broker and return its epoch, the czxid of its node.

        The node of a broker that was killed stays until its session times out; this function waits for that.
        Errors: BrokerIdInUse if the node is still there afterwards.
        """
        path = paths.broker_path(broker.id)
        data = paths.encode_broker(broker, self._clock.now_ms())
        patience_ms = self.store.session_timeout_ms + SESSION_GRACE_MS
        give_up_ms = self._clock.monotonic_ms() + patience_ms
        while True:
            try:
                made = await commit(
                    self.store, [Create(path, None, ephemeral=True), SetData(path, data, 0)]
                )
                return stat_of(made[1]).czxid
            except NodeExists:
                pass
            changed = asyncio.Event()
            stat = await self.store.exists(path, lambda _, changed=changed: changed.set())  # type: ignore[misc]
            if stat is None:
                continue
            if stat.ephemeral_owner == self.store.session_id:
                return stat_of((await commit(self.store, [SetData(path, data)]))[0]).czxid
            if stat.ephemeral_owner in self._my_sessions:
                await self._delete_if_there(path)
                continue
            left_ms = give_up_ms - self._clock.monotonic_ms()
            logger.warning(
                "broker id %d is registered by session 0x%x, perhaps from before this broker was killed: "
                "waiting %d s for that session to end; if it does not, another broker has the same id",
                broker.id,
                stat.ephemeral_owner,
                left_ms // 1000,
            )
            try:
                await asyncio.wait_for(changed.wait(), max(left_ms, 0) / 1000)
            except TimeoutError:
                raise BrokerIdInUse(
                    f"broker id {broker.id} is registered by another session"
                    f" (0x{stat.ephemeral_owner & (1 << 64) - 1:x})"
                ) from None

    # The controller

    async def elect_controller(self, broker_id: int) -> ControllerEpoch | None:
        """Become the controller if there is none; None if another broker is.

        Source: KafkaZkClient.registerControllerAndIncrementControllerEpoch.
        """
        try:
            data, stat = await self.store.get(paths.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await commit(self.store, [Create(paths.CONTROLLER_EPOCH, b"0")])
            except NodeExists:
                pass
            data, stat = await self.store.get(paths.CONTROLLER_EPOCH)
        epoch = paths.decode_controller_epoch(data) + 1
        node = paths.encode_controller(broker_id, self._clock.now_ms())
        ops: list[Op] = [
            Create(paths.CONTROLLER, node, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, b"%d" % epoch, stat.version),
        ]
        try:
            made = await commit(self.store, ops)
        except (NodeExists, BadVersion):
            return None
        return ControllerEpoch(epoch, stat_of(made[1]).version)

    async def controller_id(self) -> int:
        """The id of the controller, -1 if there is none; watched."""
        while True:
            try:
                data, _ = await self.store.get(paths.CONTROLLER, self._controller_fired)
                return paths.decode_controller(data)
            except NoNode:
                if await self.store.exists(paths.CONTROLLER, self._controller_fired) is None:
                    return -1

    async def depose_controller(self, broker_id: int) -> bool:
        """Remove another broker as controller, to cause an election; False if it no longer is controller.

        Administrators also force an election by removing the node. The old controller, if alive, steps down, and the
        next epoch fences its writes.
        """
        try:
            _, fence = await self.store.get(paths.CONTROLLER_EPOCH)
            data, stat = await self.store.get(paths.CONTROLLER)
            if paths.decode_controller(data) != broker_id:
                return False
            # An election in the meantime changes the epoch.
            check = Check(paths.CONTROLLER_EPOCH, fence.version)
            await commit(self.store, [check, Delete(paths.CONTROLLER, stat.version)])
        except (BadVersion, NoNode):
            return False
        return True

    def as_controller(self, controller: ControllerEpoch) -> ControllerWrites:
        """The writes of a controller, which are refused once another is elected."""
        return ControllerWrites(self.store, controller)

    # Reading

    async def load(self) -> ClusterState:
        """Read everything, after leaving watches on everything."""
        return await self.load_topics(await self.load_settings())

    async def load_settings(self) -> ClusterState:
        """Read the state that every broker reads for itself: configs, features, and the controller's id."""
        state = ClusterState()
        state.controller_id = await self.controller_id()
        state.config_change = max(await self.config_changes(), default=-1)
        state.configs = await self.configs(await self.config_entities())
        state.features = await self.features()
        return state

    async def load_topics(self, state: ClusterState) -> ClusterState:
        """Read the state that only the controller reads into `state`: brokers, topics and partition states."""
        state.brokers = await self.brokers()
        state.deletions = await self.deletions()
        state.topics = await self.topics(await self.topic_names())
        state.states = await self.states(
            [
                TopicPartition(name, partition)
                for name, topic in state.topics.items()
                for partition in topic.partitions
            ]
        )
        return state

    async def brokers(self) -> dict[int, BrokerRegistration]:
        """The live brokers; the list and each registration are watched."""
        names = await self.store.children(paths.BROKER_IDS, self._brokers_fired)
        ids = sorted(int(name) for name in names)
        nodes = await self.store.get_many(
            [paths.broker_path(broker_id) for broker_id in ids], self._brokers_fired
        )
        return {
            broker_id: paths.decode_broker(broker_id, node[0], node[1].czxid)
            for broker_id, node in zip(ids, nodes, strict=True)
            if node is not None and node[0]
        }

    async def broker_ids(self) -> list[int]:
        """The ids of the live brokers; not watched."""
        return sorted(int(name) for name in await self._children(paths.BROKER_IDS))

    async def registrations(self, broker_ids: Iterable[int]) -> dict[int, BrokerRegistration]:
        """The live ones among these brokers; not watched."""
        ids = list(broker_ids)
        nodes = await self.store.get_many([paths.broker_path(broker_id) for broker_id in ids])
        return {
            broker_id: paths.decode_broker(broker_id, node[0], node[1].czxid)
            for broker_id, node in zip(ids, nodes, strict=True)
            if node is not None and node[0]
        }

    async def topic_names(self) -> list[str]:
        """The names of all topics; watched."""
        return await self.store.children(paths.TOPICS, self._topics_fired)

    async def topics(self, names: Iterable[str]) -> dict[str, TopicAssignment]:
        """The assignments of the topics that exist; each is watched."""
        listed = list(names)
        nodes = await self.store.get_many(
            [paths.topic_path(name) for name in listed], self._topic_fired
        )
        return {
            name: paths.decode_topic(name, node[0], node[1].version)
            for name, node in zip(listed, nodes, strict=True)
            if node is not None and node[0]
        }

    async def states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """The states of the partitions that have one."""
        listed = list(partitions)
        nodes = await self.store.get_many([paths.state_path(*tp) for tp in listed])
        return {
            tp: paths.decode_state(*tp, node[0], node[1].version)
            for tp, node in zip(listed, nodes, strict=True)
            if node is not None and node[0]
        }

    async def deletions(self) -> list[str]:
        """The topics whose deletion was requested; watched."""
        return await self.store.children(paths.DELETE_TOPICS, self._deletions_fired)

    async def features(self) -> FinalizedFeatures | None:
        """The finalized features; None before the first controller."""
        try:
            data, stat = await self.store.get(paths.FEATURE)
        except NoNode:
            return None
        return paths.decode_features(data, stat.version)

    async def config_entities(self) -> list[tuple[str, str]]:
        """Every (entity type, entity name) with a config node."""
        found: list[tuple[str, str]] = []
        for entity_type in CONFIG_TYPES:
            names = await self._children(paths.CONFIG + "/" + entity_type)
            found += [(entity_type, name) for name in names]
            if entity_type == "users":
                for user in names:
                    clients = await self._children(paths.config_path("users", user) + "/clients")
                    found += [("users", f"{user}/clients/{client}") for client in clients]
        return found

    async def configs(
        self, entities: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], dict[str, str]]:
        """The configs of the entities that have one."""
        listed = list(entities)
        found: dict[tuple[str, str], dict[str, str]] = {}
        for first in range(0, len(listed), NODES_AT_ONCE):
            some = listed[first : first + NODES_AT_ONCE]
            where = [paths.config_path(*entity) for entity in some]
            nodes = await self.store.get_many(where)
            for entity, path, node in zip(some, where, nodes, strict=True):
                if node is not None:
                    found[entity] = paths.decode_config(node[0], path)
            await asyncio.sleep(0)
        return found

    async def config_changes(self) -> dict[int, str]:
        """The paths of the notifications of config changes, by number; watched."""
        names = sorted(await self.store.children(paths.CONFIG_CHANGES, self._config_fired))
        changes: dict[int, str] = {}
        for first in range(0, len(names), NODES_AT_ONCE):
            for name in names[first : first + NODES_AT_ONCE]:
                changes[paths.sequence_of(name)] = f"{paths.CONFIG_CHANGES}/{name}"
            await asyncio.sleep(0)
        return changes

    async def changed_entities(self, changes: Sequence[str]) -> list[tuple[str, str]]:
        """The entities that these notifications name; purged notifications are skipped."""
        entities: dict[tuple[str, str], None] = {}
        for first in range(0, len(changes), NODES_AT_ONCE):
            nodes = await self.store.get_many(changes[first : first + NODES_AT_ONCE])
            for node in nodes:
                if node is not None:
                    entities[paths.decode_config_change(node[0])] = None
            await asyncio.sleep(0)
        return list(entities)

    async def request_deletion(self, topic: str) -> None:
        """Request the controller to delete a topic. Errors: NodeExists if that was already requested."""
        await commit(self.store, [Create(paths.delete_topic_path(topic))])

    # Configs and producer ids, for any broker

    async def alter_config(
        self,
        entity_type: str,
        name: str,
        change: ConfigChange,
    ) -> dict[str, str]:
        """Replace an entity's config with the result of `change`, and notify every broker.

        `change` is called again if another writer was faster. An empty config of a user, client, subscription or group
        removes its node, as in Apache Kafka. Returns the new config.
        """
        path = paths.config_path(entity_type, name)
        notify = Create(
            f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}",
            paths.encode_config_change(entity_type, name),
            sequential=True,
        )
        while True:
            node = (await self.store.get_many([path]))[0]
            before = {} if node is None else paths.decode_config(node[0], path)
            changed = change(before)
            after = dict(await changed if isinstance(changed, Awaitable) else changed)
            data = paths.encode_config(after)
            ops: list[Op] = []
            if node is None:
                above = paths.with_parents([path])[1:-1]
                found = await self.store.get_many(above)
                ops = [Create(p) for p, n in zip(above, found, strict=True) if n is None]
                ops.append(Create(path, data))
            elif not after and entity_type in REMOVED_WHEN_EMPTY and not node[1].num_children:
                ops.append(Delete(path, node[1].version))
            else:
                ops.append(SetData(path, data, node[1].version))
            try:
                await commit(self.store, [*ops, notify])
                return after
            except (BadVersion, NodeExists, NoNode) as error:
                if error.path == notify.path:
                    raise

    async def purge_config_changes(self, changes: Iterable[str]) -> None:
        """Delete those of the notifications, oldest first, that every broker has had time to see."""
        oldest_ms = self._clock.now_ms() - CHANGE_EXPIRATION_MS
        for path in changes:
            stat = await self.store.exists(path)
            if stat is None:
                continue
            if stat.ctime_ms >= oldest_ms:
                return
            await self._delete_if_there(path)

    async def allocate_producer_ids(self, broker_id: int) -> ProducerIdBlock:
        """Take the next block of 1000 producer ids. Source: ZkProducerIdManager."""
        while True:
            data, stat = await self.store.get(paths.PRODUCER_ID_BLOCK)
            last = paths.decode_producer_id_block(data)
            first = 0 if last is None else last.last + 1
            block = ProducerIdBlock(first, first + paths.PRODUCER_ID_BLOCK_SIZE - 1)
            node = paths.encode_producer_id_block(block, broker_id)
            try:
                await commit(self.store, [SetData(paths.PRODUCER_ID_BLOCK, node, stat.version)])
                return block
            except BadVersion:
                continue
            except SessionExpired:
                # A block that was reserved nevertheless is lost, and the next one is taken in the new session.
                await asyncio.sleep(NEW_SESSION_WAIT_S)

    # Helpers

    async def _children(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NoNode:
            return []

    async def _delete_if_there(self, path: str) -> None:
        try:
            await commit(self.store, [Delete(path)])
        except NoNode:
            pass
