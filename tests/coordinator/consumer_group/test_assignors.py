"""The assignors. The scenarios are those of RangeAssignorTest, UniformHomogeneousAssignmentBuilderTest and
UniformHeterogeneousAssignmentBuilderTest (Apache Kafka 4.3), named in the docstrings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.coordinator.group.consumer.assignment_input import AssignedMember, AssignmentInput
from server.coordinator.group.consumer.group import SubscriptionType
from server.coordinator.group.consumer.range_assignor import assign_range
from server.coordinator.group.consumer.uniform import assign_uniform
from server.coordinator.group.modern.members import Partitions
from server.coordinator.group.modern.order import (
    names_in_order,
    partitions_in_order,
    topics_in_order,
)
from server.turns import exhaust

T1, T2, T3, T4 = (bytes([n]) * 16 for n in (1, 2, 3, 4))
SIZES = {T1: 3, T2: 3, T3: 2, T4: 6}

Before = dict[str, dict[bytes, set[int]]]


IDS = [("12", "0fedcba987654321"), ("72", "1fedcba98765432a")]


def spec(
    topics: dict[str, list[bytes]],
    before: Before | None = None,
    instances: dict[str, str] | None = None,
    sizes: dict[bytes, int] = SIZES,
) -> AssignmentInput:
    before = before or {}
    alike = len({frozenset(each) for each in topics.values()}) <= 1
    return AssignmentInput(
        {
            member: AssignedMember(
                (instances or {}).get(member),
                frozenset(each),
                {topic: frozenset(some) for topic, some in before.get(member, {}).items()},
            )
            for member, each in topics.items()
        },
        SubscriptionType.HOMOGENEOUS if alike else SubscriptionType.HETEROGENEOUS,
        sizes,
        {
            topic: {p: m for m, each in before.items() for p in each.get(topic, ())}
            for topic in sizes
        },
    )


def plain(found: dict[str, Partitions]) -> Before:
    return {
        member: {topic: set(some) for topic, some in each.items()} for member, each in found.items()
    }


def ranges(*args: object, **kwargs: object) -> Before:
    return plain(exhaust(assign_range(spec(*args, **kwargs))))  # type: ignore[arg-type]


def uniform(*args: object, **kwargs: object) -> Before:
    return plain(exhaust(assign_uniform(spec(*args, **kwargs))))  # type: ignore[arg-type]


# range


def test_range_without_topics_or_members_assigns_nothing() -> None:
    """testOneMemberNoTopic, and a group without members."""
    assert ranges({"a": []}) == {"a": {}}
    assert ranges({}) == {}


def test_range_gives_the_first_members_more() -> None:
    """testFirstAssignmentTwoMembersTwoTopicsSameSubscriptions."""
    assert ranges({"a": [T1, T3], "b": [T1, T3]}) == {
        "a": {T1: {0, 1}, T3: {0}},
        "b": {T1: {2}, T3: {1}},
    }


def test_range_leaves_members_without_partitions() -> None:
    """testFirstAssignmentNumMembersGreaterThanTotalNumPartitions."""
    assert ranges({m: [T3] for m in "abc"}) == {"a": {T3: {0}}, "b": {T3: {1}}, "c": {}}


def test_range_divides_each_topic_among_its_readers() -> None:
    """testFirstAssignmentThreeMembersThreeTopicsDifferentSubscriptions."""
    assert ranges({"a": [T1, T2], "b": [T3], "c": [T2, T3]}) == {
        "a": {T1: {0, 1, 2}, T2: {0, 1}},
        "b": {T3: {0}},
        "c": {T2: {2}, T3: {1}},
    }


def test_range_serves_static_members_first_by_instance_id() -> None:
    """testStaticMembership: the same ranges for the same instance ids, regardless of the member ids."""
    before = ranges({"a": [T1], "z": [T1]}, instances={"z": "i1"})
    after = ranges({"a": [T1], "b": [T1]}, instances={"b": "i1"})
    assert before["z"] == after["b"] == {T1: {0, 1}}


def test_range_makes_new_ranges_when_partitions_or_members_come() -> None:
    """testReassignmentWhenOnePartitionAddedForTwoMembersTwoTopics, ...WhenOneMemberAdded..., ...Removed..."""
    sizes = {**SIZES, T1: 4}
    assert ranges({"a": [T1], "b": [T1]}, sizes=sizes) == {"a": {T1: {0, 1}}, "b": {T1: {2, 3}}}
    assert ranges({m: [T1] for m in "abc"}) == {"a": {T1: {0}}, "b": {T1: {1}}, "c": {T1: {2}}}
    assert ranges({"b": [T1]}) == {"b": {T1: {0, 1, 2}}}


# uniform, same topics


def test_uniform_without_topics_assigns_nothing() -> None:
    """testOneMemberNoTopicSubscription."""
    assert uniform({"a": []}) == {}


def test_uniform_divides_all_partitions_evenly() -> None:
    """testFirstAssignmentTwoMembersTwoTopicsNoMemberRacks."""
    found = uniform({"a": [T1, T3], "b": [T1, T3]})
    assert sorted(sum(len(some) for some in each.values()) for each in found.values()) == [2, 3]
    complete(found, {"a": [T1, T3], "b": [T1, T3]})


def test_uniform_leaves_members_without_partitions() -> None:
    """testFirstAssignmentNumMembersGreaterThanTotalNumPartitions."""
    found = uniform({m: [T3] for m in "abc"})
    assert sorted(sum(map(len, each.values())) for each in found.values()) == [0, 1, 1]


def test_uniform_keeps_what_members_have() -> None:
    """testReassignmentForTwoMembersTwoTopicsGivenUnbalancedPrevAssignment."""
    before: Before = {"a": {T1: {0, 1, 2}, T2: {0}}, "b": {T2: {1, 2}}}
    found = uniform({"a": [T1, T2], "b": [T1, T2]}, before)
    assert found["b"][T2] >= {1, 2}
    assert sum(map(len, found["a"].values())) == sum(map(len, found["b"].values())) == 3
    assert found["a"][T1] <= {0, 1, 2}


def test_uniform_spreads_new_partitions() -> None:
    """testReassignmentWhenPartitionsAreAddedForTwoMembersTwoTopics."""
    sizes = {**SIZES, T1: 6, T2: 5}
    before: Before = {"a": {T1: {0, 2}, T2: {0}}, "b": {T1: {1}, T2: {1, 2}}}
    found = uniform({"a": [T1, T2], "b": [T1, T2]}, before, sizes=sizes)
    for member in "ab":
        for topic, some in before[member].items():
            assert some <= found[member][topic]


def test_uniform_takes_from_all_for_a_new_member() -> None:
    """testReassignmentWhenOneMemberAddedAfterInitialAssignmentWithTwoMembersTwoTopics."""
    before: Before = {"a": {T1: {0, 2}, T2: {0}}, "b": {T1: {1}, T2: {1, 2}}}
    found = uniform({m: [T1, T2] for m in "abc"}, before)
    assert [sum(map(len, each.values())) for each in found.values()] == [2, 2, 2]


def test_uniform_gives_away_what_a_member_left() -> None:
    """testReassignmentWhenOneMemberRemovedAfterInitialAssignmentWithThreeMembersTwoTopics."""
    before: Before = {"a": {T1: {0}, T2: {0}}, "b": {T1: {1}, T2: {1}}}
    found = uniform({m: [T1, T2] for m in "ab"}, before)
    complete(found, {m: [T1, T2] for m in "ab"})
    assert all(before[m][t] <= found[m][t] for m in "ab" for t in (T1, T2))


def test_uniform_takes_topics_that_are_not_read_any_more() -> None:
    """testReassignmentWhenOneSubscriptionRemovedAfterInitialAssignmentWithTwoMembersTwoTopics."""
    before: Before = {"a": {T1: {0, 1}, T2: {0, 1}}, "b": {T1: {2}, T2: {2}}}
    assert uniform({m: [T2] for m in "ab"}, before) == {"a": {T2: {0, 1}}, "b": {T2: {2}}}


def test_uniform_leaves_an_extra_partition_where_it_is() -> None:
    """testReassignmentStickinessWhenAlreadyBalanced (KAFKA-18100)."""
    for extra in "abc":
        before: Before = {member: {T1: {number}} for number, member in enumerate("abc")}
        before[extra][T4] = {0}
        found = uniform({m: [T1, T4] for m in "abc"}, before, sizes={T1: 3, T4: 1})
        assert found == before


# uniform, different topics


def test_uniform_mixed_divides_first() -> None:
    """testFirstAssignmentWithTwoMembersSubscribedToDifferentTopics, ...ThreeMembersThreeTopics..."""
    topics = {"a": [T1, T2], "b": [T3], "c": [T2, T3]}
    found = uniform(topics)
    complete(found, topics)
    assert found["a"][T1] == {0, 1, 2}


def test_uniform_mixed_balances_what_was_uneven() -> None:
    """testReassignmentWithTwoMembersSubscribedToOverlappingTopics, ...MembersUnevenlyLoaded."""
    topics = {"a": [T1, T4], "b": [T4]}
    before: Before = {"a": {T1: {0, 1, 2}, T4: {0, 1, 2, 3, 4, 5}}}
    found = uniform(topics, before)
    complete(found, topics)
    assert sum(map(len, found["b"].values())) == 4


def test_uniform_mixed_keeps_a_balanced_assignment() -> None:
    """testReassignmentStickinessWhenAlreadyBalanced."""
    before: Before = {"a": {T1: {0, 1, 2}}, "b": {T4: {0, 1, 2}}, "c": {T4: {3, 4, 5}}}
    assert uniform({"a": [T1, T4], "b": [T4], "c": [T4]}, before) == before


def test_uniform_mixed_leaves_members_without_partitions() -> None:
    """testFirstAssignmentNumMembersGreaterThanTotalNumPartitions, testReassignmentWhenTopicPartitionsRunOut-
    AndMembersHaveNoPartitions, testFirstAssignmentWithTwoMembersIncludingOneWithoutSubscriptions."""
    topics = {"a": [T3], "b": [T3], "c": [T3, T1], "d": [], "e": [T3]}
    first = uniform(topics)
    complete(first, topics)
    loads = {member: sum(map(len, each.values())) for member, each in first.items()}
    assert loads == {"a": 1, "b": 1, "c": 3, "d": 0, "e": 0}
    assert uniform(topics, first) == first


def complete(
    found: Before, topics: dict[str, list[bytes]], sizes: dict[bytes, int] = SIZES
) -> None:
    """Each partition of a topic that is read belongs to exactly one of its readers."""
    seen: dict[bytes, list[int]] = {}
    for member, each in found.items():
        assert set(each) <= set(topics[member])
        for topic, some in each.items():
            seen.setdefault(topic, []).extend(some)
    read = {topic for each in topics.values() for topic in each}
    assert {topic: sorted(some) for topic, some in seen.items()} == {
        topic: list(range(sizes[topic])) for topic in read
    }


subscriptions = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.sampled_from([T1, T2, T3, T4]), min_size=1, unique=True),
    min_size=1,
    max_size=6,
)


@given(first=subscriptions, second=subscriptions)
def test_every_partition_has_one_owner_and_a_second_run_changes_nothing(
    first: dict[str, list[bytes]], second: dict[str, list[bytes]]
) -> None:
    before = uniform(first)
    complete(before, first)
    readers = {member: before.get(member, {}) for member in second}
    found = uniform(second, readers)
    complete(found, second)
    again = uniform(second, found)
    complete(again, second)
    assert again == found
    complete(ranges(second), second)


@given(count=st.integers(1, 9))
def test_members_that_read_the_same_topics_differ_by_one_at_most(count: int) -> None:
    found = uniform({f"m{n}": [T1, T2, T3, T4] for n in range(count)})
    loads = [sum(map(len, each.values())) for each in found.values()]
    assert max(loads) - min(loads) <= 1


def test_keys_have_the_order_of_a_java_table() -> None:
    """The output of java.util.HashMap 21 for these keys."""
    assert names_in_order(["uniform", "range"]) == ["uniform", "range"]
    assert names_in_order([f"member-{n}" for n in range(14)]) == [
        f"member-{n}" for n in (5, 6, 3, 13, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0)
    ]
    assert partitions_in_order({0, 5, 16, 17}) == [0, 16, 17, 5]
    ids = [bytes.fromhex(start + "34567890abcdef" + end) for start, end in IDS]
    assert topics_in_order(ids) == ids[::-1]
