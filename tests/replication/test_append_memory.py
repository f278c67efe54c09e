"""The limit on the bytes of waiting batches, in total and per client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.replication.append_memory import AppendMemory

STEP = st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.booleans())


@given(st.lists(STEP))
def test_total_is_bounded_and_nobody_is_shut_out(steps: list[tuple[str, int, bool]]) -> None:
    memory = AppendMemory(100)
    held: list[tuple[str, int]] = []
    for client, size, gives_back in steps:
        if gives_back and held:
            memory.give_back(*held.pop(0))
        own = sum(each for name, each in held if name == client)
        taken = memory.take(client, size)
        if own + size <= 100 // 3 or memory.total <= 100:
            assert taken or memory.total + size > 100
        if own + size <= 100 // 3:
            assert taken, "within an equal share of three clients"
        if taken:
            held.append((client, size))
        assert memory.total == sum(each for _, each in held) <= 200
    for each in held:
        memory.give_back(*each)
    assert (memory.total, memory._by_client) == (0, {})


def test_coordinators_may_always_wait() -> None:
    memory = AppendMemory(100)
    assert memory.take("a", 100)
    assert not memory.take("a", 1)
    assert memory.take(None, 1000, must=True)
    assert memory.take("b", 30)  # a third of it


def test_client_that_holds_much_is_pressed_until_little_is_left() -> None:
    memory = AppendMemory(100)
    memory.take("a", 50)
    assert not memory.is_pressed_by("a"), "half of the memory is in use, not more"
    memory.take("b", 20)
    assert memory.is_pressed_by("a"), "50 of an equal share of 50"
    assert not memory.is_pressed_by("b"), "20 of an equal share of 50"
    memory.give_back("a", 20)
    assert not memory.is_eased_by("a")
    memory.give_back("a", 18)
    assert memory.is_eased_by("a"), "12 of an equal share of 50"
    memory.give_back("a", 12)
    assert memory.is_eased_by("a") and memory.is_eased_by("b")
