"""An event loop with simulated time, which jumps to the next timer when nothing else is to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from server.log.cleaner import process


class Stalled(Exception):
    """Nothing is ready and no timer is set, so the loop would wait forever."""


class _NoSockets(selectors.BaseSelector):
    """Waits by moving the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled("no timer is set and nothing is ready")
        if timeout > 0:
            self.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs tasks in the order in which they became ready. Unit: `time()` is in seconds, from 0."""

    def __init__(self) -> None:
        self._waiting = _NoSockets()
        super().__init__(self._waiting)

    def time(self) -> float:
        """Simulated seconds."""
        return self._waiting.now


class SimulatedClock:
    """One broker's clock. Unit: `skew_ms` is its difference from the others; tests may set it."""

    EPOCH_MS = 1_700_000_000_000

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        """Wall-clock time of this broker."""
        return self.EPOCH_MS + self.skew_ms + round(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        """Time that never jumps."""
        return round(self._loop.time() * 1000)

    def monotonic_us(self) -> int:
        """The same in microseconds."""
        return round(self._loop.time() * 1_000_000)


class SimulatedExecutor:
    """Runs the work of threads and processes on the loop, after a short delay."""

    def __init__(self, delay_s: float = 0.001) -> None:
        self.delay_s = delay_s
        self.closed = False

    def in_thread(self, function: Any, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run a function after a delay."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            if self.closed or done.done():
                done.cancel()
                return
            try:
                result = function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - it belongs to who waits
                done.set_exception(error)
            else:
                done.set_result(result)

        loop.call_later(self.delay_s, run)
        return done

    async def in_process(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function after a delay."""
        return await self.in_thread(function, *args, **kwargs)

    async def in_worker(self, client: Any, function: Any, *args: Any) -> Any:
        """Run a function after a delay."""
        return await self.in_thread(function, *args)

    def bound_process(self, memory_bytes: int) -> None:
        """Memory is not simulated."""

    def separate(self, *, niceness: int) -> SimulatedProcess:
        """Another executor with a separate process."""
        return SimulatedProcess(self.delay_s)

    def close(self) -> None:
        """Accept no more work."""
        self.closed = True


class SimulatedProcess(SimulatedExecutor):
    """Keeps the state of a module's functions apart, as a separate process would."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self._sessions: dict[int, Any] = {}

    async def in_process(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function of compaction after a delay."""

        def run() -> Any:
            with patch.object(process, "_sessions", self._sessions):
                return function(*args, **kwargs)

        return await self.in_thread(run)
