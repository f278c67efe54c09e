"""The assignor `simple`. SimpleAssignorTest (Apache Kafka 4.3): all of its cases, named above the tests.

Omitted: testAssignWithSubscribedToNonExistentTopic, because nonexistent topics are not passed to the assignor.
"""

from __future__ import annotations

import random
from collections import Counter

from server.coordinator.group.modern.members import Partitions
from server.coordinator.group.share.simple import (
    NAME,
    SharingInput,
    SharingMember,
    assign_simple,
)
from server.turns import exhaust

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
COUNTS = {A: [0, 1, 2], B: [0, 1, 2, 3], C: [0, 1]}


def assign(
    topics: dict[str, list[bytes]],
    partitions: dict[bytes, list[int]],
    before: dict[str, Partitions] | None = None,
) -> dict[str, Partitions]:
    members = {
        name: SharingMember(some, (before or {}).get(name, {})) for name, some in topics.items()
    }
    alike = len({frozenset(some) for some in topics.values()}) == 1
    return exhaust(assign_simple(SharingInput(members, alike, partitions)))


def sizes(found: dict[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in found.values())


def counts(found: dict[str, Partitions]) -> Counter[tuple[bytes, int]]:
    return Counter(
        (topic, number)
        for each in found.values()
        for topic, some in each.items()
        for number in some
    )


# testName, testAssignWithEmptyMembers, testAssignWithNoSubscribedTopic


def test_group_with_nobody_or_nothing_to_read_has_no_assignment() -> None:
    assert NAME == "simple"
    assert assign({}, {}) == {}
    assert assign({"m": []}, {}) == {}


# testAssignWithTwoMembersAndTwoTopicsHomogeneous, -WithAllowedMap, -WithNonAssignableTopic


def test_members_that_read_the_same_get_equal_parts() -> None:
    found = assign({"a": [A, C], "b": [A, C]}, COUNTS)
    assert sizes(found) == [2, 3]
    assert counts(found) == {(A, 0): 1, (A, 1): 1, (A, 2): 1, (C, 0): 1, (C, 1): 1}


def test_only_partitions_that_can_be_assigned_are() -> None:
    found = assign({"a": [A, C], "b": [A, C]}, {A: [0, 2], C: []})
    assert counts(found) == {(A, 0): 1, (A, 2): 1}
    assert sizes(found) == [1, 1]
    assert sizes(assign({"a": [A], "b": [A]}, {A: []})) == [0, 0]


# testAssignWithThreeMembersThreeTopicsHeterogeneous, -WithAllowedMap, -WithNonAssignableTopic


def test_members_that_read_different_topics_get_equal_parts_of_each() -> None:
    found = assign({"a": [A, B], "b": [C], "c": [B, C]}, COUNTS)
    assert found["a"][A] == {0, 1, 2}
    assert [len(found[each][B]) for each in "ac"] == [2, 2]
    assert [len(found[each][C]) for each in "bc"] == [1, 1]
    assert set(counts(found).values()) == {1}


def test_only_partitions_of_different_topics_that_can_be_assigned_are() -> None:
    found = assign({"a": [A, B], "b": [C], "c": [B, C]}, {A: [0, 1], B: [], C: [1]})
    assert found["a"] == {A: {0, 1}}
    assert counts(found) == {(A, 0): 1, (A, 1): 1, (C, 1): 2}


# testAssignWithOneMemberNoAssignedTopicHeterogeneous


def test_member_that_reads_nothing_gets_nothing() -> None:
    found = assign({"a": [A, B], "b": []}, COUNTS)
    assert found["b"] == {}
    assert sizes(found) == [0, 7]


# testIncrementalAssignmentIncreasingMembersHomogeneous, -DecreasingMembersHomogeneous


def test_members_that_come_and_go_move_few_partitions() -> None:
    names = [f"m{number}" for number in range(12)]
    partitions = {A: list(range(24)), C: list(range(12))}
    before: dict[str, Partitions] = {}
    for present in (*range(1, 13), *range(11, 0, -1)):
        found = assign({name: [A, C] for name in names[:present]}, partitions, before)
        assert set(counts(found).values()) == {1}
        assert sizes(found)[-1] - sizes(found)[0] <= 1
        moved = sum(
            len(some - before.get(name, {}).get(topic, frozenset()))
            for name, each in found.items()
            for topic, some in each.items()
        )
        assert (
            moved
            <= 36 // present
            + 36
            - sum(len(some) for name in names[:present] for some in before.get(name, {}).values())
            + present
        )
        before = found


def test_more_members_than_partitions_share_each_with_others() -> None:
    found = assign({name: [A] for name in "abcdefgh"}, COUNTS)
    assert sorted(counts(found).values()) == [3, 3, 3]
    assert sizes(found) == [1] * 7 + [2]


# testAssignWithCurrentAssignmentHeterogeneous, testIncrementalAssignmentIncreasingMembersHeterogeneous,
# testIncrementalAssignmentDecreasingMembersHeterogeneous


def test_member_that_stops_reading_a_topic_loses_it() -> None:
    before = assign({"a": [A, B], "b": [A, B]}, COUNTS)
    found = assign({"a": [A], "b": [A, B]}, COUNTS, before)
    assert not found["a"].get(B)
    assert found["b"][B] == {0, 1, 2, 3}
    assert found["a"][A] < before["a"][A]
    assert len(found["a"][A]) == 2
    alone = assign({"b": [B]}, COUNTS, found)
    assert alone == {"b": {B: frozenset({0, 1, 2, 3})}}


def test_random_groups_are_balanced_and_every_partition_is_read() -> None:
    rng = random.Random(848)
    for _ in range(60):
        partitions = {topic: list(range(rng.randrange(1, 9))) for topic in (A, B, C)}
        before: dict[str, Partitions] = {}
        alike = rng.random() < 0.5
        for _ in range(4):
            names = [f"m{number}" for number in range(rng.randrange(1, 12))]
            topics = {
                name: [A, B, C] if alike else rng.sample([A, B, C], rng.randrange(1, 4))
                for name in names
            }
            found = assign(topics, partitions, before)
            read = {topic for some in topics.values() for topic in some}
            given = {key for key in counts(found) if key[0] in read}
            assert given == {(topic, number) for topic in read for number in partitions[topic]}
            for name, each in found.items():
                assert {topic for topic, some in each.items() if some} & read <= set(topics[name])
            if alike:
                assert sizes(found)[-1] - sizes(found)[0] <= 1
            before = found
