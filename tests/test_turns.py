"""Long work in turns of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import NamedTuple

import pytest

from server.cause import Own, cause, caused_by
from server.turns import (
    AT_ONCE_STEPS,
    LONG_STEPS,
    MAX_BEGUN,
    MAX_LONG,
    Turns,
)


def on_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


class TickingClock:
    """A clock that advances by a tenth of a millisecond with each reading."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        self.now_us += 100
        return self.now_us


def still() -> int:
    return 0


def count(steps: int, done: list[str] | None = None, name: str = "") -> Generator[None, None, int]:
    for _ in range(steps):
        if done is not None:
            done.append(name)
        yield
    return steps


async def turns_until(future: asyncio.Future[int]) -> int:
    turns = 0
    while not future.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@on_loop
async def test_short_work_is_done_at_once() -> None:
    turns = Turns(still)
    assert turns.run(count(10)).result() == 10
    assert turns.waiting == 0


@on_loop
async def test_long_work_takes_several_turns_bounded_by_steps() -> None:
    turns = Turns(still, slice_steps=100)
    future = turns.run(count(1000))
    assert not future.done() and turns.waiting == 1
    assert await turns_until(future) == 9
    assert future.result() == 1000 and turns.waiting == 0


@on_loop
async def test_long_work_takes_several_turns_bounded_by_time() -> None:
    turns = Turns(TickingClock(), slice_us=1_000)
    future = turns.run(count(100))
    assert 8 <= await turns_until(future) <= 15


@on_loop
async def test_one_slice_serves_all_new_work_of_a_turn() -> None:
    turns = Turns(still, slice_steps=1000)
    done: list[str] = []
    for name in "abc":
        turns.run(count(10_000, done, name), name)
    assert done.count("a") == AT_ONCE_STEPS + 1000
    assert done.count("b") == done.count("c") == AT_ONCE_STEPS
    turns.close()


@on_loop
async def test_short_work_is_done_at_once_although_the_slice_is_used_up() -> None:
    turns = Turns(still, slice_steps=100)
    turns.run(count(10_000), "long")
    assert turns.run(count(AT_ONCE_STEPS - 1), "short").done()
    turns.close()


@on_loop
async def test_owner_with_much_work_does_not_starve_another() -> None:
    turns = Turns(still, slice_steps=100)
    many = [turns.run(count(1000), "greedy") for _ in range(50)]
    one = turns.run(count(1000), "modest")
    # Every second slice.
    assert await turns_until(one) <= 20
    assert sum(future.done() for future in many) < 5
    turns.close()


@on_loop
async def test_work_goes_on_between_other_callbacks() -> None:
    turns = Turns(still, slice_steps=100)
    future = turns.run(count(1000))
    called = 0
    while not future.done():
        await asyncio.sleep(0)
        called += 1
    assert called == 9


@on_loop
async def test_exception_is_the_futures() -> None:
    def fail() -> Generator[None, None, int]:
        yield from count(500)
        raise ZeroDivisionError

    turns = Turns(still, slice_steps=100)
    future = turns.run(fail())
    with pytest.raises(ZeroDivisionError):
        await future
    assert turns.waiting == 0


@on_loop
async def test_cancelled_work_is_closed_and_the_rest_goes_on() -> None:
    closed: list[str] = []

    def work() -> Generator[None, None, int]:
        try:
            return (yield from count(10_000))
        finally:
            closed.append("closed")

    turns = Turns(still, slice_steps=100)
    given_up, other = turns.run(work(), "a"), turns.run(count(1000), "b")
    given_up.cancel()
    assert await other == 1000
    assert closed == ["closed"]


@on_loop
async def test_close_cancels_what_waits_and_what_comes() -> None:
    turns = Turns(still, slice_steps=100)
    before = turns.run(count(1000))
    turns.close()
    after = turns.run(count(1000))
    assert before.cancelled() and after.cancelled()


@on_loop
async def test_pause_returns_at_once_within_the_slice_and_then_lets_others_go_first() -> None:
    turns = Turns(still, slice_steps=100)
    paused = 0

    async def work() -> int:
        nonlocal paused
        for _ in range(1000):
            await turns.pause("task")
            paused += 1
        return paused

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    assert paused == 100
    assert await turns_until(task) <= 40
    assert paused == 1000


@on_loop
async def test_coroutine_and_generators_share_the_slices() -> None:
    turns = Turns(still, slice_steps=100)

    async def work() -> int:
        for _ in range(1000):
            await turns.pause("task")
        return 0

    generators = [turns.run(count(100_000), name) for name in "ab"]
    task = asyncio.ensure_future(work())
    assert await turns_until(task) <= 60
    assert not any(future.done() for future in generators)
    turns.close()


@on_loop
async def test_paused_coroutine_goes_on_when_the_broker_stops() -> None:
    turns = Turns(still, slice_steps=10)
    turns.run(count(100_000), "a")

    async def work() -> None:
        for _ in range(100):
            await turns.pause("task")

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    assert not task.done()
    turns.close()
    await task


class Peer(NamedTuple):
    """A connection, by its client's address."""

    client_host: str
    number: int = 0


def noted(progress: Counter[str], name: str, steps: int) -> Generator[None, None, None]:
    """Work that counts its steps under a name."""
    for _ in range(steps):
        progress[name] += 1
        yield


@on_loop
async def test_few_pieces_of_long_work_are_in_the_rotation_at_a_time() -> None:
    turns = Turns(still, slice_steps=2_000)
    all_steps = 4 * LONG_STEPS
    owners = [Peer("abcde"[n % 5], n) for n in range(10)]
    progress = Counter[str]()
    for owner in owners:
        turns.run(noted(progress, str(owner.number), all_steps), owner)
    while turns.waiting:
        await asyncio.sleep(0)
        assert sum(LONG_STEPS + 2_000 < n < all_steps for n in progress.values()) <= MAX_LONG
    assert set(progress.values()) == {all_steps} and len(progress) == len(owners)


@on_loop
async def test_one_address_has_one_piece_of_long_work_in_the_rotation() -> None:
    turns = Turns(still, slice_steps=2_000)
    all_steps = 4 * LONG_STEPS
    progress = Counter[str]()
    for number in range(5):
        turns.run(noted(progress, str(number), all_steps), Peer("a", number))
    while turns.waiting:
        await asyncio.sleep(0)
        assert sum(LONG_STEPS + 2_000 < n < all_steps for n in progress.values()) <= 1
    assert set(progress.values()) == {all_steps} and len(progress) == 5


@on_loop
async def test_work_that_only_takes_long_on_the_clock_is_not_long() -> None:
    time = 0

    def slow() -> int:  # a machine so busy that each read of the clock is a slice later
        nonlocal time
        time += 10_000
        return time

    turns = Turns(slow, cpu_us=still)
    progress = Counter[str]()
    long = turns.run(noted(progress, "long", 10 * LONG_STEPS), Peer("a", 1))
    while progress["long"] < LONG_STEPS:
        await asyncio.sleep(0)
    short = turns.run(noted(progress, "short", 20), Peer("a", 2))
    await asyncio.wait_for(short, 5)
    assert not long.done()
    turns.close()


@on_loop
async def test_long_work_waits_in_rotation_by_client_address() -> None:
    turns = Turns(still, slice_steps=2_000)
    progress = Counter[str]()
    for owner in (*(Peer("a", n) for n in range(20)), Peer("b", -1)):
        turns.run(noted(progress, str(owner.number), 3 * LONG_STEPS), owner)
    while progress["-1"] < 3 * LONG_STEPS:
        await asyncio.sleep(0)
    assert sum(n == 3 * LONG_STEPS for n in progress.values()) <= 2 * MAX_LONG
    turns.close()


@on_loop
async def test_short_work_and_the_brokers_own_do_not_wait_for_long_work() -> None:
    turns = Turns(still, slice_steps=2_000)
    progress = Counter[str]()
    for number in range(2 * MAX_LONG):
        turns.run(noted(progress, str(number), 20 * LONG_STEPS), Peer("ab"[number % 2], number))
    for _ in range(200):
        await asyncio.sleep(0)
    own = turns.run(count(3 * LONG_STEPS), Own("controller"))
    short = turns.run(count(LONG_STEPS // 2), Peer("a", 99))
    before = progress.total()
    while not (own.done() and short.done()):
        await asyncio.sleep(0)
    assert progress.total() - before <= (MAX_LONG + 2) * 4 * LONG_STEPS
    turns.close()


@on_loop
async def test_long_work_that_is_cancelled_while_it_waits_is_closed_at_once() -> None:
    turns = Turns(still, slice_steps=4_000)
    closed: list[int] = []

    def work(number: int) -> Generator[None, None, None]:
        try:
            yield from count(10 * LONG_STEPS)
        finally:
            closed.append(number)

    number = MAX_LONG + 3
    futures = [turns.run(work(n), Peer(str(n))) for n in range(number)]
    for _ in range(4 * number):
        await asyncio.sleep(0)
    assert turns.waiting == number and not closed
    futures[-1].cancel()
    await asyncio.sleep(0)
    assert closed == [number - 1] and turns.waiting == number - 1
    for future in futures[:MAX_LONG]:
        future.cancel()
    await asyncio.wait(futures[MAX_LONG:])
    assert sorted(closed) == list(range(number)) and turns.waiting == 0


@on_loop
async def test_work_that_can_wait_is_not_begun_while_much_of_its_client_waits() -> None:
    turns = Turns(still, slice_steps=2_000)
    progress = Counter[str]()
    all_steps = 20 * LONG_STEPS

    def begin(name: str, client: str, steps: int = all_steps) -> object:
        return turns.start(
            noted(progress, name, steps),
            Peer(client, len(progress) + 100 * turns.waiting),
            can_wait=True,
        )

    for number in range(MAX_BEGUN + 1):
        begin(f"first-{number}", "a")
    for _ in range(6 * (MAX_BEGUN + 1)):
        await asyncio.sleep(0)
    assert len(progress) == MAX_BEGUN
    for number in range(20):
        begin(f"more-{number}", "a")
    given_up = begin("given up", "a")
    assert isinstance(given_up, asyncio.Future)
    given_up.cancel()
    other = begin("other", "b", 20)
    assert len(progress) == MAX_BEGUN + 1 and other is None  # another client's is begun, and done
    while turns.waiting:
        await asyncio.sleep(0)
        unfinished = sum(n < all_steps for n in progress.values()) - 1
        assert unfinished <= MAX_BEGUN + 1
    assert len(progress) == MAX_BEGUN + 22 and "given up" not in progress


@on_loop
async def test_only_cpu_time_uses_up_the_time_for_brief_work() -> None:
    now_us = used_us = 0
    turns = Turns(lambda: now_us, cpu_us=lambda: used_us, slice_us=1_000)
    assert turns.has_time()
    now_us = 50_000  # another process had the processor
    assert turns.has_time()
    used_us = 1_000
    assert not turns.has_time()
    assert turns.has_time(1)
    await asyncio.sleep(0)
    assert turns.has_time(), "the next turn has a slice of its own"


@on_loop
async def test_the_brokers_own_work_has_half_of_each_slice_beside_any_number_of_clients() -> None:
    turns = Turns(still, slice_steps=2_000)
    progress = Counter[str]()
    for number in range(2_000):
        turns.run(noted(progress, "clients", 10 * LONG_STEPS), Peer(str(number)))
    own = turns.run(count(4 * LONG_STEPS), Own("timers"))
    assert await turns_until(own) <= 4 * LONG_STEPS / 1_000 + 2
    before = progress["clients"]
    endless = turns.run(count(1_000 * LONG_STEPS), Own("timers"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert progress["clients"] - before >= 99 * 1_000 and not endless.done()
    turns.close()


@on_loop
async def test_the_connections_of_one_address_share_its_turn() -> None:
    turns = Turns(still, slice_steps=1_000)
    progress = Counter[str]()
    for number in range(2_000):
        turns.run(noted(progress, "many", LONG_STEPS // 2), Peer("a", number))
    before = progress["many"]
    one = turns.run(noted(progress, "one", LONG_STEPS // 2), Peer("b"))
    await turns_until(one)
    assert progress["many"] - before <= LONG_STEPS
    turns.close()


@on_loop
async def test_work_belongs_to_the_connection_whose_work_set_it_off() -> None:
    turns = Turns(still, slice_steps=1_000)
    attacker = Peer("a")
    seen: list[object] = []
    progress = Counter[str]()

    def effect(number: int) -> Generator[None, None, None]:
        seen.append(cause())
        yield from noted(progress, str(number), 2 * LONG_STEPS)
        seen.append(cause())

    def request() -> Generator[None, None, None]:
        for number in range(100):
            yield
            turns.start(effect(number), can_wait=True)

    async def coroutine() -> object:
        await turns.pause()
        return cause()

    await turns.run(request(), attacker)
    with caused_by(attacker):
        task = asyncio.create_task(coroutine())
    assert cause() is None
    other = turns.run(noted(progress, "other", LONG_STEPS // 2), Peer("b"))
    await turns_until(other)
    assert sum(progress.values()) - progress["other"] <= 2 * LONG_STEPS
    while turns.waiting:
        await asyncio.sleep(0)
        unfinished = sum(n < 2 * LONG_STEPS for n in progress.values()) - 1
        assert unfinished <= MAX_BEGUN + 1
    assert set(seen) == {attacker} and len(seen) == 200
    assert await task is attacker


@on_loop
async def test_what_the_brokers_own_work_sets_off_is_its_own() -> None:
    turns = Turns(still)
    seen: list[object] = []

    def effect() -> Generator[None, None, None]:
        seen.append(cause())
        yield

    def own() -> Generator[None, None, None]:
        yield
        turns.start(effect())

    with caused_by(Peer("a")):
        turns.start(own(), Own("timers"))
        turns.start(effect())
    assert seen == [None, Peer("a")]


@on_loop
async def test_work_that_waits_to_begin_begins_after_coroutines_of_its_client() -> None:
    turns = Turns(still, slice_steps=1)

    async def coroutine(number: int) -> None:
        for _ in range(5):
            await turns.pause(Peer("a", number))

    tasks = [asyncio.create_task(coroutine(number)) for number in range(2 * MAX_BEGUN)]
    while turns.waiting < MAX_BEGUN:
        await asyncio.sleep(0)
    last = turns.start(count(3), Peer("a", -1), can_wait=True)
    assert isinstance(last, asyncio.Future)
    await asyncio.gather(*tasks)
    assert await asyncio.wait_for(last, 5) == 3


@on_loop
async def test_new_work_waits_when_others_have_used_a_slice_more_in_this_turn() -> None:
    time = 0
    turns = Turns(lambda: time, slice_us=3_000)
    done: list[int] = []

    def request(number: int) -> Generator[None, None, None]:
        """A step that takes long, as of a group with thousands of topics."""
        nonlocal time
        time += 2_000
        done.append(number)
        return
        yield

    for number in range(60):
        turns.run(request(number), Peer("a", number))
    assert time <= 4 * 3_000
    await asyncio.sleep(0)
    assert turns.run(count(5), Peer("b")).done(), "the next turn has a slice of its own"
    while turns.waiting:
        await asyncio.sleep(0)
    assert sorted(done) == list(range(60))
