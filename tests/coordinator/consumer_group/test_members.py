"""Members through each state: rejoining, repeated requests, expressions, settings, and the topics' hash.

Docstrings name the scenarios of GroupMetadataManagerTest (Apache Kafka 4.3); scenarios.toml has all of them.
"""

from __future__ import annotations

from typing import Any
from uuid import RFC_4122, UUID

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from server.coordinator.group.consumer.member import ConsumerGroupMember
from server.coordinator.group.consumer.records import (
    CurrentRecord,
    MemberRecord,
    PartitionMetadataRecord,
    TargetRecord,
)
from server.coordinator.group.coordinator import GroupCoordinator, random_uuid
from server.coordinator.group.listing import describe_consumer_group
from server.coordinator.group.memory import GroupMemory
from server.coordinator.group.modern.context import GroupSettings, Metadata
from server.coordinator.group.modern.members import MemberState
from server.coordinator.group.stored import decode_record, encode_record
from server.metadata.image import BrokerRegistration
from server.turns import exhaust
from tests.coordinator.consumer_group.group_machine import (
    REBALANCE_MS,
    SESSION_MS,
    ConsumerMachine,
    assigned,
    topic,
    topic_id,
)
from tests.coordinator.machine import GROUP, Batch
from tests.coordinator.memory_log import MemoryLog
from tests.support.clock import ManualClock

FOO = {"foo": [0, 1, 2, 3, 4, 5]}
FULL: dict[str, Any] = {
    "rebalance_timeout_ms": REBALANCE_MS,
    "subscribed_topic_names": ["foo"],
}
BY_EXPRESSION: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "fo."}


@pytest.fixture
def machine() -> ConsumerMachine:
    return ConsumerMachine()


def state_of(machine: ConsumerMachine, member: str) -> MemberState:
    return machine.group.members[member].state


def put(machine: ConsumerMachine, *records: Any) -> None:
    """Write records into the group's log, as another coordinator has before."""
    machine.log.append(Batch([encode_record(record) for record in records]))
    machine.restart()


# Member ids


def test_ids_of_members_are_random_and_never_begin_with_a_hyphen() -> None:
    """testMemberIdGeneration."""
    coordinator = GroupCoordinator(ConsumerMachine().config, MemoryLog(), ManualClock())
    ids = [coordinator.new_member_id() for _ in range(300)]
    assert len(set(ids)) == 300
    assert {len(each) for each in ids} == {22}
    assert not [each for each in ids if each.startswith("-")]


def test_random_uuids_are_of_version_4() -> None:
    made = [random_uuid() for _ in range(300)]
    assert len(set(made)) == 300
    assert all(str(UUID(each)) == each and UUID(each).version == 4 for each in made)
    assert {UUID(each).variant for each in made} == {RFC_4122}


# Epoch 0 in each state, and repeated requests


def stable(machine: ConsumerMachine) -> tuple[str, dict[str, list[int]]]:
    machine.beat("m1", 0)
    return "m1", FOO


def unrevoked(machine: ConsumerMachine) -> tuple[str, dict[str, list[int]]]:
    machine.beat("m1", 0)
    machine.beat("m2", 0)
    kept = assigned(machine.beat("m1", 2))
    assert kept is not None and state_of(machine, "m1") is MemberState.UNREVOKED_PARTITIONS
    return "m1", kept


def unreleased(machine: ConsumerMachine) -> tuple[str, dict[str, list[int]]]:
    machine.beat("m1", 0)
    machine.beat("m2", 0)
    assert state_of(machine, "m2") is MemberState.UNRELEASED_PARTITIONS
    return "m2", {}


@pytest.mark.parametrize("reach", [stable, unrevoked, unreleased])
def test_a_member_begins_again_with_epoch_0_in_each_state(
    machine: ConsumerMachine, reach: Any
) -> None:
    """testMemberCanRejoinWithEpochZeroIn- StableState, UnrevokedPartitionsState, UnreleasedPartitionsState."""
    member, has = reach(machine)
    epoch = machine.group.group_epoch
    again = machine.beat(member, 0)
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, epoch)
    assert assigned(again) == has
    assert machine.group.group_epoch == epoch, "its subscription is the same"
    assert state_of(machine, member) is (
        MemberState.UNRELEASED_PARTITIONS if reach is unreleased else MemberState.STABLE
    )


@pytest.mark.parametrize("reach", [stable, unrevoked, unreleased])
def test_a_full_request_that_comes_twice_is_answered_twice_and_written_once(
    machine: ConsumerMachine, reach: Any
) -> None:
    """testDuplicateFullHeartbeatIn- StableState, UnrevokedPartitionsState, UnreleasedPartitionsState."""
    member, has = reach(machine)
    epoch = machine.group.members[member].member_epoch
    owned = FOO if reach is unrevoked else has  # it has not given up anything yet
    first = machine.beat(member, epoch, owned=owned, **FULL)
    written = len(machine.log)
    second = machine.beat(member, epoch, owned=owned, **FULL)
    assert (first.error_code, first.member_epoch, assigned(first)) == (0, epoch, has)
    assert (second.error_code, second.member_epoch, assigned(second)) == (0, epoch, has)
    assert len(machine.log) == written


def test_what_a_member_has_given_up_may_be_told_twice(machine: ConsumerMachine) -> None:
    """testDuplicateFullHeartbeatWithRevocationAck."""
    member, kept = unrevoked(machine)
    first = machine.beat(member, 2, owned=kept, **FULL)
    written = len(machine.log)
    second = machine.beat(member, 2, owned=kept, **FULL)
    for answer in (first, second):
        assert (answer.error_code, answer.member_epoch, assigned(answer)) == (0, 3, kept)
    assert len(machine.log) == written


def test_three_members_reach_their_shares_and_no_partition_has_two_owners(
    machine: ConsumerMachine,
) -> None:
    """testReconciliationProcess."""
    owned: dict[str, dict[str, list[int]]] = {}
    epochs: dict[str, int] = {}
    subscription = {"subscribed_topic_names": ["foo", "bar"]}

    def look(member: str, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE
        epochs[member] = answer.member_epoch
        found = assigned(answer)
        owned[member] = owned.get(member, {}) if found is None else found
        all_owned = [
            (name, partition)
            for each in owned.values()
            for name, partitions in each.items()
            for partition in partitions
        ]
        assert len(all_owned) == len(set(all_owned))

    for number in range(3):
        member = f"m{number}"
        look(member, machine.beat(member, 0, **subscription))
        states = set()
        for _ in range(6):
            for each in list(owned):
                look(each, machine.beat(each, epochs[each], owned=owned[each]))
                states.add(machine.group.state)
        assert machine.group.state is ConsumerGroupState.STABLE
        assert states <= {ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE}
        shares = [sum(map(len, each.values())) for each in owned.values()]
        assert sum(shares) == 9 and max(shares) - min(shares) <= 1


def test_a_group_has_each_state_in_its_turn() -> None:
    """testConsumerGroupStates."""
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m1", 0)
    machine.advance(1000)
    assert machine.state is ConsumerGroupState.STABLE
    machine.beat("m2", 0)
    machine.beat("m3", 0)
    assert machine.state is ConsumerGroupState.ASSIGNING
    machine.advance(1000)
    machine.beat("m3", 3)
    assert machine.state is ConsumerGroupState.RECONCILING
    for member in ("m1", "m2", "m3"):
        machine.beat(member, -1)
    assert machine.state is ConsumerGroupState.EMPTY


# Static members


def test_a_new_static_member_makes_a_new_epoch_and_leaves_for_good_with_another(
    machine: ConsumerMachine,
) -> None:
    """testGroupEpochBumpWhenNewStaticMemberJoins, testLeavingStaticMemberBumpsGroupEpoch."""
    machine.beat("m1", 0, instance_id="i1")
    machine.beat("m2", 0, instance_id="i2")
    assert machine.group.group_epoch == 3
    left = machine.beat("m2", -1, instance_id="i2")
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert machine.group.group_epoch == 4
    assert machine.group.static_members == {"i1": "m1"}
    assert "m2" not in machine.group.target


def test_a_static_member_that_comes_back_with_other_topics_makes_a_new_epoch(
    machine: ConsumerMachine,
) -> None:
    """testStaticMemberRejoinsWithNewSubscribedTopics."""
    machine.beat("m1", 0, instance_id="i")
    machine.beat("m1", -2, instance_id="i")
    back = machine.beat("m2", 0, instance_id="i", subscribed_topic_names=["foo", "bar"])
    assert (back.error_code, back.member_epoch) == (ErrorCode.NONE, 3)
    assert assigned(back) == {**FOO, "bar": [0, 1, 2]}
    assert set(machine.group.members) == {"m2"}


def test_a_static_member_that_comes_back_with_another_expression_makes_a_new_epoch(
    machine: ConsumerMachine,
) -> None:
    """testStaticConsumerGroupMemberJoinsWithUpdatedRegex."""
    machine.beat("m1", 0, instance_id="i", **BY_EXPRESSION)
    assert assigned(machine.beat("m1", 1, instance_id="i")) == FOO
    machine.beat("m1", -2, instance_id="i")
    machine.advance(10_001)
    machine.beat(
        "m2", 0, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="b.*"
    )
    assert set(machine.group.resolved) == {"b.*"} and set(machine.group.regexes) == {"b.*"}
    answer = machine.beat("m2", machine.group.members["m2"].member_epoch, instance_id="i", owned={})
    assert assigned(answer) == {"bar": [0, 1, 2]}


def test_a_member_that_takes_an_instance_id_loses_nothing(machine: ConsumerMachine) -> None:
    """Apache Kafka 4.3.0 answers with an empty assignment (docs/omissions.md)."""
    machine.beat("m1", 0)
    answer = machine.beat("m1", 0, instance_id="i")
    assert (answer.member_epoch, assigned(answer)) == (2, FOO)


def test_a_member_without_topics_takes_nothing_from_the_others(machine: ConsumerMachine) -> None:
    """Apache Kafka 4.3.0 empties the target of m3 here (docs/omissions.md)."""
    machine.beat("m3", 0)
    machine.beat("m1", 0)
    machine.beat("m1", -1)
    machine.beat("m2", 0, subscribed_topic_names=[])
    assert machine.group.target["m3"] == {topic_id("foo"): frozenset(FOO["foo"])}


def test_epochs_of_static_members_are_checked_as_those_of_others(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberEpochValidationForStaticMember."""
    machine.beat("m1", 0, instance_id="i")
    machine.beat("m1", 2, instance_id="i", subscribed_topic_names=["foo", "bar"])
    for epoch, owned in ((9, None), (1, {}), (2, None), (2, {"bar": [0]} | FOO | {"x": [1]})):
        refused = machine.beat("m1", epoch, instance_id="i", owned=owned)
        assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert machine.beat("m1", 2, instance_id="i", owned={"foo": [0]}).member_epoch == 3


# The topics' hash


def test_another_rack_of_a_broker_makes_a_new_epoch(machine: ConsumerMachine) -> None:
    """testNewRacksDataInMetadataImageTriggersEpochBump."""
    machine.beat("m1", 0)
    machine.image = machine.image.with_brokers({1: BrokerRegistration(1, (), rack="r1")})
    assert machine.beat("m1", 2).member_epoch == 3
    machine.image = machine.image.with_brokers({1: BrokerRegistration(1, (), rack="r1", epoch=5)})
    assert machine.beat("m1", 3).member_epoch == 3


def test_a_group_of_an_older_release_gets_a_hash_and_loses_its_list_of_topics(
    machine: ConsumerMachine,
) -> None:
    """testSubscriptionUpgradeToMetadataHash, testReplayConsumerGroupPartitionMetadataTombstoneWithExistentGroup."""
    machine.beat("m1", 0)
    put(machine, PartitionMetadataRecord(GROUP, b"\0\0\0\0"))
    assert machine.group.has_partition_metadata
    assert machine.beat("m1", 2).member_epoch == 2
    assert not machine.group.has_partition_metadata
    machine.restart()
    assert not machine.group.has_partition_metadata


def test_topics_are_looked_at_again_once_a_group_is_loaded(machine: ConsumerMachine) -> None:
    """testSubscriptionMetadataRefreshedAfterGroupIsLoaded."""
    machine.beat("m1", 0)
    machine.add_topics(topic("foo", 7))
    machine.restart()
    assert machine.beat("m1", 2).member_epoch == 3


def test_topics_are_looked_at_again_after_a_write_that_failed(machine: ConsumerMachine) -> None:
    """testSubscriptionMetadataRefreshedAgainAfterWriteFailure."""
    machine.beat("m1", 0)
    machine.add_topics(topic("foo", 7))
    machine.hold = True
    token = machine.send("m1", 2)
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error(token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.hold = False
    assert machine.beat("m1", 2).member_epoch == 3


def test_hashes_of_topics_that_are_gone_are_forgotten(machine: ConsumerMachine) -> None:
    """testRemoveTopicCleanupTopicHash, testTopicHashIsRemoveFromCacheIfNoGroupSubscribesIt."""
    machine.beat("m1", 0, subscribed_topic_names=["foo", "bar"])
    machine.beat("m1", 2, subscribed_topic_names=["bar"])
    assert set(machine.hashes.known) == {"foo", "bar"}
    machine.image = machine.image.without_topics(["foo"])
    machine.beat("m1", 2, owned={})
    assert set(machine.hashes.known) == {"bar"}


# Assignors, settings and descriptions


def test_an_assignor_that_is_not_there_fails_the_request_and_changes_nothing(
    machine: ConsumerMachine,
) -> None:
    """testPartitionAssignorExceptionOnRegularHeartbeat."""
    machine.beat("m1", 0)
    member = machine.group.members["m1"]
    named = ConsumerGroupMember("m1", server_assignor="mine", subscribed_topic_names=frozenset())
    put(machine, MemberRecord(GROUP, "m1", named), CurrentRecord(GROUP, "m1", member))
    written = len(machine.log)
    refused = machine.beat("m1", 2, subscribed_topic_names=["bar"])
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(machine.log) == written


def test_a_group_has_settings_of_its_own_from_its_next_request_on(machine: ConsumerMachine) -> None:
    """testConsumerGroupDynamicConfigs, testDynamicBrokerAndGroupConfigs, testConsumerGroupEvaluatedConfigs."""
    settings = {"s": GroupSettings(SESSION_MS, 5_000, 0)}
    consumer = machine.shard.consumer
    consumer.metadata = Metadata(
        consumer.metadata.image, machine.hashes, lambda group_id, kind: settings["s"]
    )
    assert machine.beat("m1", 0).heartbeat_interval_ms == 5_000
    settings["s"] = GroupSettings(50_000, 10_000, 1_000)
    assert machine.beat("m1", 2).heartbeat_interval_ms == 10_000
    machine.advance(SESSION_MS + 1)
    assert "m1" in machine.group.members
    assert machine.beat("m2", 0).member_epoch == 3
    assert machine.beat("m3", 0).member_epoch == 3, "its target comes after the new interval"
    machine.advance(50_000)
    assert "m1" not in machine.group.members


def test_a_description_shows_what_is_committed(machine: ConsumerMachine) -> None:
    """testConsumerGroupDescribeBeforeAndAfterCommittingOffset, testConsumerGroupDescribeNoErrors, -WithErrors."""

    def described() -> Any:
        group = machine.shard.groups.get(GROUP)
        return exhaust(describe_consumer_group(GROUP, group, "uniform", machine.image))

    missing = described()
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {GROUP} not found.",
    )
    machine.hold = True
    machine.send("m1", 0)
    assert described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    machine.commit()
    found = described()
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert (found.assignor_name, [each.member_id for each in found.members]) == ("uniform", ["m1"])
    (row,) = found.members[0].assignment.topic_partitions
    assert (row.topic_id, row.topic_name, row.partitions) == (topic_id("foo"), "foo", FOO["foo"])


def test_a_classic_group_is_not_described_as_a_consumer_group(machine: ConsumerMachine) -> None:
    """testConsumerGroupDescribeWithErrors."""
    machine.commit_offsets({("foo", 0): 1})
    group = machine.shard.groups[GROUP]
    row = exhaust(describe_consumer_group(GROUP, group, "uniform", machine.image))
    assert row.error_message == f"Group {GROUP} is not a consumer group."


# Regular expressions


def test_an_expression_that_is_known_is_read_at_once(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberPicksUpExistingResolvedRegularExpression."""
    machine.beat("m1", 0, **BY_EXPRESSION)
    machine.beat("m1", 1)
    machine.hold_effects = True
    answer = machine.beat("m2", 0, **BY_EXPRESSION)
    assert answer.member_epoch == 3 and not machine.effects
    assert len(machine.group.target["m2"][topic_id("foo")]) == 3


def test_another_expression_takes_the_place_of_the_first(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberJoinsWithUpdatedRegex."""
    machine.beat("m1", 0, **BY_EXPRESSION)
    machine.beat("m1", 1)
    machine.advance(10_001)
    machine.beat("m1", 2, subscribed_topic_regex="ba.")
    assert set(machine.group.resolved) == {"ba."} and set(machine.group.topics) == {"bar"}
    answer = machine.beat("m1", 2, owned={})
    assert assigned(answer) == {"bar": [0, 1, 2]}


def test_an_expression_that_changes_while_it_is_resolved_is_not_stored(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupMemberJoinsWithRegexAndUpdatesItBeforeResolutionCompleted."""
    machine.hold_effects = True
    machine.beat("m1", 0, **BY_EXPRESSION)
    machine.beat("m1", 1, subscribed_topic_regex="ba.")
    (late,) = machine.effects
    machine.effects.clear()
    machine.hold_effects = False
    machine.work(late)
    assert not machine.group.resolved
    machine.beat("m1", 1)
    assert set(machine.group.resolved) == {"ba."}
    assert assigned(machine.beat("m1", machine.group.members["m1"].member_epoch)) == {
        "bar": [0, 1, 2]
    }


def test_a_member_that_gives_up_its_expression_keeps_its_names(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberClearsRegex."""
    machine.beat("m1", 0, subscribed_topic_names=["bar"], subscribed_topic_regex="fo.")
    machine.beat("m1", 2)
    assert set(machine.group.topics) == {"foo", "bar"}
    epoch = machine.group.members["m1"].member_epoch
    answer = machine.beat("m1", epoch, subscribed_topic_regex="", owned=None)
    assert assigned(answer) == {"bar": [0, 1, 2]}
    assert not machine.group.resolved and set(machine.group.topics) == {"bar"}


def test_topics_that_a_member_may_know_of_now_match_with_the_next_refresh() -> None:
    """testConsumerGroupMemberJoinsRefreshTopicAuthorization."""
    machine = ConsumerMachine(consumer_regex_refresh_interval_ms=20_000)
    machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex=".*", denied="foo")
    assert assigned(machine.beat("m1", 1)) == {"bar": [0, 1, 2]}
    machine.advance(20_000)
    machine.beat("m1", 2)
    assert set(machine.group.topics) == {"bar"}
    machine.advance(1)
    machine.beat("m1", 2)
    assert set(machine.group.topics) == {"foo", "bar"}


# Replay


def test_what_a_compacted_log_has_left_of_an_assignment_is_read() -> None:
    """testReplayConsumerGroupCurrentMemberAssignmentWithCompaction, -UnownedTopicWithCompaction."""
    machine = ConsumerMachine()

    def current(member: str, epoch: int, partitions: list[int]) -> CurrentRecord:
        has = {topic_id("foo"): dict.fromkeys(partitions, epoch)} if partitions else {}
        value = ConsumerGroupMember(member, epoch, epoch - 1, assigned=has)
        return CurrentRecord(GROUP, member, value)

    put(
        machine,
        MemberRecord(GROUP, "a", ConsumerGroupMember("a")),
        MemberRecord(GROUP, "b", ConsumerGroupMember("b")),
        current("a", 9, [0]),
        # The record with which b gave it up before was compacted away.
        current("b", 11, [1]),
        current("a", 10, []),
    )
    assert machine.group.partition_epochs == {topic_id("foo"): {1: 11}}
    assert isinstance(machine.group, ConsumerGroup)
    assert ConsumerGroup("x", GroupMemory()).partition_epoch(topic_id("foo"), 0) == -1


# Targets


def test_a_topic_that_does_not_exist_is_not_assigned(machine: ConsumerMachine) -> None:
    """RangeAssignorTest.testOneMemberSubscribedToNonExistentTopic and its like in the other assignors' tests."""
    for assignor in ("range", "uniform"):
        for names in (["nothing"], ["foo", "nothing"]):
            answer = machine.beat("m1", 0, subscribed_topic_names=names, server_assignor=assignor)
            assert answer.error_code == ErrorCode.NONE
            assert assigned(answer) == ({} if names == ["nothing"] else FOO)


def test_a_target_is_made_with_the_member_that_asks_in_its_new_form(
    machine: ConsumerMachine,
) -> None:
    """TargetAssignmentBuilderTest.testUpdateMember."""
    machine.beat("m1", 0)
    machine.beat("m2", 0, subscribed_topic_names=["bar"])
    machine.beat("m1", 2, subscribed_topic_names=["bar"])
    target = machine.group.target
    assert set(target["m1"]) == set(target["m2"]) == {topic_id("bar")}
    assert len(target["m1"][topic_id("bar")] | target["m2"][topic_id("bar")]) == 3


def test_a_target_is_written_only_for_members_whose_share_changes(
    machine: ConsumerMachine,
) -> None:
    """TargetAssignmentBuilderTest.testAssignmentHasNotChanged, testPartialAssignmentUpdate."""

    def targets_written(since: int) -> list[str]:
        records = [
            decode_record(key, value)
            for batch in machine.log[since:]
            for key, value in batch.stored
        ]
        return sorted(each.member_id for each in records if isinstance(each, TargetRecord))

    machine.beat("m1", 0)
    machine.beat("m2", 0, subscribed_topic_names=["bar"])
    before = len(machine.log)
    machine.beat("m3", 0, subscribed_topic_names=["bar"])
    assert targets_written(before) == ["m2", "m3"]
    before = len(machine.log)
    machine.beat("m4", 0, subscribed_topic_names=["nothing"])
    assert targets_written(before) == ["m4"]


def test_offsets_of_a_transaction_need_the_members_epoch(machine: ConsumerMachine) -> None:
    """kfake: Test848TxnOffsetCommit; OffsetMetadataManagerTest.testConsumerGroupTransactionalOffsetCommit..."""
    machine.beat("m1", 0)
    sent = machine.commit_in_transaction(7, {("foo", 0): 5}, member_id="m1", generation_id=2)
    assert machine.row_errors(sent) == [ErrorCode.NONE]
    ahead = machine.commit_in_transaction(8, {("foo", 1): 5}, member_id="m1", generation_id=3)
    assert machine.row_errors(ahead) == [ErrorCode.ILLEGAL_GENERATION]
    unknown = machine.commit_in_transaction(8, {("foo", 1): 5}, member_id="m9", generation_id=2)
    assert machine.row_errors(unknown) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert machine.fetch("foo", 0).offset == -1
    machine.end_transaction(7, committed=True)
    assert machine.fetch("foo", 0).offset == 5
