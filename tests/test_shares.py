"""The shares of clients: one that holds much cannot keep others out, and the limit holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.shares import LARGE, NOBODY, SMALL, Shares

LIMIT = 16_000


def fill(shares: Shares, client: object, step: int = 10, times: int = LARGE) -> int:
    """Let a client take as much as it may; return what it holds."""
    while not shares.refuses(client, step, LIMIT, times):
        shares.hold(client, step)
    return shares.of(client)


@pytest.mark.parametrize(("times", "part"), [(LARGE, 3 / 4), (SMALL, 7 / 8)])
def test_one_client_alone_holds_most_but_not_all(times: int, part: float) -> None:
    assert fill(Shares(), "greedy", times=times) == pytest.approx(LIMIT * part, abs=20)


def test_a_client_that_comes_last_is_served_after_some_greedy_ones() -> None:
    shares = Shares()
    for number in range(3):
        fill(shares, number, times=SMALL)
    assert not shares.refuses("honest", 10, LIMIT)


def test_a_client_that_holds_its_share_may_go_on_with_what_it_has() -> None:
    shares = Shares()
    fill(shares, "greedy")
    assert shares.refuses("greedy", 10, LIMIT)
    shares.hold("greedy", -10)
    assert not shares.refuses("greedy", 10, LIMIT)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9_000)), max_size=60))
def test_all_clients_together_never_hold_more_than_the_limit(
    asked: list[tuple[int, int]],
) -> None:
    shares = Shares()
    for client, more in asked:
        if not shares.refuses(client, more, LIMIT, SMALL):
            shares.hold(client, more)
    assert shares.used == sum(shares.of(client) for client in range(6)) <= LIMIT


def test_what_is_moved_or_given_back_is_counted_for_the_right_client() -> None:
    shares = Shares()
    shares.hold(NOBODY, 100)
    shares.move(NOBODY, "a", 60)
    assert (shares.of(NOBODY), shares.of("a"), shares.largest()) == (40, 60, "a")
    shares.hold("a", -60)
    shares.hold(NOBODY, -40)
    assert (shares.used, shares.largest()) == (0, NOBODY)
