"""Monitors the rule that no turn of the event loop takes long: logs and counts long turns.

A turn is everything that the loop does between two checks of its sockets: requests, timers, callbacks of futures. The
selector measures its CPU time, once per turn. Sampling finds the cause: while the process uses CPU, a timer of the
operating system interrupts it every SAMPLE_MS of CPU time, or twice within the shortest long turn. If an interruption
occurs in a turn that is already long, the stack is searched for the request that is being handled. A waiting process is
not interrupted.

uvloop does not report where its turns end. There, the first interruption of a turn schedules a mark, which the loop
reaches in its next turn. The CPU time between the two is measured, and the turn may have been up to SAMPLE_MS longer.
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
#: At most one line is logged in this interval.
LINE_S = 1.0
STACK_DEPTH = 4
#: If a collection of this generation or an older one took this fraction of a long turn, the remaining objects are
#: exempt from further collections.
EXEMPTED = 1
EXEMPTS = 10
#: The oldest generation, which a full collection includes.
OLDEST = 2
#: The younger generations are collected after this much CPU time. CPython counts new objects minus freed ones: while
#: new state replaces old state, the count does not rise, and a collection would come only when it takes long.
YOUNG_NS = 10_000_000
NANOSECONDS = 1_000_000


class Watchdog:
    """Measures the turns of one loop, on the main thread.

    Shape: `selector` measures the turns, and is the selector of asyncio's loop. `long_turns` counts turns that took at
    least `limit_ms` of CPU since `start`, and `long_turns_by_api` counts those in which a request was being handled.
    """

    def __init__(self, limit_ms: int) -> None:
        self.limit_ns = limit_ms * NANOSECONDS
        #: The time between two samples. The system's own ticks, of up to 10 ms, extend it.
        self.sample_s = min(SAMPLE_MS, max(limit_ms, 1) / 2) / 1000
        self.long_turns = 0
        self.long_turns_by_api: Counter[str] = Counter()
        self.selector: WatchedSelector | MarkedTurns = WatchedSelector(self)
        self._sample: tuple[str, str] | None = None
        self._collecting_ns = self._collected_ns = 0
        #: The time of the collections that promoted objects to the oldest generation.
        self._promoted_ns = 0
        self._next_line_s = 0.0
        self._unsaid = 0
        self._before: Any = None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Create the loop whose turns are measured."""
        assert isinstance(self.selector, WatchedSelector)
        return asyncio.SelectorEventLoop(self.selector)

    def new_uvloop(self) -> asyncio.AbstractEventLoop:
        """Create a uvloop loop whose turns are measured."""
        self.selector.close()
        loop: asyncio.AbstractEventLoop = import_uvloop().new_event_loop()
        self.selector = MarkedTurns(self, loop)
        return loop

    def start(self) -> None:
        """Start measuring."""
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
        """The start of the current turn, by the monotonic clock, estimated from its CPU time.

        Shape: with uvloop the start is not known, and the result is now.
        """
        if isinstance(self.selector, MarkedTurns):
            return time.monotonic_ns() // 1000
        spent_ns = time.thread_time_ns() - self.selector.began_ns
        return (time.monotonic_ns() - spent_ns) // 1000

    def turn_was_long(self, spent_ns: int) -> None:
        """Count a turn that took too long, and log its cause."""
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
            self._sample = None  # from an earlier turn
            self._collected_ns = 0
        elif frame is not None:
            found = describe(frame)
            # The request that was found first is more likely to be the cause than later ones.
            if self._sample is None or not self._sample[0]:
                self._sample = found

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """Measure the time of garbage collections, and keep them short.

        If a collection takes long, the remaining objects are exempt from further collections: they are the broker's
        state, or a long request, and are freed when they are no longer referenced. The remaining objects of short
        collections are collected between two turns, before a full collection of them would take long.
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

#: The sockets that one turn of asyncio's loop serves, of those that are ready.
EVENTS_IN_TURN = 256


class MarkedTurns:
    """Measures turns of a loop without a selector, by marks; see this module's description."""

    def __init__(self, watchdog: Watchdog, loop: asyncio.AbstractEventLoop) -> None:
        self.watchdog = watchdog
        self.limit_ns = self.young_until_ns = NEVER_NS
        self.began_ns = 0
        self.collect = False
        self.longest_ns = 0
        self._loop = loop
        self._is_marked = False

    def interrupted(self) -> None:
        """Start measuring, unless this turn is already measured."""
        if not self._is_marked and not self._loop.is_closed():
            self._is_marked = True
            self.began_ns = time.thread_time_ns()
            self._loop.call_soon_threadsafe(self._mark)

    def _mark(self) -> None:
        self._is_marked = False
        end_turn(self)

    def close(self) -> None:
        """Do nothing, since nothing is open."""


def end_turn(turns: WatchedSelector | MarkedTurns) -> None:
    """Record how long a turn took, and collect garbage between two turns when that is due."""
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
    """The operating system's selector, which measures the time between two calls.

    Shape: if very many sockets are ready, the loop gets EVENTS_IN_TURN of them in each turn, so that thousands of
    connections that send, or are closed, at one moment do not make one long turn of work that is short for each.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self.watchdog = watchdog
        self.limit_ns = NEVER_NS
        self.began_ns = 0
        #: Whether a full collection is due.
        self.collect = False
        #: The CPU time at which a collection of the younger generations is due.
        self.young_until_ns = NEVER_NS
        #: The longest turn; readers may reset it to 0.
        self.longest_ns = 0
        self._rest: list[tuple[selectors.SelectorKey, int]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn of the loop, and wait for the next."""
        end_turn(self)
        if self._rest:
            # A socket may have been closed since, and another may have its number by now.
            known = self.get_map()
            ready = [event for event in self._rest if known.get(event[0].fileobj) is event[0]]
            self._rest = []
            ready = ready or super().select(timeout)
        else:
            ready = super().select(timeout)
        if len(ready) > EVENTS_IN_TURN:
            self._rest = ready[EVENTS_IN_TURN:]
            return ready[:EVENTS_IN_TURN]
        return ready


def describe(frame: FrameType | None) -> tuple[str, str]:
    """Return the API of the request that is being handled, or "", and the text for a log line.

    Shape: a frame belongs to a request if it has its context (`ctx`), or is the dispatcher's.
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
