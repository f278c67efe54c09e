"""Leader election. Cases of PartitionLeaderElectionAlgorithmsTest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.controller.election import Electorate, after_change, initial_state
from server.coordination.paths import LeaderAndIsr


def test_first_live_replica_leads_a_new_partition() -> None:
    assert initial_state((3, 1, 2), {1, 2}, 7) == LeaderAndIsr(1, 0, (1, 2), 7)
    assert initial_state((3,), {1, 2}, 7) is None


def test_living_leader_stays() -> None:
    state = LeaderAndIsr(1, 4, (1, 2), 1, partition_epoch=9)
    assert after_change(state, (1, 2), Electorate({1, 2}), 2) is None


def test_next_replica_in_sync_leads_in_order_of_preference() -> None:
    state = LeaderAndIsr(1, 4, (3, 1, 2), 1, partition_epoch=9)
    elected = after_change(state, (1, 2, 3), Electorate({2, 3}), 2)
    assert elected == LeaderAndIsr(2, 5, (3, 2), 2, False, 9)


def test_partition_without_a_candidate_has_no_leader_and_keeps_its_isr() -> None:
    state = LeaderAndIsr(1, 4, (1,), 1, partition_epoch=9)
    gone = after_change(state, (1, 2), Electorate({2}), 2)
    assert gone == LeaderAndIsr(-1, 5, (1,), 2, False, 9)
    assert after_change(gone, (1, 2), Electorate({2}), 2) is None
    assert after_change(gone, (1, 2), Electorate({1, 2}), 3) == LeaderAndIsr(
        1, 6, (1,), 3, False, 9
    )


def test_unclean_leader_begins_to_recover_alone() -> None:
    state = LeaderAndIsr(1, 4, (1,), 1, partition_epoch=9)
    assert after_change(state, (1, 2, 3), Electorate({2, 3}), 2, unclean=True) == LeaderAndIsr(
        2, 5, (2,), 2, True, 9
    )
    assert after_change(state, (1, 2, 3), Electorate({4}), 2, unclean=True) == LeaderAndIsr(
        -1, 5, (1,), 2, False, 9
    )


@given(st.permutations([1, 2, 3, 4]), st.sets(st.integers(1, 4)), st.data())
def test_clean_leader_is_always_alive_and_was_in_sync(
    replicas: list[int], live: set[int], data: st.DataObject
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = data.draw(st.sampled_from([*isr, -1]))
    before = LeaderAndIsr(leader, 3, tuple(isr), 1, partition_epoch=5)
    after = after_change(before, replicas, Electorate(live), 2)
    if after is None:
        assert leader in live or not live & set(isr)
        return
    assert after.leader_epoch == 4
    assert after.isr
    if after.leader != -1:
        assert after.leader in live
        assert after.leader in isr
        assert set(after.isr) <= live & set(isr)
