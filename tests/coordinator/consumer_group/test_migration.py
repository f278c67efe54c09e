"""Groups that move between the protocols while they are used, and classic members in consumer groups.

Docstrings name the scenarios of GroupMetadataManagerTest and ConsumerProtocolMigrationTest (Apache Kafka 4.3);
scenarios.toml has all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from server.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from server.coordinator.group.consumer.regexes import MIN_INTERVAL_MS
from server.coordinator.group.modern.order import topics_in_order
from server.coordinator.group.state import GroupState
from tests.coordinator.consumer_group.group_machine import (
    ConsumerMachine,
    assigned,
    topic,
    topic_id,
)
from tests.coordinator.machine import DELAY_MS, GROUP
from tests.coordinator.machine import REBALANCE_MS as CLASSIC_REBALANCE_MS
from tests.coordinator.machine import SESSION_MS as CLASSIC_SESSION_MS

EVERYTHING = [0, 1, 2, 3, 4, 5]
POLICIES = ["bidirectional", "upgrade", "downgrade", "disabled"]


def wants(
    *topics: str, owned: list[int] | None = None, version: int = 1
) -> list[tuple[str, bytes]]:
    """The protocols of a classic member that reads topics, and has partitions of foo."""
    rows = [] if owned is None else [TopicPartition(topic="foo", partitions=owned)]
    message = ConsumerProtocolSubscription(topics=list(topics) or ["foo"], owned_partitions=rows)
    return [("range", version.to_bytes(2, "big") + encode(message, version))]


def gets(partitions: list[int], user_data: bytes | None = None, version: int = 1) -> bytes:
    """A leader's assignment of foo."""
    rows = [TopicPartition(topic="foo", partitions=partitions)]
    message = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)
    return version.to_bytes(2, "big") + encode(message, version)


def got(machine: ConsumerMachine, token: int) -> dict[str, list[int]]:
    """The assignment in the answer to a SyncGroup."""
    answer = machine.answers[token]
    assert answer.error_code == ErrorCode.NONE
    version = int.from_bytes(answer.assignment[:2], "big")
    message = decode(ConsumerProtocolAssignment, answer.assignment, version, 2)
    return {row.topic: row.partitions for row in message.assigned_partitions}


def classic_group(
    machine: ConsumerMachine,
    instance: str | None = None,
    protocol_type: str = "consumer",
    user_data: bytes | None = None,
) -> str:
    """Make a stable classic group of one member, which has all of foo; return its id."""
    token = machine.join(instance=instance, protocols=wants(), protocol_type=protocol_type)
    machine.advance(DELAY_MS)
    member_id: str = machine.answers[token].member_id
    given = gets(EVERYTHING, user_data)
    machine.sync(member_id, 1, {member_id: given}, instance=instance)
    assert machine.state is GroupState.STABLE
    return member_id


def mixed_group(machine: ConsumerMachine, instance: str | None = None) -> str:
    """Make a group of m1, of the consumer protocol, and a classic member, each with half of foo; return its id."""
    machine.beat("m1", 0, instance_id=instance)
    member_id: str = machine.answers[machine.join("c1", protocols=wants(owned=[]))].member_id
    half = assigned(machine.beat("m1", 2, instance_id=instance))
    machine.beat("m1", 2, instance_id=instance, owned=half)
    machine.join(member_id, protocols=wants(owned=[]))
    assert machine.group.state is ConsumerGroupState.STABLE
    assert len(got(machine, machine.sync(member_id, 3))["foo"]) == 3
    return member_id


@pytest.fixture
def machine() -> ConsumerMachine:
    return ConsumerMachine()


# A classic group becomes a consumer group


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_classic_group_becomes_a_consumer_group_whatever_the_policy(policy: str) -> None:
    """testUpgradeFromEmptyClassicToConsumerGroupWith...Policy, testConsumerGroupHeartbeatWithEmptyClassicGroup."""
    machine = ConsumerMachine(consumer_migration_policy=policy)
    machine.leave(classic_group(machine))
    assert machine.state is GroupState.EMPTY
    assert machine.beat("m1", 0).error_code == ErrorCode.NONE
    assert machine.group.state is ConsumerGroupState.STABLE
    assert isinstance(machine.reload().groups[GROUP], ConsumerGroup)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_group_of_offsets_only_becomes_a_consumer_group_whatever_the_policy(policy: str) -> None:
    """testUpgradeFromSimpleGroupToConsumerGroupWith...Policy."""
    machine = ConsumerMachine(consumer_migration_policy=policy)
    machine.commit_offsets({("foo", 0): 1000})
    assert machine.beat("m1", 0).error_code == ErrorCode.NONE
    assert machine.group.state is ConsumerGroupState.STABLE
    assert machine.fetch("foo", 0).offset == 1000


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
def test_a_stable_classic_group_becomes_a_consumer_group_and_its_member_gives_up_half(
    policy: str,
) -> None:
    """testConsumerGroupHeartbeatWithStableClassicGroup, testUpgradeMigrationPolicy."""
    machine = ConsumerMachine(consumer_migration_policy=policy)
    old = classic_group(machine)
    joined = machine.beat("m2", 0)
    assert (joined.error_code, joined.member_epoch, assigned(joined)) == (0, 2, {})
    assert machine.group.state is ConsumerGroupState.RECONCILING
    assert machine.group.members[old].member_epoch == 1
    assert machine.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(machine.reload().groups[GROUP], ConsumerGroup)


def test_a_join_that_waits_is_told_to_join_again_when_the_group_becomes_a_consumer_group(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupHeartbeatWithPreparingRebalanceClassicGroup."""
    classic_group(machine)
    waiting = machine.join(protocols=wants())
    assert machine.state is GroupState.PREPARING_REBALANCE
    assert machine.beat("m2", 0).error_code == ErrorCode.NONE
    assert machine.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_that_waits_is_told_to_join_again_when_the_group_becomes_a_consumer_group(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupHeartbeatWithCompletingRebalanceClassicGroup."""
    _, follower = machine.form(2, protocols=wants())
    waiting = machine.sync(follower, 1)
    assert waiting not in machine.answers
    assert machine.beat("m2", 0).error_code == ErrorCode.NONE
    assert machine.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.group.members[follower].assigned == {}


def test_a_classic_group_with_an_assignor_of_its_own_stays_until_it_is_empty(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupHeartbeatWithCustomAssignorClassicGroup, testOnlineMigrationWithNonEmptyUserDataInAssignment."""
    old = classic_group(machine, user_data=b"\0")
    refused = machine.beat("m2", 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {GROUP} to consumer group because an unsupported custom assignor is in "
        "use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.",
    )
    assert machine.state is GroupState.STABLE
    machine.leave(old)
    assert machine.beat("m2", 0).error_code == ErrorCode.NONE
    assert machine.group.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize(
    ("settings", "protocol_type", "reason"),
    [
        ({"consumer_migration_policy": "disabled"}, "consumer", "online upgrade is disabled"),
        ({"consumer_migration_policy": "downgrade"}, "consumer", "online upgrade is disabled"),
        ({}, "connect", "the group does not use the consumer embedded protocol"),
        ({"consumer_max_size": 0}, "consumer", "the group size exceeds the consumer group maximum"),
    ],
)
def test_a_classic_group_that_cannot_become_a_consumer_group_says_why(
    settings: dict[str, Any], protocol_type: str, reason: str
) -> None:
    """testConsumerGroupHeartbeatWithNonEmptyClassicGroup, testUpgradeWithDisabledMigrationPolicy."""
    machine = ConsumerMachine(**settings)
    classic_group(machine, protocol_type=protocol_type)
    refused = machine.beat("m2", 0)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert reason in str(refused.error_message)
    assert machine.state is GroupState.STABLE


def test_a_static_member_changes_its_protocol_and_keeps_what_it_had(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupHeartbeatToClassicGroupFromExistingStaticMember."""
    old = classic_group(machine, "i")
    answer = machine.beat("m2", 0, instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1)
    assert assigned(answer) == {"foo": EVERYTHING}
    assert set(machine.group.members) == {"m2"} and old not in machine.group.target
    assert machine.group.members["m2"].classic is None


def test_a_static_member_of_a_consumer_group_changes_its_protocol(machine: ConsumerMachine) -> None:
    """testConsumerGroupHeartbeatFromExistingClassicStaticMember."""
    mixed_group(machine)
    machine.join(instance="i", protocols=wants(owned=[]))
    epoch = machine.group.group_epoch
    answer = machine.beat("m3", 0, instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
    assert machine.group.classic_members == 1
    assert machine.group.static_members == {"i": "m3"}


def test_a_classic_member_without_an_assignment_moves_with_none(machine: ConsumerMachine) -> None:
    """testConsumerGroupHeartbeatToClassicGroupWithEmptyAssignmentMember."""
    (old,) = machine.form(1, protocols=wants())
    machine.sync(old, 1, {})
    assert machine.beat("m2", 0).error_code == ErrorCode.NONE
    assert machine.group.members[old].assigned == {}


# A consumer group becomes a classic group


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_consumer_group_becomes_a_classic_group_whatever_the_policy(policy: str) -> None:
    """testDowngradeFromEmptyConsumerToClassicGroupWith...Policy, testClassicGroupJoinWithEmptyConsumerGroup."""
    machine = ConsumerMachine(consumer_migration_policy=policy)
    machine.beat("m1", 0)
    machine.beat("m1", -1)
    assert machine.group.state is ConsumerGroupState.EMPTY
    classic_group(machine)
    assert machine.reload().groups[GROUP].kind == "classic"


@pytest.mark.parametrize("how", ["leaves", "is silent", "does not give up", "is removed"])
def test_the_last_member_of_the_consumer_protocol_goes_and_the_others_rebalance_as_classic_ones(
    machine: ConsumerMachine, how: str
) -> None:
    """testLastConsumerProtocolMember- LeavingConsumerGroup, SessionTimeout-, RebalanceTimeoutInConsumerGroup,
    -LeavingConsumerGroupByAdminApi; testDowngradeMigrationPolicy."""
    if how == "does not give up":
        machine.beat("m1", 0, rebalance_timeout_ms=5_000)
        member = machine.answers[machine.join("c1", protocols=wants(owned=[]))].member_id
        machine.beat("m1", 2)
        machine.advance(5_000)
    else:
        member = mixed_group(machine)
        if how == "leaves":
            machine.beat("m1", -1)
        elif how == "is removed":
            assert machine.leave("m1") == [ErrorCode.NONE]
        else:
            for _ in range(9):
                machine.heartbeat(member, 3)
                machine.advance(5_000)
    assert machine.state is GroupState.PREPARING_REBALANCE
    group = machine.shard.groups[GROUP]
    assert set(group.members) == {member}
    assert machine.heartbeat(member, 3 if how != "does not give up" else 2) in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
    )
    refused = machine.beat("m1", 3)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert machine.reload().groups[GROUP].kind == "classic"


@pytest.mark.parametrize(
    "settings",
    [
        {"consumer_migration_policy": "disabled"},
        {"consumer_migration_policy": "upgrade"},
        {"max_size": 0},
    ],
)
def test_a_group_that_may_not_become_a_classic_one_stays(settings: dict[str, Any]) -> None:
    """testDowngradeWithDisabledMigrationPolicy, testUpgradeMigrationPolicy,
    testNoConversionWhenSizeExceedsClassicMaxGroupSize."""
    machine = ConsumerMachine(**settings)
    mixed_group(machine)
    machine.beat("m1", -1)
    assert machine.group.state is ConsumerGroupState.ASSIGNING


def test_a_consumer_may_join_behind_the_last_classic_member_that_leaves_during_the_downgrade(
    machine: ConsumerMachine,
) -> None:
    member_id = mixed_group(machine)
    machine.hold = True
    gone = machine.send("m1", -1)
    leaving = machine.token()
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    machine.apply(machine.shard.leave_group(request, leaving, machine.now))
    joining = machine.send("m2", 0)
    assert not {gone, leaving, joining} & machine.answers.keys()
    machine.hold = False
    machine.commit()
    machine.advance(0)
    assert machine.error(gone) == ErrorCode.NONE
    assert [row.error_code for row in machine.answers[leaving].members] == [ErrorCode.NONE]
    assert machine.error(joining) == ErrorCode.NONE
    assert list(machine.group.members) == ["m2"]
    assert not machine.shard.writes.writing


def test_the_last_static_member_changes_its_protocol_and_nobody_rebalances(
    machine: ConsumerMachine,
) -> None:
    """testLastStaticConsumerProtocolMemberReplacedByClassicProtocolMember."""
    member = mixed_group(machine, "i")
    joined = machine.answers[machine.join(instance="i", protocols=wants(owned=[]))]
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 3)
    assert machine.state is GroupState.STABLE
    mine = got(machine, machine.sync(joined.member_id, 3, instance="i"))["foo"]
    others = got(machine, machine.sync(member, 3))["foo"]
    assert sorted(mine + others) == EVERYTHING
    assert machine.heartbeat(member, 3) is ErrorCode.NONE


def test_topics_of_a_classic_members_assignment_are_in_apache_kafkas_order(
    machine: ConsumerMachine,
) -> None:
    """Found by random requests to both: the order of a Java table, regardless of insertion."""
    names = ["two", "three", "six", "seven", "eight", "ten"]
    machine.add_topics(*(topic(name, 1) for name in names))
    machine.beat("m1", 0, subscribed_topic_names=["bar"])
    machine.join("c1", protocols=wants(*names))
    expected = [
        machine.image.topics_by_id[each].name
        for each in topics_in_order([topic_id(name) for name in names])
    ]
    assert list(got(machine, machine.sync("c1", 3))) == expected != sorted(expected)
    machine.beat("m1", -1)
    stored = machine.shard.groups[GROUP].members["c1"].assignment
    found = decode(ConsumerProtocolAssignment, stored, 1, 2).assigned_partitions
    assert [row.topic for row in found] == expected


def test_the_last_static_member_changes_its_protocol_and_its_topics_and_all_rebalance(
    machine: ConsumerMachine,
) -> None:
    """testLastStaticConsumerProtocolMemberReplacedByClassicProtocolMemberWhenTargetAssignmentIsStale."""
    mixed_group(machine, "i")
    machine.join(instance="i", protocols=wants("foo", "bar"))
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_the_last_static_member_without_a_target_changes_its_protocol() -> None:
    """testLastStaticConsumerProtocolMemberReplacedByClassicProtocolMemberWhenTargetAssignmentIsMissing."""
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m1", 0)
    machine.join("c1", protocols=wants(owned=[]))
    machine.beat("m2", 0, instance_id="i")
    machine.beat("m1", -1)
    assert "m2" not in machine.group.target
    machine.join(instance="i", protocols=wants(owned=[]))
    assert machine.state is GroupState.PREPARING_REBALANCE


# Classic members in a consumer group: JoinGroup


def test_a_classic_member_joins_in_two_steps_and_gets_the_epoch_as_generation(
    machine: ConsumerMachine,
) -> None:
    """testJoiningConsumerGroupWithNewDynamicMember."""
    machine.beat("m1", 0)
    first = machine.answers[machine.join(protocols=wants(), require_member_id=True)]
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert set(machine.group.members) == {"m1"}
    joined = machine.answers[machine.join(first.member_id, protocols=wants())]
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 3)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.leader == "" and joined.members == [], "the broker assigns"
    assert machine.group.classic_protocols == {"range": 1}


def test_a_classic_member_that_does_not_fit_is_refused() -> None:
    """testJoiningConsumerGroupThrowsExceptionIfGroupOverMaxSize, -IfProtocolIsNotSupported."""
    machine = ConsumerMachine(consumer_max_size=2)
    mixed_group(machine)
    machine.shard.config = machine.config
    assert machine.error(machine.join(protocols=wants())) is ErrorCode.GROUP_MAX_SIZE_REACHED
    machine = ConsumerMachine()
    mixed_group(machine)
    other = [("roundrobin", wants()[0][1])]
    for refused in (
        machine.join(protocols=other),
        machine.join("c1", protocols=other),
        machine.join(protocols=wants(), protocol_type="connect"),
    ):
        assert machine.error(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert machine.answers[refused].member_id == "", "as by Apache Kafka 4.3.0"
    malformed = machine.join(protocols=[("range", b"")])
    assert machine.error(malformed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(machine.group.members) == 2


def test_a_classic_member_whose_records_are_not_stored_is_not_in_the_group(
    machine: ConsumerMachine,
) -> None:
    """testJoiningConsumerGroupFailingToPersistRecords."""
    machine.beat("m1", 0)
    machine.hold = True
    token = machine.join("c1", protocols=wants())
    machine.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.error(token) is ErrorCode.NOT_COORDINATOR
    assert set(machine.group.members) == {"m1"}
    assert not [timer for timer in machine.timers if "c1" in timer[1]]


def test_a_static_classic_member_joins_and_is_replaced(machine: ConsumerMachine) -> None:
    """testJoiningConsumerGroupWithNewStaticMember, -ReplacingExistingStaticMember."""
    machine.beat("m1", 0)
    first = machine.answers[machine.join(instance="i", protocols=wants())].member_id
    epoch = machine.group.group_epoch
    again = machine.answers[machine.join(instance="i", protocols=wants())]
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, epoch)
    assert again.member_id != first and first not in machine.group.members
    assert machine.group.group_epoch == epoch, "the others notice nothing"


def test_a_static_classic_member_that_comes_back_with_other_topics_makes_a_new_epoch(
    machine: ConsumerMachine,
) -> None:
    """testJoiningConsumerGroupWithExistingStaticMemberAndNewSubscription."""
    mixed_group(machine)
    member = machine.answers[machine.join(instance="i", protocols=wants())].member_id
    epoch = machine.group.group_epoch
    again = machine.answers[machine.join(member, instance="i", protocols=wants("foo", "bar"))]
    assert (again.error_code, again.member_id) == (ErrorCode.NONE, member)
    assert machine.group.group_epoch == epoch + 1


def test_a_static_classic_member_is_known_by_both_its_ids(machine: ConsumerMachine) -> None:
    """testStaticMemberJoiningConsumerGroupWithUnknownInstanceId, -UnmatchedMemberId."""
    mixed_group(machine)
    machine.join(instance="i", protocols=wants())
    unknown = machine.join("c9", instance="x", protocols=wants())
    assert machine.error(unknown) is ErrorCode.UNKNOWN_MEMBER_ID
    other = machine.join("c9", instance="i", protocols=wants())
    assert machine.error(other) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("instance", [None, "i"])
def test_an_eager_classic_member_gives_up_everything_and_gets_its_share(
    machine: ConsumerMachine, instance: str | None
) -> None:
    """testReconciliationInJoiningConsumerGroupWithEagerProtocol,
    testOnlineMigrationWithEagerAssignmentStrategyAnd- DynamicMembers, StaticMembers."""
    old = classic_group(machine, instance)
    machine.beat("m2", 0)
    assert machine.heartbeat(old, 2, instance=instance) is ErrorCode.ILLEGAL_GENERATION
    assert machine.heartbeat("c9", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.heartbeat(old, 1, instance=instance) is ErrorCode.REBALANCE_IN_PROGRESS
    committed = machine.commit_offsets({("foo", 0): 7}, old, 1, instance=instance)
    assert machine.row_errors(committed) == [ErrorCode.NONE]
    assert machine.shard.validate_fetch(GROUP, old, 1) is ErrorCode.NONE
    rejoined = machine.answers[machine.join(old, instance=instance, protocols=wants(owned=[]))]
    assert (rejoined.error_code, rejoined.generation_id) == (ErrorCode.NONE, 2)
    theirs = assigned(machine.beat("m2", 2))
    assert machine.group.state is ConsumerGroupState.STABLE
    mine = got(machine, machine.sync(old, 2, instance=instance))
    assert theirs is not None and sorted(mine["foo"] + theirs["foo"]) == EVERYTHING


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_cooperative_classic_member_gives_up_only_what_it_has_to(
    machine: ConsumerMachine, instance: str | None
) -> None:
    """testReconciliationInJoiningConsumerGroupWithCooperativeProtocol,
    testOnlineMigrationWithCooperativeAssignmentStrategyAnd- DynamicMembers, StaticMembers."""
    old = classic_group(machine, instance)
    machine.beat("m2", 0)
    assert machine.heartbeat(old, 1, instance=instance) is ErrorCode.REBALANCE_IN_PROGRESS
    keeps = machine.join(old, instance=instance, protocols=wants(owned=EVERYTHING))
    assert machine.answers[keeps].generation_id == 1
    mine = got(machine, machine.sync(old, 1, instance=instance))["foo"]
    assert len(mine) == 3
    assert machine.heartbeat(old, 1, instance=instance) is ErrorCode.REBALANCE_IN_PROGRESS
    again = machine.join(old, instance=instance, protocols=wants(owned=mine))
    assert machine.answers[again].generation_id == 2
    assert got(machine, machine.sync(old, 2, instance=instance)) == {"foo": mine}
    theirs = assigned(machine.beat("m2", 2))
    assert theirs is not None and sorted(mine + theirs["foo"]) == EVERYTHING
    assert machine.group.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("topics", [("foo",), ("foo", "bar")])
def test_a_static_member_with_an_expression_becomes_a_classic_one(
    machine: ConsumerMachine, topics: tuple[str, ...]
) -> None:
    """testConsumerMemberWithRegexReplacedByClassicMemberWith- SameSubscription, ChangedSubscription."""
    machine.beat("m1", 0)
    machine.beat(
        "m2", 0, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="fo."
    )
    machine.beat("m2", machine.group.members["m2"].member_epoch, instance_id="i")
    joined = machine.answers[machine.join(instance="i", protocols=wants(*topics))]
    assert joined.error_code == ErrorCode.NONE
    assert not machine.group.regexes and not machine.group.resolved
    member = machine.group.members[joined.member_id]
    assert member.subscribed_topic_names == set(topics) and member.classic is not None


def test_a_classic_member_that_joins_has_expressions_resolved_with_its_own_permissions(
    machine: ConsumerMachine,
) -> None:
    """They are due when a topic is new, in any member's next request. Source: maybeUpdateRegularExpressions in
    classicGroupJoinToConsumerGroup.
    """
    machine.beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="fo.*")
    assert assigned(machine.beat("m1", 1)) == {"foo": EVERYTHING}
    machine.advance(MIN_INTERVAL_MS + 1)
    machine.add_topics(topic("foo2", 1), topic("foo3", 1))
    machine.join("c1", protocols=wants(owned=[]), denied="foo3")
    assert set(machine.group.topics) == {"foo", "foo2"}


# Classic members in a consumer group: SyncGroup


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_sync_is_answered_in_the_version_of_the_members_subscription(
    machine: ConsumerMachine, version: int
) -> None:
    """testClassicGroupSyncToConsumerGroupWithAllConsumerProtocolVersions."""
    machine.beat("m1", 0)
    machine.beat("m1", -2 + 1)
    machine.beat("m1", 0, subscribed_topic_names=["bar"])
    joined = machine.answers[machine.join("c1", protocols=wants(version=version))]
    token = machine.sync("c1", joined.generation_id, protocol_type="consumer")
    assert machine.answers[token].assignment[:2] == version.to_bytes(2, "big")
    assert got(machine, token) == {"foo": EVERYTHING}
    assert (machine.answers[token].protocol_type, machine.answers[token].protocol_name) == (
        "consumer",
        None,
    )


def test_a_sync_that_does_not_fit_is_refused(machine: ConsumerMachine) -> None:
    """testClassicGroupSyncToConsumerGroupWith- UnknownMemberId, FencedInstanceId, InconsistentGroupProtocol,
    IllegalGeneration."""
    member = mixed_group(machine)
    static = machine.answers[machine.join(instance="i", protocols=wants())].member_id
    for token, error in (
        (machine.sync("c9", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (machine.sync(member, 3, instance="x"), ErrorCode.UNKNOWN_MEMBER_ID),
        (machine.sync(member, 3, instance="i"), ErrorCode.FENCED_INSTANCE_ID),
        (machine.sync("m1", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (machine.sync(member, 9), ErrorCode.ILLEGAL_GENERATION),
        (
            machine.sync(member, 3, protocol_type="connect"),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            machine.sync(member, 3, protocol_name="roundrobin"),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
    ):
        assert machine.error(token) is error
    assert static in machine.group.members


def test_a_sync_is_told_to_join_again_when_there_is_a_newer_target(
    machine: ConsumerMachine,
) -> None:
    """testClassicGroupSyncToConsumerGroupRebalanceInProgress."""
    member = mixed_group(machine)
    machine.beat("m1", 3, subscribed_topic_names=["foo", "bar"])
    assert machine.error(machine.sync(member, 3)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_and_a_heartbeat_before_the_next_target_are_answered_as_before() -> None:
    """testClassicGroupSyncToConsumerGroupDuringAssignmentDelay, -HeartbeatToConsumerGroupDuringAssignmentDelay."""
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.beat("m1", 0)
    machine.advance(1000)
    machine.join("c1", protocols=wants(owned=[]))
    machine.beat("m2", 0)
    assert machine.group.state is ConsumerGroupState.ASSIGNING
    assert machine.heartbeat("c1", 3) is ErrorCode.NONE
    assert machine.error(machine.sync("c1", 3)) is ErrorCode.NONE


# Classic members in a consumer group: Heartbeat and deadlines


def test_heartbeats_of_a_classic_member_keep_its_session(machine: ConsumerMachine) -> None:
    """testClassicGroupHeartbeatToConsumerGroupMaintainsSession,
    testConsumerGroupMemberUsingClassicProtocolFencedWhenSessionTimeout."""
    member = mixed_group(machine)
    for _ in range(3):
        machine.advance(CLASSIC_SESSION_MS - 1)
        assert machine.heartbeat(member, 3) is ErrorCode.NONE
        machine.beat("m1", 3)
    machine.advance(CLASSIC_SESSION_MS)
    assert set(machine.group.members) == {"m1"}
    assert machine.group.group_epoch == 4


def test_a_classic_member_that_does_not_join_again_in_time_is_removed(
    machine: ConsumerMachine,
) -> None:
    """testClassicGroupHeartbeatToConsumerGroupRebalanceInProgress,
    testConsumerGroupMemberUsingClassicProtocolFencedWhenJoinTimeout."""
    member = mixed_group(machine)
    machine.beat("m1", 3, subscribed_topic_names=["foo", "bar"])
    for _ in range(CLASSIC_REBALANCE_MS // 5_000):
        assert machine.heartbeat(member, 3) is ErrorCode.REBALANCE_IN_PROGRESS
        machine.advance(5_000)
    assert set(machine.group.members) == {"m1"}


def test_a_classic_member_that_does_not_fetch_its_assignment_in_time_is_removed(
    machine: ConsumerMachine,
) -> None:
    """testConsumerGroupMemberUsingClassicProtocolFencedWhenJoinTimeout (the SyncGroup after the JoinGroup)."""
    machine.beat("m1", 0)
    machine.join("c1", protocols=wants(owned=[]))
    for _ in range(CLASSIC_REBALANCE_MS // 5_000):
        assert "c1" in machine.group.members
        machine.heartbeat("c1", 3)
        machine.advance(5_000)
    assert set(machine.group.members) == {"m1"}


def test_a_heartbeat_that_does_not_fit_is_refused(machine: ConsumerMachine) -> None:
    """testClassicGroupHeartbeatToConsumer- WithUnknownMember, WithFencedInstanceId, WithIllegalGenerationId,
    WithMemberNotUsingClassicProtocol."""
    member = mixed_group(machine)
    machine.join(instance="i", protocols=wants())
    assert machine.heartbeat("c9", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.heartbeat(member, 3, instance="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.heartbeat(member, 3, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert machine.heartbeat(member, 9) is ErrorCode.ILLEGAL_GENERATION
    assert machine.heartbeat("m1", 3) is ErrorCode.UNKNOWN_MEMBER_ID


# LeaveGroup


def test_members_leave_together_and_each_row_has_its_error(machine: ConsumerMachine) -> None:
    """testConsumerGroupMemberUsingClassicProtocolBatchLeaveGroup, -UpdatingSubscriptionMetadata."""
    member = mixed_group(machine)
    static = machine.answers[machine.join(instance="i", protocols=wants("foo", "bar"))].member_id
    epoch = machine.group.group_epoch
    errors = machine.leave(member, "c9", ("c9", "i"), ("", "i"), ("", "x"))
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert static not in machine.group.members and set(machine.group.members) == {"m1"}
    assert machine.group.group_epoch == epoch + 1, "once for all"
    assert set(machine.group.topics) == {"foo"}


def test_a_leave_of_nobody_changes_nothing(machine: ConsumerMachine) -> None:
    """testClassicGroupLeaveToConsumerGroupWithoutValidLeaveGroupMember."""
    mixed_group(machine)
    before = len(machine.log)
    assert machine.leave("c9", ("", "x")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert len(machine.log) == before


def test_an_administrator_removes_members_and_their_expressions(machine: ConsumerMachine) -> None:
    """testResolvedRegularExpressionsRemovedWhenConsumerMembersRemovedByAdminApi."""
    for member in ("m1", "m2", "m3"):
        regex = "fo." if member != "m3" else "ba."
        machine.beat(member, 0, subscribed_topic_names=None, subscribed_topic_regex=regex)
    machine.advance(10_001)
    machine.beat("m3", machine.group.members["m3"].member_epoch)
    assert set(machine.group.resolved) == {"fo.", "ba."}
    machine.leave("m1", "m2")
    assert set(machine.group.resolved) == {"ba."} and set(machine.group.topics) == {"bar"}
