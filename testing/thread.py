"""A thread with a controlled loop, on which brokers run, and the verbs of its clock."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .loop import ControlledLoop, LoopClock

T = TypeVar("T")

#: A call that takes longer than this on the loop has hung. Unit: seconds of real time.
PATIENCE_S = 60.0
#: The number of lines of a broker's log that are kept for the report of a failed test.
LOG_LINES = 200

BROKER_LOGGER = "kwire.server"


class LoopThread:
    """Runs a loop until it is closed.

    Shape: its methods are called on other threads. If it is `quiet`, the brokers' log is kept in `log`, and goes nowhere else.
    """

    def __init__(self, *, quiet: bool = True) -> None:
        self.loop = ControlledLoop()
        self.clock = LoopClock(self.loop)
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._thread = threading.Thread(target=self._run, name="kwire-testing", daemon=True)
        self._thread.start()
        if quiet:
            LOGS.add(self._thread, self.log)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = PATIENCE_S) -> T:
        """Run a coroutine on the loop and return its result. Errors: its own; TimeoutError."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("called on the broker's own thread")
        if not self._thread.is_alive():
            raise RuntimeError("this broker is not running")
        future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"the broker has not answered for {timeout_s:.0f} s") from None
            raise

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on the loop soon."""
        self.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        LOGS.remove(self._thread)
        if not self._thread.is_alive():
            self.loop.close()

    def leave(self) -> None:
        """In a process that was forked, and has no copy of this thread: forget its log."""
        LOGS.renew_guard()
        LOGS.remove(self._thread)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = self.loop.unfinished()
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            asyncio.set_event_loop(None)


#: The end of the line for what the brokers log.
_NOWHERE = logging.Logger("kwire-testing")


class _Logs(logging.Handler):
    """Takes the lines of the brokers' loggers to the broker on whose thread they were logged.

    Shape: while there is a broker, they go nowhere else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines: dict[int | None, deque[str]] = {}
        self._before: tuple[int, logging.Logger | None] | None = None
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        lines = self._lines.get(record.thread)
        for each in [lines] if lines is not None else list(self._lines.values()):
            each.append(self.format(record))

    def renew_guard(self) -> None:
        """In a process that was forked: another thread may have held the lock."""
        self._guard = threading.Lock()

    def add(self, thread: threading.Thread, lines: deque[str]) -> None:
        logger = logging.getLogger(BROKER_LOGGER)
        with self._guard:
            if not self._lines:
                self._before = logger.level, logger.parent
                logger.addHandler(self)
                logger.setLevel(logging.INFO)
                # Not `propagate`: pytest adds its handlers to loggers that do not propagate.
                logger.parent = _NOWHERE
            self._lines[thread.ident] = lines

    def remove(self, thread: threading.Thread) -> None:
        logger = logging.getLogger(BROKER_LOGGER)
        with self._guard:
            self._lines.pop(thread.ident, None)
            if not self._lines and self._before is not None:
                logger.removeHandler(self)
                logger.setLevel(self._before[0])
                logger.parent = self._before[1]
                self._before = None


LOGS = _Logs()
