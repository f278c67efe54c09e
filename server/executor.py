"""Runs work that must not block the event loop: a few threads, and processes for Python work.

System calls that block (fsync, reads of cold pages) release the interpreter lock and run in threads. Python work on
records would hold the lock and block the loop, so it runs in worker processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .workers import IDLE_PROCESS_S, WorkerLimits, WorkerProcess, Workers

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")


class Executor:
    """Threads and worker processes, started on first use; idle processes end.

    Shape: `limits` apply to work for clients, from the next start of a process on.
    """

    def __init__(
        self,
        max_threads: int = 4,
        idle_process_s: float = IDLE_PROCESS_S,
        *,
        niceness: int = 0,
        limits: WorkerLimits | None = None,
    ) -> None:
        self._max_threads = max_threads
        self._idle_process_s = idle_process_s
        self._threads: ThreadPoolExecutor | None = None
        self._process = WorkerProcess(idle_s=idle_process_s, niceness=niceness)
        self._workers: Workers | None = None
        self.limits = limits or WorkerLimits()
        self._closed = False

    def separate(self, *, niceness: int) -> Executor:
        """Return another executor, whose process has at least this niceness."""
        return Executor(self._max_threads, self._idle_process_s, niceness=niceness)

    def bound_process(self, memory_bytes: int) -> None:
        """Limit the memory of the broker's own process; a process with another limit is ended."""
        if self._process.memory_bytes != memory_bytes:
            self._process.memory_bytes = memory_bytes
            self._process.restart()

    def in_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a function that blocks in a system call."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(self._max_threads, "kwire-io")
        return asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))

    async def in_process(self, function: Callable[..., T], *args: Any) -> T:
        """Run the broker's own Python work in a separate process, in the order of the calls.

        Shape and errors: as for `WorkerProcess.run`; there is no limit.
        """
        return await self._process.run(function, *args)

    async def in_worker(self, client: Hashable, function: Callable[..., T], *args: Any) -> T:
        """Run Python work for a client, fairly between clients and within `limits`.

        Shape: a module-level function that can be repeated from the beginning, and arguments that can be pickled.
        Errors: as for `Workers.run`.
        """
        if self._closed:
            raise asyncio.CancelledError
        if self._workers is None:
            self._workers = Workers(self.limits, idle_s=self._idle_process_s)
        return await self._workers.run(client, function, *args)

    def close(self) -> None:
        """End the threads and the processes immediately; queued and running work is dropped."""
        self._closed = True
        self._process.close()
        if self._workers is not None:
            self._workers.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
