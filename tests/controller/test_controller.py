"""The controller's queue with both stores: how it handles requests and changes made by others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.clock import SystemClock
from server.controller.refusal import ControllerRefusal
from server.coordination import paths
from server.coordination.cluster import BrokerIdInUse, ClusterStore, random_id
from server.coordination.embedded import EmbeddedStore, EmbeddedTree
from server.coordination.events import ChangeKind, ClusterEvent
from server.coordination.paths import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from server.coordination.store import Create, Delete, SetData, Stat, StoreClosed, Watch
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from server.metadata.topic_partition import TopicPartition
from tests.coordination.conftest import StoreMaker
from tests.coordination.test_contract import Run
from tests.support.clock import ManualClock
from tests.support.cpu_time import cpu_time

from .members import Member, Network, create, join, new_topic


def test_single_broker_registers_and_is_controller_when_started(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        image = member.image
        assert member.controller.is_active
        assert member.controller.epoch == 1
        assert image.controller_id == 1
        assert image.cluster_id == await member.cluster.cluster_id()
        assert image.brokers[1].epoch == member.controller.broker_epoch > 0
        assert (image.features, image.features_epoch) == ({}, 0)
        data = (await member.store.get("/feature"))[0]
        assert json.loads(data or b"") == {"version": 2, "status": 1, "features": {}}
        await member.stop()

    run(body)


def test_created_topic_is_known_to_every_listener_when_the_answer_comes(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        heard: list[str] = []
        member.publisher.subscribe(lambda old, new: heard.extend(new.changes_since(old).changed))
        topic = new_topic("t", (1,), (1,), **{"cleanup.policy": "compact"})
        made = (await member.controller.create_topics([topic]))[0]
        assert heard == ["t"]
        assert isinstance(made, TopicImage)
        assert made == member.image.topics["t"]
        assert made.topic_id == topic.topic_id
        assert [
            (p.leader, p.leader_epoch, p.isr, p.partition_epoch) for p in made.partitions.values()
        ] == [(1, 0, (1,), 0)] * 2
        assert member.image.topic_config("t") == {"cleanup.policy": "compact"}
        loaded = await member.cluster.load()
        assert loaded.states[TopicPartition("t", 1)] == LeaderAndIsr(1, 0, (1,), 1, False, 0)
        # The store's notifications of our own writes change nothing.
        await member.controller.alter_config("topics", "other", lambda _: {"k": "1"})
        assert heard == ["t"]
        await member.stop()

    run(body)


def test_topic_that_exists_is_refused_and_the_others_are_made(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        await create(member, "old", (1,))
        exists = ControllerRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists.")
        results = await member.controller.create_topics(
            [new_topic(name, (1,)) for name in ("a", "old", "b", "b")]
        )
        assert [type(result) for result in results] == [
            TopicImage,
            ControllerRefusal,
            TopicImage,
            ControllerRefusal,
        ]
        assert results[1] == exists
        assert results[3] == ControllerRefusal(
            ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'b' already exists."
        )
        assert set(member.image.topics) == {"old", "a", "b"}
        await member.stop()

    run(body)


def test_deleted_topic_is_gone_and_can_be_made_again(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        first = await create(member, "t", (1,), (1,))
        await member.controller.alter_config("topics", "t", lambda _: {"k": "1"})
        heard: list[dict[str, TopicImage]] = []
        member.publisher.subscribe(
            lambda old, new: heard.append(dict(new.changes_since(old).deleted))
        )
        assert await member.controller.delete_topics(["t", "none"]) == [
            None,
            ControllerRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            ),
        ]
        assert [list(deleted) for deleted in heard] == [["t"]]
        assert member.image.topics == {}
        assert member.image.topic_config("t") == {}
        for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
            assert await member.store.exists(path) is None
        again = await create(member, "t", (1,))
        assert again.topic_id != first.topic_id
        assert member.image.topic_config("t") == {}
        await member.stop()

    run(body)


def test_partitions_are_added_and_usable(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        await create(member, "t", (1,))
        grown = await member.controller.create_partitions("t", {1: (1,), 2: [1]})
        assert isinstance(grown, TopicImage)
        assert grown == member.image.topics["t"]
        assert [p.leader for p in grown.partitions.values()] == [1, 1, 1]
        again = await member.controller.create_partitions("t", {2: (1,)})
        assert isinstance(again, ControllerRefusal)
        assert again.error is ErrorCode.INVALID_PARTITIONS
        unknown = await member.controller.create_partitions("none", {1: (1,)})
        assert isinstance(unknown, ControllerRefusal)
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await member.stop()

    run(body)


def test_second_broker_follows_and_takes_over(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        network = Network()
        one, two = await join(maker, 1, network), await join(maker, 2, network)
        assert not two.controller.is_active
        assert two.image.controller_id == 1
        await one.until(lambda image: len(image.brokers) == 2)
        await create(one, "both", (1, 2), (2, 1))
        await create(one, "single", (1,))
        await two.until(lambda image: len(image.topics) == 2)
        refused = await two.controller.create_topics([new_topic("x", (1,))])
        assert isinstance(refused[0], ControllerRefusal)
        assert refused[0].error is ErrorCode.NOT_CONTROLLER
        assert [r and r.error for r in await two.controller.delete_topics(["both"])] == [
            ErrorCode.NOT_CONTROLLER
        ]
        await one.stop()

        image = await two.until(lambda image: image.controller_id == 2 and 1 not in image.brokers)
        image = await two.until(
            lambda image: all(
                p.leader != 1 for t in image.topics.values() for p in t.partitions.values()
            )
        )
        both = image.topics["both"].partitions
        assert (both[0].leader, both[0].leader_epoch, both[0].isr) == (2, 1, (2,))
        assert (both[1].leader, both[1].leader_epoch, both[1].isr) == (2, 1, (2,))
        assert two.replicas.roles == {
            TopicPartition("both", 0): (2, 1),
            TopicPartition("both", 1): (2, 1),
        }
        single = image.topics["single"].partitions[0]
        assert (single.leader, single.leader_epoch, single.isr) == (-1, 1, (1,))
        assert two.controller.epoch == 2

        back = await join(maker, 1, network)
        image = await two.until(lambda image: image.topics["single"].partitions[0].leader == 1)
        assert image.topics["single"].partitions[0].leader_epoch == 2
        await back.stop()
        await two.stop()

    run(body)


def test_config_changed_on_one_broker_reaches_the_others(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        network = Network()
        one, two = await join(maker, 1, network), await join(maker, 2, network)
        config = await two.controller.alter_config("brokers", "<default>", lambda _: {"k": "1"})
        assert config == {"k": "1"}
        assert two.image.default_broker_config() == {"k": "1"}
        await one.until(lambda image: image.default_broker_config() == {"k": "1"})
        await one.controller.alter_config("brokers", "<default>", lambda old: {**old, "l": "2"})
        await two.until(lambda image: image.default_broker_config() == {"k": "1", "l": "2"})
        await one.controller.alter_config("users", "alice", lambda _: {"q": "1"})
        await one.controller.alter_config("users", "alice", lambda _: {})
        await one.controller.alter_config("users", "bob", lambda _: {"q": "1"})
        await two.until(lambda image: image.config("users", "bob") == {"q": "1"})
        assert two.image.config("users", "alice") == {}
        await one.stop()
        await two.stop()

    run(body)


def test_error_in_a_config_change_goes_to_its_caller_only(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)

        def refuse(_: object) -> dict[str, str]:
            raise LookupError("no such key")

        with pytest.raises(LookupError, match="no such key"):
            await member.controller.alter_config("topics", "t", refuse)
        assert await member.controller.alter_config("topics", "t", lambda _: {"k": "1"})
        await member.stop()

    run(body)


def test_failing_listener_does_not_end_the_controller(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        failing = [True]

        def listener(old: MetadataImage, new: MetadataImage) -> None:
            if failing[0]:
                raise OSError("disk full")

        member.publisher.subscribe(listener)
        with pytest.raises(OSError, match="disk full"):
            await member.controller.create_topics([new_topic("t", (1,))])
        failing[0] = False
        await create(member, "u", (1,))
        assert set(member.image.topics) == {"t", "u"}
        await member.stop()

    run(body)


def test_expired_session_is_followed_by_a_new_registration(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        await create(member, "t", (1,))
        before = member.image
        epoch = member.controller.broker_epoch
        await maker.expire(member.store)
        image = await member.until(lambda image: image.brokers and image.brokers[1].epoch > epoch)
        assert member.controller.is_active
        assert member.controller.epoch == 2
        assert image.topics == before.topics
        await create(member, "u", (1,))
        await member.controller.alter_config("topics", "u", lambda _: {"k": "1"})
        assert not member.fatal.done()
        await member.stop()

    run(body)


def test_fenced_controller_steps_down(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        await create(member, "t", (1,))
        usurper = ClusterStore(await maker.session(), ManualClock())
        # Another controller takes over before this one knows.
        _, stat = await usurper.store.get("/controller_epoch")
        await usurper.store.multi(
            [
                SetData("/controller_epoch", b"5", stat.version),
                SetData("/controller", paths.encode_controller(9, 0)),
            ]
        )
        results = await member.controller.create_topics([new_topic("u", (1,))])
        assert isinstance(results[0], ControllerRefusal)
        assert results[0].error is ErrorCode.NOT_CONTROLLER
        await member.until(lambda image: image.controller_id == 9)
        assert not member.controller.is_active
        assert (await member.controller.delete_topics(["t"]))[0] is not None
        assert await usurper.store.exists("/brokers/topics/u") is None
        assert await usurper.store.exists("/admin/delete_topics/t") is None
        await usurper.store.delete("/controller")
        await member.until(lambda image: image.controller_id == 1)
        assert member.controller.epoch == 6
        await member.stop()

    run(body)


def test_unfinished_work_of_the_last_controller_is_finished(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        cluster = ClusterStore(store, ManualClock())
        await cluster.ensure_paths()
        with_id = TopicAssignment(
            random_id(), {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((7,))}
        )
        without_id = TopicAssignment(None, {0: ReplicaAssignment((7, 1))})
        await store.multi(
            [
                Create("/brokers/topics/stateless", paths.encode_topic(with_id)),
                Create("/brokers/topics/idless", paths.encode_topic(without_id)),
                Create(
                    "/brokers/topics/doomed",
                    paths.encode_topic(with_id._replace(topic_id=random_id())),
                ),
                Create("/admin/delete_topics/doomed"),
                Create("/admin/delete_topics/unheard_of"),
                Create("/feature", b'{"version":2,"status":0,"features":{}}'),
            ]
        )
        network = Network()
        member = await join(maker, 1, network)
        image = member.image
        assert set(image.topics) == {"stateless", "idless"}
        assert image.topics["stateless"].topic_id == with_id.topic_id
        led = image.topics["stateless"].partitions
        assert (led[0].leader, led[0].isr, led[0].partition_epoch) == (1, (1,), 0)
        assert (led[1].leader, led[1].isr, led[1].partition_epoch) == (-1, (), -1)
        assert image.topics["idless"].partitions[0].leader == 1
        found = (await member.cluster.topics(["idless"]))["idless"]
        assert found.topic_id == image.topics["idless"].topic_id
        # Broker 7 may have a replica of it, so its deletion is not over.
        assert await member.cluster.deletions() == ["doomed"]
        features = await member.cluster.features()
        assert features is not None
        assert features.enabled
        # The dead replica returns, and its partition gets a leader.
        late = await join(maker, 7, network)
        image = await member.until(
            lambda image: image.topics["stateless"].partitions[1].leader == 7
        )
        assert image.topics["stateless"].partitions[1].partition_epoch == 0
        await late.eventually(lambda: late.replicas.stopped)
        assert late.replicas.stopped == [(TopicPartition("doomed", 1), True)]
        await member.turn()
        assert await member.cluster.deletions() == []
        await late.stop()
        await member.stop()

    run(body)


def test_topic_made_by_a_tool_in_the_store_is_completed_and_its_deletion_done(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        tool = await maker.session()
        assignment = TopicAssignment(random_id(), {0: ReplicaAssignment((1,))})
        await tool.create("/config/topics/t", paths.encode_config({"k": "1"}))
        await tool.create("/brokers/topics/t", paths.encode_topic(assignment))
        await member.until(lambda image: image.partition("t", 0))
        assert member.image.topics["t"].partitions[0].leader == 1
        assert member.image.topic_config("t") == {"k": "1"}
        grown = assignment._replace(
            partitions={**assignment.partitions, 1: ReplicaAssignment((1,))}
        )
        await tool.set("/brokers/topics/t", paths.encode_topic(grown))
        await member.until(lambda image: image.partition("t", 1))
        await tool.create("/admin/delete_topics/t")
        await member.until(lambda image: not image.topics)
        await member.controller.delete_topics([])  # behind the deletion in the queue
        assert await tool.exists("/brokers/topics/t") is None
        await member.stop()

    run(body)


def test_broker_that_bounced_between_two_looks_loses_its_leadership_first(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        member = await join(maker)
        registration = BrokerRegistration(2, (Endpoint("PLAINTEXT", "h", 2),))
        other = ClusterStore(await maker.session(), ManualClock())
        await other.register_broker(registration)
        await member.until(lambda image: 2 in image.brokers)
        await create(member, "t", (2, 1), (2,))
        # Removed and added in one transaction: the controller never sees it missing.
        path = paths.broker_path(2)
        await other.store.multi(
            [
                Delete(path),
                Create(path, None, ephemeral=True),
                SetData(path, paths.encode_broker(registration, 0), 0),
            ]
        )
        image = await member.until(lambda image: image.topics["t"].partitions[1].leader_epoch == 2)
        first, second = image.topics["t"].partitions.values()
        assert (first.leader, first.leader_epoch, first.isr) == (1, 1, (1,))
        assert (second.leader, second.leader_epoch, second.isr) == (2, 2, (2,))
        await member.stop()

    run(body)


def test_broker_id_taken_after_an_expiry_is_fatal() -> None:
    async def body() -> None:
        tree = await EmbeddedTree.open(None, ManualClock())
        store = tree.session(timeout_ms=-2000)  # does not wait for an id in use
        member = Member(store)
        await member.controller.start()
        thief = ClusterStore(tree.session(), ManualClock())
        expiry = asyncio.create_task(store.expire())
        await asyncio.sleep(0)
        await thief.register_broker(BrokerRegistration(1, ()))
        await expiry
        assert isinstance(await member.fatal, BrokerIdInUse)
        await member.stop()
        second = Member(tree.session(timeout_ms=-2000))
        with pytest.raises(BrokerIdInUse):
            await second.controller.start()
        await second.stop()

    asyncio.run(asyncio.wait_for(body(), 10))


def test_failed_store_is_fatal(tmp_path: Path) -> None:
    async def body() -> None:
        store = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        member = Member(store)
        await member.controller.start()
        file = store._shared._file
        assert file is not None

        def broken(changes: object) -> None:
            raise OSError("no space left")

        file.commit = broken  # type: ignore[method-assign]
        with pytest.raises(StoreClosed, match="no space left"):
            await member.controller.create_topics([new_topic("t", (1,))])
        assert "t" not in member.image.topics
        await member.stop()

    asyncio.run(asyncio.wait_for(body(), 10))


def test_topics_and_configs_survive_a_restart(tmp_path: Path) -> None:
    async def life(body: Callable[[Member], object]) -> None:
        store = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        member = Member(store)
        await member.controller.start()
        result = body(member)
        if asyncio.iscoroutine(result):
            await result
        await member.stop()

    images: list[MetadataImage] = []

    async def first(member: Member) -> None:
        await create(member, "t", (1,), (1,))
        await member.controller.alter_config("topics", "t", lambda _: {"k": "1"})
        images.append(member.image)

    asyncio.run(life(first))
    asyncio.run(life(lambda member: images.append(member.image)))
    before, after = images
    assert after.topics == before.topics
    assert after.configs == before.configs
    assert after.cluster_id == before.cluster_id
    assert after.brokers[1].epoch > before.brokers[1].epoch


def test_work_for_a_new_topic_does_not_grow_with_the_others() -> None:
    async def body() -> None:
        class Counted(EmbeddedStore):
            read = 0

            async def get_many(
                self, paths: Sequence[str], watch: Watch | None = None
            ) -> list[tuple[bytes | None, Stat] | None]:
                self.read += len(paths)
                return await super().get_many(paths, watch)

        plain = await EmbeddedStore.open(None, ManualClock())
        store = Counted(plain._shared)
        member = Member(store)
        await member.controller.start()
        counts: list[int] = []
        for n in range(30):
            before = store.read
            await create(member, f"t{n}", (1,))
            await member.controller.delete_topics([])  # after the event for our own change
            counts.append(store.read - before)
        assert counts[5:] == [counts[5]] * 25
        await member.stop()

    asyncio.run(asyncio.wait_for(body(), 10))


def test_equal_events_are_one_look() -> None:
    async def body() -> None:
        member = Member(await EmbeddedStore.open(None, ManualClock()))
        await member.controller.start()
        looks: list[int] = []
        plain = member.cluster.brokers

        async def counted() -> dict[int, BrokerRegistration]:
            looks.append(1)
            return await plain()

        member.cluster.brokers = counted  # type: ignore[method-assign]
        for _ in range(10):
            member.controller._on_event(ClusterEvent(ChangeKind.BROKERS))
        await member.controller.delete_topics([])
        assert len(looks) == 1
        member.controller._on_event(ClusterEvent(ChangeKind.BROKERS))
        await member.controller.delete_topics([])
        assert len(looks) == 2
        await member.stop()

    asyncio.run(asyncio.wait_for(body(), 10))


def test_start_takes_less_than_50_ms_of_cpu(tmp_path: Path) -> None:
    async def start() -> None:
        with taken.piece():
            store = await EmbeddedStore.open(tmp_path / "coordination.db", SystemClock())
            member = Member(store)
            await member.controller.start()
        await member.stop()

    with cpu_time() as taken:
        for _ in range(5):
            asyncio.run(start())
    assert taken.median_s < 0.05


def test_request_under_way_at_shutdown_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        store = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        member = Member(store)
        await member.controller.start()
        waiting = asyncio.create_task(member.controller.create_topics([new_topic("t", (1,))]))
        for _ in range(3):
            await asyncio.sleep(0)  # the store is working on it now
        await member.stop()
        await asyncio.wait([waiting], timeout=5)
        assert waiting.cancelled()

    asyncio.run(asyncio.wait_for(body(), 10))


def test_requests_waiting_at_shutdown_are_cancelled() -> None:
    async def body() -> None:
        store = await EmbeddedStore.open(None, ManualClock())
        member = Member(store)
        await member.controller.start()
        waiting = [
            asyncio.create_task(member.controller.create_topics([new_topic(f"t{n}", (1,))]))
            for n in range(3)
        ]
        await asyncio.sleep(0)
        await member.stop()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(o, asyncio.CancelledError | list) for o in outcomes)
        assert isinstance(outcomes[-1], asyncio.CancelledError)
        with pytest.raises(StoreClosed, match="not running"):
            await member.controller.delete_topics(["t0"])

    asyncio.run(asyncio.wait_for(body(), 10))
