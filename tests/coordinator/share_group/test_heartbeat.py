"""ShareGroupHeartbeat, and the view of other requests on a share group.

The tests cover the scenarios of GroupMetadataManagerTest, GroupCoordinatorServiceTest, GroupCoordinatorShardTest,
ShareGroupTest, ShareGroupMemberTest and ShareGroupAssignmentBuilderTest (Apache Kafka 4.3) that the comments above them
name. Omitted: testShareGroupHeartbeatOnStreamsGroup and similar tests, since there are no streams groups;
testShareGroupMemberIdGeneration, since version 1 leaves ids to clients; ...WhenNotStarted and ...MetadataImageNull,
since requests arrive only when the broker has started; testShareGroupEvaluatedConfigs and testShareGroupDynamicConfigs
are in tests/config.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from server.coordinator.group.listing import (
    describe_consumer_group,
    describe_share_group,
    list_group,
)
from server.coordinator.group.modern.refusal import GroupRefusal
from server.coordinator.group.share import heartbeat, target
from server.coordinator.group.share.group import ShareGroupState
from server.coordinator.group.share.heartbeat import MAX_NAMES, check_request
from server.coordinator.group.share.records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from server.metadata.image import MetadataImage
from server.turns import exhaust
from tests.coordinator.consumer_group.group_machine import topic
from tests.coordinator.machine import GROUP
from tests.coordinator.share_group.group_machine import SESSION_MS, ShareMachine, given

FOO = {"foo": [0, 1, 2, 3, 4, 5]}


@pytest.fixture
def machine() -> ShareMachine:
    return ShareMachine()


# testShareGroupHeartbeatRequestValidation


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        (
            {"subscribed_topic_names": ["t"] * (MAX_NAMES + 1)},
            "SubscribedTopicNames has 10001 names; 10000 are possible.",
        ),
    ],
)
def test_request_that_no_group_could_take_is_refused(fields: dict[str, Any], message: str) -> None:
    request = {
        "group_id": GROUP,
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": ["foo"],
    }
    check_request(ShareGroupHeartbeatRequest(**request))
    with pytest.raises(GroupRefusal) as refused:
        check_request(ShareGroupHeartbeatRequest(**{**request, **fields}))
    assert (refused.value.error, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


# testShareGroupUnknownGroupId, testShareGroupUnknownMemberIdJoins


def test_heartbeat_of_a_member_in_an_unknown_group_is_refused(machine: ShareMachine) -> None:
    answer = machine.share_beat("a", 5)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == f"Share group {GROUP} not found."
    assert machine.share_beat("a", -1).error_message == f"Group {GROUP} not found."


def test_heartbeat_of_an_unknown_member_is_refused(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    for epoch in (1, -1):
        answer = machine.share_beat("b", epoch)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert answer.error_message == f"Member b is not a member of group {GROUP}."


# testShareGroupMemberJoinsEmptyGroupWithAssignments, testShareGroupInitializeSuccess,
# testShareGroupHeartbeatInitializeOnPartitionUpdate, testGetOrCreateMember, testUpdateMember


def test_first_member_gets_partitions_once_they_have_a_state(machine: ShareMachine) -> None:
    answer = machine.share_beat("a", 0, "foo")
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert given(answer) == {}
    assert machine.initialized_lately() == FOO
    assert {row.state_epoch for row in machine.asked[0].rows} == {2}
    assert {row.start_offset for row in machine.asked[0].rows} == {-1}
    assert [type(each) for each in machine.written_share(0)] == [
        ShareMemberRecord,
        ShareEpochRecord,
        ShareTargetRecord,
        ShareTargetEpochRecord,
        ShareCurrentRecord,
        StatePartitionsRecord,
        StatePartitionsRecord,
    ]
    initializing, initialized = (each.value for each in machine.written_share(0)[-2:])
    assert len(initializing.initializing) == 1 and not initializing.initialized
    assert len(initialized.initialized) == 1 and not initialized.initializing
    again = machine.share_beat("a", 2)
    assert (again.member_epoch, given(again)) == (3, FOO)
    quiet = machine.share_beat("a", 3)
    assert (quiet.member_epoch, given(quiet)) == (3, None)
    assert len(machine.asked) == 1


def test_answer_to_the_full_request_has_the_assignment(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    since = len(machine.log)
    assert given(machine.share_beat("a", 3, "foo")) == FOO
    assert len(machine.log) == since


# testShareGroupMemberCanRejoinWithEpochZero


def test_member_joins_again_with_epoch_zero_and_keeps_what_it_has(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    answer = machine.share_beat("a", 0, "foo")
    assert (answer.member_epoch, given(answer)) == (3, FOO)


def test_epoch_before_the_present_one_counts_and_others_do_not(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    machine.share_beat("a", 3, "foo", "bar")
    machine.settle("a")
    assert machine.share.members["a"].member_epoch == 5
    assert machine.share_beat("a", 4).error_code == 0
    greater = machine.share_beat("a", 6)
    assert greater.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert greater.error_message == (
        "The share group member has a greater member epoch (6) than the one known by the group coordinator (5). "
        "The member must abandon all its partitions and rejoin."
    )
    smaller = machine.share_beat("a", 3)
    assert smaller.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert smaller.error_message == (
        "The share group member has a smaller member epoch (3) than the one known by the group coordinator (5), and "
        "it does not match the previous member epoch (4). The member must abandon all its partitions and rejoin."
    )


# testShareGroupLeavingMemberBumpsGroupEpoch, testRemoveMember


def test_member_that_leaves_gives_its_partitions_to_the_others(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.share_beat("b", 0, "foo")
    machine.settle("a", "b")
    assert sorted(map(len, (machine.has("a")["foo"], machine.has("b")["foo"]))) == [3, 3]
    assert machine.sharing() == dict.fromkeys((("foo", each) for each in range(6)), 1)
    epoch, since = machine.share.group_epoch, len(machine.log)
    answer = machine.share_beat("b", -1)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("b", -1, 0)
    assert [type(each) for each in machine.written_share(since)] == [
        ShareCurrentRecord,
        ShareTargetRecord,
        ShareMemberRecord,
        ShareEpochRecord,
    ]
    assert machine.share.group_epoch == epoch + 1
    assert "b" not in machine.share.members
    machine.settle("a")
    assert machine.has("a") == FOO


def test_more_members_than_partitions_share_them(machine: ShareMachine) -> None:
    members = [f"m{number}" for number in range(7)]
    for member in members:
        machine.share_beat(member, 0, "bar")
    machine.settle(*members)
    assert sorted(machine.sharing().values()) == [3, 3, 3]
    assert {len(machine.has(member).get("bar", [])) for member in members} <= {1, 2}


# testShareGroupNewMemberIsRejectedWithMaximumMembersIsReached


def test_new_member_of_a_full_group_is_refused() -> None:
    machine = ShareMachine(share_max_size=2)
    machine.share_beat("a", 0, "foo")
    machine.share_beat("b", 0, "foo")
    answer = machine.share_beat("c", 0, "foo")
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.error_message == "The share group has reached its maximum capacity of 2 members."
    assert machine.share_beat("b", 0, "foo").error_code == 0


def test_group_reads_no_more_partitions_than_fit_into_a_record(
    machine: ShareMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_PARTITIONS", 8)
    assert machine.share_beat("a", 0, "foo").error_code == 0
    answer = machine.share_beat("b", 0, "bar")
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.error_message == (
        "The members of the share group name 2 topics with 9 partitions; 10000 and 8 are possible."
    )


def test_member_for_which_there_is_no_memory_is_refused() -> None:
    machine = ShareMachine(members_max_bytes=10_000)
    assert machine.share_beat("a", 0, "foo").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert GROUP not in machine.shard.groups


# testSessionTimeoutExpirationForShareMember, testOnLoadedSessionTimeoutExpirationForShareMember,
# testOnLoadedWithShareGroup


def test_silent_member_is_removed_and_one_that_is_not_stays(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.share_beat("b", 0, "foo")
    machine.advance(SESSION_MS - 1)
    machine.share_beat("a", machine.share.members["a"].member_epoch)
    machine.advance(1)
    assert list(machine.share.members) == ["a"]
    machine.advance(SESSION_MS)
    assert machine.share.state is ShareGroupState.EMPTY


def test_sessions_begin_anew_when_the_group_is_loaded(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    machine.advance(SESSION_MS - 1)
    machine.restart()
    machine.advance(SESSION_MS - 1)
    assert machine.has("a") == FOO
    machine.advance(1)
    assert machine.share.is_empty


def test_loaded_group_is_the_one_that_was_stored(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo", rack_id="r")
    machine.share_beat("b", 0, "foo", "bar")
    machine.settle("a", "b")
    machine.share_beat("b", -1)
    before = machine.share
    held = machine.shard.memory.members
    machine.restart()
    after = machine.share
    assert machine.shard.memory.members == held
    for field in (
        "group_epoch",
        "metadata_hash",
        "assignment_epoch",
        "members",
        "target",
        "topics",
    ):
        assert getattr(after, field) == getattr(before, field), field
    assert after.states == before.states


# testShareGroupStates, testGroupState, testAsListedGroup, testIsInStatesCaseInsensitive


def test_group_is_stable_while_it_has_members(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    row = list_group(machine.share)
    assert (row.group_type, row.protocol_type, row.group_state) == ("share", "share", "Stable")
    machine.share_beat("a", -1)
    assert list_group(machine.share).group_state == "Empty"


# testShareGroupDescribeRequest, testShareGroupDescribeNoErrors, testAsDescribedGroup, testAsShareGroupDescribeMember


def test_described_group_has_members_and_partitions(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo", rack_id="r")
    machine.settle("a")
    row = exhaust(describe_share_group(GROUP, machine.share, machine.image))
    assert (row.group_state, row.group_epoch, row.assignment_epoch) == ("Stable", 3, 3)
    assert row.assignor_name == "simple"
    (member,) = row.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("a", 3, "r")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.subscribed_topic_names == ["foo"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("foo", FOO["foo"])


def test_described_group_shows_no_topic_that_is_gone(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    row = exhaust(describe_share_group(GROUP, machine.share, MetadataImage()))
    assert row.members[0].assignment.topic_partitions == []


# testShareGroupDescribeOnConsumerGroup, testConsumerGroupDescribeOnShareGroup


def test_group_of_another_kind_is_not_described(machine: ShareMachine) -> None:
    row = exhaust(describe_share_group(GROUP, None, machine.image))
    assert (row.error_code, row.error_message) == (69, f"Group {GROUP} not found.")
    machine.beat("a", 0)
    row = exhaust(describe_share_group(GROUP, machine.group, machine.image))
    assert (row.error_code, row.error_message) == (69, f"Group {GROUP} is not a share group.")
    machine.share_beat("a", 0, "foo", group_id="other")
    other = machine.shard.groups["other"]
    found = exhaust(describe_consumer_group("other", other, "uniform", machine.image))
    assert found.error_message == "Group other is not a consumer group."


# testShareGroupHeartbeatOnConsumerGroup, testConsumerGroupHeartbeatOnShareGroup


def test_member_of_another_kind_cannot_join(machine: ShareMachine) -> None:
    machine.beat("a", 0)
    answer = machine.share_beat("b", 0, "foo")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == f"Group {GROUP} is not a share group."
    machine.share_beat("b", 0, "foo", group_id="other")
    for epoch in (0, 1, -1):
        refused = machine.beat("a", epoch, group_id="other")
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert refused.error_message == "Group other is not a consumer group."


def test_member_of_another_kind_waits_until_it_is_known_what_the_group_is(
    machine: ShareMachine,
) -> None:
    machine.hold = True
    share = machine.send_share("a", 0, "foo")
    consumer = machine.send("b", 0)
    classic = machine.join("c", group=GROUP)
    machine.hold = False
    machine.commit()
    assert machine.answers[share].error_code == 0
    assert machine.answers[consumer].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert machine.answers[classic].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert machine.share.members.keys() == {"a"}


# testClassicGroupJoinOnShareGroup, testClassicGroupSyncOnShareGroup, testClassicGroupLeaveOnShareGroup


def test_classic_member_does_not_find_the_group(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    for member_id in ("", "a"):
        joined = machine.answers[machine.join(member_id)]
        assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert joined.member_id == ""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.answers[machine.sync("a", 1)].error_code == unknown
    assert machine.heartbeat("a", 1) == unknown
    assert machine.leave("a") == [unknown]
    assert machine.share.members.keys() == {"a"}


# testValidateOffsetCommit, testValidateOffsetFetch, testValidateOffsetDelete, testOffsetExpirationCondition,
# testCleanupGroupMetadataForShareGroup


def test_group_has_no_committed_offsets(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.share_beat("a", -1)
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    for fields in ({}, {"member_id": "a", "generation": 1}):
        answer = machine.answers[machine.commit_offsets({("foo", 0): 5}, **fields)]
        assert answer.topics[0].partitions[0].error_code == not_found
    assert machine.shard.validate_fetch(GROUP, None, -1) is not_found
    assert machine.answers[machine.delete_offsets(("foo", 0))].error_code == not_found


def test_empty_group_stays_until_it_is_deleted(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.share_beat("a", -1)
    machine.advance(machine.config.offsets_retention_ms + 1)
    assert machine.share.is_empty


# testShareGroupHeartbeatDoesNotBumpGroupEpochDuringAssignmentDelay, testShareGroupAssignmentInterval


def test_target_is_made_again_only_after_the_interval() -> None:
    machine = ShareMachine(share_assignment_interval_ms=1_000)
    machine.share_beat("a", 0, "foo")
    waiting = machine.share_beat("a", 2)
    assert (waiting.member_epoch, given(waiting)) == (2, None)
    assert machine.share.group_epoch == 3
    machine.share_beat("a", 2)
    assert machine.share.group_epoch == 3
    machine.advance(1_000)
    answer = machine.share_beat("a", 2)
    assert (answer.member_epoch, given(answer)) == (3, FOO)


def test_interval_does_not_last_until_a_time_that_a_clock_set_back_has_not_reached() -> None:
    machine = ShareMachine(share_assignment_interval_ms=1_000)
    machine.share_beat("a", 0, "foo")
    machine.clock.advance(-600_000)
    machine.shard.shift_time(-600_000)
    assert machine.share_beat("a", 2).member_epoch == 3


def test_silent_member_is_removed_although_a_write_fails(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.hold = True
    machine.advance(45_000)
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not machine.share.is_empty
    machine.hold = False
    machine.advance(500)
    assert machine.share.is_empty


# testShareGroupPendingAssignments


def test_group_without_members_subscriptions_or_states_lacks_no_assignment(
    machine: ShareMachine,
) -> None:
    machine.share_beat("a", 0, "foo")
    group = machine.share
    assert group.lacks_assignment
    machine.settle("a")
    assert not group.lacks_assignment
    machine.share_beat("a", 3, "bar")
    assert group.lacks_assignment  # bar has states now
    machine.settle("a")
    assert not group.lacks_assignment
    machine.share_beat("a", -1)
    assert not group.lacks_assignment


# testStableToStable, testStableToStableWithNewPartitions, testStableToStableWithAssignmentTopicsNoLongerInSubscription


def test_topic_that_is_not_read_any_more_is_taken_away_at_once() -> None:
    machine = ShareMachine(share_assignment_interval_ms=10_000)
    machine.share_beat("a", 0, "foo", "bar")
    machine.advance(10_000)
    machine.settle("a")
    assert machine.has("a") == {**FOO, "bar": [0, 1, 2]}
    answer = machine.share_beat("a", 3, "bar")
    assert (answer.member_epoch, given(answer)) == (3, {"bar": [0, 1, 2]})


def test_new_partitions_of_a_topic_are_assigned(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    machine.add_topics(topic("foo", 8))
    machine.share_beat("a", 3)
    assert machine.initialized_lately() == {"foo": [6, 7]}
    machine.settle("a")
    assert machine.has("a") == {"foo": list(range(8))}


def test_topic_that_is_made_later_is_assigned(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "new")
    machine.settle("a")
    assert (machine.has("a"), machine.asked) == ({}, [])
    machine.add_topics(topic("new", 2))
    machine.settle("a")
    assert machine.has("a") == {"new": [0, 1]}


# testUpdateSubscribedTopicNamesAndSubscriptionType, testIsSubscribedToTopic


def test_members_that_read_different_topics_get_only_those(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    machine.share_beat("b", 0, "bar")
    machine.settle("a", "b")
    assert (machine.has("a"), machine.has("b")) == (FOO, {"bar": [0, 1, 2]})
    assert machine.share.is_subscribed_to("bar") and not machine.share.is_subscribed_to("new")


def test_target_of_a_large_group_comes_with_a_later_heartbeat(
    machine: ShareMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "AT_ONCE", 3)
    machine.share_beat("a", 0, "foo")
    machine.hold_effects = True
    assert given(machine.share_beat("a", 2)) is None
    machine.share_beat("a", 2)
    machine.hold_effects = False
    assert len(machine.effects) == 1
    machine.work(machine.effects.pop())
    machine.settle("a")
    assert machine.has("a") == FOO


# testShareGroupDeleteTombstones, testValidateDeleteGroup, testReplayShareGroupMetadataWithNullValue


def test_group_without_members_is_deleted(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo")
    assert machine.answers[machine.delete_group()] is ErrorCode.NON_EMPTY_GROUP
    machine.share_beat("a", -1)
    since = len(machine.log)
    assert machine.answers[machine.delete_group()] is ErrorCode.NONE
    assert [(type(each), each.value) for each in machine.written_share(since)] == [
        (ShareTargetEpochRecord, None),
        (StatePartitionsRecord, None),
        (ShareEpochRecord, None),
    ]
    assert (machine.shard.groups, machine.shard.memory.members) == ({}, 0)
    assert machine.reload().groups == {}


# testShareGroupRecordsNoExceptionOnReplay, testReplayShareGroupMemberMetadataWithNullValue,
# testReplayShareGroupTargetAssignmentMetadataTombstone and -Existing


def test_tombstones_of_what_is_unknown_change_nothing(machine: ShareMachine) -> None:
    records = [
        ShareEpochRecord(GROUP, None),
        ShareMemberRecord(GROUP, "a", None),
        ShareTargetEpochRecord(GROUP, None),
        ShareTargetRecord(GROUP, "a", None),
        ShareCurrentRecord(GROUP, "a", None),
        StatePartitionsRecord(GROUP, None),
    ]
    for record in records:
        machine.shard.replay(record, 1)
    assert machine.shard.groups == {}
    machine.share_beat("a", 0, "foo")
    before = machine.share.members["a"]
    for record in records[1:]:
        machine.shard.replay(record._replace(**{"group_id": GROUP}), 2)
    assert machine.share.assignment_epoch == -1
    assert before not in machine.share.members.values()


# testShareGroupHeartbeatWithException


def test_request_whose_records_are_not_stored_is_refused(machine: ShareMachine) -> None:
    machine.hold = True
    token = machine.send_share("a", 0, "foo")
    waiting = machine.send_share("b", 0, "foo")
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = {machine.answers[each].error_code for each in (token, waiting)}
    assert refused == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert machine.shard.groups == {}
    machine.hold = False
    assert machine.share_beat("a", 0, "foo").error_code == 0


def test_refused_heartbeat_does_not_hide_a_change_of_topics(
    machine: ShareMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.share_beat("a", 0, "foo")
    machine.settle("a")
    epoch = machine.share.group_epoch
    machine.add_topics(topic("foo", 4))  # has been made again
    with monkeypatch.context() as full:
        full.setattr(heartbeat, "refuses_states", lambda *_: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = machine.share_beat("b", 0, "bar")
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    machine.share_beat("a", machine.share.members["a"].member_epoch)
    assert machine.share.group_epoch > epoch
    assert machine.has("a") == {"foo": list(range(4))}


def test_refused_heartbeat_does_not_make_an_empty_group_that_of_its_client(
    machine: ShareMachine,
) -> None:
    machine.account = "User:alice"
    machine.share_beat("a", 0, "foo")
    machine.share_beat("a", -1)
    machine.account = "User:mallory"
    assert machine.share_beat("b", 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.share.client == "User:alice"
    assert machine.share_beat("b", 0, "foo").error_code == 0
    assert machine.share.client == "User:mallory"
