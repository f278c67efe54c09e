"""The share partitions that get, have and lose a state.

The scenarios of GroupMetadataManagerTest and GroupCoordinatorServiceTest (Apache Kafka 4.3) that the comments name; the
requests to the persister are in tests/handlers/test_share_groups.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from server.coordinator.group.share.heartbeat import MAX_PARTITIONS
from server.coordinator.group.share.machine import Alteration
from server.coordinator.group.share.records import NamedPartitions, StatePartitions
from server.coordinator.group.share_requests import asked_starts
from server.coordinator.share_state.rows import StateOutcome
from server.metadata.image import MetadataImage
from server.turns import exhaust
from tests.coordinator.consumer_group.group_machine import topic, topic_id
from tests.coordinator.machine import GROUP
from tests.coordinator.share_group.group_machine import RETRY_MS, ShareMachine, name
from tests.support.cpu_time import CpuTime, cpu_time

FOO, BAR = topic_id("foo"), topic_id("bar")
SIX, THREE = frozenset(range(6)), frozenset(range(3))
#: No turn of the loop takes longer; the longest, that of the member's first heartbeat, was measured at 0.02 s.
TURN_S = 0.05


@pytest.fixture
def machine() -> ShareMachine:
    return ShareMachine()


def states(machine: ShareMachine) -> StatePartitions:
    found = machine.share.states
    assert found is not None
    return found


def begin_deletion(machine: ShareMachine, *names: str) -> Any:
    token = machine.token()
    if names:
        out = machine.shard.share.begin_deleting_offsets(GROUP, names, token, machine.now)
    else:
        out = machine.shard.share.begin_deleting_group(GROUP, token, machine.now)
    machine.apply(out)
    return machine.answers[token]


def end_deletion(machine: ShareMachine, *topic_ids: bytes) -> None:
    token = machine.token()
    machine.apply(machine.shard.share.offsets_deleted(GROUP, topic_ids, token, machine.now))
    assert machine.answers[token] is ErrorCode.NONE


def alter(machine: ShareMachine, **topics: list[int]) -> tuple[Alteration, Any, dict[Any, int]]:
    """Alter the group's start offsets: whether that is allowed, the answer, and the requests to share coordinators."""
    token = machine.token()
    request = AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=each,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=9)
                    for number in numbers
                ],
            )
            for each, numbers in topics.items()
        ],
    )
    response, named, starts = exhaust(asked_starts(request, machine.image))
    machine.apply(
        machine.shard.share.alter_offsets(GROUP, named, machine.account, token, machine.now)
    )
    return machine.answers[token], response, starts


def with_states(machine: ShareMachine, *names: str) -> None:
    """Let a member that reads the topics join and leave."""
    machine.share_beat("a", 0, *names)
    machine.settle("a")
    machine.share_beat("a", -1)


def rows(of: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in of:
        found.setdefault(name(row.topic_id), []).append(row.partition)
    return found


# testShareGroupHeartbeatPersisterRequestWithInitializing, testShareGroupInitializeSuccess


def test_states_that_were_asked_for_lately_are_not_asked_for_again(machine: ShareMachine) -> None:
    machine.hold_effects = True
    machine.share_beat("a", 0, "foo")
    assert states(machine) == StatePartitions({FOO: NamedPartitions("foo", SIX)}, {}, {})
    machine.advance(RETRY_MS - 1)
    machine.share_beat("a", 2)
    assert len(machine.effects) == 1
    machine.share_beat("b", 0, "bar")
    assert len(machine.effects) == 2
    assert states(machine).initializing == {
        FOO: NamedPartitions("foo", SIX),
        BAR: NamedPartitions("bar", THREE),
    }
    machine.advance(RETRY_MS - 1)
    machine.share_beat("a", 2)
    assert len(machine.effects) == 2
    machine.advance(1)
    machine.share_beat("a", 2)
    assert {name(row.topic_id) for row in machine.effects[2].rows} == {"foo", "bar"}
    machine.work(machine.effects.pop(0))
    assert states(machine).initialized == {FOO: NamedPartitions("foo", SIX)}
    assert states(machine).initializing == {BAR: NamedPartitions("bar", THREE)}


# testShareGroupInitializeEmptyMap


def test_answers_without_rows_or_for_a_group_that_is_gone_change_nothing(
    machine: ShareMachine,
) -> None:
    machine.apply(machine.shard.share.states_made(GROUP, [], machine.now))
    row = StateOutcome(FOO, 0)
    machine.apply(machine.shard.share.states_made(GROUP, [row], machine.now))
    assert (machine.log, machine.shard.groups) == ([], {})


def test_states_that_were_refused_are_asked_for_with_the_next_heartbeat(
    machine: ShareMachine,
) -> None:
    machine.state_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.share_beat("a", 0, "foo")
    assert states(machine) == StatePartitions()
    machine.state_error = ErrorCode.NONE
    machine.share_beat("a", 2)
    assert len(machine.asked) == 2
    assert states(machine).initialized == {FOO: NamedPartitions("foo", SIX)}


# testShareGroupDeleteRequestNoDeletingTopics


def test_states_of_a_group_go_before_the_group(machine: ShareMachine) -> None:
    with_states(machine, "foo", "bar")
    deletion = begin_deletion(machine)
    assert (deletion.error, rows(deletion.rows)) == (
        ErrorCode.NONE,
        {"foo": [0, 1, 2, 3, 4, 5], "bar": [0, 1, 2]},
    )
    assert states(machine) == StatePartitions({}, {}, {FOO: "foo", BAR: "bar"})
    # testShareGroupDeleteRequestWithAlreadyDeletingTopics: a second attempt makes the same requests
    assert rows(begin_deletion(machine).rows) == rows(deletion.rows)


# testShareGroupDeleteRequestWithAlreadyDeletingTopicsButNotInMetadata, ...ButMetadataIsEmpty


def test_states_of_topics_that_are_gone_are_not_deleted_again(machine: ShareMachine) -> None:
    with_states(machine, "foo", "bar")
    begin_deletion(machine)
    machine.image = MetadataImage().with_topics([topic("bar", 3)])
    assert rows(begin_deletion(machine).rows) == {"bar": [0, 1, 2]}
    assert states(machine).deleting == {BAR: "bar"}
    machine.image = MetadataImage()
    assert begin_deletion(machine).rows == ()
    assert states(machine) == StatePartitions()


# testSharePartitionDeleteRequestsNonEmptyShareGroup, testInitiateDeleteShareGroupOffsetsGroupNotFound, -NonEmpty...


def test_states_of_a_group_with_members_stay(machine: ShareMachine) -> None:
    assert begin_deletion(machine).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert begin_deletion(machine, "foo").message == f"Group {GROUP} not found."
    machine.share_beat("a", 0, "foo")
    since = len(machine.log)
    assert begin_deletion(machine).error is ErrorCode.NON_EMPTY_GROUP
    assert begin_deletion(machine, "foo").error is ErrorCode.NON_EMPTY_GROUP
    assert alter(machine, foo=[0])[0].error == ErrorCode.NON_EMPTY_GROUP
    assert len(machine.log) == since


# testSharePartitionsEligibleForOffsetDeletionSuccess, -ContainsDeletingTopics, -ErrorTopics, -UninitializedTopics,
# -UninitializedAndErrorTopics, testCompleteDeleteShareGroupOffsets, -EmptyResult


def test_states_of_topics_are_deleted(machine: ShareMachine) -> None:
    with_states(machine, "foo")
    deletion = begin_deletion(machine, "foo", "bar", "unknown")
    assert rows(deletion.rows) == {"foo": [0, 1, 2, 3, 4, 5]}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deletion.refused == (
        ("bar", unknown, "There is no offset information to delete."),
        ("unknown", unknown, None),
    )
    assert states(machine) == StatePartitions({}, {}, {FOO: "foo"})
    assert rows(begin_deletion(machine, "foo").rows) == rows(deletion.rows)
    end_deletion(machine, FOO)
    assert states(machine) == StatePartitions()
    assert begin_deletion(machine, "foo").rows == ()


def test_group_that_never_had_states_has_none_to_delete(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "unknown")
    machine.share_beat("a", -1)
    since = len(machine.log)
    assert begin_deletion(machine, "foo").refused == ()
    assert begin_deletion(machine).rows == ()
    end_deletion(machine, FOO)
    assert len(machine.log) == since


# testShareGroupInitializingClearsCommonDeleting


def test_topic_that_is_read_again_is_not_deleted_any_more(machine: ShareMachine) -> None:
    with_states(machine, "foo")
    begin_deletion(machine, "foo")
    machine.hold_effects = True
    machine.share_beat("a", 0, "foo")
    assert states(machine) == StatePartitions({FOO: NamedPartitions("foo", SIX)}, {}, {})


def test_altered_offsets_begin_in_the_epoch_of_the_group(machine: ShareMachine) -> None:
    alteration, response, starts = alter(machine, foo=[1, 7, -1], unknown=[0])
    assert (alteration.state_epoch, starts) == (1, {(FOO, 1): 9})
    found = {
        (each.topic_name, row.partition_index): row.error_code
        for each in response.responses
        for row in each.partitions
    }
    assert found == {("foo", 1): 0, ("foo", 7): 3, ("foo", -1): 3, ("unknown", 0): 3}
    assert states(machine).initializing == {FOO: NamedPartitions("foo", frozenset({1}))}
    assert machine.share.is_empty


def test_alteration_of_unknown_topics_makes_no_group(machine: ShareMachine) -> None:
    assert alter(machine, unknown=[0])[2] == {}
    assert machine.shard.groups == {}


# testMaybeCleanupShareGroupStateEmptyTopicIds, testMaybeCleanupShareGroupStateInitDeletedTopicsPresent


def test_deleted_topics_are_forgotten_in_all_tables(machine: ShareMachine) -> None:
    with_states(machine, "foo", "bar")
    begin_deletion(machine, "bar")
    since = len(machine.log)
    machine.apply(machine.shard.share.topics_deleted(GROUP, {topic_id("other")}, machine.now))
    assert len(machine.log) == since
    machine.apply(machine.shard.share.topics_deleted(GROUP, {FOO}, machine.now))
    assert states(machine) == StatePartitions({}, {}, {BAR: "bar"})
    machine.apply(machine.shard.share.topics_deleted(GROUP, {BAR}, machine.now))
    assert states(machine) == StatePartitions()


def test_deleted_topic_is_not_counted_among_the_others(machine: ShareMachine) -> None:
    machine.share_beat("a", 0, "foo", "bar")
    machine.settle("a")
    machine.image = machine.image.without_topics(["foo"])
    machine.apply(machine.shard.share.topics_deleted(GROUP, {FOO}, machine.now))
    machine.settle("a")
    assert machine.has("a") == {"bar": [0, 1, 2]}


# Cost


def take_partitions(count: int, taken: CpuTime) -> None:
    """Give a member this many partitions, and time each turn."""
    machine = ShareMachine()
    machine.image = MetadataImage().with_topics([topic("large", count)])
    machine.hold_effects = True

    with taken.piece():
        machine.share_beat("a", 0, "large")
    (effect,) = machine.effects
    machine.effects.clear()
    made = [StateOutcome(row.topic_id, row.partition) for row in effect.rows]
    with taken.piece():
        machine.apply(machine.shard.share.states_made(GROUP, made, machine.now))
    for _ in range(2):
        with taken.piece():
            machine.share_beat("a", 2)
    (target,) = machine.effects
    machine.effects.clear()
    found: Any = None
    while found is None:
        with taken.piece():
            try:
                next(target.steps)
            except StopIteration as end:
                found = end.value
    with taken.piece():
        machine.apply(machine.shard.target_assigned(target, found, machine.now))
    with taken.piece():
        machine.share_beat("a", 2)
    assert machine.has("a") == {"large": list(range(count))}


def test_group_with_as_many_partitions_as_possible_takes_no_long_turn() -> None:
    take_partitions(MAX_PARTITIONS, CpuTime())  # does work that is needed once in a process
    with cpu_time() as taken:
        take_partitions(MAX_PARTITIONS, taken)
    assert taken.longest_s < TURN_S
