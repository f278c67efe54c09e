"""JoinGroup. Cases derived from Kafka's GroupCoordinatorTest name its test."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.common.transition import IllegalTransition
from server.coordinator.group.state import GroupState
from tests.coordinator.machine import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    GroupMachine,
)

FIVE_MINUTES_MS = 5 * 60_000


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused(machine: GroupMachine, session_ms: int) -> None:
    """GroupCoordinatorTest.testJoinGroupSessionTimeoutTooSmall, TooLarge."""
    token = machine.join(session_ms=session_ms)
    assert machine.error(token) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert machine.shard.groups == {}


def test_unknown_member_of_unknown_group_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupUnknownConsumerNewGroup."""
    token = machine.join("somebody")
    assert machine.error(token) == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.answers[token].member_id == "somebody"
    assert machine.shard.groups == {}


def test_unknown_member_of_known_group_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupUnknownConsumerExistingGroup."""
    machine.stable()
    assert machine.error(machine.join("somebody")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_first_member_leads_generation_one_after_initial_delay(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testValidJoinGroup."""
    token = machine.join()
    machine.advance(DELAY_MS - 1)
    assert token not in machine.answers
    machine.advance(1)
    answer = machine.answers[token]
    assert answer.error_code == 0
    assert answer.generation_id == 1
    assert answer.member_id == answer.leader
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(answer.member_id, b"range-metadata")] == [
        (m.member_id, m.metadata) for m in answer.members
    ]
    assert GroupState.COMPLETING_REBALANCE is machine.state


def test_initial_delay_of_zero_completes_in_the_next_turn() -> None:
    machine = GroupMachine(initial_rebalance_delay_ms=0)
    token = machine.join()
    machine.advance(0)
    assert machine.answers[token].generation_id == 1


def test_only_the_leader_is_told_of_the_members(machine: GroupMachine) -> None:
    leader, follower = machine.form(2)
    answers = {a.member_id: a for a in machine.answers.values()}
    assert [leader, follower] == [m.member_id for m in answers[leader].members]
    assert answers[follower].members == []
    assert leader == answers[follower].leader


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [("range", b"")]), ("consumer", [])],
    ids=["no type", "no protocols"],
)
def test_first_member_without_type_or_protocols_is_refused(
    machine: GroupMachine, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    """GroupCoordinatorTest.testJoinGroupWithEmptyProtocolType, testJoinGroupWithEmptyGroupProtocol."""
    token = machine.join(protocol_type=protocol_type, protocols=protocols)
    assert machine.error(token) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocol"),
    [("connect", "range"), ("consumer", "other")],
    ids=["other type", "no common protocol"],
)
def test_member_with_nothing_in_common_is_refused(
    machine: GroupMachine, protocol_type: str, protocol: str
) -> None:
    """GroupCoordinatorTest.testJoinGroupInconsistentProtocolType, InconsistentGroupProtocol."""
    machine.join()
    token = machine.join(protocol_type=protocol_type, protocols=[(protocol, b"")])
    assert machine.error(token) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_with_most_first_votes_is_chosen(machine: GroupMachine) -> None:
    """GroupMetadataTest.testSelectProtocolChoosesCompatibleProtocol and similar tests."""
    both = [("range", b"r"), ("sticky", b"s")]
    tokens = [
        machine.join(protocols=both),
        machine.join(protocols=both[::-1]),
        machine.join(protocols=both[::-1]),
    ]
    machine.advance(3 * DELAY_MS)
    assert {"sticky"} == {machine.answers[t].protocol_name for t in tokens}
    leader = machine.answers[tokens[0]]
    assert {b"s"} == {m.metadata for m in leader.members}


def test_protocol_that_one_member_lacks_is_not_chosen(machine: GroupMachine) -> None:
    tokens = [
        machine.join(protocols=[("new", b""), ("old", b"")]),
        machine.join(protocols=[("new", b""), ("old", b"")]),
        machine.join(protocols=[("old", b"")]),
    ]
    machine.advance(3 * DELAY_MS)
    assert {"old"} == {machine.answers[t].protocol_name for t in tokens}


# The first delay (KIP-134)


def test_member_that_comes_during_the_delay_prolongs_it(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup,
    shouldResetRebalanceDelayWhenNewMemberJoinsGroupInInitialRebalance."""
    first = machine.join()
    machine.advance(DELAY_MS - 1)
    second = machine.join()
    machine.advance(2)
    assert first not in machine.answers
    machine.advance(DELAY_MS)
    assert [machine.answers[t].generation_id for t in (first, second)] == [1, 1]


def test_delay_ends_at_the_rebalance_timeout_although_members_keep_coming(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.shouldDelayRebalanceUptoRebalanceTimeout."""
    first = machine.join(rebalance_ms=2 * DELAY_MS)
    machine.advance(DELAY_MS - 1)
    machine.join(rebalance_ms=2 * DELAY_MS)
    machine.advance(DELAY_MS - 1)
    machine.join(rebalance_ms=2 * DELAY_MS)
    machine.advance(1)
    assert first not in machine.answers
    machine.advance(DELAY_MS)
    assert machine.answers[first].generation_id == 1
    assert len(machine.answers[first].members) == 3


def test_group_that_was_left_by_all_has_the_delay_again(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.leave(member)
    assert GroupState.EMPTY is machine.state
    token = machine.join()
    assert token not in machine.answers
    machine.advance(DELAY_MS)
    assert machine.answers[token].generation_id == 3


# Member id required (KIP-394)


def test_dynamic_member_is_given_an_id_to_come_back_with(machine: GroupMachine) -> None:
    """The start of GroupCoordinatorTest.testNewMemberFailureAfterJoinGroupCompletion; KIP-394."""
    token = machine.join(require_member_id=True)
    answer = machine.answers[token]
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-1"
    assert GroupState.EMPTY is machine.state
    token = machine.join(answer.member_id, require_member_id=True)
    machine.advance(DELAY_MS)
    assert machine.answers[token].member_id == "client-1"
    assert machine.answers[token].error_code == 0


def test_static_member_needs_no_second_join(machine: GroupMachine) -> None:
    token = machine.join(instance="a", require_member_id=True)
    machine.advance(DELAY_MS)
    assert machine.answers[token].error_code == 0


def test_pending_member_is_waited_for(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberJoins."""
    (leader,) = machine.stable()
    pending = machine.answers[machine.join(require_member_id=True)].member_id
    token = machine.join(leader)
    assert token not in machine.answers
    machine.join(pending)
    assert machine.answers[token].generation_id == 2
    assert [leader, pending] == [m.member_id for m in machine.answers[token].members]


def test_pending_member_that_does_not_come_is_given_up(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberTimesOut."""
    (leader,) = machine.stable()
    machine.join(require_member_id=True)
    token = machine.join(leader)
    machine.advance(SESSION_MS - 1)
    assert token not in machine.answers
    machine.advance(1)
    assert machine.answers[token].generation_id == 2


def test_pending_member_that_leaves_is_not_waited_for(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testPendingMembersLeavesGroup."""
    (leader,) = machine.stable()
    pending = machine.answers[machine.join(require_member_id=True)].member_id
    token = machine.join(leader)
    assert machine.leave(pending) == [ErrorCode.NONE]
    assert machine.answers[token].generation_id == 2


def test_expired_member_id_is_unknown(machine: GroupMachine) -> None:
    pending = machine.answers[machine.join(require_member_id=True)].member_id
    machine.advance(SESSION_MS)
    assert machine.error(machine.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID


# Joining again


def test_new_member_makes_a_stable_group_rebalance(machine: GroupMachine) -> None:
    (leader,) = machine.stable()
    token = machine.join()
    assert GroupState.PREPARING_REBALANCE is machine.state
    assert machine.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    machine.join(leader)
    assert machine.answers[token].generation_id == 2


def test_leader_that_joins_again_makes_a_stable_group_rebalance(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testRejoiningLeaderTriggersRebalance."""
    leader, follower = machine.stable(2)
    token = machine.join(leader)
    assert token not in machine.answers
    assert GroupState.PREPARING_REBALANCE is machine.state
    machine.join(follower)
    assert machine.answers[token].generation_id == 2


def test_follower_that_joins_unchanged_is_told_of_the_generation(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupFromUnchangedFollowerDoesNotRebalance."""
    leader, follower = machine.stable(2)
    answer = machine.answers[machine.join(follower)]
    assert (1, leader, []) == (answer.generation_id, answer.leader, answer.members)
    assert GroupState.STABLE is machine.state


def test_follower_that_joins_changed_makes_the_group_rebalance(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupFromChangedFollowerTriggersRebalance."""
    _, follower = machine.stable(2)
    token = machine.join(follower, protocols=[("range", b"more topics")])
    assert token not in machine.answers
    assert GroupState.PREPARING_REBALANCE is machine.state


def test_member_that_missed_its_answer_is_told_again(machine: GroupMachine) -> None:
    leader, follower = machine.form(2)
    answer = machine.answers[machine.join(leader)]
    assert [leader, follower] == [m.member_id for m in answer.members]
    assert machine.answers[machine.join(follower)].members == []
    assert GroupState.COMPLETING_REBALANCE is machine.state


def test_change_while_the_assignment_is_made_begins_anew(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testRebalanceCompletesBeforeMemberJoins."""
    leader, follower = machine.form(2)
    sync = machine.sync(follower)
    machine.join(leader, protocols=[("range", b"changed")])
    assert machine.error(sync) == ErrorCode.REBALANCE_IN_PROGRESS
    assert GroupState.PREPARING_REBALANCE is machine.state


def test_second_join_of_a_waiting_member_takes_the_place_of_the_first(
    machine: GroupMachine,
) -> None:
    (leader, _) = machine.stable(2)
    first = machine.join(leader)
    second = machine.join(leader)
    assert machine.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in machine.answers
    assert machine.group().num_awaiting_join == 1


# Timeouts of a rebalance


def test_members_that_do_not_join_in_time_are_removed(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testRebalanceTimeoutExceeded / RejoinTimeout cases."""
    leader, follower = machine.stable(2, session_ms=3 * REBALANCE_MS)
    token = machine.join(leader)
    machine.advance(REBALANCE_MS - 1)
    assert token not in machine.answers
    machine.advance(1)
    answer = machine.answers[token]
    assert [leader] == [m.member_id for m in answer.members]
    assert machine.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_is_replaced(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupLeaderNotRejoining... (electedLeader)."""
    leader, follower = machine.stable(2, session_ms=3 * REBALANCE_MS)
    token = machine.join(follower, protocols=[("range", b"changed")])
    machine.advance(REBALANCE_MS)
    answer = machine.answers[token]
    assert (follower, 2) == (answer.leader, answer.generation_id)
    assert leader not in machine.group().members


def test_new_member_whose_join_waits_too_long_is_told_to_come_again() -> None:
    """GroupCoordinatorTest.testNewMemberJoinExpiration."""
    machine = GroupMachine(max_session_timeout_ms=10 * FIVE_MINUTES_MS)
    (leader,) = machine.stable(session_ms=3 * FIVE_MINUTES_MS, rebalance_ms=2 * FIVE_MINUTES_MS)
    token = machine.join(rebalance_ms=2 * FIVE_MINUTES_MS)
    machine.advance(FIVE_MINUTES_MS - 1)
    assert token not in machine.answers
    machine.advance(1)
    assert machine.error(token) == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.answers[token].member_id == ""
    assert [leader] == list(machine.group().members)


def test_new_member_has_a_normal_session_once_it_has_joined(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testNewMemberFailureAfterJoinGroupCompletion."""
    (member,) = machine.stable()
    machine.advance(SESSION_MS)
    assert member not in machine.group().members
    assert GroupState.EMPTY is machine.state


def test_longest_rebalance_timeout_of_all_counts(machine: GroupMachine) -> None:
    first = machine.join(rebalance_ms=10_000)
    machine.join(rebalance_ms=90_000)
    machine.advance(2 * DELAY_MS)
    assert first in machine.answers
    assert machine.group().rebalance_timeout_ms() == 90_000


# group.max.size


def test_full_group_turns_new_members_away() -> None:
    """GroupCoordinatorTest.testDynamicMembersJoinGroupWithMaxSize..., testGroupMaxSize."""
    machine = GroupMachine(max_size=2)
    machine.join()
    machine.join()
    token = machine.join()
    assert machine.error(token) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.answers[token].member_id == ""


def test_full_stable_group_lets_its_own_members_join_again() -> None:
    machine = GroupMachine(max_size=2)
    leader, follower = machine.stable(2)
    assert machine.error(machine.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    token = machine.join(leader)
    machine.join(follower)
    assert machine.error(token) == 0


def test_last_to_rejoin_an_oversized_group_is_turned_away() -> None:
    """GroupCoordinatorTest.testGroupMaxSizeWithStaticMembers / loaded group over capacity."""
    machine = GroupMachine()
    members = machine.stable(3)
    machine.config = machine.shard.config = type(machine.config)(
        max_size=2, initial_rebalance_delay_ms=DELAY_MS
    )
    machine.restart()
    assert GroupState.PREPARING_REBALANCE is machine.state
    tokens = [machine.join(member) for member in members]
    assert machine.error(tokens[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [machine.error(token) for token in tokens[:2]] == [0, 0]
    assert len(machine.group().members) == 2


# Dead groups


def test_group_being_removed_sends_members_to_find_it_anew(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testJoinGroupDead... ."""
    machine.commit_offsets({("topic", 0): 1})
    machine.hold = True
    machine.delete_group()
    assert GroupState.DEAD is machine.state
    assert machine.error(machine.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.commit()
    assert GROUP not in machine.shard.groups


def test_illegal_move_raises_and_changes_nothing(machine: GroupMachine) -> None:
    """GroupMetadataTest, the testXToYIllegalTransition cases."""
    machine.stable()
    group = machine.group()
    with pytest.raises(IllegalTransition, match="cannot go from Stable to Empty"):
        group.transition_to(GroupState.EMPTY, machine.now)
    assert GroupState.STABLE is group.state


def test_thousand_members_join_with_work_that_grows_linearly() -> None:
    """A rebalance of n members does O(n) work, measured in Python calls, not in seconds."""
    import sys

    def calls_for(count: int) -> int:
        machine = GroupMachine()
        calls = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            if event == "call":
                calls += 1

        sys.setprofile(profile)
        try:
            members = machine.form(count)
        finally:
            sys.setprofile(None)
        assert count == len(set(members))
        assert machine.group().generation_id == 1
        return calls

    small, large = calls_for(100), calls_for(1_000)
    assert large < 14 * small


def test_refused_join_makes_no_group() -> None:
    machine = GroupMachine()
    token = machine.join(protocols=())
    assert machine.answers[token].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert machine.shard.groups == {}
