"""Replica assignment. Cases of AdminUtilsTest and AdminRackAwareTest, and properties."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import ErrorCode
from server.controller.assignment import UsableBroker, alternate_racks, assign_replicas
from server.controller.refusal import ControllerRefusal

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def places(racks: dict[int, str]) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack) for broker_id, rack in racks.items()]


def test_racks_alternate_in_the_broker_list() -> None:
    assert alternate_racks(RACKS) == [0, 3, 1, 5, 4, 2]
    without_two = {n: rack for n, rack in RACKS.items() if n not in (2, 4)}
    assert alternate_racks(without_two) == [0, 3, 1, 5]
    assert alternate_racks({n: f"r{n // 3}" for n in range(9)}) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_assignment_without_racks_is_kafkas() -> None:
    """AdminUtilsTest.testReplicaAssignment."""
    assigned = assign_replicas([UsableBroker(n) for n in range(5)], 10, 3, 0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_assignment_with_racks_is_kafkas() -> None:
    """The example in AdminUtils."""
    assigned = assign_replicas(places(RACKS), 7, 3, 0)
    assert assigned == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_added_partitions_go_on_where_the_others_ended() -> None:
    every = [UsableBroker(n) for n in range(5)]
    whole = assign_replicas(every, 12, 3, 2)
    assert not isinstance(whole, ControllerRefusal)
    added = assign_replicas(every, 4, 3, 2, 5)
    assert not isinstance(added, ControllerRefusal)
    assert list(added) == [5, 6, 7, 8]
    assert [replicas[0] for replicas in added.values()] == [whole[n][0] for n in range(5, 9)]


def test_one_broker_gets_everything() -> None:
    assert assign_replicas([UsableBroker(7)], 3, 1) == {0: (7,), 1: (7,), 2: (7,)}


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "refusal"),
    [
        (
            0,
            1,
            ControllerRefusal(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
            ),
        ),
        (
            1,
            0,
            ControllerRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
            ),
        ),
        (
            1,
            3,
            ControllerRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor: 3 larger than available brokers: 2.",
            ),
        ),
    ],
)
def test_impossible_counts_are_refused_in_kafkas_words(
    partitions: int, replication_factor: int, refusal: ControllerRefusal
) -> None:
    assert (
        assign_replicas([UsableBroker(1), UsableBroker(2)], partitions, replication_factor)
        == refusal
    )


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    st.integers(1, 40),
    st.data(),
)
def test_every_assignment_is_spread_evenly(
    racks: list[str | None], partitions: int, data: st.DataObject
) -> None:
    brokers = [UsableBroker(n * 3, rack) for n, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)))
    assigned = assign_replicas(brokers, partitions, factor)
    assert not isinstance(assigned, ControllerRefusal)
    assert list(assigned) == list(range(partitions))
    rack_of = dict(brokers)
    for replicas in assigned.values():
        assert len(set(replicas)) == factor
        if None not in racks:
            used = {rack_of[replica] for replica in replicas}
            assert len(used) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assigned.values())
    fair = partitions // len(brokers)
    assert all(fair <= leaders[place.broker_id] <= fair + 1 for place in brokers)
