"""Watches the rule that no turn of the event loop takes long: logs and counts the turns that do.

A turn is everything that the loop does between two checks of its sockets: requests, timers,
callbacks of futures. Its CPU time is measured once per turn, by the selector. Who used it is found
by sampling: while the process uses CPU, a timer of the operating system interrupts it every
SAMPLE_MS of CPU time, or twice in the shortest long turn, and when that happens in a turn that is already long, the stack is searched
for the request that is being handled. A process that waits is not interrupted.

uvloop tells nobody where its turns end. There the first interruption of a turn schedules a mark, which
the loop comes to in its next turn: the CPU time between the two is what is measured, and a turn may have
been up to SAMPLE_MS longer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import signal
import time
from collections import Counter
from pathlib import PurePath
from types import FrameType
from typing import Any

from .asyncio_without_ssl import import_uvloop

logger = logging.getLogger(__name__)

SAMPLE_MS = 20
#: At most one line is logged in this time.
LINE_S = 1.0
STACK_DEPTH = 4
#: What a collection of this generation or an older one leaves is exempt from further collections, if it took this
#: part of a long turn.
EXEMPTED = 1
EXEMPTS = 10
#: The oldest generation, which a full collection includes.
OLDEST = 2
#: The younger generations are collected after this much CPU time. CPython counts new objects, less those that are
#: freed: while old state is replaced by new, its count does not rise, and a collection would come when it has become long.
YOUNG_NS = 10_000_000
NANOSECONDS = 1_000_000


class Watchdog:
    """Measures the turns of one loop, on the main thread.

    Shape: `selector` measures the turns, and on asyncio's loop is its selector. `long_turns` counts turns that took at least `limit_ms` of
    CPU since `start`, and `long_turns_by_api` those in which a request was found at work.
    """

    def __init__(self, limit_ms: int) -> None:
        self.limit_ns = limit_ms * NANOSECONDS
        #: The time between two samples. The system's own ticks, of up to 10 ms, make it longer.
        self.sample_s = min(SAMPLE_MS, max(limit_ms, 1) / 2) / 1000
        self.long_turns = 0
        self.long_turns_by_api: Counter[str] = Counter()
        self.selector: WatchedSelector | MarkedTurns = WatchedSelector(self)
        self._sample: tuple[str, str] | None = None
        self._collecting_ns = self._collected_ns = 0
        #: The time of the collections that made the oldest generation.
        self._promoted_ns = 0
        self._next_line_s = 0.0
        self._unsaid = 0
        self._before: Any = None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Create the loop whose turns are measured."""
        assert isinstance(self.selector, WatchedSelector)
        return asyncio.SelectorEventLoop(self.selector)

    def new_uvloop(self) -> asyncio.AbstractEventLoop:
        """Create a loop of uvloop's whose turns are measured."""
        self.selector.close()
        loop: asyncio.AbstractEventLoop = import_uvloop().new_event_loop()
        self.selector = MarkedTurns(self, loop)
        return loop

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._collects)
        self._before = signal.signal(signal.SIGPROF, self._interrupted)
        signal.setitimer(signal.ITIMER_PROF, self.sample_s, self.sample_s)
        self.selector.began_ns = time.thread_time_ns()
        self.selector.longest_ns = 0
        self.selector.limit_ns = self.limit_ns
        self.selector.young_until_ns = self.selector.began_ns + YOUNG_NS

    def stop(self) -> None:
        """Stop measuring; may be called again, and before `start`."""
        self.selector.limit_ns = self.selector.young_until_ns = NEVER_NS
        if self._before is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._before)
            self._before = None
            gc.callbacks.remove(self._collects)

    def turn_began_us(self) -> int:
        """When the current turn began, by the monotonic clock, as far as its CPU time tells.

        Shape: with uvloop nobody knows, and it is now.
        """
        if isinstance(self.selector, MarkedTurns):
            return time.monotonic_ns() // 1000
        spent_ns = time.thread_time_ns() - self.selector.began_ns
        return (time.monotonic_ns() - spent_ns) // 1000

    def turn_was_long(self, spent_ns: int) -> None:
        """Count a turn that took too long, and log who used it."""
        sample, self._sample = self._sample, None
        collected_ns, self._collected_ns = self._collected_ns, 0
        self.long_turns += 1
        api, what = sample or ("", "unknown")
        if api:
            self.long_turns_by_api[api] += 1
        now_s = time.monotonic()
        if now_s < self._next_line_s:
            self._unsaid += 1
            return
        self._next_line_s = now_s + LINE_S
        logger.warning(
            "a turn of the event loop took %d ms of CPU%s: %s%s",
            spent_ns // NANOSECONDS,
            f" ({collected_ns // NANOSECONDS} ms of it for garbage collection)"
            if collected_ns >= NANOSECONDS
            else "",
            what,
            f"; {self._unsaid} more were not logged" if self._unsaid else "",
        )
        self._unsaid = 0

    def _interrupted(self, _: int, frame: FrameType | None) -> None:
        """Sample the stack, if this turn is already long."""
        if isinstance(self.selector, MarkedTurns):
            self.selector.interrupted()
        spent_ns = time.thread_time_ns() - self.selector.began_ns
        if spent_ns * 2 < self.limit_ns:
            self._sample = None  # of a turn before
            self._collected_ns = 0
        elif frame is not None:
            found = describe(frame)
            # The request that was found first is more likely to be the cause than whatever comes
            # after.
            if self._sample is None or not self._sample[0]:
                self._sample = found

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """Measure the time of garbage collections, and keep them short.

        If one takes long, what is left is kept from further collections: it is the broker's state, or a long
        request, and is freed when nothing refers to it any more. What short ones leave is collected between two
        turns, before a full collection of it would take long.
        """
        now_ns = time.thread_time_ns()
        if phase == "start":
            self._collecting_ns = now_ns
            if now_ns - self.selector.began_ns < NANOSECONDS:
                self._collected_ns = 0
        else:
            took_ns = now_ns - self._collecting_ns
            self._collected_ns += took_ns
            if info["generation"] < EXEMPTED:
                return
            self.selector.young_until_ns = now_ns + YOUNG_NS
            self._promoted_ns += took_ns
            if took_ns * EXEMPTS > self.limit_ns:
                gc.freeze()
                self._promoted_ns = 0
            elif info["generation"] == OLDEST:
                self._promoted_ns = took_ns
            elif self._promoted_ns * EXEMPTS > self.limit_ns:
                self.selector.collect = True


NEVER_NS = 1 << 62


class MarkedTurns:
    """Measures turns of a loop that has no selector, by marks; see this module's description."""

    def __init__(self, watchdog: Watchdog, loop: asyncio.AbstractEventLoop) -> None:
        self.watchdog = watchdog
        self.limit_ns = self.young_until_ns = NEVER_NS
        self.began_ns = 0
        self.collect = False
        self.longest_ns = 0
        self._loop = loop
        self._is_marked = False

    def interrupted(self) -> None:
        """Begin to measure, unless this turn is measured already."""
        if not self._is_marked and not self._loop.is_closed():
            self._is_marked = True
            self.began_ns = time.thread_time_ns()
            self._loop.call_soon_threadsafe(self._mark)

    def _mark(self) -> None:
        self._is_marked = False
        end_turn(self)

    def close(self) -> None:
        """Nothing is open."""


def end_turn(turns: WatchedSelector | MarkedTurns) -> None:
    """Note how long a turn took, and collect garbage between two turns where that is due."""
    now_ns = time.thread_time_ns()
    spent_ns = now_ns - turns.began_ns
    turns.began_ns = now_ns
    if spent_ns > turns.longest_ns:
        turns.longest_ns = spent_ns
    if spent_ns >= turns.limit_ns:
        turns.watchdog.turn_was_long(spent_ns)
    if turns.collect:
        turns.collect = False
        gc.collect()
    elif now_ns >= turns.young_until_ns:
        gc.collect(EXEMPTED)


class WatchedSelector(selectors.DefaultSelector):
    """The operating system's selector, which measures the time between two calls."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self.watchdog = watchdog
        self.limit_ns = NEVER_NS
        self.began_ns = 0
        #: Whether a full collection is due.
        self.collect = False
        #: When one of the younger generations is due, in CPU time.
        self.young_until_ns = NEVER_NS
        #: The longest turn; whoever reads it may set it back to 0.
        self.longest_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn of the loop, and wait for the next."""
        end_turn(self)
        return super().select(timeout)


def describe(frame: FrameType | None) -> tuple[str, str]:
    """Return the API of the request that is being handled, or "", and what a log line says.

    Shape: a frame is at work for a request if it has its context (`ctx`), or is the dispatcher's.
    """
    api = who = ""
    stack: list[str] = []
    while frame is not None:
        code = frame.f_code
        if len(stack) < STACK_DEPTH:
            stack.append(f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        names = frame.f_locals
        ctx = names.get("ctx")
        if ctx is not None and hasattr(ctx, "correlation_id"):
            api = ctx.handler.name
            who = f"{api} v{ctx.version} of client {ctx.client_id!r} at {ctx.connection.peer}"
            break
        request, handler = names.get("request"), names.get("handler")
        if handler is not None and request is not None and hasattr(request, "api_version"):
            api = handler.name
            version, client_id = request.api_version, request.client_id
            who = f"{api} v{version} of client {client_id!r} at {names['connection'].peer}"
            break
        frame = frame.f_back
    where = "in " + ", called by ".join(stack)
    return api, f"{who}, {where}" if who else where
