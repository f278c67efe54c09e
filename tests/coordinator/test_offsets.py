"""Offsets: commit, fetch, delete, expiry. Cases derived from Kafka's tests name them."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.records import OffsetRecord
from server.coordinator.group.state import GroupState
from server.coordinator.group.stored import decode_record, encode_record
from server.metadata.topic_partition import TopicPartition
from tests.coordinator.machine import GROUP, RANGE, GroupMachine

TOPIC = ("topic", 0)
DAY_MS = 24 * 60 * 60_000
NONE = ErrorCode.NONE


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine()


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    names = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("key", "value", "topic_id"),
    [
        (
            "0001000267390002743100000000",
            "000400000000000000010000000301000001a2086b60c6010010bd93229ba4f44f19b5a6a8a503ac72f3",
            bytes.fromhex("bd93229ba4f44f19b5a6a8a503ac72f3"),
        ),
        (
            "0001000267740002743100000000",
            "000400000000000000010000000301000001a2086c332e00",
            bytes(16),
        ),
        (
            "0001000267390002743100000001",
            "000100000000000000010000000001a2086b60ca000001a2087aa30a",
            None,
        ),
    ],
    ids=["plain", "in a transaction", "with a retention of its own"],
)
def test_records_of_apache_kafka_4_are_read_and_written(
    key: str, value: str, topic_id: bytes | None
) -> None:
    """Recorded from 4.3.0: OffsetCommit 9, TxnOffsetCommit 3, OffsetCommit 2 with a retention time."""
    record = decode_record(bytes.fromhex(key), bytes.fromhex(value))
    assert isinstance(record, OffsetRecord) and record.value is not None
    assert (record.tp.topic, record.value.offset, record.value.topic_id) == ("t1", 1, topic_id)
    written = encode_record(record)
    assert (written[0].hex(), (written[1] or b"").hex()) == (key, value)


# Permission to commit


def test_simple_consumer_commits_without_joining(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitOffsetWithDefaultGeneration."""
    token = machine.commit_offsets({TOPIC: 42}, metadata="note")
    assert machine.row_errors(token) == [NONE]
    assert machine.fetch("topic", 0)[1:5] == (42, 5, "note", NONE)
    assert GroupState.EMPTY is machine.state
    assert machine.group().protocol_type is None


def test_commit_of_a_generation_in_an_unknown_group_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitOffsetFromUnknownGroup."""
    token = machine.commit_offsets({TOPIC: 1}, "somebody", 1)
    assert machine.row_errors(token) == [ErrorCode.ILLEGAL_GENERATION]
    assert machine.shard.groups == {}


@pytest.mark.parametrize(
    ("verifies_first", "error", "groups"),
    [(False, ErrorCode.UNKNOWN_MEMBER_ID, [GROUP]), (True, ErrorCode.ILLEGAL_GENERATION, [])],
    ids=["3.9", "4.3"],
)
def test_transactional_commit_of_a_generation_in_an_unknown_group_is_refused(
    verifies_first: bool, error: ErrorCode, groups: list[str]
) -> None:
    """The answers of Apache Kafka 3.9.2 and 4.3.0."""
    machine = GroupMachine(verifies_first=verifies_first)
    token = machine.commit_in_transaction(7, {TOPIC: 1}, member_id="somebody", generation_id=1)
    assert machine.row_errors(token) == [error]
    assert list(machine.shard.groups) == groups


def test_member_commits_in_its_generation(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitAndFetchOffsets... ."""
    (member,) = machine.stable()
    assert machine.row_errors(machine.commit_offsets({TOPIC: 7}, member, 1)) == [NONE]
    assert machine.fetch("topic", 0).offset == 7


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("somebody", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, None, ErrorCode.ILLEGAL_GENERATION),
        (None, 1, "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=["unknown member", "simple consumer", "old generation", "unknown instance"],
)
def test_others_cannot_commit_in_a_group_with_members(
    machine: GroupMachine,
    member: str | None,
    generation: int,
    instance: str | None,
    error: ErrorCode,
) -> None:
    """GroupCoordinatorTest.testCommitOffsetWithUnknownMember..., WithIllegalGeneration."""
    (known,) = machine.stable()
    known = known if member is None else member
    token = machine.commit_offsets({TOPIC: 1}, known, generation, instance=instance)
    assert [error] == machine.row_errors(token)


def test_commit_before_the_assignment_is_there_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitOffsetInCompletingRebalance."""
    (member,) = machine.form()
    token = machine.commit_offsets({TOPIC: 1}, member, 1)
    assert machine.row_errors(token) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_member_commits_while_others_join(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitOffsetInPreparingRebalance ("rely on heartbeat")."""
    (member,) = machine.stable()
    machine.join()
    assert machine.row_errors(machine.commit_offsets({TOPIC: 1}, member, 1)) == [NONE]


def test_simple_consumer_commits_after_all_members_left(machine: GroupMachine) -> None:
    (member,) = machine.stable()
    machine.leave(member)
    assert machine.row_errors(machine.commit_offsets({TOPIC: 1})) == [NONE]
    token = machine.commit_offsets({TOPIC: 1}, member, 1)
    assert machine.row_errors(token) == [ErrorCode.UNKNOWN_MEMBER_ID]


# Stored offsets


def test_metadata_that_is_too_long_is_refused_by_row(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testOffsetMetadataTooLarge."""
    short, long = "x" * 4_096, "x" * 4_097
    assert machine.row_errors(machine.commit_offsets({TOPIC: 1}, metadata=short)) == [NONE]
    token = machine.commit_offsets({TOPIC: 2}, metadata=long)
    assert machine.row_errors(token) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert machine.fetch("topic", 0).offset == 1


def test_metadata_is_measured_as_java_does(machine: GroupMachine) -> None:
    """A character outside the basic multilingual plane has length 2 in Java."""
    assert machine.row_errors(machine.commit_offsets({TOPIC: 1}, metadata="🎈" * 2_048)) == [NONE]
    token = machine.commit_offsets({TOPIC: 1}, metadata="🎈" * 2_049)
    assert machine.row_errors(token) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_offset_is_visible_once_it_is_committed(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testCommitOffset."""
    machine.commit_offsets({TOPIC: 1})
    machine.hold = True
    token = machine.commit_offsets({TOPIC: 2})
    assert token not in machine.answers
    assert machine.fetch("topic", 0).offset == 1
    unstable = machine.fetch("topic", 0, stable=True)
    assert (unstable.offset, unstable.error) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    machine.commit()
    assert machine.row_errors(token) == [NONE]
    assert machine.fetch("topic", 0, stable=True)[1::3] == (2, NONE)


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_commit_that_fails_leaves_what_was_there(
    machine: GroupMachine, error: ErrorCode, answered: ErrorCode
) -> None:
    """GroupMetadataManagerTest.testCommitOffsetFailure."""
    machine.commit_offsets({TOPIC: 1})
    machine.hold = True
    token = machine.commit_offsets({TOPIC: 2})
    machine.fail(error)
    assert [answered] == machine.row_errors(token)
    assert machine.fetch("topic", 0, stable=True)[1::3] == (1, NONE)


def test_commit_that_times_out_stays_unstable_until_it_is_known(machine: GroupMachine) -> None:
    machine.hold = True
    token = machine.commit_offsets({TOPIC: 2})
    _, ticket = machine.in_flight[0]
    machine.apply(machine.shard.completed(ticket, ErrorCode.REQUEST_TIMED_OUT, machine.now))
    assert machine.row_errors(token) == [ErrorCode.REQUEST_TIMED_OUT]
    assert machine.fetch("topic", 0, stable=True).error == ErrorCode.UNSTABLE_OFFSET_COMMIT
    del machine.answers[token]
    machine.commit()
    assert machine.fetch("topic", 0, stable=True)[1::3] == (2, NONE)


def test_earlier_commit_that_ends_leaves_a_later_one_pending(machine: GroupMachine) -> None:
    machine.hold = True
    machine.commit_offsets({TOPIC: 1})
    machine.commit_offsets({TOPIC: 2})
    machine.commit()
    assert machine.fetch("topic", 0, stable=True).error == ErrorCode.UNSTABLE_OFFSET_COMMIT
    machine.commit()
    assert machine.fetch("topic", 0, stable=True).offset == 2


def test_partitions_without_offset_and_unknown_groups_have_minus_one(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testFetchOffsetForUnknownPartition, testFetchOffsets."""
    machine.commit_offsets({TOPIC: 1})
    assert machine.fetch("topic", 1)[1:5] == (-1, -1, "", NONE)
    assert machine.fetch("topic", 0, group="other")[1:5] == (-1, -1, "", NONE)


def test_all_offsets_are_fetched_by_topic(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testFetchAllOffsets."""
    machine.commit_offsets({("a", 0): 1, ("b", 0): 2, ("a", 1): 3})
    rows = machine.shard.fetch_offsets(GROUP, None, False)
    found = {(topic, row.partition): row.offset for topic, rows in rows for row in rows}
    assert found == {("a", 0): 1, ("a", 1): 3, ("b", 0): 2}
    assert machine.shard.fetch_offsets("other", None, False) == []


# Transactions


def test_offsets_of_a_transaction_count_when_it_is_committed(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testTransactionalCommitOffsetCommitted."""
    machine.commit_offsets({TOPIC: 1})
    assert machine.row_errors(machine.commit_in_transaction(9, {TOPIC: 2})) == [NONE]
    assert machine.fetch("topic", 0).offset == 1
    assert machine.fetch("topic", 0, stable=True).error == ErrorCode.UNSTABLE_OFFSET_COMMIT
    machine.end_transaction(9, committed=True)
    assert machine.fetch("topic", 0, stable=True)[1::3] == (2, NONE)


def test_offsets_of_an_aborted_transaction_do_not_count(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testTransactionalCommitOffsetAborted."""
    machine.commit_offsets({TOPIC: 1})
    machine.commit_in_transaction(9, {TOPIC: 2})
    machine.end_transaction(9, committed=False)
    assert machine.fetch("topic", 0, stable=True)[1::3] == (1, NONE)


def test_plain_commit_after_the_transactions_record_wins(machine: GroupMachine) -> None:
    """GroupMetadataTest.testConsumerBeatsTransactionalOffsetCommit."""
    machine.commit_in_transaction(9, {TOPIC: 2})
    machine.commit_offsets({TOPIC: 3})
    machine.end_transaction(9, committed=True)
    assert machine.fetch("topic", 0).offset == 3


def test_older_producers_commit_in_a_group_with_members(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testCommitTransactionalOffsets (no member id before KIP-447)."""
    machine.stable()
    assert machine.row_errors(machine.commit_in_transaction(9, {TOPIC: 2})) == [NONE]


def test_members_that_lost_their_partitions_are_fenced_in_transactions(
    machine: GroupMachine,
) -> None:
    """KIP-447: GroupCoordinatorTest.testFenceTxnOffsetCommit..."""
    static, other = machine.stable_static("one", "two")
    generation = machine.group().generation_id

    def commit(member: str, generation: int, instance: str | None = "one") -> list[ErrorCode]:
        identity = {"member_id": member, "group_instance_id": instance}
        return machine.row_errors(
            machine.commit_in_transaction(9, {TOPIC: 2}, generation_id=generation, **identity)
        )

    assert commit(static, generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(static, generation + 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit("nobody", generation, None) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(static, generation, "nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(other, generation) == [ErrorCode.FENCED_INSTANCE_ID]
    assert machine.fetch("topic", 0, stable=True).error == NONE  # none of them is pending
    assert commit(static, generation) == [NONE]
    assert machine.fetch("topic", 0, stable=True).error == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_transactional_commit_that_fails_is_not_pending(machine: GroupMachine) -> None:
    """GroupMetadataManagerTest.testTransactionalCommitOffsetAppendFailure."""
    machine.hold = True
    token = machine.commit_in_transaction(9, {TOPIC: 2})
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.row_errors(token) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert machine.fetch("topic", 0, stable=True).error == NONE
    assert not machine.group().offsets


# Delete


def test_offsets_of_an_empty_group_are_deleted(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteOffsetOfSimpleConsumerGroup."""
    machine.commit_offsets({TOPIC: 1, ("topic", 1): 2})
    assert machine.row_errors(machine.delete_offsets(TOPIC, ("other", 0))) == [NONE, NONE]
    assert machine.fetch("topic", 0).offset == -1
    assert machine.fetch("topic", 1).offset == 2


def test_group_goes_with_its_last_offset(machine: GroupMachine) -> None:
    """The end of GroupCoordinatorTest.testDeleteOffsetOfEmptyConsumerGroup: the group is dead."""
    machine.commit_offsets({TOPIC: 1})
    machine.delete_offsets(TOPIC)
    assert machine.shard.groups == {}
    assert machine.reload().groups == {}


def test_deleting_offsets_of_an_unknown_group_is_refused(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteOffsetWithUnknownGroup."""
    assert machine.error(machine.delete_offsets(TOPIC)) == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_topics_without_a_reader_are_deleted_in_a_consumer_group(
    machine: GroupMachine,
) -> None:
    """GroupCoordinatorTest.testDeleteOffsetOfStableConsumerGroup."""
    (member,) = machine.stable(protocols=[("range", subscription("read"))])
    machine.commit_offsets({("read", 0): 1, ("left", 0): 2}, member, 1)
    token = machine.delete_offsets(("read", 0), ("left", 0))
    assert machine.row_errors(token) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
    assert (machine.fetch("read", 0).offset, machine.fetch("left", 0).offset) == (1, -1)


def test_offsets_are_kept_where_the_subscription_cannot_be_read(machine: GroupMachine) -> None:
    """GroupMetadataTest.testSubscribedTopics: when in doubt, all are."""
    (member,) = machine.stable(protocols=[("range", b"?")])
    machine.commit_offsets({TOPIC: 1}, member, 1)
    token = machine.delete_offsets(TOPIC)
    assert machine.row_errors(token) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_other_groups_with_members_are_not_deleted(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testDeleteOffsetWithNonEmptyGroup... ."""
    machine.stable(protocol_type="connect", protocols=[RANGE])
    assert machine.error(machine.delete_offsets(TOPIC)) == ErrorCode.NON_EMPTY_GROUP


def test_delete_that_fails_leaves_the_offsets_and_the_group(machine: GroupMachine) -> None:
    machine.commit_offsets({TOPIC: 1})
    machine.hold = True
    token = machine.delete_offsets(TOPIC)
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error(token) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.fetch("topic", 0).offset == 1
    assert GroupState.EMPTY is machine.state


def test_offsets_of_deleted_partitions_go(machine: GroupMachine) -> None:
    """GroupCoordinatorTest.testHandleDeletedPartitions... ."""
    machine.commit_offsets({TOPIC: 1, ("kept", 0): 2})
    gone = [TopicPartition("topic", 0), TopicPartition("topic", 1)]
    machine.apply(machine.shard.remove_partitions(GROUP, gone, machine.now))
    assert machine.fetch("topic", 0).offset == -1
    assert machine.fetch("kept", 0).offset == 2


# Expiry (KIP-211)


@pytest.fixture
def quick() -> GroupMachine:
    """Offsets are kept for one day and checked every hour."""
    return GroupMachine(
        offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=DAY_MS // 24
    )


def test_offsets_of_a_simple_consumer_expire_one_by_one(quick: GroupMachine) -> None:
    """GroupMetadataManagerTest.testOffsetExpirationOfSimpleConsumer."""
    quick.commit_offsets({TOPIC: 1})
    quick.advance(DAY_MS // 2)
    quick.commit_offsets({("topic", 1): 2})
    quick.advance(DAY_MS // 2)
    assert [quick.fetch("topic", p).offset for p in (0, 1)] == [-1, 2]
    quick.advance(DAY_MS // 2)
    assert quick.shard.groups == {}
    assert quick.reload().groups == {}


def test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty(
    quick: GroupMachine,
) -> None:
    """GroupMetadataManagerTest.testOffsetExpirationSemantics."""
    (member,) = quick.stable(session_ms=1_800_000)
    quick.commit_offsets({TOPIC: 1}, member, 1)
    for _ in range(50):
        quick.advance(DAY_MS // 100)
        quick.commit_offsets({("topic", 1): 1}, member, 1)
    quick.leave(member)
    quick.advance(DAY_MS - 1)
    assert quick.fetch("topic", 1).offset == 1
    quick.advance(DAY_MS // 24)
    assert quick.shard.groups == {}
    assert quick.reload().groups == {}


def test_offsets_of_topics_that_are_read_do_not_expire(quick: GroupMachine) -> None:
    """GroupMetadataManagerTest.testOffsetExpirationOfActiveGroupSemantics."""
    (member,) = quick.stable(protocols=[("range", subscription("read"))], session_ms=1_800_000)
    quick.commit_offsets({("read", 0): 1, ("left", 0): 2}, member, 1)
    for _ in range(200):
        quick.advance(DAY_MS // 100)
        quick.heartbeat(member)
    assert (quick.fetch("read", 0).offset, quick.fetch("left", 0).offset) == (1, -1)


def test_offset_with_a_retention_of_its_own_expires_by_it(quick: GroupMachine) -> None:
    """GroupMetadataManagerTest.testExpireOffset (explicit retention, OffsetCommit 2 to 4)."""
    quick.commit_offsets({TOPIC: 1}, retention_ms=3 * DAY_MS)
    quick.commit_offsets({("topic", 1): 2}, retention_ms=DAY_MS // 12)
    quick.restart()
    quick.advance(DAY_MS // 2)
    assert [quick.fetch("topic", p).offset for p in (0, 1)] == [1, -1]
    quick.advance(2 * DAY_MS)
    assert quick.fetch("topic", 0).offset == 1
    quick.advance(DAY_MS)
    assert quick.shard.groups == {}


def test_offset_about_to_be_committed_anew_does_not_expire(quick: GroupMachine) -> None:
    """GroupMetadataManagerTest.testExpireOffset... (pending commit)."""
    quick.commit_offsets({TOPIC: 1})
    quick.hold = True
    quick.advance(DAY_MS - 1)
    quick.commit_offsets({TOPIC: 2})
    quick.advance(1)
    quick.commit()
    assert not quick.in_flight
    assert quick.fetch("topic", 0).offset == 2


def test_commit_timestamp_of_the_client_counts(quick: GroupMachine) -> None:
    """OffsetCommit 1 has its own timestamp."""
    quick.commit_offsets({TOPIC: 1}, commit_timestamp=quick.now - 2 * DAY_MS)
    quick.advance(DAY_MS // 24)
    assert quick.shard.groups == {}


def test_group_without_offsets_or_members_goes(quick: GroupMachine) -> None:
    """GroupMetadataManagerTest.testGroupMetadataRemoval."""
    (member,) = quick.stable()
    quick.leave(member)
    assert GROUP in quick.reload().groups
    quick.advance(DAY_MS // 24)
    assert quick.shard.groups == {}
    assert quick.reload().groups == {}


def test_many_expired_offsets_go_in_several_batches(quick: GroupMachine) -> None:
    for number in range(30):
        quick.commit_offsets({("topic", p): 1 for p in range(100)}, group=f"group-{number}")
    before = len(quick.log)
    quick.advance(2 * DAY_MS)
    assert quick.shard.groups == {}
    sizes = [len(batch.stored) for batch in quick.log[before:]]
    assert (sum(sizes), len(sizes)) == (3_000, 10)


def test_refused_commit_makes_no_group() -> None:
    machine = GroupMachine(verifies_first=True, offset_metadata_max_bytes=3)
    too_large = machine.commit_offsets({TOPIC: 1}, metadata="long text")
    assert machine.row_errors(too_large) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert machine.shard.groups == {}
    in_transaction = machine.commit_in_transaction(7, {TOPIC: 1}, metadata="long text")
    assert machine.row_errors(in_transaction) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert machine.shard.groups == {}
    assert machine.row_errors(machine.commit_offsets({TOPIC: 1})) == [NONE]
    assert list(machine.shard.groups) == [GROUP]
