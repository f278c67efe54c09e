"""Static members (KIP-345). Cases derived from Kafka's GroupCoordinatorTest name its test."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.state import GroupState
from tests.coordinator.machine import REBALANCE_MS, SESSION_MS, GroupMachine


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine()


def test_returning_follower_gets_a_new_id_without_a_rebalance(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithFollowerIdAndUnchangedProtocol... ."""
    leader, follower = machine.stable_static("a", "b")
    answer = machine.answers[machine.join(instance="b")]
    assert (0, 1, leader) == (answer.error_code, answer.generation_id, answer.leader)
    assert answer.member_id not in (leader, follower)
    assert GroupState.STABLE is machine.state
    sync = machine.answers[machine.sync(answer.member_id, instance="b")]
    assert sync.assignment == b"b"


def test_returning_leader_is_told_of_its_former_self_before_version_9(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithLeaderIdAndUnknownMemberId... (v8)."""
    leader, _ = machine.stable_static("a", "b")
    answer = machine.answers[machine.join(instance="a")]
    assert leader == answer.leader != answer.member_id
    assert answer.members == []
    assert not answer.skip_assignment
    assert answer.member_id == machine.group().leader_id


def test_returning_leader_leads_and_skips_the_assignment_from_version_9(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.testStaticMemberRejoinWithLeaderIdAndUnknownMemberId, KIP-814."""
    machine.stable_static("a", "b")
    answer = machine.answers[machine.join(instance="a", can_skip=True)]
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert {"a", "b"} == {m.group_instance_id for m in answer.members}


def test_returning_follower_has_no_assignment_to_skip(machine: GroupMachine) -> None:
    machine.stable_static("a", "b")
    answer = machine.answers[machine.join(instance="b", can_skip=True)]
    assert not answer.skip_assignment
    assert answer.members == []


def test_returned_member_is_stored_before_it_is_answered(machine: GroupMachine) -> None:
    machine.stable_static("a", "b")
    machine.hold = True
    token = machine.join(instance="b")
    assert token not in machine.answers
    machine.commit()
    new_id = machine.answers[token].member_id
    assert new_id in machine.reload().groups["group"].members


def test_member_id_that_cannot_be_stored_is_taken_back(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithUpdatedSessionAndRebalanceTimeoutsButCannotPersistChange."""
    _, old_id = machine.stable_static("a", "b")
    machine.hold = True
    token = machine.join(instance="b", session_ms=2 * SESSION_MS, rebalance_ms=2 * REBALANCE_MS)
    machine.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert machine.error(token) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert machine.answers[token].member_id == ""
    member = machine.group().members[old_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert old_id == machine.group().static_members["b"]
    assert machine.heartbeat(old_id, instance="b") == ErrorCode.NONE


def test_returned_member_brings_its_new_timeouts(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithUpdatedSessionAndRebalanceTimeoutsAndPersistChange."""
    machine.stable_static("a", "b")
    token = machine.join(instance="b", session_ms=2 * SESSION_MS, rebalance_ms=2 * REBALANCE_MS)
    new_id = machine.answers[token].member_id
    stored = machine.reload().groups["group"].members[new_id]
    assert stored.session_timeout_ms == 2 * SESSION_MS
    assert stored.rebalance_timeout_ms == 2 * REBALANCE_MS


def test_returning_member_that_changes_the_protocol_makes_the_group_rebalance(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithKnownMemberIdAndProtocolChange."""
    both = [("range", b"r"), ("sticky", b"s")]
    machine.stable_static("a", protocols=both)
    token = machine.join(instance="a", protocols=both[::-1])
    answer = machine.answers[token]
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_member_that_returns_while_the_assignment_is_made_begins_anew(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.staticMemberRejoinAsFollowerWithUnknownMemberIdDuringCompletingRebalance."""
    tokens = [machine.join(instance=name) for name in "ab"]
    machine.advance(SESSION_MS)
    leader = machine.answers[tokens[0]].member_id
    token = machine.join(instance="b")
    assert token not in machine.answers
    assert GroupState.PREPARING_REBALANCE is machine.state
    machine.join(leader, instance="a")
    assert machine.answers[token].generation_id == 2


def test_older_process_with_the_same_instance_is_fenced(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberFenceDuplicateRejoiningFollower,
    staticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged, and heartbeat, commit, leave."""
    _, old_id = machine.stable_static("a", "b")
    machine.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert fenced == machine.heartbeat(old_id, instance="b")
    assert fenced == machine.error(machine.join(old_id, instance="b"))
    assert fenced == machine.error(machine.sync(old_id, instance="b"))
    assert [fenced] == machine.leave((old_id, "b"))
    commit = machine.commit_offsets({("topic", 0): 1}, old_id, 1, instance="b")
    assert [fenced] == machine.row_errors(commit)


def test_waiting_requests_of_the_older_process_are_fenced(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberFenceDuplicateRejoiningFollower."""
    _, follower = machine.stable_static("a", "b")
    waiting = machine.join(follower, instance="b", protocols=[("range", b"changed")])
    assert waiting not in machine.answers
    machine.join(instance="b", protocols=[("range", b"changed")])
    assert machine.error(waiting) == ErrorCode.FENCED_INSTANCE_ID


def test_waiting_sync_of_the_older_process_is_fenced(machine: GroupMachine) -> None:
    tokens = [machine.join(instance=name) for name in "ab"]
    machine.advance(SESSION_MS)
    follower = machine.answers[tokens[1]].member_id
    sync = machine.sync(follower, instance="b")
    machine.join(instance="b")
    assert machine.error(sync) == ErrorCode.FENCED_INSTANCE_ID


def test_known_member_with_unknown_instance_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.staticMemberJoinWithUnknownInstanceIdAndKnownMemberId."""
    leader, _ = machine.stable_static("a", "b")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown == machine.error(machine.join(leader, instance="c"))
    assert unknown == machine.heartbeat(leader, instance="c")
    assert unknown == machine.error(machine.sync(leader, instance="c"))


def test_absent_static_member_keeps_its_place_until_its_session_ends(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testStaticMemberRemovedOnlyAfterSessionTimeout cases."""
    leader, follower = machine.stable_static("a", "b", session_ms=10 * REBALANCE_MS)
    token = machine.join(leader, instance="a")
    machine.advance(REBALANCE_MS)
    assert {leader, follower} == {m.member_id for m in machine.answers[token].members}
    assert machine.answers[token].generation_id == 2


def test_group_with_only_absent_static_members_waits_on(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testRebalanceDoesNotCompleteWithoutLeader... ."""
    machine.stable_static("a", "b", session_ms=10 * REBALANCE_MS)
    token = machine.join()
    machine.leave(next(m for m in machine.group().members if m.startswith("client")))
    assert machine.error(token) == ErrorCode.UNKNOWN_MEMBER_ID
    machine.advance(REBALANCE_MS)
    assert GroupState.PREPARING_REBALANCE is machine.state
    assert machine.group().generation_id == 1
    token = machine.join(instance="a")
    machine.advance(REBALANCE_MS)
    assert machine.answers[token].generation_id == 2
    assert machine.answers[token].member_id == machine.answers[token].leader


def test_administrator_removes_a_static_member_by_instance_alone(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testBatchLeaveWithInstanceIdOnly... (validLeaveGroup)."""
    machine.stable_static("a", "b")
    assert machine.leave(("", "b"), ("", "c")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(machine.group().static_members) == ["a"]
    assert GroupState.PREPARING_REBALANCE is machine.state


def test_timer_of_the_old_id_does_not_remove_the_returned_member(machine: GroupMachine) -> None:
    _, old_id = machine.stable_static("a", "b")
    machine.advance(SESSION_MS - 1)
    for name in "ab":
        machine.heartbeat(machine.group().static_members[name], instance=name)
    new_id = machine.answers[machine.join(instance="b")].member_id
    machine.advance(SESSION_MS - 1)
    assert new_id in machine.group().members
    assert old_id not in machine.group().members
    machine.advance(1)
    assert new_id not in machine.group().members


def test_rebalance_that_begins_before_the_new_id_is_stored_counts_the_member(
    machine: GroupMachine,
) -> None:
    leader, _ = machine.stable_static("a", "b")
    machine.hold = True
    token = machine.join(instance="b")
    machine.join(leader, instance="a", protocols=[("range", b"changed")])
    assert machine.answers[token].generation_id == 2
    machine.commit()
    assert GroupState.COMPLETING_REBALANCE is machine.state


def test_member_that_returns_twice_before_the_id_is_stored_is_answered_once_each(
    machine: GroupMachine,
) -> None:
    machine.stable_static("a", "b")
    machine.hold = True
    first = machine.join(instance="b")
    second = machine.join(instance="b")
    assert machine.error(first) == ErrorCode.FENCED_INSTANCE_ID
    machine.commit()
    machine.commit()
    assert machine.error(second) == 0
    assert machine.answers[second].member_id == machine.group().static_members["b"]
