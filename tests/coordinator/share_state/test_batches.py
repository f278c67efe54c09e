"""How batches of states are combined: cases of Apache Kafka's PersisterStateBatchCombinerTest, and a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordinator.share_state.batches import combined, is_plain
from server.coordinator.share_state.rows import StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4

CASES = {
    "none": ([], [], -1, []),
    "one": ([], [(0, 10, 0, 1)], -1, [(0, 10, 0, 1)]),
    "the same twice": ([(100, 110, 0, 1)], [(100, 110, 0, 1)], -1, [(100, 110, 0, 1)]),
    "same offsets, later delivery": ([(100, 110, 0, 1)], [(100, 110, 0, 2)], -1, [(100, 110, 0, 2)]),
    "same offsets, higher state": ([(100, 110, 0, 1)], [(100, 110, 2, 1)], -1, [(100, 110, 2, 1)]),
    "same first offset, candidate lower": (
        [(100, 110, 0, 3)], [(100, 120, 0, 1)], -1, [(100, 110, 0, 3), (111, 120, 0, 1)],
    ),
    "inside": (
        [(100, 120, 0, 1)], [(105, 110, 2, 1)], -1,
        [(100, 104, 0, 1), (105, 110, 2, 1), (111, 120, 0, 1)],
    ),
    "inside, lower": ([(100, 120, 0, 2)], [(105, 110, 0, 1)], -1, [(100, 120, 0, 2)]),
    "overlapping": (
        [(100, 110, 0, 1)], [(105, 115, 0, 2)], -1, [(100, 104, 0, 1), (105, 115, 0, 2)],
    ),
    "contiguous": ([(100, 110, 2, 1)], [(111, 115, 2, 1)], -1, [(100, 115, 2, 1)]),
    "contiguous, not the same": (
        [(100, 110, 2, 1)], [(111, 115, 2, 2)], -1, [(100, 110, 2, 1), (111, 115, 2, 2)],
    ),
    "start offset inside": ([(100, 130, 0, 1)], [(121, 130, 0, 2)], 120, [(120, 120, 0, 1), (121, 130, 0, 2)]),
    "start offset behind all": ([(100, 130, 0, 1)], [], 131, []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_overlapping_batches_become_those_of_apache_kafka(name: str) -> None:
    before, new, start, expected = CASES[name]
    found = combined([StateBatch(*each) for each in before + new], start)
    assert [tuple(each) for each in found] == expected


def batches() -> st.SearchStrategy[list[StateBatch]]:
    return st.lists(
        st.builds(
            lambda first, length, state, count: StateBatch(first, first + length, state, count),
            st.integers(0, 30),
            st.integers(0, 12),
            st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
            st.integers(1, 4),
        ),
        max_size=12,
    )


@given(batches(), st.integers(-1, 35))
def test_each_offset_has_the_highest_count_and_state_of_its_batches(
    rows: list[StateBatch], start: int
) -> None:
    best: dict[int, tuple[int, int]] = {}
    for first, last, state, count in rows:
        for offset in range(max(first, start), last + 1):
            best[offset] = max(best.get(offset, (0, 0)), (count, state))
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in combined(rows, start):
        for offset in range(first, last + 1):
            assert offset not in found
            found[offset] = count, state
    assert found == best
    assert list(found) == sorted(found)


def test_batches_that_end_before_they_begin_are_left_out() -> None:
    # Of such a batch, the parts before and after it would be made again and again.
    whole, turned = StateBatch(10, 20, AVAILABLE, 1), StateBatch(12, 3, AVAILABLE, 2)
    assert combined([whole, turned], 0) == (whole,)
    assert combined([turned], -1) == ()


def test_plain_batches_are_in_order_without_overlaps() -> None:
    plain = [StateBatch(0, 4, 0, 1), StateBatch(5, 5, 2, 1), StateBatch(9, 12, 0, 1)]
    assert is_plain(plain) and is_plain([])
    assert not is_plain(reversed(plain))
    assert not is_plain([*plain, StateBatch(12, 13, 0, 1)])
    assert not is_plain([StateBatch(3, 2, 0, 1)])
