"""The limit on the memory of groups: refusals above it, and the release of memory."""

from __future__ import annotations

import logging

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.memory import GROUP_PARTS
from tests.coordinator.machine import SESSION_MS, GroupMachine

MIB = 1024 * 1024
LIMIT = 32 * MIB
LARGE = (("range", bytes(MIB)),)


def machine(**config: int) -> GroupMachine:
    return GroupMachine(members_max_bytes=LIMIT, **config)


def error(made: GroupMachine, token: int) -> ErrorCode | None:
    """The error of a JoinGroup; None while it waits."""
    answer = made.answers.get(token)
    return None if answer is None else ErrorCode(answer.error_code)


def test_members_of_one_group_may_use_a_quarter() -> None:
    made = machine()
    tokens = [made.join(protocols=LARGE) for _ in range(20)]
    refused = [token for token in tokens if error(made, token) is not None]
    assert len(tokens) - len(refused) == LIMIT // MIB // GROUP_PARTS - 1
    assert {error(made, token) for token in refused} == {ErrorCode.GROUP_MAX_SIZE_REACHED}


def test_all_groups_together_are_bounded_and_small_ones_still_find_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = machine()
    tokens = [made.join(group=f"g{n}", protocols=LARGE) for n in range(600)]
    refused = {error(made, token) for token in tokens} - {None}
    assert refused == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}  # clients try again
    assert made.shard.memory.members < LIMIT * 3 // 4
    assert caplog.text.count("groups have reached kwire.group.members.max.bytes") == 1
    assert error(made, made.join(group="honest")) is None
    flood = [made.join(group=f"f{n}") for n in range(10_000)]
    assert error(made, flood[-1]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert made.shard.memory.members <= LIMIT


def test_assignments_are_bounded_as_members_are() -> None:
    made = machine()
    groups = [f"g{n}" for n in range(40)]
    for group in groups:
        made.join(group=group)
    made.advance(5_000)
    errors = []
    for group in groups:
        (member_id,) = made.shard.groups[group].members
        token = made.sync(member_id, 1, {member_id: bytes(MIB)}, group=group)
        errors.append(error(made, token))
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients try again
    assert made.shard.memory.members <= LIMIT
    assert made.heartbeat(member_id, 1, group=group) is ErrorCode.REBALANCE_IN_PROGRESS
    assert error(made, made.join(member_id, group=group)) is ErrorCode.NONE
    token = made.sync(member_id, 2, {member_id: b"less"}, group=group)
    assert error(made, token) is ErrorCode.NONE


def test_assignment_of_one_group_may_use_a_quarter() -> None:
    made = machine()
    leader, other = made.form(2)
    waiting = made.sync(other)
    assignments = {leader: b"", other: bytes(LIMIT // GROUP_PARTS)}
    tokens = [waiting, made.sync(leader, 1, assignments)]
    assert [error(made, token) for token in tokens] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2


def test_refused_group_is_not_made() -> None:
    made = machine()
    for n in range(600):
        made.join(group=f"g{n}", protocols=LARGE)
    assert "g599" not in made.shard.groups


def test_member_that_needs_no_more_than_before_joins_again_above_the_bound() -> None:
    made = machine()
    made.join(group="old", protocols=LARGE)
    made.advance(5_000)
    member_id = next(iter(made.shard.groups["old"].members))
    made.sync(member_id, 1, {member_id: b"a"}, group="old")
    for n in range(600):
        made.join(group=f"g{n}", protocols=LARGE)
    again = made.join(member_id, group="old", protocols=LARGE)
    assert error(made, again) is ErrorCode.NONE
    larger = made.join(member_id, group="old", protocols=(("range", bytes(2 * MIB)),))
    assert error(made, larger) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_flood_of_ids_that_are_never_used_is_bounded() -> None:
    made = machine(max_session_timeout_ms=1_800_000)
    for n in range(40_000):
        made.join(group=f"{'g' * 400}{n}", session_ms=1_800_000, require_member_id=True)
    assert made.shard.memory.members <= LIMIT
    assert len(made.shard.groups) < 40_000
    made.advance(1_800_001)
    assert error(made, made.join(group="honest", protocols=LARGE)) is None


def test_new_member_that_was_never_told_its_id_goes_with_its_connection() -> None:
    made = machine()
    before = made.shard.memory.members
    token = made.join(protocols=LARGE)
    made.abandon(token)
    assert not made.shard.groups["group"].members
    assert made.shard.memory.members - before < 10_000
    assert not [key for key in made.timers if key[0] == "member_due"]


def test_member_that_knows_its_id_has_its_session_timeout_to_come_back() -> None:
    made = machine(initial_rebalance_delay_ms=600_000)
    given = made.answers[made.join(require_member_id=True, rebalance_ms=900_000)].member_id
    token = made.join(given, protocols=LARGE, rebalance_ms=900_000)
    made.abandon(token, knows_its_id=True)
    made.advance(SESSION_MS - 1)
    assert given in made.shard.groups["group"].members
    made.advance(1)
    assert given not in made.shard.groups["group"].members


def test_member_that_comes_back_in_time_stays() -> None:
    made = machine(initial_rebalance_delay_ms=600_000)
    given = made.answers[made.join(require_member_id=True, rebalance_ms=900_000)].member_id
    token = made.join(given, rebalance_ms=900_000)
    made.abandon(token, knows_its_id=True)
    made.advance(SESSION_MS - 1)
    made.join(given, rebalance_ms=900_000)
    made.advance(2 * SESSION_MS)
    assert given in made.shard.groups["group"].members


def test_offsets_are_bounded_and_what_is_there_can_be_committed_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    made = GroupMachine(offsets_max_bytes=MIB)
    tokens = [
        made.commit_offsets({("t", n): 1 for n in range(100)}, group=f"g{g}", metadata="m" * 1000)
        for g in range(100)
    ]

    def errors(token: int) -> set[int]:
        return {row.error_code for topic in made.answers[token].topics for row in topic.partitions}

    assert errors(tokens[0]) == {0}
    assert errors(tokens[-1]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert made.shard.memory.offsets <= MIB
    assert "kwire.group.offsets.max.bytes" in caplog.text
    again = made.commit_offsets({("t", n): 2 for n in range(100)}, group="g0", metadata="n" * 1000)
    assert errors(again) == {0}
    longer = made.commit_offsets({("t", 0): 3}, group="g0", metadata="n" * 4000)
    assert errors(longer) <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_offsets_in_the_log_are_loaded_whatever_they_need() -> None:
    made = GroupMachine(offsets_max_bytes=MIB)
    for n in range(900):
        made.commit_offsets({("t", n): 1}, metadata="m" * 500)
    count = len(made.shard.groups["group"].offsets.committed)
    made.config = made.shard.config = type(made.config)(offsets_max_bytes=1)
    made.restart()
    assert len(made.shard.groups["group"].offsets.committed) == count


def test_large_answer_to_the_leader_is_bounded_by_the_group() -> None:
    made = machine()
    tokens = [made.join(protocols=LARGE) for _ in range(20)]
    made.advance(600_000)
    sizes = [
        sum(len(member.metadata) for member in made.answers[token].members) for token in tokens
    ]
    assert 0 < max(sizes) <= LIMIT // GROUP_PARTS
