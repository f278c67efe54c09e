"""The operations of Cluster, on both stores."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from server.coordination import paths
from server.coordination.cluster import BrokerIdInUse, ClusterStore, random_id
from server.coordination.controller_writes import (
    ControllerEpoch,
    ControllerWrites,
    NewTopic,
    NotController,
)
from server.coordination.events import ChangeKind, ClusterEvent
from server.coordination.paths import (
    FinalizedFeatures,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
)
from server.coordination.store import BadVersion, NodeExists, SessionState, Store
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration
from server.metadata.topic_partition import TopicPartition
from tests.support.clock import ManualClock

from .conftest import StoreMaker
from .test_contract import Run

BROKER = BrokerRegistration(1, (Endpoint("PLAINTEXT", "localhost", 9092),))


class Events:
    """Collects the events of a cluster."""

    def __init__(self, cluster: ClusterStore) -> None:
        self.seen: list[ClusterEvent] = []
        self._more = asyncio.Event()
        cluster.on_event(self._take)

    def _take(self, event: ClusterEvent) -> None:
        self.seen.append(event)
        self._more.set()

    async def wait_for(self, change: ChangeKind, topic: str = "") -> None:
        """Wait for an event of this kind, and remove it."""
        while ClusterEvent(change, topic) not in self.seen:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 5)
        self.seen.remove(ClusterEvent(change, topic))


async def join(maker: StoreMaker, clock: ManualClock | None = None) -> ClusterStore:
    cluster = ClusterStore(await maker.session(), clock or ManualClock())
    await cluster.ensure_paths()
    return cluster


async def become_controller(cluster: ClusterStore, broker_id: int = 1) -> ControllerWrites:
    elected = await cluster.elect_controller(broker_id)
    assert elected is not None
    return cluster.as_controller(elected)


def new_topic(name: str, partitions: int = 2, **configs: str) -> NewTopic:
    return NewTopic(
        name, random_id(), {n: ReplicaAssignment((1, 2)) for n in range(partitions)}, configs
    )


def states(topic: NewTopic) -> dict[int, LeaderAndIsr]:
    return {n: LeaderAndIsr(1, 0, (1, 2), 1) for n in topic.partitions}


async def data_at(store: Store, path: str) -> object:
    return json.loads((await store.get(path))[0] or b"null")


def test_paths_are_made_once_by_whoever_starts(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one = ClusterStore(await maker.session(), ManualClock())
        two = ClusterStore(await maker.session(), ManualClock())
        await asyncio.gather(one.ensure_paths(), two.ensure_paths(), one.ensure_paths())
        found = await one.store.get_many(paths.PERSISTENT_PATHS)
        assert [None] * len(found) == [node and node[0] for node in found]
        assert None not in found

    run(body)


def test_first_broker_names_the_cluster(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        ids = await asyncio.gather(one.cluster_id(), two.cluster_id("preferred"), one.cluster_id())
        assert len(set(ids)) == 1
        assert await data_at(one.store, "/cluster/id") == {"version": "1", "id": ids[0]}

    run(body)


def test_preferred_cluster_id_is_used_when_there_is_none(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        assert await cluster.cluster_id("of-the-data-directory") == "of-the-data-directory"
        assert await cluster.cluster_id() == "of-the-data-directory"

    run(body)


def test_random_ids_are_22_characters_and_no_option() -> None:
    from kwire.types import uuid_to_str

    for _ in range(300):
        text = uuid_to_str(random_id())
        assert len(text) == 22
        assert not text.startswith("-")


def test_registration_gives_the_czxid_and_is_seen_by_others(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        events = Events(two)
        assert await two.brokers() == {}
        epoch = await one.register_broker(BROKER)
        await events.wait_for(ChangeKind.BROKERS)
        assert await two.brokers() == {1: BROKER._replace(epoch=epoch)}
        stat = await two.store.exists("/brokers/ids/1")
        assert stat is not None
        assert (stat.czxid, stat.version) == (epoch, 1)
        await one.store.close()
        await events.wait_for(ChangeKind.BROKERS)
        assert await two.brokers() == {}

    run(body)


def test_registering_again_in_the_same_session_keeps_the_epoch(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        epoch = await cluster.register_broker(BROKER)
        moved = BROKER._replace(endpoints=(Endpoint("PLAINTEXT", "other", 1),))
        assert await cluster.register_broker(moved) == epoch
        assert (await cluster.brokers())[1].endpoints == moved.endpoints

    run(body)


def test_lost_connection_is_told_with_what_follows_and_how_long_it_lasted(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(maker: StoreMaker) -> None:
        told: list[Callable[[SessionState], None]] = []
        clock, store = ManualClock(), await maker.session()
        store.on_session = told.append  # type: ignore[method-assign]
        ClusterStore(store, clock)
        with caplog.at_level("INFO"):
            for state in (SessionState.SUSPENDED, SessionState.SUSPENDED, SessionState.CONNECTED):
                told[0](state)
                clock.advance(1500)

    run(body)
    lost, back = [record.getMessage() for record in caplog.records if "store" in record.message]
    assert lost.startswith("no connection to the coordination store: records are still served")
    assert back == "connected to the coordination store again after 3.0 s"


def test_broker_id_of_another_broker_is_waited_for_then_refused(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        class Hasty(ManualClock):
            """A store whose waits time out immediately."""

            def monotonic_ms(self) -> int:
                return self.advance(1_000_000)

        one, two, three = await join(maker), await join(maker, Hasty()), await join(maker)
        await one.register_broker(BROKER)
        with pytest.raises(BrokerIdInUse, match="broker id 1"):
            await two.register_broker(BROKER)
        waiting = asyncio.create_task(three.register_broker(BROKER))
        await one.brokers()
        assert not waiting.done()
        await one.store.close()
        await asyncio.wait_for(waiting, 5)

    run(body)


def test_one_controller_is_elected_and_the_next_has_the_next_epoch(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        assert await one.controller_id() == -1
        events = Events(two)
        assert await two.controller_id() == -1
        assert await one.elect_controller(1) == ControllerEpoch(1, 1)
        await events.wait_for(ChangeKind.CONTROLLER)
        assert await two.controller_id() == 1
        assert await two.elect_controller(2) is None
        assert (await one.store.get("/controller_epoch"))[0] == b"1"
        assert not await two.depose_controller(2)  # it is not the controller: nothing happens
        assert await one.controller_id() == 1
        assert await two.depose_controller(1)
        await events.wait_for(ChangeKind.CONTROLLER)
        assert await two.elect_controller(2) == ControllerEpoch(2, 2)

    run(body)


def test_controllers_standing_at_once_elect_one(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        clusters = [await join(maker) for _ in range(4)]
        elected = await asyncio.gather(*(c.elect_controller(i) for i, c in enumerate(clusters)))
        assert len([epoch for epoch in elected if epoch]) == 1

    run(body)


def test_old_controller_can_write_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        old = await become_controller(one)
        topic = new_topic("t")
        await old.create_topic(topic, states(topic))
        assert await two.depose_controller(1)
        await become_controller(two, 2)
        before = await one.load()
        other = new_topic("other")
        state = LeaderAndIsr(2, 1, (2,), 1, partition_epoch=0)
        assignment = TopicAssignment(topic.topic_id, topic.partitions, 0)
        for attempt in (
            old.create_topic(other, states(other)),
            old.cas_partition_state(TopicPartition("t", 0), state),
            old.create_states({TopicPartition("t", 9): state}),
            old.set_assignment("t", assignment),
            old.delete_topic("t"),
            old.set_features(FinalizedFeatures(True, {})),
        ):
            with pytest.raises(NotController, match="epoch 1"):
                await attempt
        after = await one.load()
        assert (after.topics, after.states) == (before.topics, before.states)

    run(body)


def test_new_topic_has_the_nodes_that_kafka_makes(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        events = Events(cluster)
        await cluster.topic_names()
        topic = new_topic("t", 2, **{"cleanup.policy": "compact"})
        made = await controller.create_topic(topic, states(topic))
        await events.wait_for(ChangeKind.TOPICS)
        assert {n: s.partition_epoch for n, s in made.items()} == {0: 0, 1: 0}
        store = cluster.store
        assert await data_at(store, "/config/topics/t") == {
            "version": 1,
            "config": {"cleanup.policy": "compact"},
        }
        found = paths.decode_topic("t", (await store.get("/brokers/topics/t"))[0])
        assert found == TopicAssignment(topic.topic_id, topic.partitions)
        for path in ("/brokers/topics/t/partitions", "/brokers/topics/t/partitions/1"):
            assert (await store.get(path))[0] is None
        assert await data_at(store, "/brokers/topics/t/partitions/1/state") == {
            "version": 1,
            "leader": 1,
            "leader_epoch": 0,
            "isr": [1, 2],
            "controller_epoch": 1,
        }
        loaded = await cluster.load()
        assert loaded.states == {TopicPartition("t", n): made[n] for n in (0, 1)}
        assert loaded.configs == {("topics", "t"): {"cleanup.policy": "compact"}}

    run(body)


def test_topic_there_already_is_left_alone(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        topic = new_topic("t", 1, a="1")
        await controller.create_topic(topic, states(topic))
        again = new_topic("t", 3, a="2")
        with pytest.raises(NodeExists):
            await controller.create_topic(again, states(again))
        loaded = await cluster.load()
        assert loaded.topics["t"].topic_id == topic.topic_id
        assert loaded.configs == {("topics", "t"): {"a": "1"}}

    run(body)


def test_config_left_behind_by_a_deleted_topic_is_replaced(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        await cluster.alter_config("topics", "t", lambda _: {"old": "1"})
        topic = new_topic("t", 1, new="2")
        await controller.create_topic(topic, states(topic))
        assert (await cluster.load()).configs == {("topics", "t"): {"new": "2"}}

    run(body)


def test_topic_too_large_for_one_transaction_is_made_in_several(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.coordination.controller_writes.MULTI_BYTES", 2000)

    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        topic = new_topic("t", 40)
        await controller.create_topic(topic, states(topic))
        loaded = await cluster.load()
        assert len(loaded.states) == 40
        await controller.delete_topic("t")
        assert (await cluster.load()).topics == {}
        assert await cluster.store.exists("/config/topics/t") is None

    run(body)


def test_partition_state_is_compared_and_set(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        topic = new_topic("t", 1)
        made = await controller.create_topic(topic, states(topic))
        tp = TopicPartition("t", 0)
        shrunk = await controller.cas_partition_state(tp, made[0]._replace(isr=(1,)))
        assert shrunk.partition_epoch == 1
        with pytest.raises(BadVersion):
            await controller.cas_partition_state(tp, made[0]._replace(isr=(2,)))
        assert await cluster.states([tp, TopicPartition("t", 7)]) == {tp: shrunk}

    run(body)


def test_partitions_are_added_below_the_topic(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        events = Events(cluster)
        topic = new_topic("t", 1)
        await controller.create_topic(topic, states(topic))
        assignment = (await cluster.topics(["t", "none"]))["t"]
        grown = assignment._replace(
            partitions={**assignment.partitions, 1: ReplicaAssignment((2,))}
        )
        written = await controller.set_assignment("t", grown)
        await events.wait_for(ChangeKind.ASSIGNMENT, "t")
        assert written.version == 1
        with pytest.raises(BadVersion):
            await controller.set_assignment("t", grown)
        tp = TopicPartition("t", 1)
        state = LeaderAndIsr(2, 0, (2,), 1)
        assert await controller.create_states({tp: state}) == {
            tp: state._replace(partition_epoch=0)
        }
        with pytest.raises(NodeExists):
            await controller.create_states({tp: state})
        loaded = await cluster.load()
        assert loaded.topics["t"] == written
        assert set(loaded.states) == {TopicPartition("t", 0), tp}

    run(body)


def test_deletion_is_asked_for_then_done(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        controller = await become_controller(one)
        topic = new_topic("t")
        await controller.create_topic(topic, states(topic))
        events = Events(one)
        assert await one.deletions() == []
        await two.request_deletion("t")
        with pytest.raises(NodeExists):
            await two.request_deletion("t")
        await events.wait_for(ChangeKind.DELETIONS)
        assert await one.deletions() == ["t"]
        await controller.delete_topic("t")
        assert await one.deletions() == []
        for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
            assert await one.store.exists(path) is None
        await controller.delete_topic("never there")

    run(body)


def test_topic_with_nodes_missing_and_nodes_too_many_is_deleted_whole(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        topic = new_topic("t", 3)
        await controller.create_topic(topic, states(topic))
        await cluster.store.delete(paths.state_path("t", 1))
        await cluster.store.delete(paths.config_path("topics", "t"))
        await cluster.store.create(paths.partition_path("t", 2) + "/unheard_of")
        await controller.delete_topic("t")
        assert await cluster.topic_names() == []

    run(body)


@pytest.mark.parametrize(
    ("entity_type", "name"),
    [
        ("topics", "t"),
        ("brokers", "1"),
        ("brokers", "<default>"),
        ("users", "alice"),
        ("users", "bob/clients/c%201%2Fx"),
        ("users", "<default>/clients/<default>"),
        ("ips", "10.1.2.3"),
    ],
)
def test_config_is_set_read_and_announced(run: Run, entity_type: str, name: str) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)
        events = Events(two)
        assert await two.config_changes() == {}
        assert await one.alter_config(entity_type, name, lambda _: {"k": "1"}) == {"k": "1"}
        await events.wait_for(ChangeKind.CONFIG)
        changes = await two.config_changes()
        assert list(changes) == [0]
        assert await two.changed_entities(list(changes.values())) == [(entity_type, name)]
        assert await two.configs([(entity_type, name)]) == {(entity_type, name): {"k": "1"}}
        merged = await two.alter_config(entity_type, name, lambda old: {**old, "l": "2"})
        assert merged == {"k": "1", "l": "2"}
        assert (await one.load()).configs[entity_type, name] == merged
        assert list(await one.config_changes()) == [0, 1]

    run(body)


def test_emptied_config_of_a_user_is_removed_and_of_a_topic_kept(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        for entity_type in ("users", "topics"):
            await cluster.alter_config(entity_type, "x", lambda _: {"k": "1"})
            await cluster.alter_config(entity_type, "x", lambda _: {})
        assert await cluster.store.exists("/config/users/x") is None
        assert await data_at(cluster.store, "/config/topics/x") == {"version": 1, "config": {}}

    run(body)


def test_config_changed_by_two_at_once_keeps_both(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await join(maker), await join(maker)

        def put(key: str) -> Callable[..., dict[str, str]]:
            return lambda old: {**old, key: "1"}

        await asyncio.gather(
            *(
                cluster.alter_config("topics", "t", put(f"{i}{n}"))
                for i, cluster in enumerate((one, two))
                for n in range(5)
            )
        )
        found = (await one.configs([("topics", "t")]))["topics", "t"]
        assert len(found) == 10

    run(body)


def test_old_notifications_are_purged(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        # A ZooKeeper server stamps nodes with its own time.
        clock = ManualClock() if maker.kind == "embedded" else ManualClock(int(time.time() * 1000))
        cluster = await join(maker, clock)
        for n in range(3):
            await cluster.alter_config("topics", f"t{n}", lambda _: {"k": "1"})
        await cluster.purge_config_changes((await cluster.config_changes()).values())
        assert len(await cluster.config_changes()) == 3
        clock.advance(16 * 60 * 1000)
        await cluster.purge_config_changes((await cluster.config_changes()).values())
        assert await cluster.config_changes() == {}
        await cluster.alter_config("topics", "t", lambda _: {"k": "2"})
        assert list(await cluster.config_changes()) == [3]

    run(body)


def test_producer_ids_wait_for_the_next_session_when_one_ends(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        await maker.expire(cluster.store)
        block = asyncio.create_task(cluster.allocate_producer_ids(0))
        await asyncio.sleep(0.1)
        assert not block.done()
        cluster.store.adopt_session()
        assert (await asyncio.wait_for(block, 30)).first == 0

    run(body)


def test_producer_ids_are_never_given_twice(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        clusters = [await join(maker) for _ in range(3)]
        blocks = await asyncio.gather(*(c.allocate_producer_ids(i) for i, c in enumerate(clusters)))
        blocks += [await clusters[0].allocate_producer_ids(0)]
        assert sorted(block.first for block in blocks) == [0, 1000, 2000, 3000]
        assert all(block.last - block.first == 999 for block in blocks)
        assert await data_at(clusters[0].store, "/latest_producer_id_block") == {
            "version": 1,
            "broker": 0,
            "block_start": "3000",
            "block_end": "3999",
        }

    run(body)


def test_features_are_written_with_their_epoch(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        controller = await become_controller(cluster)
        assert await cluster.features() is None
        made = await controller.set_features(FinalizedFeatures(True, {}))
        assert made == await cluster.features() == FinalizedFeatures(True, {}, 0)
        raised = await controller.set_features(made._replace(levels={"group.version": 1}))
        assert (
            raised == await cluster.features() == FinalizedFeatures(True, {"group.version": 1}, 1)
        )
        with pytest.raises(BadVersion):
            await controller.set_features(made)

    run(body)


def test_expired_session_is_told_and_renewed(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        events = Events(cluster)
        first = await cluster.register_broker(BROKER)
        await become_controller(cluster)
        await cluster.brokers()
        await maker.expire(cluster.store)
        await events.wait_for(ChangeKind.SESSION_EXPIRED)
        await events.wait_for(ChangeKind.RECONNECTED)
        await cluster.renew_session()
        second = await cluster.register_broker(BROKER)
        assert second > first
        assert await cluster.elect_controller(1) == ControllerEpoch(2, 2)

    run(body)


def test_auto_generated_broker_ids_begin_above_the_reserved_ones(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await join(maker)
        assert [await cluster.next_broker_id(), await cluster.next_broker_id(50)] == [1001, 52]

    run(body)
