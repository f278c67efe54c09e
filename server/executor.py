"""Runs work that must not stall the event loop: a few threads, and one process for Python work.

System calls that block (fsync, reads of cold pages) release the interpreter lock and go to threads.
Python work over records would hold it and stall the loop, so it goes to a worker process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")

IDLE_PROCESS_S = 60.0

#: If the worker process dies, its work is tried once more in a new one, in case something else killed it.
ATTEMPTS = 2


class Executor:
    """Threads and the worker process, started on first use; the process ends when idle."""

    def __init__(
        self,
        max_threads: int = 4,
        idle_process_s: float = IDLE_PROCESS_S,
        *,
        niceness: int = 0,
    ) -> None:
        self._max_threads = max_threads
        self._idle_process_s = idle_process_s
        self._niceness = niceness
        self._threads: ThreadPoolExecutor | None = None
        self._processes: ProcessPoolExecutor | None = None
        self._busy = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def separate(self, *, niceness: int) -> Executor:
        """Return another executor, whose process has at least this niceness."""
        return Executor(self._max_threads, self._idle_process_s, niceness=niceness)

    def in_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a function that blocks in a system call."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(self._max_threads, "kwire-io")
        return asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))

    async def in_process(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run Python work in the worker process, in the order of the calls.

        Shape: a module-level function, and arguments that can be pickled. Errors: what the function
        raises; BrokenExecutor if the process died twice while running it; CancelledError when the
        executor is closed.
        """
        from concurrent.futures import BrokenExecutor

        self._busy += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        try:
            for attempt in range(ATTEMPTS):
                if self._closed:
                    raise asyncio.CancelledError
                pool = self._pool()
                try:
                    return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))
                except BrokenExecutor:
                    if self._processes is pool:
                        self._processes = None
                    if attempt + 1 == ATTEMPTS and not self._closed:
                        raise
            raise asyncio.CancelledError
        finally:
            self._busy -= 1
            if not self._busy and self._processes is not None and not self._closed:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(self._idle_process_s, self._end_process)

    def _pool(self) -> ProcessPoolExecutor:
        if self._processes is None:
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            # fork would copy the sockets and locks of a running broker.
            self._processes = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=begin_worker, initargs=(self._niceness,)
            )
        return self._processes

    def _end_process(self) -> None:
        self._idle_timer = None
        if self._processes is not None:
            self._processes.shutdown(wait=False)
            self._processes = None

    def close(self) -> None:
        """End the threads and the process at once; queued and running work is dropped."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._processes is not None:
            # Otherwise the interpreter would wait at exit for the running work.
            for process in list((self._processes._processes or {}).values()):
                process.kill()
            self._processes.shutdown(wait=False, cancel_futures=True)
            self._processes = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def begin_worker(niceness: int = 0) -> None:
    """Tie the life of a worker process to that of the broker.

    Shape: the worker ignores signals to the whole process group (Ctrl-C, a service manager's stop), which
    the broker acts on. When the broker process has ended, for whatever reason, the worker ends too.
    """
    import os
    import signal
    import threading
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    behind = niceness - os.getpriority(os.PRIO_PROCESS, 0)
    if behind > 0:
        os.nice(behind)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="kwire-parent-watch", daemon=True).start()
