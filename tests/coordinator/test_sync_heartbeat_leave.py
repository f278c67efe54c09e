"""SyncGroup, Heartbeat and LeaveGroup. Cases derived from Kafka's GroupCoordinatorTest name its test."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.state import GroupState
from tests.coordinator.machine import REBALANCE_MS, SESSION_MS, GroupMachine

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine()


# SyncGroup


def test_sync_of_unknown_group_or_member_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSyncGroupFromUnknownGroup, FromUnknownMember."""
    assert machine.error(machine.sync("somebody", group="other")) == UNKNOWN
    machine.stable()
    assert machine.error(machine.sync("somebody")) == UNKNOWN


def test_sync_of_another_generation_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSyncGroupFromIllegalGeneration."""
    (member,) = machine.form()
    assert machine.error(machine.sync(member, 2)) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "sticky")])
def test_sync_with_another_protocol_is_refused(machine: GroupMachine, kind: str, name: str) -> None:
    """GroupCoordinatorTest.testSyncGroupWithInconsistentProtocolType / Name (KIP-559)."""
    (member,) = machine.form()
    token = machine.sync(member, protocol_type=kind, protocol_name=name)
    assert machine.error(token) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_followers_wait_for_the_leaders_assignment(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSyncGroupFollowerAfterLeader, LeaderAfterFollower."""
    leader, early, late = machine.form(3)
    waiting = machine.sync(early)
    assert waiting not in machine.answers
    assignment = {leader: b"0", early: b"1", late: b"2"}
    first = machine.sync(leader, assignments=assignment)
    assert machine.answers[first].assignment == b"0"
    answer = machine.answers[waiting]
    assert (
        answer.assignment,
        answer.protocol_type,
        answer.protocol_name,
    ) == (b"1", "consumer", "range")
    assert machine.answers[machine.sync(late)].assignment == b"2"


def test_assignment_is_stored_before_anybody_has_it(machine: GroupMachine) -> None:
    machine.hold = True
    (leader,) = machine.form()
    token = machine.sync(leader, assignments={leader: b"all"})
    assert token not in machine.answers
    assert GroupState.COMPLETING_REBALANCE is machine.state
    assert machine.group().persisted is None
    machine.commit()
    assert machine.answers[token].assignment == b"all"
    assert machine.group().persisted is not None


def test_member_without_an_assignment_gets_an_empty_one(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.shouldFillMissingAssignments... ."""
    leader, follower = machine.form(2)
    machine.sync(leader, assignments={leader: b"all", "stranger": b"x"})
    answer = machine.answers[machine.sync(follower)]
    assert (answer.error_code, answer.assignment) == (0, b"")


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_stored_makes_all_join_again(
    machine: GroupMachine, error: ErrorCode, answered: ErrorCode
) -> None:
    """GroupMetadataManagerTest.testStoreGroupErrorMapping."""
    machine.hold = True
    leader, follower = machine.form(2)
    tokens = [machine.sync(follower), machine.sync(leader, assignments={leader: b"all"})]
    machine.fail(error)
    assert [answered, answered] == [machine.error(token) for token in tokens]
    assert GroupState.PREPARING_REBALANCE is machine.state
    assert machine.group().persisted is None


def test_assignment_stored_after_somebody_joined_is_not_handed_out(machine: GroupMachine) -> None:
    machine.hold = True
    (leader,) = machine.form()
    token = machine.sync(leader, assignments={leader: b"all"})
    machine.join()
    assert machine.error(token) == ErrorCode.REBALANCE_IN_PROGRESS
    machine.commit()
    assert GroupState.PREPARING_REBALANCE is machine.state


def test_leader_that_syncs_twice_while_storing_is_answered_twice(machine: GroupMachine) -> None:
    machine.hold = True
    (leader,) = machine.form()
    first = machine.sync(leader, assignments={leader: b"all"})
    second = machine.sync(leader, assignments={leader: b"all"})
    assert machine.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    machine.commit()
    machine.commit()
    assert machine.answers[second].assignment == b"all"
    assert GroupState.STABLE is machine.state


def test_sync_while_members_join_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSyncGroupWhilePreparingRebalance ("joining")."""
    (leader,) = machine.stable()
    machine.join()
    assert machine.error(machine.sync(leader)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_that_fails_before_its_sync_lets_followers_join_again(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testLeaderFailureInSyncGroup."""
    leader, follower = machine.form(2)
    token = machine.sync(follower)
    machine.advance(SESSION_MS)
    assert machine.error(token) == ErrorCode.REBALANCE_IN_PROGRESS
    assert [follower] == list(machine.group().members)
    again = machine.join(follower)
    assert follower == machine.answers[again].leader
    assert leader not in machine.group().members


def test_members_that_never_sync_are_removed(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testPendingMembersAreRemovedOnSyncExpiration (KAFKA-12890)."""
    leader, follower = machine.form(2, session_ms=3 * REBALANCE_MS)
    machine.sync(leader, assignments={})
    machine.advance(REBALANCE_MS - 1)
    assert GroupState.STABLE is machine.state
    machine.heartbeat(leader)
    machine.heartbeat(follower)
    machine.advance(1)
    assert GroupState.PREPARING_REBALANCE is machine.state
    assert [leader] == list(machine.group().members)


def test_leader_that_heartbeats_but_never_syncs_is_removed(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testPendingSyncMemberTimesOutWithHeartbeats... ."""
    _, follower = machine.form(2, session_ms=3 * REBALANCE_MS)
    token = machine.sync(follower)
    machine.advance(REBALANCE_MS)
    assert machine.error(token) == ErrorCode.REBALANCE_IN_PROGRESS
    assert [follower] == list(machine.group().members)
    assert follower == machine.group().leader_id


# Heartbeat and sessions


def test_heartbeat_of_unknown_group_or_member_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testHeartbeatUnknownGroup, UnknownConsumerExistingGroup."""
    assert machine.heartbeat("somebody", group="other") == UNKNOWN
    machine.stable()
    assert machine.heartbeat("somebody") == UNKNOWN


def test_heartbeat_of_another_generation_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testHeartbeatIllegalGeneration."""
    (member,) = machine.stable()
    assert machine.heartbeat(member, 2) == ErrorCode.ILLEGAL_GENERATION


def test_heartbeat_while_the_assignment_is_made_counts(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testHeartbeatDuringRebalance..., KAFKA-9752."""
    (member,) = machine.form()
    machine.advance(SESSION_MS - 1)
    assert machine.heartbeat(member) == ErrorCode.NONE
    machine.advance(SESSION_MS - 1)
    assert member in machine.group().members


def test_heartbeats_keep_a_member_alive_with_one_timer(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testHeartbeatMaintainsSession."""
    (member,) = machine.stable()
    for _ in range(10):
        machine.advance(SESSION_MS // 2)
        assert machine.heartbeat(member) == ErrorCode.NONE
    assert sum(key == ("group", member) for _, key in machine.timers) == 1


def test_offset_commits_keep_a_member_alive(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitMaintainsSession."""
    (member,) = machine.stable()
    machine.advance(SESSION_MS - 1)
    machine.commit_offsets({("topic", 0): 1}, member, 1)
    machine.advance(SESSION_MS - 1)
    assert machine.heartbeat(member) == ErrorCode.NONE


def test_silent_member_is_removed_and_the_others_rebalance(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSessionTimeout."""
    leader, silent = machine.stable(2)
    machine.advance(SESSION_MS - 1)
    machine.heartbeat(leader)
    machine.advance(1)
    assert machine.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.heartbeat(silent) == UNKNOWN


def test_member_whose_join_waits_does_not_fail(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSessionTimeoutDuringRebalance."""
    leader, follower = machine.stable(2, rebalance_ms=5 * SESSION_MS)
    token = machine.join(leader)
    machine.advance(SESSION_MS - 1)
    machine.heartbeat(follower)
    machine.advance(SESSION_MS - 1)
    assert token not in machine.answers
    machine.advance(1)
    assert [leader] == [m.member_id for m in machine.answers[token].members]


def test_member_whose_sync_waited_has_a_new_session(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testSessionTimeout after a long assignment (propagateAssignment)."""
    leader, follower = machine.form(2)
    machine.sync(follower)
    machine.advance(SESSION_MS - 1)
    machine.heartbeat(leader)
    machine.advance(SESSION_MS - 1)
    machine.sync(leader, assignments={})
    machine.advance(SESSION_MS - 1)
    assert machine.heartbeat(follower) == ErrorCode.NONE


# LeaveGroup


def test_leaving_an_unknown_group_gives_each_member_its_error(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testLeaveGroupWrongCoordinator / UnknownGroup."""
    assert machine.leave("a", "b", group="other") == [UNKNOWN, UNKNOWN]


def test_members_leave_in_one_request_and_each_has_its_error(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testBatchLeave... ."""
    leader, follower = machine.stable(2)
    assert machine.leave(follower, "stranger") == [ErrorCode.NONE, UNKNOWN]
    assert [leader] == list(machine.group().members)
    assert GroupState.PREPARING_REBALANCE is machine.state


def test_members_that_leave_together_are_removed_before_the_rebalance_ends_as_by_4() -> None:
    """GroupMetadataManager.classicGroupLeaveToClassicGroup; in 3.9, the waiting member has joined in between."""
    for together, error, generation in ((False, ErrorCode.NONE, 3), (True, UNKNOWN, 2)):
        machine = GroupMachine(leaves_together=together)
        (leader,) = machine.stable()
        token = machine.join()
        newcomer = next(one for one in machine.group().members if one != leader)
        assert machine.leave(leader, newcomer) == [ErrorCode.NONE, ErrorCode.NONE]
        assert machine.error(token) == error
        assert machine.state is GroupState.EMPTY
        assert machine.group().generation_id == generation


def test_leave_of_one_that_only_has_an_id_begins_a_rebalance_as_by_4() -> None:
    """GroupMetadataManager.classicGroupLeaveToClassicGroup; by 3.9 it changes nothing for the others."""
    for together, state in (
        (False, GroupState.STABLE),
        (True, GroupState.PREPARING_REBALANCE),
    ):
        machine = GroupMachine(leaves_together=together)
        machine.stable()
        token = machine.join(require_member_id=True)
        member_id = machine.answers[token].member_id
        assert machine.leave(member_id, member_id) == [ErrorCode.NONE, UNKNOWN]
        assert machine.state is state
        assert not machine.group().pending_members


def test_last_member_leaves_an_empty_generation_behind(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testValidLeaveGroup, testCompleteLeaveGroup."""
    members = machine.stable(2)
    assert machine.leave(*members) == [ErrorCode.NONE, ErrorCode.NONE]
    group = machine.group()
    assert GroupState.EMPTY is group.state
    assert (group.generation_id, group.protocol_name, group.leader_id) == (2, None, None)
    stored = machine.reload().groups["group"]
    assert (
        stored.generation_id,
        stored.protocol_type,
        stored.state,
    ) == (2, "consumer", GroupState.EMPTY)


def test_leaving_does_not_wait_for_the_log(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.hold = True
    assert machine.leave(member) == [ErrorCode.NONE]
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert GroupState.EMPTY is machine.state


def test_member_that_leaves_while_its_join_waits_is_told(machine: GroupMachine) -> None:
    leader, _ = machine.stable(2)
    token = machine.join(leader)
    machine.leave(leader)
    assert machine.error(token) == UNKNOWN


def test_member_that_leaves_while_its_sync_waits_is_told(machine: GroupMachine) -> None:
    _, follower = machine.form(2)
    token = machine.sync(follower)
    machine.leave(follower)
    assert machine.error(token) == UNKNOWN


def test_rebalance_goes_on_when_the_last_one_missing_leaves(machine: GroupMachine) -> None:
    leader, follower = machine.stable(2)
    token = machine.join(leader)
    machine.leave(follower)
    assert machine.answers[token].generation_id == 2
