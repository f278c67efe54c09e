"""Long work in turns: in slices of a few milliseconds, with all other work between them.

The broker has one event loop, so long work would delay every connection. Such work is written as a generator that
yields (nothing) between its steps. All generators of the broker together get one slice in each turn of the loop.

Work belongs to the client that caused it. The owner of work is a connection, also for what its request sets off (a
group's assignment, the states of a share group): `cause()` is the connection whose request is being served, and tasks,
timers of coordinators and work that begins within other work inherit it. What the broker has to do in any case has an
`Own` owner: timers, fencing, loading, the controller.

The slices are shared in rotation, first between the broker's own work and that of clients, so that no amount of
clients' work delays the broker's own; then between client addresses; then between the connections of an address. So an
address with thousands of pieces of work for any number of connections and groups has the share of one.

The longer a client's work has run, the more memory it may hold (a decoded request, a response). So only two pieces
that have taken more than a few milliseconds are in the rotation at a time, for different client addresses. The others
wait until one has ended, in the same order. When several pieces of an address have begun, its further requests are not
even decoded, and the work that its requests have set off does not start, until it is their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from .cause import CAUSE, Own, client_of
from .steps import Steps as Steps
from .steps import exhaust as exhaust

T = TypeVar("T")
RowT = TypeVar("RowT")
GroupT = TypeVar("GroupT")
MadeT = TypeVar("MadeT")

#: The maximum time for long work in one turn of the loop.
SLICE_US = 3_000
#: How long new work may run immediately even if the slice is used up: most of it ends before it could be queued.
AT_ONCE_US = 200
#: The limits in steps, for clocks that stand still while code runs, as in simulations.
SLICE_STEPS = 4_000
AT_ONCE_STEPS = 64


#: A client's work is long after this much time, or this many steps.
LONG_US = 4_000
LONG_STEPS = 8_000
#: The number of pieces of clients' long work that share the slices, each for another client address.
MAX_LONG = 2
#: The maximum number of pieces of one client address that have begun, for those that can wait before they begin.
MAX_BEGUN = 8


def _line_of(owner: object) -> object:
    """The client that work of the broker concerns, or else the part of the broker."""
    return (owner.client or owner.name) if type(owner) is Own else owner


class _Work(Generic[T]):
    """A generator and its future; only a future for a coroutine that waits for its turn."""

    __slots__ = ("client", "future", "line", "owner", "spent_steps", "spent_us", "steps")

    def __init__(
        self,
        steps: Generator[None, None, T] | None,
        future: asyncio.Future[T],
        owner: object,
    ) -> None:
        self.steps = steps
        self.future = future
        self.owner = owner
        #: The client that the work is for; None if it is for the broker itself.
        self.client = client_of(owner)
        #: Owners with the same line share one turn of the rotation.
        self.line = self.client if self.client is not None else _line_of(owner)
        self.spent_us = 0
        self.spent_steps = 0


class _Owners:
    """Waiting work of one client, in rotation by owner."""

    __slots__ = ("number", "works")

    def __init__(self) -> None:
        self.works: dict[object, deque[_Work[Any]]] = {}
        self.number = 0

    def add(self, work: _Work[Any]) -> None:
        self.works.setdefault(work.owner, deque()).append(work)
        self.number += 1

    def pop(self) -> _Work[Any]:
        """The first work of the first owner, whose other work is now behind that of all others."""
        owner = next(iter(self.works))
        waiting = self.works.pop(owner)
        work = waiting.popleft()
        if waiting:
            self.works[owner] = waiting
        self.number -= 1
        return work

    def remove(self, work: _Work[Any]) -> bool:
        """Remove a piece of work; False if it is not among them."""
        waiting = self.works.get(work.owner)
        if waiting is None or work not in waiting:
            return False
        waiting.remove(work)
        if not waiting:
            del self.works[work.owner]
        self.number -= 1
        return True


class _Clients:
    """Waiting work of clients, or of the broker for clients: in rotation by client, and by owner for each client."""

    __slots__ = ("owners",)

    def __init__(self) -> None:
        self.owners: dict[object, _Owners] = {}

    def add(self, work: _Work[Any]) -> None:
        owners = self.owners.get(work.line)
        if owners is None:
            owners = self.owners[work.line] = _Owners()
        owners.add(work)

    def pop(self, client: object = None) -> _Work[Any]:
        """The next work, of the given client or else of the first; its client is now behind all others."""
        line = next(iter(self.owners)) if client is None else client
        owners = self.owners.pop(line)
        work = owners.pop()
        if owners.number:
            self.owners[line] = owners
        return work

    def remove(self, work: _Work[Any]) -> bool:
        """Remove a piece of work; False if it is not among them."""
        owners = self.owners.get(work.line)
        if owners is None or not owners.remove(work):
            return False
        if not owners.number:
            del self.owners[work.line]
        return True

    def number(self, client: object) -> int:
        """The number of pieces of a client."""
        owners = self.owners.get(client)
        return 0 if owners is None else owners.number

    def waits(self, owner: object, client: object) -> bool:
        """Whether work of an owner waits."""
        owners = self.owners.get(client)
        return owners is not None and owner in owners.works

    def all(self) -> list[_Work[Any]]:
        return [
            work
            for owners in self.owners.values()
            for work in chain.from_iterable(owners.works.values())
        ]


class _LongWork:
    """The long work of clients: the pieces in the rotation, and those that wait."""

    __slots__ = ("parked", "running")

    def __init__(self) -> None:
        self.running: set[_Work[Any]] = set()
        self.parked = _Clients()

    def enter(self, work: _Work[Any]) -> bool:
        """Whether the work is in the rotation, or there is room for it; if not, it waits."""
        if work in self.running:
            return True
        if len(self.running) >= MAX_LONG or self._runs(work.client):
            self.park(work)
            return False
        self.running.add(work)
        return True

    def park(self, work: _Work[Any]) -> None:
        """Let the work wait behind the other work of its owner."""
        self.parked.add(work)

        def gone(_: asyncio.Future[Any]) -> None:  # the result is no longer needed
            if self.parked.remove(work):
                assert work.steps is not None
                work.steps.close()

        work.future.add_done_callback(gone)

    def _runs(self, client: object) -> bool:
        return any(work.client == client for work in self.running)

    def next(self) -> _Work[Any] | None:
        """Move the next piece that waits to the rotation, if there is room, and return it."""
        if len(self.running) >= MAX_LONG:
            return None
        client = next((client for client in self.parked.owners if not self._runs(client)), None)
        if client is None:
            return None
        following = self.parked.pop(client)
        self.running.add(following)
        return following


class Turns:
    """Gives long work its turns.

    Shape: `now_us` is a monotonic clock; `cpu_us` is this thread's CPU time, which determines whether work is long,
    since short work may take long by the clock on a busy machine. Work ends with the generator's return value as the
    result of its future, or with its exception. A cancelled future closes the generator. Owners are compared with `==`;
    work without an owner has that of what runs at the moment (`cause()`), which is the broker itself if no client is.
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
        self._own = _Clients()
        self._clients = _Clients()
        self._own_is_next = True
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
        does not start while much other work of its client has begun. Errors: those of the generator until then.
        """
        if owner is None:
            owner = CAUSE.get()
        client = client_of(owner)
        if client is None:
            waits = self._own.waits(owner, _line_of(owner))
        else:
            if can_wait and self._has_begun_much(client):
                parked = _Work(steps, asyncio.get_running_loop().create_future(), owner)
                self._long.park(parked)
                return parked.future
            waits = self._clients.waits(owner, client)
        if (
            not waits and not self._is_overdrawn()
        ):  # otherwise it comes after the owner's earlier work
            before = CAUSE.set(None if client is None else owner)
            end_us = self._now_us() + AT_ONCE_US
            try:
                self._advance(steps, end_us, AT_ONCE_STEPS)
                self._begin()
                self._advance(steps, self._slice_end_us, self._steps_left)
            except StopIteration as end:
                value: T = end.value
                if not self._scheduled and self._now_us() >= end_us:
                    self.has_time()  # its last step took long: this turn's slice begins
                return value
            finally:
                CAUSE.reset(before)
        work = _Work(steps, asyncio.get_running_loop().create_future(), owner)
        self._enter(work)
        return work.future

    def _is_overdrawn(self) -> bool:
        """Whether new work has used another slice in this turn: many requests of some steps that take long."""
        return self._scheduled and (
            self._steps_left <= -self._slice_steps
            or self._cpu_us() >= self._slice_end_cpu_us + self._slice_us
        )

    def _has_begun_much(self, client: object) -> bool:
        number = self._clients.number(client) + self._long.parked.number(client)
        return number >= MAX_BEGUN

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
        if owner is None:
            owner = CAUSE.get()
        work: _Work[None] = _Work(None, asyncio.get_running_loop().create_future(), owner)
        self._enter(work)
        await work.future
        self._new_slice()

    @property
    def waiting(self) -> int:
        """The number of pieces of work that wait for their turn."""
        return sum(
            owners.number
            for clients in (self._own, self._clients, self._long.parked)
            for owners in clients.owners.values()
        )

    def close(self) -> None:
        """Cancel all generators, including future ones; coroutines no longer wait."""
        self._closed = True
        given_up = [
            *self._own.all(),
            *self._clients.all(),
            *self._long.parked.all(),
        ]
        self._own, self._clients, self._long = _Clients(), _Clients(), _LongWork()
        for work in given_up:
            self._give_up(work)

    def _enter(self, work: _Work[Any]) -> None:
        if self._closed:
            self._give_up(work)
            return
        if work.client is None:
            self._own.add(work)
        else:
            self._clients.add(work)
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
        """One turn of the loop: a slice for waiting work, if there is any.

        Shape: if both the broker and clients have work, each gets half of the slice; a coroutine gets a slice of its
        own, and the others the next.
        """
        self._scheduled = False
        if not (self._own.owners or self._clients.owners):
            return
        self._new_slice()
        while self._own.owners or self._clients.owners:
            is_own = bool(self._own.owners) and (self._own_is_next or not self._clients.owners)
            work = self._own.pop() if is_own else self._clients.pop()
            self._own_is_next = not is_own
            if work.steps is None:
                if not work.future.done():
                    work.future.set_result(None)  # it continues after this, in its own slice
                self._ended(work)
                break
            self._continue(work, bool(self._clients.owners if is_own else self._own.owners))
            if self._steps_left <= 0 or self._now_us() >= self._slice_end_us:
                break
        self._schedule()

    def _continue(self, work: _Work[Any], shares: bool) -> None:
        """Advance a generator, by half a slice at most if it `shares` the slice."""
        steps, future = work.steps, work.future
        assert steps is not None
        if future.done():  # cancelled
            steps.close()
            self._ended(work)
            return
        end_us, most_steps = self._slice_end_us, self._steps_left
        if shares:
            end_us = min(end_us, self._now_us() + self._slice_us // 2)
            most_steps = min(most_steps, self._slice_steps // 2)
        began_us, steps_left = self._cpu_us(), self._steps_left
        before = CAUSE.set(None if work.client is None else work.owner)
        try:
            self._advance(steps, end_us, most_steps)
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
        finally:
            CAUSE.reset(before)

    # -- long work

    def _go_on(self, work: _Work[Any]) -> None:
        """Keep work in the rotation: the broker's own, short work, and long work if there is room."""
        is_long = work.spent_us >= LONG_US or work.spent_steps >= LONG_STEPS
        if work.client is None or not is_long or self._closed or self._long.enter(work):
            self._enter(work)

    def _ended(self, work: _Work[Any]) -> None:
        """Let work that waits take the place of work that has left the rotation."""
        if work.client is not None:
            self._long.running.discard(work)
            while (following := self._long.next()) is not None:
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
