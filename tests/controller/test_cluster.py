"""The active controller of a cluster of several brokers, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from server.controller.controller import NOT_CONTROLLER
from server.controller.leadership import PREFERRED, UNCLEAN, Shutdown
from server.controller.refusal import ControllerRefusal
from server.coordination.controller_inbox import encode_log_dir_event, encode_reassignments
from server.coordination.paths import LeaderAndIsr, ReplicaAssignment, encode_state
from server.coordination.store import SetData
from server.metadata.image import MetadataImage, PartitionImage
from server.metadata.topic_partition import TopicPartition
from tests.coordination.conftest import StoreMaker, stores

from .members import Member, Network, create, join, new_topic

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Body = Callable[[list[Member]], Awaitable[None]]


def run(count: int, body: Body) -> None:
    """Run a test in a cluster of brokers 1 to `count`, of which 1 is the controller."""

    async def main() -> None:
        async with stores("embedded", None) as maker:
            network = Network()
            members = [await join(maker, each, network) for each in range(1, count + 1)]
            members[0].maker = maker  # type: ignore[attr-defined]
            await members[0].until(lambda image: len(image.brokers) == count)
            try:
                await body(members)
            finally:
                for member in members:
                    if member.id in network.members:
                        await member.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


def maker_of(members: list[Member]) -> StoreMaker:
    return members[0].maker  # type: ignore[attr-defined, no-any-return]


def partition(member: Member, tp: TopicPartition = T0) -> PartitionImage:
    found = member.image.partition(*tp)
    assert found is not None
    return found


def state(member: Member, tp: TopicPartition = T0) -> tuple[int, int, tuple[int, ...]]:
    found = partition(member, tp)
    return found.leader, found.leader_epoch, found.isr


def replicas(member: Member, tp: TopicPartition = T0) -> tuple[tuple[int, ...], ...]:
    found = partition(member, tp)
    return found.replicas, found.adding, found.removing


def leads(tp: TopicPartition, leader: int) -> Callable[[MetadataImage], bool]:
    return lambda image: (found := image.partition(*tp)) is not None and found.leader == leader


def isr_of(image: MetadataImage) -> tuple[int, ...]:
    found = image.partition(*T0)
    return () if found is None else found.isr


async def alter(
    controller: Member,
    leader: Member,
    isr: tuple[int, ...],
    tp: TopicPartition = T0,
    version: int = 3,
    **changes: int,
) -> AlterPartitionResponsePartitionData:
    """Propose in-sync replicas as their leader does; `changes` falsifies its state."""
    now = partition(controller, tp)
    topic = controller.image.topics[tp.topic]
    row = AlterPartitionRequestPartitionData(
        partition_index=tp.partition,
        leader_epoch=changes.get("leader_epoch", now.leader_epoch),
        partition_epoch=changes.get("partition_epoch", now.partition_epoch),
        leader_recovery_state=changes.get("recovery", 0),
    )
    if version >= 3:
        row.new_isr_with_epochs = [
            BrokerState(broker_id=each, broker_epoch=changes.get(f"epoch{each}", -1))
            for each in isr
        ]
    else:
        row.new_isr = list(isr)
    request = AlterPartitionRequest(
        broker_id=leader.id,
        broker_epoch=changes.get("broker_epoch", leader.controller.broker_epoch),
        topics=[
            AlterPartitionRequestTopicData(
                topic_name=tp.topic, topic_id=topic.topic_id, partitions=[row]
            )
        ],
    )
    response = await controller.controller.alter_partition(request, version)
    if response.error_code:
        return AlterPartitionResponsePartitionData(error_code=response.error_code)
    assert response.topics[0].topic_id == topic.topic_id
    return response.topics[0].partitions[0]


# -- topics ------------------------------------------------------------------------------------


def test_new_topic_reaches_its_replicas_and_every_image() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        topic = new_topic("t", (2, 3), (3, 1), **{"cleanup.policy": "compact"})
        await one.controller.create_topics([topic])
        for member in (two, three):
            await member.until(lambda image: image.topic_config("t"))
            assert member.image.topics["t"].topic_id == topic.topic_id
            assert member.image.topic_config("t") == {"cleanup.policy": "compact"}
            assert [p.leader for p in member.image.topics["t"].partitions.values()] == [2, 3]
        assert one.replicas.roles == {T1: (3, 0)}
        assert two.replicas.roles == {T0: (2, 0)}
        assert three.replicas.roles == {T0: (2, 0), T1: (3, 0)}
        assert three.replicas.new == [T0, T1]

    run(3, body)


def test_topic_is_made_with_its_settings_before_its_roles_are_taken() -> None:
    async def body(members: list[Member]) -> None:
        one = members[0]
        seen: list[object] = []
        take = one.replicas.become_leader_or_follower

        def watched(request: object, **_: object) -> object:
            seen.append(one.image.topic_config("t"))
            return take(request)  # type: ignore[arg-type]

        one.replicas.become_leader_or_follower = watched  # type: ignore[method-assign, assignment]
        await one.controller.create_topics([new_topic("t", (1,), k="v")])
        assert seen == [{"k": "v"}]

    run(1, body)


def test_deletion_ends_when_all_replicas_are_gone() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (1, 2), (2, 3))
        await two.until(lambda image: "t" in image.topics)
        assert await one.controller.delete_topics(["t"]) == [None]
        assert "t" not in one.image.topics
        for member in (two, three):
            await member.until(lambda image: "t" not in image.topics)
        await one.eventually(lambda: not one.replicas.roles and not two.replicas.roles)
        await one.eventually(lambda: three.replicas.stopped == [(T1, True)])
        while await one.store.exists("/brokers/topics/t") is not None:
            await one.turn()
        assert await one.cluster.deletions() == []
        await create(one, "t", (1, 2))

    run(3, body)


def test_deletion_waits_for_a_dead_broker_and_outlives_its_controller() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 3))
        await three.stop()
        await one.until(lambda image: 3 not in image.brokers)
        assert await one.controller.delete_topics(["t"]) == [None]
        await one.eventually(lambda: two.replicas.stopped[-1:] == [(T0, True)])
        await one.turn()
        assert await one.cluster.deletions() == ["t"]
        exists = await one.controller.create_topics([new_topic("t", (1,))])
        assert isinstance(exists[0], ControllerRefusal)
        assert exists[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
        # The next controller continues, and asks broker 2 once more.
        await one.stop()
        await two.eventually(lambda: two.controller.is_active)
        await two.turn()
        assert "t" not in two.image.topics
        assert two.replicas.stopped[-1:] == [(T0, True)]
        back = await join(maker_of(members), 3, two.network)
        await back.eventually(lambda: back.replicas.stopped == [(T0, True)])
        while await two.cluster.deletions():
            await two.turn()
        assert await two.store.exists("/brokers/topics/t") is None
        await back.stop()

    run(3, body)


def test_replica_that_cannot_be_deleted_is_asked_again_when_its_broker_is_back() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (1, 2))
        two.replicas.errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        await one.controller.delete_topics(["t"])
        await one.turn()
        assert await one.cluster.deletions() == ["t"]
        await two.stop()
        await one.until(lambda image: 2 not in image.brokers)
        back = await join(maker_of(members), 2, one.network)
        await back.eventually(lambda: back.replicas.stopped == [(T0, True)])
        while await one.cluster.deletions():
            await one.turn()
        await back.stop()

    run(2, body)


def test_deletion_that_is_not_enabled_takes_only_the_request_away() -> None:
    async def body(members: list[Member]) -> None:
        one = members[0]
        one.settings.delete_topic_enable = False
        await create(one, "t", (1,))
        await one.store.create("/admin/delete_topics/t")
        await one.eventually(lambda: not one.controller._planned)
        while await one.cluster.deletions():
            await one.turn()
        assert "t" in one.image.topics

    run(1, body)


# -- brokers -----------------------------------------------------------------------------------


def test_dead_broker_leaves_the_in_sync_replicas_and_its_leaderships() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (3, 1, 2), (1, 3))
        await three.stop()
        await one.until(lambda image: 3 not in image.brokers)
        assert state(one, T0) == (1, 1, (1, 2))
        assert state(one, T1) == (1, 1, (1,))
        await two.until(leads(T0, 1))
        await two.eventually(lambda: two.replicas.roles == {T0: (1, 1)})
        stored = await one.cluster.states([T0])
        assert stored[T0].isr == (1, 2)
        back = await join(maker_of(members), 3, one.network)
        await back.eventually(lambda: back.replicas.roles == {T0: (1, 1), T1: (1, 1)})
        assert back.replicas.new == []
        assert state(one, T1) == (1, 1, (1,))
        await back.stop()

    run(3, body)


def test_broker_that_cannot_be_reached_is_told_when_it_can_be() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        one.network.cut_off.add(2)
        await create(one, "t", (1, 2))
        await create(one, "u", (2,))
        assert two.replicas.roles == {}
        one.network.cut_off.clear()
        await two.until(lambda image: "u" in image.topics)
        assert two.replicas.roles == {T0: (1, 0), TopicPartition("u", 0): (2, 0)}

    run(2, body)


def test_controller_that_follows_tells_everybody_everything() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (1, 2, 3))
        await three.until(lambda image: "t" in image.topics)
        one.network.sent.clear()
        await one.stop()
        await three.until(lambda image: image.controller_id == 2 and 1 not in image.brokers)
        await three.until(leads(T0, 2))
        await three.eventually(lambda: three.replicas.roles == {T0: (2, 1)})
        assert [kind for target, kind in one.network.sent if target == 3][:2] == [
            "UpdateMetadata",
            "LeaderAndIsr",
        ]
        assert state(two) == (2, 1, (2, 3))
        assert two.replicas.epochs[-1] == 2

    run(3, body)


def test_broker_that_shuts_down_hands_over_and_is_not_waited_for() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 1), (1, 2))
        await create(one, "alone", (2,))
        epoch = two.controller.broker_epoch
        assert await three.controller.controlled_shutdown(2, epoch) == Shutdown(
            ErrorCode.NOT_CONTROLLER, []
        )
        stale = await one.controller.controlled_shutdown(2, epoch - 1)
        assert stale.error is ErrorCode.STALE_BROKER_EPOCH
        assert (await one.controller.controlled_shutdown(9, 1)).error == (
            ErrorCode.BROKER_NOT_AVAILABLE
        )
        assert await one.controller.controlled_shutdown(2, epoch) == Shutdown(ErrorCode.NONE, [])
        assert state(one, T0) == (1, 1, (1,))
        assert state(one, T1) == (1, 1, (1,))
        await two.eventually(lambda: two.replicas.stopped == [(T1, False)])
        # While it is stopping, it can neither rejoin the ISR nor lead.
        assert (await alter(one, one, (1, 2))).error_code == ErrorCode.INELIGIBLE_REPLICA
        elected = await one.controller.elect_leaders([T0], PREFERRED)
        refusal = elected[T0]
        assert refusal is not None
        assert refusal.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert partition(one, TopicPartition("alone", 0)).leader == 2
        await two.stop()
        await one.until(leads(TopicPartition("alone", 0), -1))
        assert state(one, T0) == (1, 1, (1,))

    run(3, body)


def test_broker_that_shuts_down_keeps_what_nobody_else_has() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (2, 1))
        assert not (await alter(one, two, (2,))).error_code
        shutdown = await one.controller.controlled_shutdown(2, two.controller.broker_epoch)
        assert shutdown == Shutdown(ErrorCode.NONE, [T0])
        assert state(one) == (2, 0, (2,))
        # Other brokers that start or stop do not change that.
        late = await join(maker_of(members), 3, one.network)
        await one.until(lambda image: 3 in image.brokers)
        assert state(one) == (2, 0, (2,))
        await late.stop()

    run(2, body)


# -- in-sync replicas --------------------------------------------------------------------------


def test_leader_changes_its_in_sync_replicas() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 3))
        row = await alter(one, two, (2,))
        assert (row.error_code, row.leader_id, row.leader_epoch) == (0, 2, 0)
        assert (row.isr, row.partition_epoch) == ([2], 1)
        assert state(one) == (2, 0, (2,))
        await three.until(lambda image: isr_of(image) == (2,))
        assert (await one.cluster.states([T0]))[T0] == LeaderAndIsr(2, 0, (2,), 1, False, 1)
        # Only metadata is sent: the leader knows it from the answer.
        assert two.replicas.roles == {T0: (2, 0)}
        # Request it again, as after a lost answer.
        again = await alter(one, two, (2,), partition_epoch=0)
        assert (again.error_code, again.isr, again.partition_epoch) == (0, [2], 1)
        back = await alter(one, two, (2, 3), epoch3=three.controller.broker_epoch)
        assert back.isr == [2, 3]
        old = await alter(one, two, (2,), version=1)
        assert old.isr == [2]

    run(3, body)


def test_in_sync_replicas_are_refused_with_the_errors_of_apache_kafka() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 3))
        await alter(one, two, (2,))
        both = (2, 3)
        for expected, changes in (
            (ErrorCode.NOT_CONTROLLER, {"partition_epoch": 7}),
            (ErrorCode.NOT_CONTROLLER, {"leader_epoch": 7}),
            (ErrorCode.FENCED_LEADER_EPOCH, {"leader_epoch": -1}),
            (ErrorCode.INVALID_UPDATE_VERSION, {"partition_epoch": 0}),
            (ErrorCode.INVALID_REQUEST, {"recovery": 1}),
            (ErrorCode.INELIGIBLE_REPLICA, {"epoch3": three.controller.broker_epoch - 1}),
            (ErrorCode.STALE_BROKER_EPOCH, {"broker_epoch": two.controller.broker_epoch - 1}),
        ):
            assert (await alter(one, two, both, **changes)).error_code == expected
        assert (await alter(one, two, (2, 9))).error_code == ErrorCode.INELIGIBLE_REPLICA
        assert (await alter(one, two, (2, 9), version=1)).error_code == (
            ErrorCode.OPERATION_NOT_ATTEMPTED
        )
        assert (await alter(one, two, (3,))).error_code == ErrorCode.INVALID_REQUEST
        assert (await alter(one, three, both)).error_code == ErrorCode.INVALID_REQUEST
        unknown = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=two.controller.broker_epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_name="none",
                    topic_id=b"x" * 16,
                    partitions=[AlterPartitionRequestPartitionData(partition_index=0)],
                )
            ],
        )
        for version, expected in (
            (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (3, ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            response = await one.controller.alter_partition(unknown, version)
            assert response.topics[0].partitions[0].error_code == expected
        assert (await three.controller.alter_partition(unknown, 3)).error_code == (
            ErrorCode.NOT_CONTROLLER
        )
        assert state(one) == (2, 0, (2,))

    run(3, body)


def test_state_that_somebody_else_wrote_is_taken_over_when_an_update_meets_it() -> None:
    async def body(members: list[Member]) -> None:
        one, two, _ = members
        await create(one, "t", (2, 3, 1))
        foreign = LeaderAndIsr(2, 0, (2, 3), 1)
        await two.store.multi(
            [SetData("/brokers/topics/t/partitions/0/state", encode_state(foreign))]
        )
        row = await alter(one, two, (2,))
        assert row.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert (state(one), partition(one).partition_epoch) == ((2, 0, (2, 3)), 1)
        assert not (await alter(one, two, (2,))).error_code

    run(3, body)


def test_election_goes_on_from_a_state_that_somebody_else_wrote() -> None:
    async def body(members: list[Member]) -> None:
        one, two, _ = members
        await create(one, "t", (2, 3, 1))
        foreign = LeaderAndIsr(2, 0, (2, 1), 1)
        await two.store.multi(
            [SetData("/brokers/topics/t/partitions/0/state", encode_state(foreign))]
        )
        await two.stop()
        await one.until(lambda image: 2 not in image.brokers)
        assert state(one) == (1, 1, (1,))

    run(3, body)


def test_notified_change_of_in_sync_replicas_is_read_told_and_removed() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 3))
        foreign = LeaderAndIsr(2, 0, (2,), 1)
        await two.store.multi(
            [SetData("/brokers/topics/t/partitions/0/state", encode_state(foreign))]
        )
        note = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}]})
        await two.store.create(
            "/isr_change_notification/isr_change_", note.encode(), sequential=True
        )
        await two.store.create("/isr_change_notification/isr_change_", b"rubbish", sequential=True)
        await three.until(lambda image: isr_of(image) == (2,))
        while await one.store.children("/isr_change_notification"):
            await one.turn()
        assert partition(one).partition_epoch == 1

    run(3, body)


# -- log directories ---------------------------------------------------------------------------


def test_replica_on_a_failed_directory_is_offline_until_its_broker_is_back() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 3), (3, 2))
        await two.eventually(lambda: len(two.replicas.roles) == 2)
        two.replicas.errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        two.controller.log_directory_failed()
        await one.until(leads(T0, 3))
        assert (state(one, T0), partition(one, T0).offline) == ((3, 1, (3,)), (2,))
        assert (state(one, T1), partition(one, T1).offline) == ((3, 0, (3, 2)), ())
        await three.until(lambda image: image.topics["t"].partitions[0].offline == (2,))
        while await one.store.children("/log_dir_event_notification"):
            await one.turn()
        # It can neither lead nor is it sent changes of the partition.
        assert (await one.controller.elect_leaders([T0], PREFERRED))[T0] is not None
        await two.stop()
        await one.until(lambda image: 2 not in image.brokers)
        back = await join(maker_of(members), 2, one.network)
        await one.until(lambda image: 2 in image.brokers)
        assert partition(one, T0).offline == ()
        await back.eventually(lambda: back.replicas.roles.get(T0) == (3, 1))
        await back.stop()

    run(3, body)


def test_new_topic_on_a_failed_directory_of_the_controller_gets_another_leader() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        one.replicas.errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        await create(one, "t", (1, 2))
        assert (state(one), partition(one).offline) == ((2, 1, (2,)), (1,))
        await two.eventually(lambda: two.replicas.roles == {T0: (2, 1)})

    run(2, body)


def test_unreadable_log_directory_event_is_removed() -> None:
    async def body(members: list[Member]) -> None:
        one = members[0]
        for data in (b"rubbish", encode_log_dir_event(9)):
            await one.store.create(
                "/log_dir_event_notification/log_dir_event_", data, sequential=True
            )
        while await one.store.children("/log_dir_event_notification"):
            await one.turn()
        assert one.controller.is_active

    run(1, body)


def test_only_the_store_says_that_another_controller_is_in_office() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        epoch = one.controller.epoch
        assert one.controller.holds_office and not two.controller.holds_office
        for told in (epoch - 1, epoch, epoch + 1, 2**31 - 1):
            assert not await one.controller.is_deposed(told)
        assert one.controller.is_active
        assert await two.controller.is_deposed(0)
        await two.store.set("/controller_epoch", b"%d" % (epoch + 1))
        assert await one.controller.is_deposed(epoch + 1)
        assert one.controller.epoch != epoch

    run(2, body)


def test_topic_whose_log_cannot_be_opened_is_not_answered_as_created() -> None:
    async def body(members: list[Member]) -> None:
        member = members[0]
        member.replicas.errors[TopicPartition("t", 1)] = ErrorCode.KAFKA_STORAGE_ERROR
        told = (await member.controller.create_topics([new_topic("t", (1,), (1,))]))[0]
        assert isinstance(told, ControllerRefusal)
        assert told.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "Topic 't' exists, but the logs of 1 of its 2 partitions" in str(told.message)
        grown = await member.controller.create_partitions("t", {2: [1]})
        assert isinstance(grown, ControllerRefusal)

    run(1, body)


# -- elections that are asked for ----------------------------------------------------------------


def test_leaders_are_elected_on_request_or_it_is_said_why_not() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (2, 1), (3, 1))
        await create(one, "u", (3,))
        u0 = TopicPartition("u", 0)
        await three.stop()
        await one.until(lambda image: 3 not in image.brokers)
        await two.stop()
        await one.until(leads(T0, 1))
        back = await join(maker_of(members), 2, one.network)
        await one.until(lambda image: 2 in image.brokers)
        results = await one.controller.elect_leaders(None, PREFERRED)
        assert {tp: r and r.error for tp, r in results.items()} == {
            T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,  # not in sync yet
            T1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            u0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        }
        assert not (await alter(one, one, (1, 2))).error_code
        unknown = TopicPartition("x", 0)
        results = await one.controller.elect_leaders([T0, unknown], PREFERRED)
        assert results[T0] is None
        assert results[unknown] == ControllerRefusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        )
        assert state(one) == (2, 2, (1, 2))
        await back.eventually(lambda: back.replicas.roles[T0] == (2, 2))
        again = (await one.controller.elect_leaders([T0], PREFERRED))[T0]
        assert again is not None
        assert again.error is ErrorCode.ELECTION_NOT_NEEDED
        results = await one.controller.elect_leaders([T0, u0], UNCLEAN)
        assert {tp: r and r.error for tp, r in results.items()} == {
            T0: ErrorCode.ELECTION_NOT_NEEDED,
            u0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        }
        assert await back.controller.elect_leaders([T0], UNCLEAN) == {T0: NOT_CONTROLLER}
        await back.stop()

    run(3, body)


async def without_leader(members: list[Member]) -> None:
    """Leave partition 0 of t with broker 1 alive but not in sync."""
    one, two = members
    await create(one, "t", (2, 1))
    assert not (await alter(one, two, (2,))).error_code
    await two.stop()
    await one.until(leads(T0, -1))
    assert state(one) == (-1, 1, (2,))


def test_unclean_leader_is_elected_on_request() -> None:
    async def body(members: list[Member]) -> None:
        one = members[0]
        await without_leader(members)
        assert (await one.controller.elect_leaders([T0], UNCLEAN))[T0] is None
        assert state(one) == (1, 2, (1,))
        assert partition(one).recovering
        assert not (await alter(one, one, (1,))).error_code
        assert not partition(one).recovering

    run(2, body)


def test_unclean_leader_is_elected_when_the_topic_or_the_cluster_begins_to_allow_it() -> None:
    async def topic(members: list[Member]) -> None:
        await without_leader(members)
        await members[0].controller.alter_config(
            "topics", "t", lambda _: {"unclean.leader.election.enable": "true"}
        )
        assert state(members[0]) == (1, 2, (1,))

    async def cluster(members: list[Member]) -> None:
        await without_leader(members)
        members[0].controller.reconfigure(unclean_leader_election=True)
        await members[0].turn()
        assert state(members[0]) == (1, 2, (1,))

    run(2, topic)
    run(2, cluster)


def test_preferred_leaders_that_a_tool_wants_are_elected_and_the_wish_removed() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (2, 1))
        await one.controller.controlled_shutdown(2, two.controller.broker_epoch)
        await two.stop()
        await one.until(lambda image: 2 not in image.brokers)
        back = await join(maker_of(members), 2, one.network)
        await one.until(lambda image: 2 in image.brokers)
        assert not (await alter(one, one, (1, 2))).error_code
        wish = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}).encode()
        for data in (b"rubbish", wish):
            await back.store.create("/admin/preferred_replica_election", data)
            while await one.store.exists("/admin/preferred_replica_election") is not None:
                await one.turn()
        assert state(one)[0] == 2
        await back.stop()

    run(2, body)


def test_leaders_are_rebalanced_where_too_many_are_elsewhere() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (2, 1), (2, 1))
        await one.controller.controlled_shutdown(2, two.controller.broker_epoch)
        await two.stop()
        await one.until(lambda image: 2 not in image.brokers)
        back = await join(maker_of(members), 2, one.network)
        await one.until(lambda image: 2 in image.brokers)
        await alter(one, one, (1, 2), T0)
        epoch = one.controller._active_epoch
        assert epoch is not None
        one.settings.leader_imbalance_percentage = 100
        await epoch.leadership.rebalance()
        assert (state(one, T0)[0], state(one, T1)[0]) == (1, 1)
        one.settings.leader_imbalance_percentage = 10
        await epoch.leadership.rebalance()
        assert (state(one, T0)[0], state(one, T1)[0]) == (2, 1)  # the other is not in sync
        await back.stop()

    run(2, body)


# -- moves of replicas -------------------------------------------------------------------------


def test_replicas_move_in_the_phases_of_kip_455() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three, four = members
        await create(one, "t", (1, 2))
        assert await one.controller.alter_reassignments({T0: [3, 4]}) == {T0: None}
        assert replicas(one) == ((3, 4, 1, 2), (3, 4), (1, 2))
        assert state(one) == (1, 1, (1, 2))
        assert await one.controller.list_reassignments(None) == {
            T0: ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))
        }
        assert await one.controller.list_reassignments([T1]) == {}
        assert await two.controller.list_reassignments(None) is NOT_CONTROLLER
        await four.eventually(lambda: four.replicas.roles == {T0: (1, 1)})
        assert three.replicas.new == four.replicas.new == [T0]
        stored = (await one.cluster.topics(["t"]))["t"]
        assert stored.partitions[0] == ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))
        await alter(one, one, (1, 2, 3))
        await one.turn()
        assert state(one) == (1, 1, (1, 2, 3))
        await alter(one, one, (1, 2, 3, 4))
        await one.until(leads(T0, 3))
        await one.turn()
        assert replicas(one) == ((3, 4), (), ())
        assert state(one) == (3, 2, (3, 4))
        await three.eventually(lambda: three.replicas.roles == {T0: (3, 2)})
        await two.eventually(lambda: two.replicas.stopped == [(T0, True)])
        assert one.replicas.stopped == [(T0, True)]
        assert (await one.cluster.topics(["t"]))["t"].partitions[0] == ReplicaAssignment((3, 4))
        assert await one.controller.list_reassignments(None) == {}

    run(4, body)


def test_move_is_cancelled() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (1, 2))
        none = await one.controller.alter_reassignments({T0: None})
        assert isinstance(none, dict)
        assert none[T0] is not None
        assert none[T0].error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await one.controller.alter_reassignments({T0: [1, 3]})
        await alter(one, one, (1, 2))
        assert await one.controller.alter_reassignments({T0: None}) == {T0: None}
        assert replicas(one) == ((1, 2), (), ())
        assert state(one) == (1, 2, (1, 2))
        await three.eventually(lambda: three.replicas.stopped == [(T0, True)])
        assert two.replicas.stopped == []
        assert (await one.cluster.topics(["t"]))["t"].partitions[0] == ReplicaAssignment((1, 2))

    run(3, body)


def test_move_takes_the_place_of_another() -> None:
    async def body(members: list[Member]) -> None:
        one, _two, three, _four = members
        await create(one, "t", (1, 2))
        await one.controller.alter_reassignments({T0: [3, 2]})
        await one.controller.alter_reassignments({T0: [4, 2]})
        assert replicas(one) == ((4, 2, 1), (4,), (1,))
        await three.eventually(lambda: three.replicas.stopped == [(T0, True)])
        assert (await one.cluster.topics(["t"]))["t"].partitions[0].replicas == (4, 2, 1)

    run(4, body)


def test_factor_shrinks_and_order_changes_at_once() -> None:
    async def body(members: list[Member]) -> None:
        one, _two, _three = members
        await create(one, "t", (1, 2, 3), (1, 2))
        assert await one.controller.alter_reassignments({T0: [2, 3], T1: [2, 1]}) == {
            T0: None,
            T1: None,
        }
        assert (replicas(one, T0), state(one, T0)) == (((2, 3), (), ()), (2, 1, (2, 3)))
        assert (replicas(one, T1), state(one, T1)) == (((2, 1), (), ()), (1, 1, (1, 2)))
        assert one.replicas.stopped == [(T0, True)]
        stored = (await one.cluster.topics(["t"]))["t"].partitions
        assert stored == {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((2, 1))}
        fixed = await one.controller.alter_reassignments({T0: [2]}, change_factor=False)
        assert isinstance(fixed, dict)
        assert fixed[T0] is not None
        assert fixed[T0].error is ErrorCode.INVALID_REPLICATION_FACTOR

    run(3, body)


def test_moves_are_refused_with_the_errors_of_apache_kafka() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (1, 2))
        for target, message in (
            ([], "Empty replica list specified in partition reassignment."),
            ([1, 1], "Duplicate replica ids in partition reassignment replica list: List(1, 1)"),
            ([1, -2], "Invalid broker id in replica list: List(1, -2)"),
            (
                [1, 9],
                "Replica assignment has brokers that are not alive. Replica list: List(9),"
                " live broker list: Set(1, 2)",
            ),
        ):
            assert await one.controller.alter_reassignments({T0: target}) == {
                T0: ControllerRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            }
        assert await one.controller.alter_reassignments({T1: [1]}) == {
            T1: ControllerRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
            )
        }
        assert await two.controller.alter_reassignments({T0: [1]}) is NOT_CONTROLLER
        assert state(one) == (1, 0, (1, 2))

    run(2, body)


def test_cancelling_is_refused_when_only_new_replicas_are_in_sync() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (2,))
        await one.controller.alter_reassignments({T0: [1, 2]})
        # Broker 1 is not yet in sync when its peer dies, and leads uncleanly.
        await two.stop()
        await one.until(leads(T0, -1))
        assert (await one.controller.elect_leaders([T0], UNCLEAN))[T0] is None
        await one.turn()
        refused = await one.controller.alter_reassignments({T0: None})
        assert isinstance(refused, dict)
        assert refused[T0] is not None
        assert refused[T0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(2, body)


def test_move_goes_on_with_the_next_controller() -> None:
    async def body(members: list[Member]) -> None:
        one, two, _three = members
        await create(one, "t", (2,))
        await one.controller.alter_reassignments({T0: [3]})
        await one.stop()
        await two.eventually(lambda: two.controller.is_active)
        await two.until(lambda image: 1 not in image.brokers)
        await two.turn()
        assert replicas(two) == ((3, 2), (3,), (2,))
        assert state(two) == (2, 2, (2,))  # a new leader epoch, as brokers may not know
        await alter(two, two, (2, 3))
        await two.until(leads(T0, 3))
        await two.turn()
        assert replicas(two) == ((3,), (), ())

    run(3, body)


def test_move_that_a_tool_wants_is_done_and_the_wish_removed() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        await create(one, "t", (1,), (1,))
        path = "/admin/reassign_partitions"
        await two.store.create(path, b"rubbish")
        while await one.store.exists(path) is not None:
            await one.turn()
        wish = {T0: (2,), T1: (1,), TopicPartition("none", 0): (2,)}
        await two.store.create(path, encode_reassignments(wish))
        await one.until(lambda image: image.topics["t"].partitions[0].adding)
        await one.turn()
        left, _ = await one.store.get(path)
        assert left == encode_reassignments({T0: (2,)})
        await alter(one, one, (1, 2))
        await one.until(leads(T0, 2))
        await one.turn()
        assert await one.store.exists(path) is None
        await two.store.create(path, encode_reassignments({T1: (2, 1)}))
        await one.until(lambda image: image.topics["t"].partitions[1].adding)

    run(2, body)


def test_deletion_takes_the_replicas_of_a_move_too() -> None:
    async def body(members: list[Member]) -> None:
        one, _two, three = members
        await create(one, "t", (1, 2))
        await one.controller.alter_reassignments({T0: [3]})
        await three.eventually(lambda: three.replicas.roles)
        await one.controller.delete_topics(["t"])
        await one.eventually(lambda: not any(member.replicas.roles for member in members))
        while await one.cluster.deletions():
            await one.turn()
        assert not three.replicas.roles
        assert "t" not in one.image.topics

    run(3, body)


# -- producer ids ------------------------------------------------------------------------------


def test_producer_ids_are_reserved_for_brokers_that_live() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        epoch = two.controller.broker_epoch
        assert await one.controller.allocate_producer_ids(2, epoch) == (0, 999)
        assert await one.controller.allocate_producer_ids(2, epoch) == (1000, 1999)
        assert await one.controller.allocate_producer_ids(2, epoch - 1) is (
            ErrorCode.STALE_BROKER_EPOCH
        )
        assert await one.controller.allocate_producer_ids(9, 1) is (
            ErrorCode.BROKER_ID_NOT_REGISTERED
        )
        assert await two.controller.allocate_producer_ids(2, epoch) is ErrorCode.NOT_CONTROLLER

    run(2, body)
