"""Work in other processes, so that one client's batch delays neither the loop nor other clients.

Work that cannot be done in slices (decompression, and reading the result record by record) runs in two processes. All
of it begins in the quick process, which stops everything that takes longer than a moment. Only stopped work is repeated
in the slow process. So no client waits long behind a batch that expands a thousandfold: the quick process is soon free
again, and only long work enters the slow one. In both, clients take turns.

Limits: CPU time, by a timer in the process itself; time on the clock, after which the process is killed; memory. A
process does one piece of work at a time, so no other work is lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .fair_queue import FairQueue

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")

IDLE_PROCESS_S = 60.0

#: If the worker process dies, its work is tried once more in a new one, in case something else killed the process.
ATTEMPTS = 2

#: CPU time after which work is stopped in the quick process.
QUICK_CPU_S = 0.1
#: Gives the slow process a lower priority than the broker.
SLOW_NICENESS = 5
#: A process that spends this multiple of its CPU limit, and at least this long, on one piece of work is killed: the
#: machine may be busy, but then the timer in the process has failed.
WALL_FACTOR = 5
MIN_WALL_S = 5.0
#: The timer fires again after this time, in case the first exception was swallowed.
AGAIN_S = 0.05


class TookTooLong(Exception):
    """Work was stopped at its limit of time."""


class TookTooMuch(Exception):
    """Work was stopped because it needed more memory than allowed."""


class WorkerLimits(NamedTuple):
    """The limits for one piece of work: CPU seconds, and bytes of memory of its process."""

    cpu_s: float = 10.0
    memory_bytes: int = 512 * 1024 * 1024


# -- in rotation -----------------------------------------------------------------------------------


class FairPermits:
    """Limits the number of concurrent requests of clients; the others wait in rotation."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def permit(self, client: Hashable) -> AsyncIterator[None]:
        """Hold one permit, for a client."""
        if self._free:
            self._free -= 1
        else:
            given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.put(client, given)
            try:
                await given
            except asyncio.CancelledError:
                self._waiting.remove(client, given)
                if not given.cancelled():  # granted at the same moment
                    self._hand_on()
                raise
        try:
            yield
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting:
            _, given = self._waiting.take()
            if not given.done():
                given.set_result(None)
                return
        self._free += 1


# -- one process -----------------------------------------------------------------------------------


class WorkerProcess:
    """One process, started on first use; it ends when idle."""

    def __init__(
        self,
        *,
        idle_s: float = IDLE_PROCESS_S,
        niceness: int = 0,
        memory_bytes: int | None = None,
    ) -> None:
        self._idle_s = idle_s
        self._niceness = niceness
        self.memory_bytes = memory_bytes
        self._pool: ProcessPoolExecutor | None = None
        self._busy = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_running(self) -> bool:
        return self._pool is not None

    async def run(self, function: Callable[..., T], *args: Any, wall_s: float | None = None) -> T:
        """Run a function in the process, after all earlier calls.

        Shape: a module-level function, and arguments that can be pickled. Errors: those of the function; BrokenExecutor
        if the process died twice during the call; TookTooLong after `wall_s`, when the process is killed;
        CancelledError when the process is closed.
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
                pool = self._started()
                try:
                    running = asyncio.wrap_future(pool.submit(function, *args))
                    if wall_s is None:
                        return await running
                    await asyncio.wait([running], timeout=wall_s)
                    if not running.done():
                        running.cancel()
                        self._kill(pool)
                        raise TookTooLong(f"it was not done after {wall_s:g} s")
                    return running.result()
                except BrokenExecutor:
                    if self._pool is pool:
                        self._pool = None
                    if attempt + 1 == ATTEMPTS and not self._closed:
                        raise
            raise asyncio.CancelledError
        finally:
            self._busy -= 1
            if not self._busy and self._pool is not None and not self._closed:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(self._idle_s, self._end)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            # fork would copy the sockets and locks of a running broker.
            self._pool = ProcessPoolExecutor(
                1,
                get_context("spawn"),
                initializer=begin_worker,
                initargs=(self._niceness, self.memory_bytes),
            )
        return self._pool

    def restart(self) -> None:
        """End the process immediately; the next work begins in a new one."""
        if self._pool is not None:
            self._kill(self._pool)

    def _end(self) -> None:
        self._idle_timer = None
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def _kill(self, pool: ProcessPoolExecutor) -> None:
        # Otherwise the interpreter would wait at exit for the running work.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        if self._pool is pool:
            self._pool = None

    def close(self) -> None:
        """End the process immediately; queued and running work is dropped."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._pool is not None:
            self._kill(self._pool)


# -- two processes, for everybody ------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Job:
    client: Hashable
    function: Callable[..., Any]
    args: tuple[Any, ...]
    done: asyncio.Future[Any]


class Lane:
    """One process and its waiting work. Errors of work: as for `WorkerProcess.run`, and TookTooMuch."""

    def __init__(self, process: WorkerProcess, cpu_s: float) -> None:
        self.process = process
        self.cpu_s = cpu_s
        self._waiting: FairQueue[_Job] = FairQueue()
        self._running: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, client: Hashable, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a function when the client's turn comes. Shape: cancel the future to stop it."""
        loop = asyncio.get_running_loop()
        job = _Job(client, function, args, loop.create_future())

        def given_up(done: asyncio.Future[T]) -> None:
            if done.cancelled():
                self._waiting.remove(client, job)

        job.done.add_done_callback(given_up)
        self._waiting.put(client, job)
        if self._running is None:
            self._running = loop.create_task(self._work())
        return job.done

    async def _work(self) -> None:
        try:
            while self._waiting:
                _, job = self._waiting.take()
                await self._run(job)
        finally:
            self._running = None

    async def _run(self, job: _Job) -> None:
        wall_s = max(MIN_WALL_S, WALL_FACTOR * self.cpu_s)
        try:
            result = await self.process.run(
                limited, self.cpu_s, job.function, *job.args, wall_s=wall_s
            )
        except asyncio.CancelledError:  # the broker is stopping
            job.done.cancel()
            for waiting in self._waiting.take_all():
                waiting.done.cancel()
        except MemoryError:
            self.process.restart()  # its remaining memory may not be enough for the next call
            if not job.done.done():
                job.done.set_exception(TookTooMuch("it needed too much memory"))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            if not job.done.done():
                job.done.set_exception(error)
        else:
            if not job.done.done():
                job.done.set_result(result)

    def close(self) -> None:
        """End the process; waiting calls are cancelled."""
        self.process.close()


class Workers:
    """The two processes for clients' work."""

    def __init__(self, limits: WorkerLimits, *, idle_s: float = IDLE_PROCESS_S) -> None:
        memory = limits.memory_bytes
        self.limits = limits
        self.quick = Lane(WorkerProcess(idle_s=idle_s, memory_bytes=memory), QUICK_CPU_S)
        self.slow = Lane(
            WorkerProcess(idle_s=idle_s, niceness=SLOW_NICENESS, memory_bytes=memory),
            limits.cpu_s,
        )

    async def run(self, client: Hashable, function: Callable[..., T], *args: Any) -> T:
        """Run a function for a client. Errors: TookTooLong, TookTooMuch, and those of `WorkerProcess.run`."""
        try:
            return await self.quick.submit(client, function, *args)
        except TookTooLong:
            return await self.slow.submit(client, function, *args)

    def close(self) -> None:
        """End both processes immediately; queued and running work is dropped."""
        self.quick.close()
        self.slow.close()


# -- in the process --------------------------------------------------------------------------------


class _Over(BaseException):
    """Ends work at its limit of CPU time; not caught by `except Exception`."""


def limited(cpu_s: float, function: Callable[..., T], *args: Any) -> T:
    """Run a function with a limit on this process's CPU time. Errors: TookTooLong."""
    import signal

    is_over = False

    def strike(*_: object) -> None:
        if not is_over:
            raise _Over

    before = signal.signal(signal.SIGPROF, strike)
    try:
        signal.setitimer(signal.ITIMER_PROF, cpu_s, AGAIN_S)
        return function(*args)
    except _Over:
        is_over = True  # before anything that the timer could interrupt again
        raise TookTooLong(f"it was not done after {cpu_s:g} s of CPU time") from None
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def begin_worker(niceness: int = 0, memory_bytes: int | None = None) -> None:
    """Bind the life of a worker process to that of the broker, and limit its memory.

    Shape: the worker ignores signals to the whole process group (Ctrl-C, a service manager's stop), which the broker
    handles. When the broker process ends, for any reason, the worker also ends. On systems that cannot limit a
    process's memory, there is no limit.
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
    if memory_bytes is not None:
        bound_memory(memory_bytes)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="kwire-parent-watch", daemon=True).start()


def bound_memory(size: int) -> None:
    """Make allocations fail beyond this many bytes of data of this process."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    except (OSError, ValueError):
        pass
