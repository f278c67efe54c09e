"""How a member is led to its target.

Each test covers the scenario of CurrentAssignmentBuilderTest (Apache Kafka 4.3) that its docstring names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.coordinator.group.consumer.current_assignment import Owned, reconcile
from server.coordinator.group.consumer.member import ConsumerGroupMember
from server.coordinator.group.modern.members import MemberState
from server.coordinator.group.modern.refusal import GroupRefusal

A, B = b"A" * 16, b"B" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState

Epochs = dict[bytes, dict[int, int]]


def member(
    state: MemberState, epoch: int, assigned: Epochs, revoking: Epochs | None = None
) -> ConsumerGroupMember:
    return ConsumerGroupMember("m", epoch, epoch, state, assigned=assigned, revoking=revoking or {})


def at(epoch: int, *partitions: int) -> dict[int, int]:
    return dict.fromkeys(partitions, epoch)


def nobody(topic_id: bytes, partition: int) -> int:
    return -1


def taken(*partitions: tuple[bytes, int]) -> Callable[[bytes, int], int]:
    return lambda topic_id, partition: 10 if (topic_id, partition) in partitions else -1


def step(
    start: ConsumerGroupMember,
    target_epoch: int,
    target: dict[bytes, set[int]],
    *,
    owned: Owned = None,
    current: Callable[[bytes, int], int] = nobody,
    topics: tuple[bytes, ...] = (A, B),
    changed: bool = False,
) -> ConsumerGroupMember:
    frozen = {topic: frozenset(some) for topic, some in target.items()}
    return reconcile(
        start, target_epoch, frozen, set(topics), owned, current, subscription_changed=changed
    )


def facts(found: ConsumerGroupMember) -> tuple[Any, ...]:
    return (
        found.state,
        found.member_epoch,
        found.previous_member_epoch,
        found.assigned,
        found.revoking,
    )


def test_a_target_with_the_same_partitions_only_raises_the_epoch() -> None:
    """testStableToStable."""
    start = member(STABLE, 10, {A: at(10, 1, 2), B: at(10, 3)})
    found = step(start, 11, {A: {1, 2}, B: {3}})
    assert facts(found) == (STABLE, 11, 10, start.assigned, {})


def test_free_partitions_are_assigned_at_the_epoch_of_the_target() -> None:
    """testStableToStableWithNewPartitions."""
    found = step(member(STABLE, 10, {A: at(10, 1)}), 11, {A: {1, 4}, B: {7}})
    assert facts(found) == (STABLE, 11, 10, {A: {1: 10, 4: 11}, B: {7: 11}}, {})


def test_partitions_to_give_up_keep_the_member_in_its_epoch() -> None:
    """testStableToUnrevokedPartitions."""
    found = step(member(STABLE, 10, {A: at(10, 1, 2), B: at(10, 4)}), 11, {A: {2, 3}, B: {4, 5}})
    assert facts(found) == (UNREVOKED, 10, 10, {A: at(10, 2), B: at(10, 4)}, {A: at(10, 1)})


def test_partitions_that_others_have_are_waited_for() -> None:
    """testStableToUnreleasedPartitions."""
    found = step(
        member(STABLE, 10, {A: at(10, 1, 2)}),
        11,
        {A: {1, 2, 4}, B: {5}},
        current=taken((A, 4), (B, 5)),
    )
    assert facts(found) == (UNRELEASED, 11, 10, {A: at(10, 1, 2)}, {})


def test_free_partitions_come_before_those_that_others_have() -> None:
    """testStableToUnreleasedPartitionsWithOwnedPartitionsNotHavingRevokedPartitions, ...WithNewPartitions."""
    found = step(
        member(STABLE, 10, {A: at(10, 1)}),
        11,
        {A: {1, 4}, B: {5, 6}},
        current=taken((A, 4), (B, 5)),
    )
    assert facts(found) == (UNRELEASED, 11, 10, {A: {1: 10}, B: {6: 11}}, {})


def test_a_member_that_has_given_up_everything_gets_the_rest() -> None:
    """testUnrevokedPartitionsToStable."""
    start = member(UNREVOKED, 10, {A: at(10, 2, 3), B: at(10, 5)}, {A: at(10, 1)})
    found = step(start, 11, {A: {2, 3}, B: {5}}, owned=[(A, [2, 3]), (B, [5])])
    assert facts(found) == (STABLE, 11, 10, start.assigned, {})


@pytest.mark.parametrize(
    "owned", [None, [(A, [1, 2, 3]), (B, [5])], [(A, [1])]], ids=["unsaid", "all", "one"]
)
def test_a_member_that_has_not_given_up_everything_stays(owned: Owned) -> None:
    """testRemainsInUnrevokedPartitions."""
    start = member(UNREVOKED, 10, {A: at(10, 2, 3), B: at(10, 5)}, {A: at(10, 1)})
    assert step(start, 12, {A: {3}, B: {6}}, owned=owned) is start


def test_after_giving_up_a_newer_target_may_take_more() -> None:
    """testUnrevokedPartitionsToUnrevokedPartitions."""
    start = member(UNREVOKED, 10, {A: at(10, 2, 3), B: at(10, 5, 6)}, {A: at(10, 1)})
    found = step(start, 12, {A: {3}, B: {6}}, owned=[(A, [2, 3]), (B, [5, 6])])
    assert facts(found) == (
        UNREVOKED,
        10,
        10,
        {A: at(10, 3), B: at(10, 6)},
        {A: at(10, 2), B: at(10, 5)},
    )


def test_after_giving_up_a_member_may_wait_for_others() -> None:
    """testUnrevokedPartitionsToUnreleasedPartitions."""
    start = member(UNREVOKED, 11, {A: at(10, 2, 3)}, {A: at(10, 1)})
    found = step(
        start, 11, {A: {2, 3, 4}, B: {7}}, owned=[(A, [2, 3])], current=taken((A, 4), (B, 7))
    )
    assert facts(found) == (UNRELEASED, 11, 11, {A: at(10, 2, 3)}, {})


def test_released_partitions_make_a_waiting_member_stable() -> None:
    """testUnreleasedPartitionsToStable, testUnreleasedPartitionsToStableWithNewPartitions."""
    start = member(UNRELEASED, 11, {A: at(11, 2, 3)})
    assert facts(step(start, 12, {A: {2, 3}})) == (STABLE, 12, 11, {A: at(11, 2, 3)}, {})
    found = step(start, 11, {A: {2, 3, 4}})
    assert facts(found) == (STABLE, 11, 11, {A: {2: 11, 3: 11, 4: 11}}, {})


def test_a_waiting_member_gets_what_is_free_and_keeps_waiting() -> None:
    """testUnreleasedPartitionsToUnreleasedPartitions."""
    start = member(UNRELEASED, 11, {A: at(11, 2, 3)})
    found = step(start, 11, {A: {2, 3, 4}, B: {5}}, current=taken((A, 4)))
    assert facts(found) == (UNRELEASED, 11, 11, {A: at(11, 2, 3), B: {5: 11}}, {})


def test_a_waiting_member_may_have_to_give_up() -> None:
    """testUnreleasedPartitionsToUnrevokedPartitions."""
    start = member(UNRELEASED, 11, {A: at(11, 2, 3), B: at(11, 5)})
    found = step(start, 12, {A: {3}, B: {5}})
    assert facts(found) == (UNREVOKED, 11, 11, {A: at(11, 3), B: at(11, 5)}, {A: at(11, 2)})


def test_a_state_of_a_later_release_fences_who_still_owns_partitions() -> None:
    """testUnknownState."""
    start = member(UNKNOWN, 11, {A: at(11, 3), B: at(11, 6)}, {A: at(11, 2)})
    for owned in (None, [(A, [1])]):
        with pytest.raises(GroupRefusal) as refused:
            step(start, 12, {A: {3}, B: {6}}, owned=owned)
        assert refused.value.error is ErrorCode.FENCED_MEMBER_EPOCH
    found = step(start, 12, {A: {3}, B: {6}}, owned=[])
    assert facts(found) == (STABLE, 12, 11, {A: at(11, 3), B: at(11, 6)}, {})


def test_a_topic_no_longer_read_is_given_up_at_once() -> None:
    """testStableToUnrevokedPartitionsWhenSubscriptionChanges-style cases of KAFKA-19431."""
    start = member(STABLE, 10, {A: at(10, 1), B: at(10, 2)})
    found = step(start, 10, {A: {1}, B: {2}}, topics=(B,), changed=True)
    assert facts(found) == (UNREVOKED, 10, 10, {B: at(10, 2)}, {A: at(10, 1)})
    assert step(start, 10, {A: {1}, B: {2}}, topics=(B,)) is start
    already = step(start, 10, {A: {1}, B: {2}}, topics=(B,), changed=True, owned=[(B, [2])])
    assert facts(already) == (STABLE, 10, 10, {B: at(10, 2)}, {})


def test_a_topic_no_longer_read_joins_what_is_being_given_up() -> None:
    start = member(UNREVOKED, 10, {A: at(10, 1), B: at(10, 2)}, {A: at(10, 3)})
    found = step(start, 12, {A: {1}, B: {2}}, topics=(B,), changed=True)
    assert facts(found) == (UNREVOKED, 10, 10, {B: at(10, 2)}, {A: at(10, 3, 1)})


def test_a_partition_that_the_member_itself_gives_up_is_not_with_another() -> None:
    """testUnrevokedPartitionsToStableWithReturnedPartitionsPendingRevocation."""
    start = member(UNREVOKED, 10, {A: at(9, 1)}, {A: at(9, 2)})
    found = step(start, 12, {A: {1, 2}}, owned=[(A, [1])], current=taken((A, 2)))
    assert facts(found) == (STABLE, 12, 10, {A: {1: 9, 2: 12}}, {})


def test_a_target_for_a_topic_that_is_not_read_counts_as_none() -> None:
    """testSubscribedTopicNameAndUnresolvedRegularExpression and its like: the caller resolves topics."""
    found = step(member(STABLE, 10, {}), 11, {A: {1}, B: {2}}, topics=(B,))
    assert facts(found) == (STABLE, 11, 10, {B: {2: 11}}, {})
