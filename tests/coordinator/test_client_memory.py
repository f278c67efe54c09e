"""What clients can make the broker keep about groups is counted, and divided between them."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.modern.draft import AssignTarget
from server.coordinator.group.state import Group
from tests.coordinator.consumer_group.group_machine import ConsumerMachine, topic
from tests.coordinator.machine import GroupMachine
from tests.coordinator.share_group.group_machine import ShareMachine
from tests.coordinator.share_group.test_states import alter

MIB = 1024 * 1024
LIMIT = 8 * MIB
BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GREEDY, HONEST = "User:mallory", "User:alice"


def with_wide_topic(**config: Any) -> ConsumerMachine:
    machine = ConsumerMachine(members_max_bytes=LIMIT, **config)
    machine.account = GREEDY
    machine.add_topics(topic("wide", 6_000))
    return machine


def beats(machine: ConsumerMachine, groups: int, **fields: Any) -> list[int]:
    """Heartbeats that join a group each; their errors."""
    return [
        machine.beat("m", 0, group_id=f"g{number}", **fields).error_code for number in range(groups)
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_heartbeat_whose_assignment_does_not_fit_is_the_one_that_is_refused(
    at_once: bool,
) -> None:
    machine = with_wide_topic()
    machine.hold_effects = at_once  # the targets are computed after all heartbeats
    errors = beats(machine, 20, subscribed_topic_names=["wide"])
    assert errors[0] == 0
    assert errors[-1] == BUSY
    assert machine.shard.memory.members <= LIMIT * 3 // 4
    machine.hold_effects = False
    while machine.effects:
        machine.work(machine.effects.pop(0))
    for number in range(20):
        for _ in range(2):
            epoch = 0 if errors[number] else 1
            fields = {} if epoch else {"subscribed_topic_names": ["wide"]}
            machine.beat("m", epoch, group_id=f"g{number}", **fields)
    assert machine.shard.memory.members <= LIMIT * 3 // 4
    assert machine.beat("honest", 0, group_id="small").error_code == 0
    machine.account = HONEST
    assert machine.beat("honest", 0, subscribed_topic_names=["wide"]).error_code == 0


def test_a_limit_is_logged_once_while_clients_with_room_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = with_wide_topic()
    for number in range(60):
        machine.account = GREEDY if number % 2 else HONEST
        fields = {"subscribed_topic_names": ["wide"]} if number % 2 else {}
        machine.beat("m", 0, group_id=f"g{number}", **fields)
    assert caplog.text.count("kwire.group.members.max.bytes") == 1
    for number in range(60):
        machine.beat("m", -1, group_id=f"g{number}")
    machine.beat("m", 0)
    machine.account = GREEDY
    beats(machine, 20, subscribed_topic_names=["wide"])
    assert caplog.text.count("kwire.group.members.max.bytes") == 2


def test_a_member_keeps_its_partitions_while_there_is_no_room_for_a_larger_target() -> None:
    machine = with_wide_topic()
    machine.account = HONEST
    epoch = machine.beat("old", 0).member_epoch
    machine.account = GREEDY
    beats(machine, 20, subscribed_topic_names=["wide"])
    machine.account = HONEST
    machine.add_topics(topic("foo", 40_000))
    assert machine.beat("old", epoch).error_code == 0
    assert list(machine.group.target["old"].values()) == [frozenset(range(6))]


def test_topics_that_are_made_after_the_heartbeats_are_counted_too() -> None:
    machine = with_wide_topic()
    assert not any(beats(machine, 40, subscribed_topic_names=["later"]))
    machine.add_topics(topic("later", 6_000))
    for _ in range(3):
        for number in range(40):
            machine.beat("m", 1, group_id=f"g{number}")
    assert machine.shard.memory.members <= LIMIT * 3 // 4


def test_names_that_expressions_match_are_counted_and_members_without_room_for_them_refused() -> (
    None
):
    machine = with_wide_topic()
    machine.add_topics(*(topic(f"topic-{number}", 0) for number in range(3_000)))
    regex: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "topic-.*"}
    beats(machine, 40, **regex)
    assert LIMIT // 2 < machine.shard.memory.members <= LIMIT * 3 // 4
    # The second heartbeat of a group without room says so, and does not match again.
    assert beats(machine, 40, **regex)[-1] == BUSY
    machine.account = HONEST
    machine.beat("honest", 0, **regex)
    assert len(machine.group.resolved["topic-.*"].topics) == 3_000
    for number in range(40):
        machine.beat("m", -1, group_id=f"g{number}")
    machine.beat("honest", -1)
    assert machine.shard.memory.members < 40 * 10_000


def test_what_was_promised_for_a_target_is_released_however_its_computation_ends() -> None:
    machine = with_wide_topic()
    machine.hold_effects = True
    machine.beat("m", 0, subscribed_topic_names=["wide"])
    (effect,) = machine.effects
    assert isinstance(effect, AssignTarget)
    promised = machine.group.promised_bytes
    assert promised > 6_000 * 300
    before = machine.shard.memory.members
    machine.apply(machine.shard.consumer.target_assigned(effect, None, machine.now))
    assert machine.shard.memory.members == before - promised
    machine.effects.clear()
    machine.beat("m", 1)
    machine.hold = True
    machine.work(machine.effects.pop(0))
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (machine.shard.memory.members, machine.group.promised_bytes) == (before - promised, 0)


def test_partitions_of_share_groups_are_counted_before_they_are_kept() -> None:
    machine = ShareMachine(members_max_bytes=LIMIT)
    machine.account = GREEDY
    machine.add_topics(topic("wide", 6_000))
    errors = [
        machine.share_beat("m", 0, "wide", group_id=f"g{number}").error_code for number in range(40)
    ]
    assert (errors[0], errors[-1]) == (0, BUSY)
    for number in range(40):
        machine.share_beat("m", 0, "wide", group_id=f"g{number}")
    assert machine.shard.memory.members <= LIMIT * 3 // 4
    machine.account = HONEST
    assert machine.share_beat("honest", 0, "wide").error_code == 0


def test_groups_that_are_made_by_altered_offsets_are_bounded() -> None:
    machine = ShareMachine(members_max_bytes=MIB)
    machine.account = GREEDY
    machine.add_topics(topic("wide", 6_000))
    assert alter(machine, wide=list(range(6_000)))[0].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert alter(machine, wide=list(range(2_000)))[0].error is ErrorCode.NONE
    assert machine.share.client == GREEDY


def test_offsets_of_one_client_leave_room_for_others() -> None:
    machine = GroupMachine(offsets_max_bytes=MIB)

    def commits(groups: int) -> set[int]:
        tokens = [
            machine.commit_offsets({("t", n): 1 for n in range(20)}, group=f"{machine.account}{g}")
            for g in range(groups)
        ]
        answer = machine.answers[tokens[-1]]
        return {row.error_code for each in answer.topics for row in each.partitions}

    machine.account = GREEDY
    assert commits(200) == {BUSY}
    machine.account = HONEST
    assert commits(1) == {0}


def test_a_group_belongs_to_the_client_that_uses_it_first_after_it_was_loaded_or_empty() -> None:
    machine = GroupMachine()
    machine.account = GREEDY
    machine.commit_offsets({("t", 0): 1})
    assert machine.shard.groups["group"].client == GREEDY
    machine.account = HONEST
    machine.join()
    assert machine.shard.groups["group"].client == HONEST
    held = machine.shard.memory.members
    machine.account = GREEDY
    machine.join()
    assert machine.shard.groups["group"].client == HONEST
    assert machine.shard.memory.members > held
    machine.restart()
    group = machine.shard.groups["group"]
    assert isinstance(group, Group)
    assert group.client is None
    machine.commit_offsets({("t", 0): 2})
    assert group.client == GREEDY
