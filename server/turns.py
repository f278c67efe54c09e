"""Long work in turns: in slices of a few milliseconds, with all other work between them.

The broker has one event loop, so long work would delay every connection. Such work is written as a generator that
yields (nothing) between its steps. All generators of the broker together get one slice in each turn of the loop, and
share the slices in rotation: by owner first (a connection, the controller), so that an owner with fifty generators does
not starve the single generator of another.

The longer a connection's work has run, the more memory it may hold (a decoded request, a response). So only two pieces
that have taken more than a few milliseconds are in the rotation at a time, for different client addresses. The others
wait until one has ended, in rotation by address, so that a client with many connections delays only itself. When
several pieces of an address wait, its further requests are not even decoded until it has its turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
RowT = TypeVar("RowT")
GroupT = TypeVar("GroupT")
MadeT = TypeVar("MadeT")

#: Work in steps that returns a T.
Steps = Generator[None, None, T]

#: The maximum time for long work in one turn of the loop.
SLICE_US = 3_000
#: How long new work may run immediately even if the slice is used up: most of it ends before it could be queued.
AT_ONCE_US = 200
#: The limits in steps, for clocks that stand still while code runs, as in simulations.
SLICE_STEPS = 4_000
AT_ONCE_STEPS = 64


#: A connection's work is long after this much time, or this many steps.
LONG_US = 4_000
LONG_STEPS = 8_000
#: The number of pieces of connections' long work that share the slices, each for another client address.
MOST_LONG = 2
#: The maximum number of started pieces of work of one client address that wait because they are long.
MOST_BEGUN = 8


def client_of(owner: object) -> object:
    """The address of a connection; None if the owner is a part of the broker."""
    return getattr(owner, "client_host", None)


class _Work(Generic[T]):
    """A generator and its future; only a future for a coroutine that waits for its turn."""

    __slots__ = ("future", "owner", "spent_steps", "spent_us", "steps")

    def __init__(
        self,
        steps: Generator[None, None, T] | None,
        future: asyncio.Future[T],
        owner: object,
    ) -> None:
        self.steps = steps
        self.future = future
        self.owner = owner
        self.spent_us = 0
        self.spent_steps = 0

    @property
    def client(self) -> object:
        """The address of the connection that the work is for; None if it is for the broker itself."""
        return client_of(self.owner)


class _LongWork:
    """The long work of connections: pieces in the rotation, and waiting pieces by client, in the order of the clients'
    turns.
    """

    __slots__ = ("parked", "running")

    def __init__(self) -> None:
        self.running: set[_Work[Any]] = set()
        self.parked: dict[object, deque[_Work[Any]]] = {}

    @property
    def waiting(self) -> int:
        """The number of waiting pieces."""
        return sum(map(len, self.parked.values()))

    def enter(self, work: _Work[Any]) -> bool:
        """Whether the work is in the rotation, or there is room for it; if not, it waits."""
        if work in self.running:
            return True
        if len(self.running) >= MOST_LONG or self._runs(work.client):
            self.park(work)
            return False
        self.running.add(work)
        return True

    def park(self, work: _Work[Any]) -> None:
        """Let the work wait behind the other work of its client."""
        self.parked.setdefault(work.client, deque()).append(work)

        def gone(_: asyncio.Future[Any]) -> None:  # the result is no longer needed
            if self.give_up(work):
                assert work.steps is not None
                work.steps.close()

        work.future.add_done_callback(gone)

    def many_wait(self, client: object) -> bool:
        """Whether so much work of a client waits that no more should be started."""
        return len(self.parked.get(client, ())) >= MOST_BEGUN

    def _runs(self, client: object) -> bool:
        return any(work.client == client for work in self.running)

    def leave(self, work: _Work[Any]) -> _Work[Any] | None:
        """Remove work that has ended; return the work that takes its place, if any."""
        if work not in self.running:
            return None
        self.running.discard(work)
        client = next((client for client in self.parked if not self._runs(client)), None)
        if client is None:
            return None
        works = self.parked[client]
        following = works.popleft()
        del self.parked[client]
        if works:
            self.parked[client] = works  # behind all others
        self.running.add(following)
        return following

    def give_up(self, work: _Work[Any]) -> bool:
        """Remove a piece of work from the waiting ones; False if it is not among them."""
        works = self.parked.get(work.client)
        if works is None or work not in works:
            return False
        works.remove(work)
        if not works:
            del self.parked[work.client]
        return True


class Turns:
    """Gives long work its turns.

    Shape: `now_us` is a monotonic clock; `cpu_us` is this thread's CPU time, which determines whether work is long,
    since short work may take long by the clock on a busy machine. Work ends with the generator's return value as the
    result of its future, or with its exception. A cancelled future closes the generator. Owners are compared with `==`.
    """

    def __init__(
        self,
        now_us: Callable[[], int],
        *,
        cpu_us: Callable[[], int] | None = None,
        slice_us: int = SLICE_US,
        slice_steps: int = SLICE_STEPS,
    ) -> None:
        self._now_us = now_us
        self._cpu_us = cpu_us or now_us
        self._slice_us = slice_us
        self._slice_steps = slice_steps
        self._waiting: dict[object, deque[_Work[Any]]] = {}  # by owner, in the order of their turns
        self._long = _LongWork()
        self._scheduled = False
        self._slice_end_us = self._slice_end_cpu_us = 0
        self._steps_left = 0
        self._closed = False

    def run(self, steps: Generator[None, None, T], owner: object = None) -> asyncio.Future[T]:
        """Run a generator in turns, the first of them immediately; it may be done when this returns."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            started = self.start(steps, owner)
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
            return future
        if isinstance(started, asyncio.Future):
            return started
        future.set_result(started)
        return future

    def start(
        self, steps: Generator[None, None, T], owner: object = None, *, can_wait: bool = False
    ) -> T | asyncio.Future[T]:
        """Start a generator: return its result if it ends immediately, else the future.

        Shape: work that ends immediately needs no running loop. Work that `can_wait` holds little before it starts, and
        does not start while much other work of its client waits. Errors: those of the generator until then.
        """
        if can_wait and self._long.many_wait(client_of(owner)):
            parked = _Work(steps, asyncio.get_running_loop().create_future(), owner)
            self._long.park(parked)
            return parked.future
        if owner not in self._waiting:  # otherwise it comes after the owner's earlier work
            try:
                self._advance(steps, self._now_us() + AT_ONCE_US, AT_ONCE_STEPS)
                self._begin()
                self._advance(steps, self._slice_end_us, self._steps_left)
            except StopIteration as end:
                value: T = end.value
                return value
        work = _Work(steps, asyncio.get_running_loop().create_future(), owner)
        self._enter(work)
        return work.future

    def has_time(self, more_us: int = 0) -> bool:
        """Whether the slice of this turn of the loop has time left, for brief work that is not a generator.

        Shape: `more_us` extends the slice. Only CPU time counts: while other processes have the processor, no work is
        done, and little work would otherwise be put off again and again on a busy machine.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True  # no work waits
        self._begin()
        return (
            self._now_us() < self._slice_end_us + more_us
            or self._cpu_us() < self._slice_end_cpu_us + more_us
        )

    async def pause(self, owner: object = None) -> None:
        """Let other work go first if this turn's slice is used up; for coroutines, between their steps."""
        self._begin()
        self._steps_left -= 1
        if self._steps_left >= 0 and self._now_us() < self._slice_end_us:
            return
        if self._closed:
            return
        work = _Work[None](None, asyncio.get_running_loop().create_future(), owner)
        self._enter(work)
        await work.future
        self._new_slice()

    @property
    def waiting(self) -> int:
        """The number of pieces of work that wait for their turn."""
        return sum(map(len, self._waiting.values())) + self._long.waiting

    def close(self) -> None:
        """Cancel all generators, including future ones; coroutines no longer wait."""
        self._closed = True
        given_up = [*self._waiting.values(), *self._long.parked.values()]
        self._waiting, self._long = {}, _LongWork()
        for works in given_up:
            for work in works:
                self._give_up(work)

    def _enter(self, work: _Work[Any]) -> None:
        if self._closed:
            self._give_up(work)
            return
        works = self._waiting.get(work.owner)
        if works is None:
            works = self._waiting[work.owner] = deque()
        works.append(work)
        self._schedule()

    def _give_up(self, work: _Work[Any]) -> None:
        if work.steps is not None:
            work.steps.close()
            work.future.cancel()
        elif not work.future.done():
            work.future.set_result(None)

    def _begin(self) -> None:
        """Start a slice, unless this turn of the loop already has one."""
        if not self._scheduled:
            self._new_slice()
            self._schedule()

    def _new_slice(self) -> None:
        self._slice_end_us = self._now_us() + self._slice_us
        self._slice_end_cpu_us = self._cpu_us() + self._slice_us
        self._steps_left = self._slice_steps

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """One turn of the loop: a slice for waiting work, if there is any."""
        self._scheduled = False
        waiting = self._waiting
        if not waiting:
            return
        self._new_slice()
        while waiting:
            owner, works = next(iter(waiting.items()))
            work = works.popleft()
            del waiting[owner]
            if works:
                waiting[owner] = works  # behind all others
            if work.steps is None:
                if not work.future.done():
                    work.future.set_result(None)  # it continues after this, in its own slice
                break
            self._continue(work)
            if self._steps_left <= 0 or self._now_us() >= self._slice_end_us:
                break
        self._schedule()

    def _continue(self, work: _Work[Any]) -> None:
        steps, future = work.steps, work.future
        assert steps is not None
        if future.done():  # cancelled
            steps.close()
            self._ended(work)
            return
        began_us, steps_left = self._cpu_us(), self._steps_left
        try:
            self._advance(steps, self._slice_end_us, self._steps_left)
        except StopIteration as end:
            if not future.done():
                future.set_result(end.value)
            self._ended(work)
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            if not future.done():
                future.set_exception(error)
            self._ended(work)
        else:
            work.spent_us += self._cpu_us() - began_us
            work.spent_steps += steps_left - self._steps_left
            self._go_on(work)

    # -- long work

    def _go_on(self, work: _Work[Any]) -> None:
        """Keep work in the rotation: the broker's own, short work, and long work if there is room."""
        is_long = work.spent_us >= LONG_US or work.spent_steps >= LONG_STEPS
        if work.client is None or not is_long or self._closed or self._long.enter(work):
            self._enter(work)

    def _ended(self, work: _Work[Any]) -> None:
        following = self._long.leave(work)
        if following is not None:
            self._enter(following)

    def _advance(self, steps: Generator[None, None, Any], end_us: int, most_steps: int) -> None:
        """Step a generator until its time is used up. Errors: StopIteration when it ends, and the generator's own
        errors.
        """
        now_us = self._now_us
        taken = 0
        try:
            while taken < most_steps:
                taken += 1
                next(steps)
                if now_us() >= end_us:
                    return
        finally:
            self._steps_left -= taken


#: The number of rows that `each_in_steps` makes in one step.
ROWS_IN_STEP = 256


def each_in_steps(
    make: Callable[[RowT], T], rows: Iterable[RowT]
) -> Generator[None, None, list[T]]:
    """Return `make` of each row, like `[make(row) for row in rows]`, in steps."""
    iterator = iter(rows)
    made: list[T] = []
    while some := [make(row) for row in islice(iterator, ROWS_IN_STEP)]:
        made += some
        yield
    return made


def nested_in_steps(
    groups: Iterable[GroupT],
    rows_of: Callable[[GroupT], Iterable[RowT]],
    make_row: Callable[[RowT], T],
    make_group: Callable[[GroupT, list[T]], MadeT],
) -> Generator[None, None, list[MadeT]]:
    """Return `make_group` of each group, with `make_row` of each of its rows, in steps."""
    made: list[MadeT] = []
    for group in groups:
        yield
        rows = yield from each_in_steps(make_row, rows_of(group))
        made.append(make_group(group, rows))
    return made


def exhaust(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
