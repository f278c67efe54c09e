"""Records of consumer groups as bytes, and the groups that their replay creates."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.codec import encode
from kwire.messages.internal import consumer_group as stored
from server.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerGroupState,
    ResolvedRegex,
    Subscribers,
)
from server.coordinator.group.consumer.member import ClassicMember, ConsumerGroupMember
from server.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    encode_consumer_group_record,
)
from server.coordinator.group.consumer.replay import replay
from server.coordinator.group.memory import GroupMemory
from server.coordinator.group.modern.members import MemberState
from server.coordinator.group.stored import decode_record

A, B = b"A" * 16, b"B" * 16

SAID = ConsumerGroupMember(
    "m",
    instance_id="i",
    rack_id="r",
    rebalance_timeout_ms=300_000,
    client_id="c",
    client_host="/127.0.0.1",
    subscribed_topic_names=frozenset({"t", "s"}),
    subscribed_topic_regex="u.*",
    server_assignor="range",
    classic=ClassicMember(45_000, (("range", b"bytes"),)),
)
HAS = ConsumerGroupMember(
    "m", 7, 6, MemberState.UNREVOKED_PARTITIONS, assigned={A: {0: 5, 1: 7}}, revoking={B: {2: 5}}
)

ALL: list[ConsumerGroupRecord] = [
    EpochRecord("g", (7, -3)),
    PartitionMetadataRecord("g", b"\0\0\1\0"),
    MemberRecord("g", "m", SAID),
    TargetEpochRecord("g", (7, 1_700_000_000_000)),
    TargetRecord("g", "m", {A: frozenset({0, 1})}),
    CurrentRecord("g", "m", HAS),
    RegexRecord("g", "u.*", ResolvedRegex(frozenset({"u1", "u2"}), 9, 1_700_000_000_000)),
]


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: Any) -> None:
    key, value = encode_consumer_group_record(record)
    assert decode_record(key, value) == record
    tombstone = record._replace(value=None)
    assert encode_consumer_group_record(tombstone) == (key, None)
    assert decode_record(key, None) == tombstone


def test_partitions_without_epochs_have_that_of_their_member() -> None:
    """Releases before KIP-1251 wrote none; one of a static member that has left is -2."""
    key, _ = encode_consumer_group_record(CurrentRecord("g", "m", HAS))
    for epoch, expected in ((7, 7), (-2, 0)):
        rows_of: tuple[list[int] | None, ...] = ([], None)
        for written in rows_of:
            rows = [
                stored.TopicPartitions(topic_id=A, partitions=[1, 2], assignment_epochs=written)
            ]
            value = stored.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch, assigned_partitions=rows
            )
            record = decode_record(key, b"\0\0" + encode(value, 0))
            assert isinstance(record, CurrentRecord) and record.value is not None
            assert record.value.assigned == {A: {1: expected, 2: expected}}


def test_an_absent_list_of_epochs_is_not_written_and_null_is() -> None:
    """It is tagged and nullable, and null is not its default."""
    both: tuple[list[int] | None, ...] = ([], None)
    absent, null = (
        encode(
            stored.ConsumerGroupCurrentMemberAssignmentValue(
                assigned_partitions=[
                    stored.TopicPartitions(topic_id=A, partitions=[1], assignment_epochs=epochs)
                ]
            ),
            0,
        )
        for epochs in both
    )
    assert len(null) == len(absent) + 3  # tag, size, and the null itself


def group_of(*records: ConsumerGroupRecord) -> ConsumerGroup:
    group = ConsumerGroup("g", GroupMemory())
    for record in records:
        replay(group, decode_record(*encode_consumer_group_record(record)))
    return group


def test_a_member_of_the_consumer_protocol_is_stored_as_by_apache_kafka() -> None:
    """Its classic part is null, which is written: without it, Apache Kafka takes the member for a classic one."""
    member = ConsumerGroupMember(
        "n0",
        rebalance_timeout_ms=300_000,
        client_id="differential",
        client_host="/127.0.0.1",
        subscribed_topic_names=frozenset({"t0", "t1"}),
    )
    stored = bytes.fromhex(
        "0000 00 00 0d646966666572656e7469616c 0b2f3132372e302e302e31 03037430037431 01 000493e0 00 01000100"
    )
    key, value = encode_consumer_group_record(MemberRecord("group", "n0", member))
    assert value == stored
    assert decode_record(key, stored) == MemberRecord("group", "n0", member)


def test_replay_builds_a_group_and_what_is_derived_from_it() -> None:
    group = group_of(*ALL)
    (member,) = group.members.values()
    assert (member.member_epoch, member.client_id, member.assigned) == (7, "c", {A: {0: 5, 1: 7}})
    assert (group.group_epoch, group.metadata_hash, group.assignment_epoch) == (7, -3, 7)
    assert group.static_members == {"i": "m"}
    assert group.topics == {
        "t": Subscribers(1, 0),
        "s": Subscribers(1, 0),
        "u1": Subscribers(0, 1),
        "u2": Subscribers(0, 1),
    }
    assert group.partition_epochs == {A: {0: 7, 1: 7}, B: {2: 7}}
    assert group.owners == {A: {0: "m", 1: "m"}}
    assert group.state is ConsumerGroupState.RECONCILING
    assert group.classic_protocols == {"range": 1}
    assert group.has_partition_metadata


def test_tombstones_leave_an_empty_group_that_holds_nothing() -> None:
    """GroupMetadataManagerTest.testReplayConsumerGroup...Tombstone."""
    group = group_of(
        *ALL,
        CurrentRecord("g", "m", None),
        TargetRecord("g", "m", None),
        MemberRecord("g", "m", None),
        RegexRecord("g", "u.*", None),
        PartitionMetadataRecord("g", None),
    )
    fresh = ConsumerGroup("g", GroupMemory())
    assert group.state is ConsumerGroupState.EMPTY
    assert not group.topics and not group.owners and not group.partition_epochs
    assert not group.static_members and not group.assignors and not group.regexes
    assert (group.classic_members, group.held_bytes) == (0, fresh.held_bytes)
    group.forget()
    assert group.memory.members == 0


def test_a_partition_goes_to_its_next_owner_whichever_record_comes_first() -> None:
    """ConsumerGroupTest.testUpdateInvertedAssignment, testWaitingOnUnreleasedPartition."""
    first, then = frozenset({0}), frozenset({1})
    group = group_of(TargetRecord("g", "a", {A: first}), TargetRecord("g", "b", {A: first}))
    replay(group, TargetRecord("g", "a", {A: then}))
    assert group.owners == {A: {0: "b", 1: "a"}}


def test_a_target_without_an_epoch_is_made_anew() -> None:
    """GroupMetadataManagerTest.testReplayConsumerGroupTargetAssignmentMetadataTombstoneExisting."""
    group = group_of(*ALL, TargetEpochRecord("g", None))
    assert (group.group_epoch, group.assignment_epoch) == (7, -1)
    assert group.assignment_timestamp_ms == 0
    assert group.state is ConsumerGroupState.ASSIGNING
