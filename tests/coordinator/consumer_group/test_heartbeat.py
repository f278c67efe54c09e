"""ConsumerGroupHeartbeat.

The tests cover the scenarios of GroupMetadataManagerTest and GroupCoordinatorServiceTest (Apache Kafka 4.3) that
their docstrings name.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from server.coordinator.group.consumer import membership, target
from server.coordinator.group.consumer.group import ConsumerGroupState
from server.coordinator.group.consumer.heartbeat import MAX_NAMES, check_request
from server.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from server.coordinator.group.listing import describe_consumer_group
from server.coordinator.group.modern.machine import PROMPT_MS, RETRY_MS
from server.coordinator.group.modern.members import MemberState
from server.coordinator.group.modern.order import hash_of_name
from server.coordinator.group.modern.refusal import GroupRefusal
from server.coordinator.group.stored import decode_record
from server.turns import exhaust
from tests.coordinator.consumer_group.group_machine import (
    REBALANCE_MS,
    SESSION_MS,
    ConsumerMachine,
    assigned,
    topic,
    topic_id,
)
from tests.coordinator.machine import GROUP
from tests.support.cpu_time import cpu_time

ALL = {"foo": [0, 1, 2, 3, 4, 5]}


@pytest.fixture
def machine() -> ConsumerMachine:
    return ConsumerMachine()


def written(machine: ConsumerMachine, since: int) -> list[type]:
    return [
        type(decode_record(key, value))
        for batch in machine.log[since:]
        for key, value in batch.stored
    ]


# Invalid requests: GroupCoordinatorServiceTest.testConsumerGroupHeartbeatRequestValidation


@pytest.mark.parametrize(
    ("fields", "version", "message"),
    [
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 5}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"group_id": " "}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": ""}, 1, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        (
            {"topic_partitions": None},
            1,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"topic_partitions": [TopicPartitions()]},
            1,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_a_malformed_request_is_refused_with_its_reason(
    fields: dict[str, Any], version: int, message: str
) -> None:
    with pytest.raises(GroupRefusal) as refused:
        check_request(request(**fields), version, ("uniform", "range"))
    assert (refused.value.error, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


def request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        **{
            "group_id": GROUP,
            "member_id": "m",
            "rebalance_timeout_ms": 1,
            "topic_partitions": [],
            "subscribed_topic_names": [],
            **fields,
        }
    )


def test_an_unknown_assignor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(GroupRefusal) as refused:
        check_request(request(server_assignor="bar"), 1, ("uniform", "range"))
    assert refused.value.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.value.message == (
        "ServerAssignor bar is not supported. Supported assignors: uniform, range."
    )


def test_a_member_may_join_without_an_id_in_version_0_and_without_topics() -> None:
    check_request(request(member_id=""), 0, ())
    check_request(request(subscribed_topic_names=None, subscribed_topic_regex=""), 1, ())


# Joining


def test_the_first_member_gets_everything_at_epoch_2(machine: ConsumerMachine) -> None:
    """testMemberJoinsEmptyConsumerGroup, testConsumerHeartbeatRegexTopicDescribeAuthorized... (records)."""
    answer = machine.beat("m1", 0)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert assigned(answer) == ALL
    assert written(machine, 0) == [
        MemberRecord,
        EpochRecord,
        TargetRecord,
        TargetEpochRecord,
        CurrentRecord,
    ]
    assert machine.group.state is ConsumerGroupState.STABLE


def test_a_second_member_waits_for_what_the_first_gives_up(machine: ConsumerMachine) -> None:
    """testReconciliationProcess, testNewJoiningMemberTriggersNewTargetAssignment."""
    machine.beat("m1", 0)
    second = machine.beat("m2", 0)
    assert (second.member_epoch, assigned(second)) == (3, {})
    assert machine.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    first = machine.beat("m1", 2)
    shrunk = assigned(first)
    assert first.member_epoch == 2 and shrunk is not None and len(shrunk["foo"]) == 3
    assert machine.group.state is ConsumerGroupState.RECONCILING
    assert assigned(machine.beat("m1", 2)) is None, "it still owns what it has to give up"
    done = machine.beat("m1", 2, owned=shrunk)
    assert (done.member_epoch, assigned(done)) == (3, None)
    given = assigned(machine.beat("m2", 3))
    assert given is not None and sorted(given["foo"] + shrunk["foo"]) == ALL["foo"]
    assert machine.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_that_changes_nothing_writes_nothing(machine: ConsumerMachine) -> None:
    """testMemberReceivesAssignmentOnlyWhenItChanges-style cases."""
    machine.beat("m1", 0)
    before = len(machine.log)
    answer = machine.beat("m1", 2, owned=ALL)
    assert (answer.member_epoch, assigned(answer), len(machine.log)) == (2, None, before)


def test_a_full_request_is_answered_with_the_assignment(machine: ConsumerMachine) -> None:
    """testConsumerGroupHeartbeatFullResponse."""
    machine.beat("m1", 0)
    full = machine.beat(
        "m1", 2, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["foo"], owned={}
    )
    assert assigned(full) == ALL


def test_changed_topics_make_a_new_epoch_and_take_the_old_ones_away_at_once(
    machine: ConsumerMachine,
) -> None:
    """testUpdatingSubscriptionTriggersNewTargetAssignment, KAFKA-19431."""
    machine.beat("m1", 0)
    answer = machine.beat("m1", 2, subscribed_topic_names=["bar"])
    assert (answer.member_epoch, assigned(answer)) == (2, {})
    done = machine.beat("m1", 2, owned={})
    assert (done.member_epoch, assigned(done)) == (3, {"bar": [0, 1, 2]})


def test_a_member_without_topics_is_in_the_group(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberJoinsWithEmptySubscription-style cases."""
    answer = machine.beat("m1", 0, subscribed_topic_names=[])
    assert (answer.error_code, answer.member_epoch, assigned(answer)) == (0, 1, {})


def test_new_partitions_and_new_topics_are_assigned(machine: ConsumerMachine) -> None:
    """testSubscriptionMetadataRefreshedAfterGroupIsLoaded, testGroupEpochBumpWhenNewStaticMember..."""
    machine.beat("m1", 0, subscribed_topic_names=["foo", "new"])
    assert machine.beat("m1", 2).member_epoch == 2
    machine.add_topics(topic("foo", 7), topic("new", 1))
    answer = machine.beat("m1", 2)
    assert answer.member_epoch == 3
    assert assigned(answer) == {"foo": [0, 1, 2, 3, 4, 5, 6], "new": [0]}


def test_an_image_that_changes_nothing_for_the_group_makes_no_epoch(
    machine: ConsumerMachine,
) -> None:
    machine.beat("m1", 0)
    machine.add_topics(topic("other", 1))
    before = len(machine.log)
    assert machine.beat("m1", 2).member_epoch == 2
    assert len(machine.log) == before


def test_members_choose_the_assignor_by_vote(machine: ConsumerMachine) -> None:
    """ConsumerGroupTest.testPreferredServerAssignor."""
    machine.beat("m1", 0, server_assignor="range")
    machine.beat("m2", 0, server_assignor="range")
    machine.beat("m3", 0, server_assignor="uniform")
    assert machine.group.preferred_assignor() == "range"
    machine.beat("m1", -1)
    assert machine.group.preferred_assignor() == "uniform"


def test_of_two_assignors_with_as_many_votes_the_one_that_came_last_counts(
    machine: ConsumerMachine,
) -> None:
    """Recorded from Apache Kafka 4.3.0."""
    machine.beat("m1", 0, server_assignor="uniform")
    machine.beat("m2", 0, server_assignor="range")
    members = machine.group.members
    assert machine.group.preferred_assignor() == "uniform"
    assert machine.group.preferred_assignor(members["m2"], members["m2"]) == "range"
    assert machine.group.preferred_assignor(members["m1"], members["m1"]) == "uniform"
    assert machine.group.target["m1"] == {topic_id("foo"): frozenset({0, 1, 2})}


def test_a_full_group_refuses_new_members_only() -> None:
    """testConsumerGroupMemberCannotJoinIfMaxSizeReached."""
    machine = ConsumerMachine(consumer_max_size=1)
    machine.beat("m1", 0)
    refused = machine.beat("m2", 0)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == (
        "The consumer group has reached its maximum capacity of 1 members."
    )
    assert machine.beat("m1", 0).error_code == 0


def test_targets_are_made_no_more_often_than_the_interval() -> None:
    """KIP-1263: testConsumerGroupAssignmentInterval-style cases."""
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m1", 0)
    second = machine.beat("m2", 0)
    assert (second.member_epoch, assigned(second)) == (2, {})
    assert machine.group.state is ConsumerGroupState.ASSIGNING
    machine.advance(1000)
    assert machine.beat("m2", 2).member_epoch == 3
    assert machine.group.assignment_epoch == 3


def test_interval_does_not_last_until_a_time_that_a_clock_set_back_has_not_reached() -> None:
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m1", 0)
    machine.clock.advance(-600_000)
    machine.shard.shift_time(-600_000)
    assert machine.beat("m2", 0).member_epoch == 3


# Staying


def test_unknown_groups_and_members_are_refused(machine: ConsumerMachine) -> None:
    """testConsumerHeartbeatWithUnknownGroup / -Member: testUnknownMemberIdJoinsConsumerGroup."""
    refused = machine.beat("m1", 1)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == f"Consumer group {GROUP} not found."
    assert machine.beat("m1", -1).error_message == f"Group {GROUP} not found."
    machine.beat("m1", 0)
    refused = machine.beat("m2", 2)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.error_message == f"Member m2 is not a member of group {GROUP}."


def test_epochs_ahead_and_behind_are_fenced(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberEpochValidation."""
    machine.beat("m1", 0)
    machine.beat("m1", 2, subscribed_topic_names=["foo", "bar"])
    ahead = machine.beat("m1", 9)
    assert (ahead.error_code, ahead.error_message) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The consumer group member has a greater member epoch (9) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin.",
    )
    behind = machine.beat("m1", 1, owned={})
    assert behind.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "a smaller member epoch (1)" in (behind.error_message or "")
    assert machine.beat("m1", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it says nothing"
    assert machine.beat("m1", 2, owned={"x": [1]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    lost = machine.beat("m1", 2, owned={"foo": [0]})
    assert (lost.error_code, lost.member_epoch) == (0, 3)
    again = machine.beat("m1", 0, subscribed_topic_names=["foo", "bar"])
    assert (again.error_code, again.member_epoch) == (0, 3), "epoch 0 begins again"


# Leaving


def test_a_member_that_leaves_gives_its_share_to_the_others(machine: ConsumerMachine) -> None:
    """testLeavingMemberBumpsGroupEpoch."""
    machine.beat("m1", 0)
    machine.beat("m2", 0)
    shrunk = assigned(machine.beat("m1", 2))
    machine.beat("m1", 2, owned=shrunk)
    before = len(machine.log)
    left = machine.beat("m2", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m2", -1)
    assert written(machine, before) == [CurrentRecord, TargetRecord, MemberRecord, EpochRecord]
    assert assigned(machine.beat("m1", 3)) == ALL
    assert machine.beat("m1", -1).error_code == 0
    assert machine.group.state is ConsumerGroupState.EMPTY


def test_a_member_that_is_silent_is_removed(machine: ConsumerMachine) -> None:
    """testSessionTimeoutLifecycle, testSessionTimeoutExpiration."""
    machine.beat("m1", 0)
    machine.advance(SESSION_MS - 1)
    assert machine.beat("m1", 2).error_code == 0
    machine.advance(SESSION_MS - 1)
    assert "m1" in machine.group.members
    machine.advance(1)
    assert not machine.group.members
    assert machine.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed(machine: ConsumerMachine) -> None:
    """testRebalanceTimeoutLifecycle, testRebalanceTimeoutExpiration."""
    machine.beat("m1", 0, rebalance_timeout_ms=10_000)
    machine.beat("m2", 0)
    machine.beat("m1", 2)
    machine.advance(9_999)
    assert "m1" in machine.group.members
    machine.advance(1)
    assert "m1" not in machine.group.members


def test_giving_up_in_time_ends_the_deadline(machine: ConsumerMachine) -> None:
    machine.beat("m1", 0, rebalance_timeout_ms=10_000)
    machine.beat("m2", 0)
    shrunk = assigned(machine.beat("m1", 2))
    machine.beat("m1", 2, owned=shrunk)
    machine.advance(20_000)
    assert "m1" in machine.group.members


# Static members


def test_a_static_member_comes_back_with_what_it_had(machine: ConsumerMachine) -> None:
    """testStaticMemberGetsBackAssignmentUponRejoin."""
    machine.beat("m1", 0, instance_id="i1")
    machine.beat("m2", 0, instance_id="i2")
    shrunk = assigned(machine.beat("m1", 2, instance_id="i1"))
    machine.beat("m1", 2, instance_id="i1", owned=shrunk)
    gone = machine.beat("m1", -2, instance_id="i1")
    assert (gone.error_code, gone.member_epoch) == (0, -2)
    assert machine.group.members["m1"].member_epoch == -2
    epoch = machine.group.group_epoch
    back = machine.beat("m3", 0, instance_id="i1")
    assert (back.error_code, assigned(back), back.member_epoch) == (0, shrunk, epoch)
    assert set(machine.group.members) == {"m2", "m3"}
    assert machine.group.group_epoch == epoch, "nobody else notices"


def test_a_member_that_takes_an_instance_id_keeps_what_it_had(machine: ConsumerMachine) -> None:
    """Recorded from Apache Kafka 4.3.0."""
    machine.beat("m1", 0)
    answer = machine.beat("m1", 0, instance_id="i", subscribed_topic_names=["foo", "bar"])
    assert answer.member_epoch == 3
    assert assigned(answer) == {**ALL, "bar": [0, 1, 2]}


def test_an_instance_id_in_use_is_not_given_away(machine: ConsumerMachine) -> None:
    """testShouldThrowUnreleasedInstanceIdExceptionWhenNewMemberJoinsWithInUseInstanceId."""
    machine.beat("m1", 0, instance_id="i1")
    refused = machine.beat("m2", 0, instance_id="i1")
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused.error_message == (
        "Static member m2 with instance id i1 cannot join the group because the instance id is owned by m1 member."
    )


def test_a_static_member_is_known_by_both_its_ids(machine: ConsumerMachine) -> None:
    """testShouldThrowUnknownMemberIdExceptionWhenUnknownStaticMemberJoins, -FencedInstanceId..."""
    machine.beat("m1", 0, instance_id="i1")
    unknown = machine.beat("m1", 2, instance_id="i2")
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id i2 is unknown.",
    )
    fenced = machine.beat("m2", 2, instance_id="i1")
    assert (fenced.error_code, fenced.error_message) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member m2 with instance id i1 was fenced by member m1.",
    )
    assert machine.beat("m2", -1, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert machine.beat("m2", -2, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed(machine: ConsumerMachine) -> None:
    """testNoGroupEpochBumpWhenStaticMemberTemporarilyLeaves, testLeavingStaticMemberBumpsGroupEpoch."""
    machine.beat("m1", 0, instance_id="i1")
    epoch = machine.group.group_epoch
    machine.beat("m1", -2, instance_id="i1")
    assert machine.group.group_epoch == epoch
    machine.advance(SESSION_MS)
    assert not machine.group.members and machine.group.group_epoch == epoch + 1


# Regular expressions


def test_a_regular_expression_is_resolved_after_the_request(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberJoinsWithNewRegex, testConsumerGroupMemberJoinsWithRegexAndTopics..."""
    machine.hold_effects = True
    joined = machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="f.*|x")
    assert (joined.member_epoch, assigned(joined)) == (1, {})
    assert MemberRecord in written(machine, 0) and EpochRecord not in written(machine, 0)
    machine.hold_effects = False
    machine.work(machine.effects.pop())
    assert written(machine, 1) == [RegexRecord, EpochRecord]
    answer = machine.beat("m1", 1)
    assert (answer.member_epoch, assigned(answer)) == (2, ALL)


def test_an_invalid_expression_is_refused(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberJoinsWithNewRegex...Invalid: INVALID_REGULAR_EXPRESSION."""
    refused = machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="[")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "SubscribedTopicRegex `[` is not a valid regular expression" in str(
        refused.error_message
    )
    assert GROUP not in machine.shard.groups


def test_topics_that_a_member_may_not_know_of_do_not_match(machine: ConsumerMachine) -> None:
    """testConsumerGroupHeartbeatRegexTopicDescribe...Denied."""
    machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex=".*", denied="foo")
    assert assigned(machine.beat("m1", 1)) == {"bar": [0, 1, 2]}


def test_new_topics_are_matched_but_not_more_often_than_every_ten_seconds(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupMemberJoinsRefreshTopicsOnNewTopics: testRegexRefresh."""
    machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    machine.beat("m1", 1)
    machine.add_topics(topic("foo2", 1))
    machine.beat("m1", 2)
    assert machine.group.group_epoch == 2
    machine.advance(10_001)
    machine.beat("m1", 2)
    assert machine.group.group_epoch == 3
    assert assigned(machine.beat("m1", 2)) == {**ALL, "foo2": [0]}


def test_an_expression_that_nobody_has_any_more_is_deleted(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberLeavesWithRegex, -UpdatesRegex...: maybeDeleteResolvedRegularExpressions."""
    machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    machine.beat("m2", 0, subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    machine.beat("m1", -1)
    assert set(machine.group.resolved) == {"foo.*"}
    machine.beat("m2", -1)
    assert not machine.group.resolved and not machine.group.topics


# Large groups


def test_a_large_target_is_made_outside_of_the_request(machine: ConsumerMachine) -> None:
    machine.add_topics(topic("foo", 6000))
    machine.hold_effects = True
    answer = machine.beat("m1", 0)
    assert (answer.member_epoch, assigned(answer)) == (1, {})
    assert machine.beat("m1", 1).member_epoch == 1
    (effect,) = machine.effects
    machine.effects.clear()
    machine.hold_effects = False
    machine.work(effect)
    answer = machine.beat("m1", 1)
    given = assigned(answer)
    assert answer.member_epoch == 2 and given is not None and len(given["foo"]) == 6000


def test_a_large_target_is_for_those_who_are_there_when_it_is_stored(
    machine: ConsumerMachine,
) -> None:
    """One member leaves while it is made, and another takes over an instance id."""
    machine.add_topics(topic("foo", 6000))
    machine.hold_effects = True
    for member in ("m1", "m2", "m3"):
        machine.beat(member, 0, instance_id=f"i{member}" if member == "m3" else None)
    (effect,) = machine.effects
    machine.effects.clear()
    machine.work(effect)
    machine.beat("m1", 1)
    (effect,) = machine.effects
    machine.effects.clear()
    found = exhaust(effect.steps)
    machine.beat("m3", -2, instance_id="im3")
    machine.beat("m4", 0, instance_id="im3")
    machine.beat("m2", -1)
    machine.apply(machine.shard.consumer.target_assigned(effect, found, machine.now))
    shares = {member: len(some[topic_id("foo")]) for member, some in machine.group.target.items()}
    assert shares == {"m1": 2000, "m4": 2000}
    assert machine.group.assignment_epoch == effect.epoch


def test_a_large_target_is_made_in_many_steps() -> None:
    """The remaining work when it is stored is also small: its records are bytes by then."""
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m0", 0)
    for number in range(1, 5_000):
        member = machine.group.members["m0"]._replace(member_id=f"m{number:04}", assigned={})
        machine.shard.replay(MemberRecord(GROUP, member.member_id, member), 1)
    machine.advance(1000)
    machine.hold_effects = True
    machine.beat("new", 0)
    (effect,) = machine.effects
    with cpu_time() as taken:
        assert sum(1 for _ in effect.steps) > 5_000
    assert taken.seconds < 2


def test_ten_thousand_names_take_little() -> None:
    """Names of topics that are not there are looked up, and nothing else."""
    machine = ConsumerMachine()
    names = [f"a topic with a name of its own {number:05}" for number in range(MAX_NAMES)]
    hash_of_name.cache_clear()
    assert machine.beat("m1", 0, subscribed_topic_names=names).error_code == ErrorCode.NONE
    assert hash_of_name.cache_info().currsize < 10


# Writes that take time


def test_requests_that_write_wait_for_the_write_before_and_others_do_not(
    machine: ConsumerMachine,
) -> None:
    machine.beat("m1", 0)
    machine.hold = True
    joining = machine.send("m2", 0)
    another = machine.send("m3", 0)
    assert machine.beat("m1", 2, owned=ALL).error_code == 0
    assert joining not in machine.answers and len(machine.in_flight) == 1
    machine.commit()
    assert machine.answers[joining].member_epoch == 3
    assert another not in machine.answers and len(machine.in_flight) == 1
    machine.commit()
    assert machine.answers[another].member_epoch == 4
    assert set(machine.group.members) == {"m1", "m2", "m3"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_write_that_fails_changes_nothing_and_refuses_who_waits(
    machine: ConsumerMachine, error: ErrorCode, expected: ErrorCode
) -> None:
    machine.beat("m1", 0)
    machine.hold = True
    tokens = [machine.send("m2", 0), machine.send("m3", 0)]
    machine.fail(error)
    assert [machine.answers[token].error_code for token in tokens] == [expected] * 2
    assert set(machine.group.members) == {"m1"}
    machine.hold = False
    assert machine.beat("m2", 0).error_code == 0


def test_a_write_that_takes_too_long_is_answered_and_may_still_come(
    machine: ConsumerMachine,
) -> None:
    machine.hold = True
    token = machine.send("m1", 0)
    _, ticket = machine.in_flight[0]
    machine.apply(machine.shard.completed(ticket, ErrorCode.REQUEST_TIMED_OUT, machine.now))
    assert machine.answers[token].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.commit()
    assert "m1" in machine.group.members


def test_nobody_is_answered_while_a_write_takes_long(machine: ConsumerMachine) -> None:
    """Another broker may have taken over the group, so this one's answers may be outdated."""
    machine.beat("m1", 0)
    machine.hold = True
    machine.send("m2", 0)
    machine.advance(PROMPT_MS - 1)
    assert machine.beat("m1", 2, owned=ALL).error_code == 0
    machine.advance(1)
    unchanged, full = machine.send("m1", 2), machine.send("m1", 2, owned=ALL)
    assert not {unchanged, full} & machine.answers.keys()
    machine.hold = False
    machine.commit()
    assert machine.answers[unchanged].error_code == machine.answers[full].error_code == 0
    assert machine.beat("m1", 2).error_code == 0


def test_requests_are_refused_while_a_write_is_overdue(machine: ConsumerMachine) -> None:
    machine.beat("m1", 0)
    machine.hold = True
    machine.send("m2", 0)
    _, ticket = machine.in_flight[0]
    machine.advance(5_000)
    machine.apply(machine.shard.completed(ticket, ErrorCode.REQUEST_TIMED_OUT, machine.now))
    for member in ("m1", "m3"):
        refused = machine.beat(member, 2 if member == "m1" else 0)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.hold = False
    machine.commit()
    assert machine.beat("m1", 2, owned=ALL).error_code == 0
    assert machine.beat("m3", 0).error_code == 0


def test_silent_members_are_removed_although_writes_fail(machine: ConsumerMachine) -> None:
    """Neither a removal whose write fails nor the next one that waits for it is lost."""
    machine.beat("m1", 0)
    machine.beat("m2", 0)
    machine.hold = True
    machine.advance(45_000)
    assert len(machine.in_flight) == 1
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(machine.group.members) == {"m1", "m2"}
    machine.hold = False
    machine.commit()
    assert set(machine.group.members) == {"m1"}
    machine.advance(RETRY_MS)
    assert machine.group.is_empty


# Persistent state


def test_a_coordinator_that_loads_the_log_continues(machine: ConsumerMachine) -> None:
    """testOnLoaded, testSessionTimeout after a failover."""
    machine.beat("m1", 0, instance_id="i1", rack_id="r")
    machine.beat("m2", 0)
    machine.beat("m1", 2, instance_id="i1")
    before = vars(machine.group)
    machine.restart()
    after = vars(machine.group)
    soft = {"image_version", "memory", "offsets", "is_assigning", "is_resolving"}
    hard = before.keys() - soft
    assert {name: before[name] for name in hard} == {name: after[name] for name in hard}
    machine.advance(REBALANCE_MS - 1)
    machine.restart()
    machine.advance(SESSION_MS)
    assert not machine.group.members


def test_an_empty_group_goes_with_its_last_offset(machine: ConsumerMachine) -> None:
    """testMaybeDeleteEmptyConsumerGroup, OffsetMetadataManagerTest.testCleanupExpiredOffsets..."""
    machine.beat("m1", 0)
    machine.commit_offsets({("foo", 0): 7}, "m1", 2)
    machine.beat("m1", -1)
    assert GROUP in machine.shard.groups
    machine.advance(machine.config.offsets_retention_ms + 700_000)
    assert GROUP not in machine.shard.groups
    assert not machine.reload().groups
    assert machine.shard.memory.members == 0


def test_a_group_is_deleted_only_without_members(machine: ConsumerMachine) -> None:
    """testDeleteGroups on consumer groups."""
    machine.beat("m1", 0)
    machine.commit_offsets({("foo", 0): 7}, "m1", 2)
    assert machine.answers[machine.delete_group()] is ErrorCode.NON_EMPTY_GROUP
    machine.beat("m1", -1)
    assert machine.answers[machine.delete_group()] is ErrorCode.NONE
    assert GROUP not in machine.shard.groups
    assert not machine.reload().groups


# Offsets: OffsetMetadataManagerTest, ConsumerGroupTest.testValidateOffsetCommit


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        ("m1", 2, ErrorCode.NONE),
        ("m1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("m9", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_needs_the_members_epoch(
    machine: ConsumerMachine, member: str, epoch: int, expected: ErrorCode
) -> None:
    machine.beat("m1", 0)
    token = machine.commit_offsets({("foo", 0): 7}, member, epoch)
    assert machine.answers[token].topics[0].partitions[0].error_code == expected


def test_an_older_epoch_may_commit_for_what_it_had_then(machine: ConsumerMachine) -> None:
    """KIP-1251: testOffsetCommitWithAssignmentEpoch-style cases."""
    machine.beat("m1", 0)
    machine.beat("m1", 2, subscribed_topic_names=["foo", "bar"])
    old = machine.commit_offsets({("foo", 0): 7}, "m1", 2)
    new = machine.commit_offsets({("bar", 0): 7}, "m1", 2)
    assert machine.answers[old].topics[0].partitions[0].error_code == 0
    refused = machine.answers[new].topics[0].partitions[0]
    assert refused.error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_a_fetch_needs_the_members_epoch_too(machine: ConsumerMachine) -> None:
    """ConsumerGroupTest.testValidateOffsetFetch."""
    machine.beat("m1", 0)
    shard = machine.shard
    assert shard.validate_fetch(GROUP, None, -1) is ErrorCode.NONE
    assert shard.validate_fetch(GROUP, "m1", 2) is ErrorCode.NONE
    assert shard.validate_fetch(GROUP, "m1", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert shard.validate_fetch(GROUP, "m2", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_commits_when_nobody_is_there(machine: ConsumerMachine) -> None:
    machine.beat("m1", 0)
    machine.beat("m1", -1)
    token = machine.commit_offsets({("foo", 0): 7})
    assert machine.answers[token].topics[0].partitions[0].error_code == 0


# Memory and time


def test_more_names_than_a_turn_can_count_are_refused() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m1",
        rebalance_timeout_ms=REBALANCE_MS,
        topic_partitions=[],
        subscribed_topic_names=["foo"] * (MAX_NAMES + 1),
    )
    with pytest.raises(GroupRefusal) as refused:
        check_request(request, 1, ["uniform"])
    assert refused.value.error is ErrorCode.INVALID_REQUEST
    assert refused.value.message == "SubscribedTopicNames has 10001 names; 10000 are possible."


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([TopicPartitions()] * 50_001, "TopicPartitions has 50001 topics; 50000 are possible."),
        (
            [TopicPartitions(partitions=[0] * 100_000)] * 3,
            "TopicPartitions has 300000 partitions; 200000 are possible.",
        ),
    ],
)
def test_more_partitions_than_a_turn_can_look_through_are_refused(
    rows: list[TopicPartitions], message: str
) -> None:
    with pytest.raises(GroupRefusal) as refused:
        check_request(request(member_epoch=2, topic_partitions=rows), 1, ["uniform"])
    assert (refused.value.error, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("field", ["rack_id", "instance_id", "subscribed_topic_regex"])
def test_long_texts_of_members_count_as_memory(field: str) -> None:
    machine = ConsumerMachine(members_max_bytes=400_000)
    size = 8_000 if field == "subscribed_topic_regex" else 30_000
    errors = [
        machine.beat(f"m{n}", 0, **{field: f"{n:02}".ljust(size, "x")}).error_code
        for n in range(20)
    ]
    assert errors[0] == ErrorCode.NONE
    assert errors[-1] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.group.held_bytes <= 100_000


def test_a_member_that_grows_beyond_the_bound_is_refused_and_stays_as_it_was() -> None:
    machine = ConsumerMachine(members_max_bytes=400_000)
    epoch = machine.beat("m1", 0).member_epoch
    names = [f"a topic with a long name {n:06}" for n in range(2_000)]
    refused = machine.beat("m1", epoch, subscribed_topic_names=names)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.group.members["m1"].subscribed_topic_names == {"foo"}
    assert machine.beat("m1", epoch).error_code == ErrorCode.NONE


def test_a_static_member_that_is_replaced_counts_once() -> None:
    machine = ConsumerMachine(members_max_bytes=400_000)
    rack = "x" * 30_000
    epoch = machine.beat("m0", 0, instance_id="i", rack_id=rack).member_epoch
    for n in range(1, 10):
        machine.beat(f"m{n - 1}", -2, instance_id="i")
        answer = machine.beat(f"m{n}", 0, instance_id="i", rack_id=rack)
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)


def test_members_of_a_group_name_a_bounded_number_of_topics(
    machine: ConsumerMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "MAX_TOPICS", 5)
    machine.beat("m1", 0, subscribed_topic_names=["a", "b", "c"])
    refused = machine.beat("m2", 0, subscribed_topic_names=["c", "d", "e", "f"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (
        refused.error_message == "The members of the consumer group name 6 topics; 5 are possible."
    )
    assert machine.beat("m2", 0, subscribed_topic_names=["b", "c", "d", "e"]).error_code == 0


def test_a_description_takes_a_step_for_each_member_and_leaves_out_who_has_left(
    machine: ConsumerMachine,
) -> None:
    for n in range(5):
        machine.beat(f"m{n}", 0)
    steps = describe_consumer_group(GROUP, machine.group, "uniform", machine.image)
    next(steps)
    machine.beat("m3", -1)
    described = exhaust(steps)
    assert [member.member_id for member in described.members] == ["m0", "m1", "m2", "m4"]
    assert len(list(describe_consumer_group(GROUP, machine.group, "uniform", machine.image))) == 4


def test_a_target_of_a_deleted_group_is_not_given_to_the_next_of_its_name(
    machine: ConsumerMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "AT_ONCE", 0)
    machine.hold_effects = True
    for n in range(5):
        machine.beat(f"m{n}", 0)
    late = machine.effects.pop()
    machine.work(late)
    machine.beat("m5", 0)
    late = machine.effects.pop()
    for n in range(6):
        machine.beat(f"m{n}", -1)
    machine.apply(machine.shard.consumer.delete_group(GROUP, machine.token(), machine.now))
    machine.beat("m0", 0)
    machine.work(late)
    assert machine.group.assignment_epoch < machine.group.group_epoch < late.epoch
    machine.hold_effects = False
    machine.work(machine.effects.pop())
    assert assigned(machine.beat("m0", 0)) == ALL


@pytest.mark.parametrize(
    ("regex", "error"),
    [
        (r"\p{Greek}" * 100, ErrorCode.NONE),
        (r"\p{Greek}" * 101, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (r"(?i)" + r"\PL" * 1_999, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_an_expression_that_takes_long_to_compile_is_refused_before(
    machine: ConsumerMachine, regex: str, error: ErrorCode
) -> None:
    with cpu_time() as taken:
        answer = machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert answer.error_code == error
    assert taken.seconds < 0.2
