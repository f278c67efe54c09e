"""An event loop whose time a test commands.

There are two kinds of timers. Those of the broker's decisions follow the commanded time, which runs with the
machine's clock until it is frozen or moved. Those of the network (`REAL_TIME`) always follow the machine's
clock: a client waits in real time for the answer to its Fetch, whatever the test does with the broker's time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, NamedTuple
from weakref import WeakSet

from .real_time import time, wall_ns

#: Callbacks of timers that keep real time, as class and method: waiting fetches, the inspection of connections, the
#: pause after a failed accept, and the time that brokers wait for each other's answers.
REAL_TIME = frozenset(
    {
        ("BrokerChannel", "_time_out"),
        ("FetchWaiter", "end"),
        ("Listener", "_housekeeping"),
        ("SocketAcceptor", "resume"),
    }
)

#: The same, but for the waits of fetches: on request, these follow the commanded time.
REAL_TIME_BUT_FETCHES = REAL_TIME - {("FetchWaiter", "end")}

#: Periodic checks that look for work every few seconds. In real time they are plain timers. While time is advanced,
#: they make no steps of their own, because a week would take a million steps: a check that is due runs after the next
#: other timer, and at the end.
CHECKS = frozenset({"LogUpkeep._repeat.<locals>.run", "clean", "drop_laggards", "Tls._watch"})
CHECK_S = 60.0

#: How many turns of the loop one step may take to come to rest. Only busy clients can make it take more.
MAX_TURNS = 500


#: The broker to which the running code belongs, for loops that run several.
OWNER: ContextVar[object] = ContextVar("OWNER", default=None)


class OwnedTask(asyncio.Task[Any]):
    """A task that belongs to a broker."""

    owner: object = None


def owned_task(loop: ControlledLoop, coro: Any, **options: Any) -> OwnedTask:
    """A task factory."""
    task = OwnedTask(coro, loop=loop, **options)
    context = options.get("context")
    task.owner = OWNER.get() if context is None else context.get(OWNER)
    loop.tasks.add(task)
    return task


class ControlledLoop(asyncio.SelectorEventLoop):
    """A loop with commanded time. Unit: `time()` and the methods here take and return seconds.

    Shape: everything here is called on the loop's own thread.
    """

    def __init__(self) -> None:
        #: Commanded time minus the machine's monotonic time, while the clock runs.
        self._offset = 0.0
        #: The commanded time while it is frozen.
        self._frozen_at: float | None = None
        self.tasks: WeakSet[OwnedTask] = WeakSet()
        self._real_time = REAL_TIME
        self._real: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._checks: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        #: Whether the last look at the sockets found anything.
        self.saw_events = False
        super().__init__(_Selector(self))
        self.set_task_factory(owned_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """The commanded time, on a clock that never goes back."""
        return time.monotonic() + self._offset if self._frozen_at is None else self._frozen_at

    @property
    def is_frozen(self) -> bool:
        """Whether the time stands still."""
        return self._frozen_at is not None

    def freeze(self) -> None:
        """Let the time stand still, at a whole millisecond; harmless if it does already."""
        if self._frozen_at is None:
            self._frozen_at = math.ceil(self.time() * 1000) / 1000

    def command_fetches(self, commanded: bool) -> None:
        """Whether fetches that begin to wait from now on do so in commanded time."""
        self._real_time = REAL_TIME_BUT_FETCHES if commanded else REAL_TIME

    def resume(self) -> None:
        """Let the time run on from where it stands."""
        if self._frozen_at is not None:
            self._offset = self._frozen_at - time.monotonic()
            self._frozen_at = None

    async def advance(self, seconds: float, before_timers: Callable[[], None]) -> int:
        """Move the frozen time forward, through each timer in order; return the number of steps.

        Shape: work started by a timer comes to rest before the time moves on. `before_timers` is called at the time of
        each step, before its timers.
        """
        assert self._frozen_at is not None
        end = self._frozen_at + seconds
        steps = 1
        await self.settle()
        while (due := self._next_due()) is not None and due <= end:
            self._frozen_at = max(self._frozen_at, due)
            before_timers()
            await self.settle()
            steps += 1
        self._frozen_at = end
        before_timers()
        await self.settle()
        return steps

    def abandon(self, owner: object) -> None:
        """Cancel all tasks and timers of a broker."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        kept = [each[2] for heap in (self._real, self._checks) for each in heap]
        for handle in [*scheduled, *kept]:
            context = handle._context  # type: ignore[attr-defined]
            if context is not None and context.get(OWNER) is owner:
                handle.cancel()
        for task in self.unfinished():
            if task.owner is owner:
                task.cancel()

    def unfinished(self) -> list[OwnedTask]:
        """The tasks that have not ended. Shape: asyncio.all_tasks looks at the tasks of all loops of the process."""
        return [task for task in self.tasks if not task.done()]

    async def settle(self) -> None:
        """Return when nothing is left to do at this moment."""
        quiet = 0
        for _ in range(MAX_TURNS):
            await asyncio.sleep(0)
            quiet = 0 if self._ready or self.saw_events else quiet + 1  # type: ignore[attr-defined]
            if quiet == 2:
                return

    def _next_due(self) -> float | None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else None

    # -- the two kinds of timers that asyncio does not keep

    def call_later(  # type: ignore[override]  # typeshed names the arguments of each callback
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back after a delay, in commanded time or, for the network, in real time."""
        if self._keeps_real_time(callback):
            heap, due = self._real, time.monotonic() + delay
        elif delay <= CHECK_S and self._is_check():
            heap, due = self._checks, self.time() + delay
        else:
            return super().call_later(delay, callback, *args, context=context)
        handle = asyncio.TimerHandle(due, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(heap, (due, self._numbers, handle))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time of `time()`; callbacks that keep real time run after that much real time."""
        delay = when - self.time()
        if self._keeps_real_time(callback) or (delay <= CHECK_S and self._is_check()):
            return self.call_later(delay, callback, *args, context=context)
        return super().call_at(when, callback, *args, context=context)

    def _keeps_real_time(self, callback: Callable[..., object]) -> bool:
        owner = getattr(callback, "__self__", None)
        return owner is not None and (type(owner).__name__, callback.__name__) in self._real_time

    def _is_check(self) -> bool:
        task = asyncio.current_task(self)
        return task is not None and getattr(task.get_coro(), "__qualname__", "") in CHECKS

    def wait_s(self, timeout: float | None) -> float | None:
        """How long to wait for sockets, in real time."""
        heaps = [(self._real, time.monotonic)]
        if self._frozen_at is None:
            heaps.append((self._checks, self.time))
        elif timeout is not None and timeout > 0:
            timeout = None
        for heap, now in heaps:
            while heap and heap[0][2].cancelled():
                heapq.heappop(heap)
            if heap:
                wait = max(heap[0][0] - now(), 0)
                timeout = wait if timeout is None else min(wait, timeout)
        return timeout

    def run_due(self) -> None:
        """Make the callbacks of these timers ready, of those that are due."""
        for heap, now in ((self._real, time.monotonic), (self._checks, self.time)):
            while heap and heap[0][0] <= now():
                handle = heapq.heappop(heap)[2]
                if not handle.cancelled():
                    self._ready.append(handle)  # type: ignore[attr-defined]


class _Selector(selectors.DefaultSelector):
    """Waits for sockets and timers."""

    def __init__(self, loop: ControlledLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(self._loop.wait_s(timeout))
        self._loop.saw_events = bool(events)
        self._loop.run_due()
        return events


class Time(NamedTuple):
    """A broker's wall clock, and the machine's at the same moment. Unit: microseconds since the Unix epoch."""

    wall_us: int
    machine_us: int
    is_frozen: bool


class LoopClock:
    """The broker's clocks (`server.clock.Clock`), from the loop's time."""

    def __init__(self, loop: ControlledLoop) -> None:
        self._loop = loop
        #: Wall-clock time minus the loop's. Unit: microseconds.
        self._wall_us = wall_ns() // 1000 - self.monotonic_us()

    def now_ms(self) -> int:
        """Wall-clock time in ms since the Unix epoch."""
        return self._now_us() // 1000

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        return self.monotonic_us() // 1000

    def monotonic_us(self) -> int:
        """The same in microseconds."""
        return round(self._loop.time() * 1_000_000)

    def time(self) -> Time:
        """The state that another broker needs to continue from here."""
        return Time(self._now_us(), wall_ns() // 1000, self._loop.is_frozen)

    def take_up(self, other: Time) -> None:
        """Have the time that the broker of `other` has by now."""
        passed_us = 0
        if other.is_frozen:
            self._loop.freeze()
        else:
            passed_us = wall_ns() // 1000 - other.machine_us
        self._wall_us += other.wall_us + passed_us - self._now_us()

    def _now_us(self) -> int:
        return self.monotonic_us() + self._wall_us

    def set_back_or_forward(self, ms: int) -> None:
        """Set the wall clock, as an operator or NTP does; the monotonic clock is not affected."""
        self._wall_us += ms * 1000
