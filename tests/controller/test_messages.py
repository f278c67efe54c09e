"""The requests that inform brokers of a change. Cases of ControllerChannelManagerTest (3.9)."""

from __future__ import annotations

from typing import TypeVar

import pytest

from kwire.codec import decode, encode
from kwire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kwire.messages.stop_replica import StopReplicaRequest
from kwire.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from server.controller.context import ControllerContext
from server.controller.deletion import TopicDeletion
from server.controller.messages import (
    NOTHING,
    ControllerSender,
    ControlRequest,
    Extra,
    messages_for,
    version_of,
)
from server.metadata.image import MetadataImage
from server.metadata.topic_partition import TopicPartition
from server.turns import exhaust

from .images import broker, image, part, topic, topic_id

SENDER = ControllerSender(1, 7, "REPLICA")
M = TypeVar("M")
T0 = TopicPartition("t", 0)


def told(
    before: MetadataImage,
    after: MetadataImage,
    extra: Extra = NOTHING,
    context: ControllerContext | None = None,
) -> dict[int, list[ControlRequest]]:
    return exhaust(messages_for(SENDER, before, after, context or ControllerContext(), extra))


def the(kind: type[M], messages: list[ControlRequest]) -> M:
    found = [message for message in messages if isinstance(message, kind)]
    assert len(found) == 1, messages
    return found[0]


def kinds(messages: list[ControlRequest]) -> list[str]:
    return [type(message).__name__.removesuffix("Request") for message in messages]


def roles(messages: list[ControlRequest]) -> dict[TopicPartition, LeaderAndIsrPartitionState]:
    request = the(LeaderAndIsrRequest, messages)
    return {
        TopicPartition(each.topic_name, state.partition_index): state
        for each in request.topic_states
        for state in each.partition_states
    }


def updates(messages: list[ControlRequest]) -> dict[TopicPartition, UpdateMetadataPartitionState]:
    request = the(UpdateMetadataRequest, messages)
    return {
        TopicPartition(each.topic_name, state.partition_index): state
        for each in request.topic_states
        for state in each.partition_states
    }


def stops(messages: list[ControlRequest]) -> dict[TopicPartition, tuple[int, bool]]:
    request = the(StopReplicaRequest, messages)
    return {
        TopicPartition(each.topic_name, state.partition_index): (
            state.leader_epoch,
            state.delete_partition,
        )
        for each in request.topic_states
        for state in each.partition_states
    }


def test_new_topic_is_told_to_its_replicas_and_to_every_broker() -> None:
    before = image((1, 2, 3))
    made = told(before, image((1, 2, 3), topic("t", part((1, 2)), part((2, 1))), base=before))
    assert {b: kinds(m) for b, m in made.items()} == {
        1: ["LeaderAndIsr", "UpdateMetadata"],
        2: ["LeaderAndIsr", "UpdateMetadata"],
        3: ["UpdateMetadata"],
    }
    request = the(LeaderAndIsrRequest, made[2])
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 7, 102)
    assert [(x.broker_id, x.host_name, x.port) for x in request.live_leaders] == [
        (1, "inside", 9101),
        (2, "inside", 9102),
    ]
    assert request.topic_states[0].topic_id == topic_id("t")
    assert roles(made[2])[T0] == LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=7,
        leader=1,
        leader_epoch=0,
        isr=[1, 2],
        partition_epoch=0,
        replicas=[1, 2],
        is_new=True,
    )
    metadata = the(UpdateMetadataRequest, made[3])
    assert (metadata.controller_id, metadata.controller_epoch, metadata.broker_epoch) == (1, 7, 103)
    assert metadata.topic_states[0].topic_id == topic_id("t")
    assert updates(made[3])[TopicPartition("t", 1)] == UpdateMetadataPartitionState(
        partition_index=1,
        controller_epoch=7,
        leader=2,
        leader_epoch=0,
        isr=[2, 1],
        zk_version=0,
        replicas=[2, 1],
        offline_replicas=[],
    )
    assert [b.id for b in metadata.live_brokers] == [1, 2, 3]
    assert [
        (e.listener, e.host, e.port, e.security_protocol)
        for e in metadata.live_brokers[0].endpoints
    ] == [("CLIENT", "outside", 9001, 1), ("REPLICA", "inside", 9101, 0)]


def test_messages_can_be_encoded_at_the_versions_they_are_sent_at() -> None:
    before = image((1, 2))
    after = image((1, 2), topic("t", part((1, 2), recovering=True)), base=before)
    extra = Extra(stops={2: {TopicPartition("u", 3): True}})
    for messages in told(before, after, extra).values():
        for message in messages:
            data = encode(message, version_of(message))
            assert decode(type(message), data, version_of(message)) == message


def test_nothing_changed_tells_nobody() -> None:
    same = image((1, 2), topic("t", part((1, 2))))
    assert told(same, same) == {}


def test_change_of_the_in_sync_replicas_alone_is_metadata_only() -> None:
    before = image((1, 2, 3), topic("t", part((1, 2)), part((1, 2))))
    after = image(
        (1, 2, 3), topic("t", part((1, 2), isr=(1,), version=1), part((1, 2))), base=before
    )
    made = told(before, after)
    assert {b: kinds(m) for b, m in made.items()} == {key: ["UpdateMetadata"] for key in (1, 2, 3)}
    assert list(updates(made[3])) == [T0]
    assert updates(made[3])[T0].isr == [1]


def test_new_leader_epoch_is_told_to_live_replicas_only() -> None:
    before = image((1, 2), topic("t", part((1, 2, 3), leader=3)))
    after = image((1, 2), topic("t", part((1, 2, 3), 1, 1, (1, 2), 1)), base=before)
    made = told(before, after)
    assert {b: kinds(m) for b, m in made.items()} == {
        key: ["LeaderAndIsr", "UpdateMetadata"] for key in (1, 2)
    }
    assert not roles(made[1])[T0].is_new
    assert updates(made[2])[T0].offline_replicas == [3]


def test_partition_without_a_state_is_told_to_nobody_until_it_has_one() -> None:
    before = image((1,))
    without = image((1,), topic("t", part((2,), -1, 0, (), -1)), base=before)
    assert told(before, without) == {}
    with_state = image((1, 2), topic("t", part((2,))), base=without)
    made = told(without, with_state)
    assert roles(made[2])[T0].is_new
    assert updates(made[1])[T0].leader == 2


def test_broker_that_came_is_told_everything_and_the_others_of_it() -> None:
    topics = (topic("t", part((1, 2), isr=(1,))), topic("u", part((1,))))
    before = image((1,), *topics)
    after = image((1, 2), base=before)
    made = told(before, after)
    assert kinds(made[2]) == ["UpdateMetadata", "LeaderAndIsr"]
    assert set(updates(made[2])) == {T0, TopicPartition("u", 0)}
    assert list(roles(made[2])) == [T0]
    assert not roles(made[2])[T0].is_new
    assert [leader.broker_id for leader in the(LeaderAndIsrRequest, made[2]).live_leaders] == [1]
    # The others must learn that its replica is no longer offline.
    assert kinds(made[1]) == ["UpdateMetadata"]
    assert list(updates(made[1])) == [T0]
    assert updates(made[1])[T0].offline_replicas == []
    assert [b.id for b in the(UpdateMetadataRequest, made[1]).live_brokers] == [1, 2]


def test_bounced_broker_is_one_that_came() -> None:
    before = image((1, 2), topic("t", part((2, 1))))
    after = image({1: broker(1), 2: broker(2, 999)}, base=before)
    made = told(before, after)
    assert kinds(made[2]) == ["UpdateMetadata", "LeaderAndIsr"]
    assert the(LeaderAndIsrRequest, made[2]).broker_epoch == 999
    assert kinds(made[1]) == ["UpdateMetadata"]


def test_broker_that_went_is_told_of_with_its_offline_replicas() -> None:
    before = image((1, 2), topic("t", part((1, 2), isr=(1,))), topic("u", part((1,))))
    made = told(before, image((1,), base=before))
    assert list(made) == [1]
    assert kinds(made[1]) == ["UpdateMetadata"]
    assert {tp: s.offline_replicas for tp, s in updates(made[1]).items()} == {T0: [2]}
    assert [b.id for b in the(UpdateMetadataRequest, made[1]).live_brokers] == [1]


def test_changed_registration_is_told_without_partitions() -> None:
    before = image((1, 2), topic("t", part((1, 2))))
    after = image({1: broker(1), 2: broker(2, rack="r")}, base=before)
    made = told(before, after)
    assert {b: kinds(m) for b, m in made.items()} == {key: ["UpdateMetadata"] for key in (1, 2)}
    assert updates(made[1]) == {}
    assert [b.rack for b in the(UpdateMetadataRequest, made[1]).live_brokers] == [None, "r"]


def test_controller_that_starts_tells_metadata_before_roles() -> None:
    after = image((1, 2), topic("t", part((1, 2)), part((2, 1))))
    made = told(after, after, Extra(starting=True, new={TopicPartition("t", 1)}))
    for broker_id in (1, 2):
        assert kinds(made[broker_id]) == ["UpdateMetadata", "LeaderAndIsr"]
        assert len(updates(made[broker_id])) == 2
        assert {tp.partition: s.is_new for tp, s in roles(made[broker_id]).items()} == {
            0: False,
            1: True,
        }


def test_controller_that_starts_tells_no_stops_for_what_its_image_lacked() -> None:
    before = image((), topic("t", part((1, 2, 3))))
    after = image((1, 2, 3), topic("t", part((1, 2))), base=before)
    made = told(before, after, Extra(starting=True))
    assert kinds(made[3]) == ["UpdateMetadata"]


def test_removed_replica_is_stopped_and_deleted() -> None:
    before = image((1, 2, 3), topic("t", part((1, 2, 3), epoch=4)))
    after = image((1, 2, 3), topic("t", part((1, 2), epoch=5, version=1)), base=before)
    made = told(before, after)
    assert kinds(made[3]) == ["UpdateMetadata", "StopReplica"]
    assert stops(made[3]) == {T0: (5, True)}
    assert kinds(made[1]) == ["LeaderAndIsr", "UpdateMetadata"]


def test_added_replica_is_new_and_the_others_learn_of_it_without_a_new_epoch() -> None:
    before = image((1, 2, 3), topic("t", part((1, 2))))
    after = image(
        (1, 2, 3),
        topic("t", part((3, 1, 2), 1, 0, (1, 2), adding=(3,), removing=(2,))),
        base=before,
    )
    made = told(before, after)
    assert {b: roles(m)[T0].is_new for b, m in made.items()} == {1: False, 2: False, 3: True}
    assert roles(made[1])[T0].adding_replicas == [3]
    assert roles(made[1])[T0].removing_replicas == [2]
    # It is new as long as it is being added, and may use any working directory.
    again = image((1, 2), base=after)
    back = image((1, 2, 3), base=again)
    assert roles(told(again, back)[3])[T0].is_new


def test_replica_on_a_failed_directory_is_stopped_but_kept_and_told_no_more() -> None:
    before = image((1, 2), topic("t", part((2, 1), 1)))
    after = image((1, 2), topic("t", part((2, 1), 1, 1, (1,), 1, offline=(2,))), base=before)
    made = told(before, after)
    assert kinds(made[2]) == ["UpdateMetadata", "StopReplica"]
    assert stops(made[2]) == {T0: (1, False)}
    assert updates(made[1])[T0].offline_replicas == [2]
    assert list(roles(made[1])) == [T0]


def test_probed_broker_is_asked_for_all_its_replicas() -> None:
    same = image((1, 2), topic("t", part((2, 1), offline=(2,)), part((1,))))
    made = told(same, same, Extra(probed=(2,)))
    assert list(made) == [2]
    assert kinds(made[2]) == ["LeaderAndIsr"]
    assert list(roles(made[2])) == [T0]


def test_named_stop_takes_the_place_of_the_role() -> None:
    before = image((1, 2), topic("t", part((1, 2))))
    after = image((1, 2), topic("t", part((1, 2), 1, 1, (1,), 1)), base=before)
    made = told(before, after, Extra(stops={2: {T0: False}}))
    assert kinds(made[2]) == ["UpdateMetadata", "StopReplica"]
    assert stops(made[2]) == {T0: (1, False)}


def test_broker_that_shuts_down_counts_as_offline_but_is_told() -> None:
    before = image((1, 2), topic("t", part((2, 1))))
    after = image((1, 2), topic("t", part((2, 1), 1, 1, (1,), 1)), base=before)
    made = told(before, after, context=ControllerContext(shutting_down={2}))
    assert updates(made[1])[T0].offline_replicas == [2]
    assert kinds(made[2]) == ["LeaderAndIsr", "UpdateMetadata"]


def test_deleted_topic_has_the_leader_minus_two_and_its_stops_the_epoch_above_all() -> None:
    gone = topic("t", part((1, 2), epoch=9), part((1,), -1, 0, (), -1))
    before = image((1, 2), gone)
    after = before.without_topics(["t"])
    context = ControllerContext(deleting={"t": TopicDeletion(gone)})
    made = told(before, after, Extra(stops={2: {T0: True}}), context)
    assert kinds(made[1]) == ["UpdateMetadata"]
    assert list(updates(made[1])) == [T0]
    assert updates(made[1])[T0].leader == -2
    assert the(UpdateMetadataRequest, made[1]).topic_states[0].topic_id == topic_id("t")
    assert stops(made[2]) == {T0: (-2, True)}
    # A broker that starts in the meantime may still have the topic.
    late = image((1, 2, 3), base=after)
    assert updates(told(after, late, context=context)[3])[T0].leader == -2


def test_topic_made_again_under_its_name_is_told_as_new_only() -> None:
    before = image((1,), topic("t", part((1,), epoch=5)))
    again = topic("t", part((1,)))._replace(topic_id=b"x" * 16)
    made = told(before, image((1,), again, base=before))
    assert roles(made[1])[T0].is_new
    assert updates(made[1])[T0].leader == 1
    assert kinds(made[1]) == ["LeaderAndIsr", "UpdateMetadata"]


def test_leader_without_the_listener_of_brokers_is_left_out_of_the_leaders() -> None:
    odd = broker(2)._replace(endpoints=broker(2).endpoints[:1])
    before = image({1: broker(1), 2: odd})
    made = told(before, image({1: broker(1), 2: odd}, topic("t", part((2, 1))), base=before))
    assert the(LeaderAndIsrRequest, made[1]).live_leaders == []


@pytest.mark.parametrize("count", [1000])
def test_one_message_of_a_kind_carries_any_number_of_partitions(count: int) -> None:
    before = image((1, 2))
    made = told(before, image((1, 2), topic("t", *[part((1, 2))] * count), base=before))
    assert len(roles(made[1])) == len(updates(made[2])) == count
