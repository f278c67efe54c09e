"""Describing, listing and removing groups, and loading them from the log."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from kwire.messages.internal.group_metadata import GroupMetadataValue, MemberMetadata
from server.config import BrokerConfig
from server.coordinator.common.partitioner import java_string_hash, partition_for
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.listing import describe_group, list_group
from server.coordinator.group.records import GroupRecord
from server.coordinator.group.state import GroupState, read_subscription
from server.coordinator.group.stored import decode_record, encode_record
from server.metadata.topic_partition import TopicPartition
from tests.coordinator.machine import GROUP, SESSION_MS, GroupMachine
from tests.coordinator.test_offsets import subscription

TOPIC = ("topic", 0)


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine()


# Describe and list


def test_stable_group_is_described_with_metadata_and_assignment(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDescribeGroupStable."""
    (member,) = machine.stable()
    described = describe_group(GROUP, machine.group(), 5)
    assert (
        described.group_state,
        described.protocol_type,
        described.protocol_data,
    ) == ("Stable", "consumer", "range")
    (row,) = described.members
    assert (member, "client", "/127.0.0.1", b"range-metadata", b"0") == (
        row.member_id,
        row.client_id,
        row.client_host,
        row.member_metadata,
        row.member_assignment,
    )


def test_rebalancing_group_is_described_without_metadata(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDescribeGroupRebalancing."""
    machine.form()
    described = describe_group(GROUP, machine.group(), 5)
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert [(m.member_metadata, m.member_assignment) for m in described.members] == [(b"", b"")]


@pytest.mark.parametrize(("last", "shown"), [(False, b""), (True, b"0")], ids=["3.9", "4.3"])
def test_last_assignments_are_shown_while_a_group_rebalances_by_4(
    machine: GroupMachine, last: bool, shown: bytes
) -> None:
    """GroupMetadataManager.describeGroups, ClassicGroupMember.describeNoMetadata."""
    machine.stable()
    machine.join()
    assert machine.state is GroupState.PREPARING_REBALANCE
    described = describe_group(GROUP, machine.group(), 5, last_assignments=last)
    first = described.members[0]
    assert (first.member_metadata, first.member_assignment) == (b"", shown)


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_unknown_group_is_dead(version: int, error: ErrorCode) -> None:
    """GroupCoordinatorTest.testDescribeGroupInactiveGroup, KIP-1043."""
    described = describe_group("other", None, version)
    assert ("Dead", error) == (described.group_state, described.error_code)


def test_group_is_listed_with_state_and_type(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testListGroupsIncludesStableGroups."""
    machine.stable()
    row = list_group(machine.group())
    assert (
        row.group_id,
        row.protocol_type,
        row.group_state,
        row.group_type,
    ) == (GROUP, "consumer", "Stable", "classic")


# Delete


def test_unknown_group_cannot_be_deleted(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteGroupWithUnknownGroup."""
    assert machine.answers[machine.delete_group()] == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_members_cannot_be_deleted(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteNonEmptyGroup."""
    machine.stable()
    assert machine.answers[machine.delete_group()] == ErrorCode.NON_EMPTY_GROUP


def test_empty_group_is_deleted_with_its_offsets(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteEmptyGroup, testDeleteEmptyGroupWithStoredOffsets."""
    (member,) = machine.stable()
    machine.commit_offsets({TOPIC: 1}, member, 1)
    machine.leave(member)
    assert machine.answers[machine.delete_group()] == ErrorCode.NONE
    assert machine.shard.groups == {}
    assert machine.reload().groups == {}


def gone(machine: GroupMachine, *tps: tuple[str, int]) -> None:
    """Inform the coordinator of deleted partitions."""
    deleted = [TopicPartition(*tp) for tp in tps]
    machine.apply(machine.shard.remove_partitions(GROUP, deleted, machine.now))


def test_any_deleted_topic_takes_a_group_without_members_or_offsets_along(
    machine: GroupMachine,
) -> None:
    """GroupMetadataManager.cleanupGroupMetadata checks every group."""
    (member_id,) = machine.stable()
    gone(machine, ("other", 0))
    assert machine.state is GroupState.STABLE
    machine.leave(member_id)
    gone(machine, ("other", 0))
    assert GROUP not in machine.shard.groups
    assert machine.reload().groups == {}


def test_deleted_topic_leaves_an_empty_group_with_other_offsets(machine: GroupMachine) -> None:
    machine.commit_offsets({("topic", 0): 1})
    gone(machine, ("other", 0))
    assert machine.state is GroupState.EMPTY


def test_deleted_topic_takes_a_group_that_was_only_asked_for_a_member_id_along(
    machine: GroupMachine,
) -> None:
    token = machine.join(require_member_id=True)
    member_id = machine.answers[token].member_id
    gone(machine, ("other", 0))
    assert GROUP not in machine.shard.groups
    assert machine.error(machine.join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offset_delete_that_can_delete_nothing_leaves_an_unused_group(
    machine: GroupMachine,
) -> None:
    machine.join(require_member_id=True)
    assert machine.error(machine.delete_offsets()) == ErrorCode.NONE
    assert machine.state is GroupState.EMPTY
    assert machine.error(machine.delete_offsets(("topic", 0))) == ErrorCode.NONE
    assert GROUP not in machine.shard.groups


@pytest.mark.parametrize("generation", [-1, 1], ids=["simple", "of members"])
def test_group_without_its_last_offset_stays_until_the_next_check_as_by_4(generation: int) -> None:
    """OffsetMetadataManager.deleteOffsets, GroupCoordinatorShard.cleanupGroupMetadata."""
    machine = GroupMachine(keeps_unused=True)
    if generation > 0:
        (member,) = machine.stable()
        machine.commit_offsets({TOPIC: 1}, member, generation)
        machine.leave(member)
    else:
        machine.commit_offsets({TOPIC: 1})
    assert machine.error(machine.delete_offsets(("topic", 0))) == ErrorCode.NONE
    assert machine.fetch("topic", 0).offset == -1
    gone(machine, ("other", 0))
    assert machine.state is GroupState.EMPTY
    machine.advance(machine.config.offsets_retention_check_interval_ms)
    assert machine.shard.groups == {}
    assert machine.reload().groups == {}


def test_group_of_a_deleted_topic_stays_until_the_next_check_as_by_4() -> None:
    """OffsetMetadataManager.onPartitionsDeleted."""
    machine = GroupMachine(keeps_unused=True)
    machine.commit_offsets({TOPIC: 1})
    gone(machine, ("topic", 0))
    assert machine.fetch("topic", 0).offset == -1
    assert machine.state is GroupState.EMPTY
    machine.advance(machine.config.offsets_retention_check_interval_ms)
    assert machine.shard.groups == {}


def test_deleted_group_is_answered_when_the_tombstones_are_committed(machine: GroupMachine) -> None:
    machine.commit_offsets({TOPIC: 1})
    machine.hold = True
    token = machine.delete_group()
    assert token not in machine.answers
    assert machine.fetch("topic", 0).offset == -1
    assert machine.answers[machine.delete_group()] == ErrorCode.GROUP_ID_NOT_FOUND
    machine.commit()
    assert machine.answers[token] == ErrorCode.NONE


def test_group_whose_tombstones_fail_comes_back(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.commit_offsets({TOPIC: 1}, member, 1)
    machine.leave(member)
    machine.hold = True
    token = machine.delete_group()
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.answers[token] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (machine.state, machine.group().generation_id) == (GroupState.EMPTY, 2)
    assert machine.fetch("topic", 0).offset == 1


def test_commit_on_its_way_is_deleted_with_the_group(machine: GroupMachine) -> None:
    machine.hold = True
    machine.commit_offsets({TOPIC: 1})
    machine.delete_group()
    machine.commit()
    machine.commit()
    assert machine.shard.groups == {}
    assert machine.reload().groups == {}


def test_deleted_group_with_an_open_transaction_keeps_its_offsets_for_it(
    machine: GroupMachine,
) -> None:
    machine.commit_offsets({TOPIC: 1})
    machine.commit_in_transaction(9, {TOPIC: 2})
    machine.delete_group()
    assert machine.fetch("topic", 0).offset == -1
    machine.end_transaction(9, committed=True)
    assert machine.fetch("topic", 0).offset == 2
    assert machine.reload().fetch_offsets(GROUP, None, False) == machine.shard.fetch_offsets(
        GROUP, None, False
    )


def test_group_that_was_never_stored_is_deleted_at_once(machine: GroupMachine) -> None:
    machine.join(require_member_id=True)
    machine.hold = True
    assert machine.answers[machine.delete_group()] == ErrorCode.NONE
    assert machine.shard.groups == {}


# Loading


def test_stable_group_goes_on_after_a_restart(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testLoadOffsetsWithGroup."""
    leader, follower = machine.stable(2)
    machine.commit_offsets({TOPIC: 5}, follower, 1)
    machine.restart()
    assert GroupState.STABLE is machine.state
    assert [machine.heartbeat(m) for m in (leader, follower)] == [ErrorCode.NONE, ErrorCode.NONE]
    assert machine.answers[machine.sync(follower)].assignment == b"1"
    assert machine.fetch("topic", 0).offset == 5
    assert leader == machine.group().leader_id


def test_members_of_a_loaded_group_have_a_session_from_then_on(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.restart()
    machine.advance(SESSION_MS - 1)
    assert member in machine.group().members
    machine.advance(1)
    assert GroupState.EMPTY is machine.state


def test_static_members_are_known_after_a_restart(machine: GroupMachine) -> None:
    machine.stable_static("a", "b")
    machine.restart()
    answer = machine.answers[machine.join(instance="b")]
    assert (answer.error_code, answer.generation_id) == (0, 1)


def test_generation_goes_on_where_it_was(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.leave(member)
    machine.restart()
    assert machine.group().generation_id == 2
    (member,) = machine.form()
    assert machine.group().generation_id == 3


def test_subscribed_topics_are_known_after_a_restart(machine: GroupMachine) -> None:
    (member,) = machine.stable(protocols=[("range", subscription("read"))])
    machine.commit_offsets({("read", 0): 1}, member, 1)
    machine.restart()
    assert frozenset({"read"}) == machine.group().subscribed_topics


def test_unload_refuses_whoever_waits(machine: GroupMachine) -> None:
    """GroupCoordinatorTest / onGroupUnloaded."""
    first, second = machine.stable(2)
    join = machine.join(first)
    machine.join(group="other")
    tokens = [machine.last_token]
    for result in machine.shard.unload(machine.now):
        machine.apply(result)
    assert {ErrorCode.NOT_COORDINATOR} == {machine.error(t) for t in (join, *tokens)}
    assert machine.shard.groups == {}
    assert machine.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID


def test_unload_refuses_waiting_syncs(machine: GroupMachine) -> None:
    _, follower = machine.form(2)
    token = machine.sync(follower)
    for result in machine.shard.unload(machine.now):
        machine.apply(result)
    assert machine.error(token) == ErrorCode.NOT_COORDINATOR


def test_clock_that_is_set_moves_all_deadlines(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.clock.advance(3_600_000)
    machine.shard.shift_time(3_600_000)
    for key, timer in machine.timers.items():
        machine.timers[key] = timer._replace(at_ms=timer.at_ms + 3_600_000)
    machine.advance(SESSION_MS - 1)
    assert machine.heartbeat(member) == ErrorCode.NONE


# Formats


@pytest.mark.parametrize("version", range(5))
def test_group_value_of_every_version_is_read(machine: GroupMachine, version: int) -> None:
    """GroupMetadataManagerTest.testReadFromOldGroupMetadata."""
    from kwire.codec import encode

    message = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=5 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m",
                group_instance_id="i" if version >= 3 else None,
                client_id="c",
                client_host="/h",
                rebalance_timeout=60_000 if version >= 1 else -1,
                session_timeout=10_000,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )
    value = version.to_bytes(2, "big") + encode(message, version)
    machine.shard.replay(GroupRecord(GROUP, value), 1)
    machine.apply(machine.shard.loaded(machine.now))
    group = machine.group()
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, 7, "m")
    assert (5 if version >= 2 else -1) == group.state_timestamp_ms
    member = group.members["m"]
    assert member.assignment == b"a"
    assert member.metadata("range") == b"s"
    assert (60_000 if version >= 1 else 10_000) == member.rebalance_timeout_ms


def test_group_key_and_value_are_those_of_apache_kafka(machine: GroupMachine) -> None:
    """Key version 2 and value version 3, byte by byte."""
    (member,) = machine.stable()
    key, value = encode_record(GroupRecord(GROUP, machine.group().persisted))
    assert key == b"\0\2\0\5group"
    assert value is not None
    assert value.startswith(b"\0\3\0\x08consumer\0\0\0\1\0\5range\0\x08" + member.encode())


def test_keys_of_other_protocols_are_passed_over() -> None:
    assert decode_record(b"\0\x11\0\5group", b"\0\0") is None
    assert decode_record(b"\xff\xff", b"\0\0") is None


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0\0\0\0\1",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_damaged_subscription_is_unknown(metadata: bytes) -> None:
    assert read_subscription(metadata) is None


def test_subscription_of_later_versions_is_read_as_far_as_known() -> None:
    assert read_subscription(b"\0\3" + subscription("a", "b")[2:] + b"more") == ["a", "b"]


# Partitioning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("🎈", 1773260),
        ("group-with-ümlaut", None),
    ],
)
def test_hash_is_javas(text: str, expected: int | None) -> None:
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = value * 31 + (high << 8 | low)
    value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    assert value == java_string_hash(text)
    if expected is not None:
        assert expected == value


def test_smallest_hash_belongs_to_partition_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22


def test_settings_left_alone_are_those_of_apache_kafka() -> None:
    assert GroupConfig.of(BrokerConfig()) == GroupConfig()


def test_settings_are_read_by_apache_kafkas_names() -> None:
    static = {
        "group.min.session.timeout.ms": "1",
        "group.max.session.timeout.ms": "2",
        "group.max.size": "3",
        "group.initial.rebalance.delay.ms": "4",
        "offset.metadata.max.bytes": "5",
        "offsets.retention.minutes": "6",
        "offsets.retention.check.interval.ms": "7",
        "offsets.commit.timeout.ms": "8",
        "offsets.topic.num.partitions": "9",
    }
    assert GroupConfig.of(BrokerConfig(static)) == GroupConfig(1, 2, 3, 4, 5, 360_000, 7, 8, 9)
