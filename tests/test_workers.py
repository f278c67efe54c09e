"""Work in worker processes: the order of clients, and the end of endless work."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from server import workers
from server.workers import (
    FairPermits,
    TookTooLong,
    TookTooMuch,
    WorkerLimits,
    Workers,
    limited,
)

# -- limits ----------------------------------------------------------------------------------------


def spin(*_: object) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:  # noqa: BLE001 - as some code would
            pass


def swallow(*_: object) -> None:
    """Like code that catches everything, once."""
    try:
        spin()
    except BaseException:  # noqa: BLE001
        spin()


@pytest.mark.parametrize("endless", [spin, swallow])
def test_work_ends_at_its_limit_of_cpu_time(endless: Callable[..., None]) -> None:
    before = signal.getsignal(signal.SIGPROF)
    began = time.process_time()
    with pytest.raises(TookTooLong, match=r"0\.01 s of CPU time"):
        limited(0.01, endless)
    assert time.process_time() - began < 1
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_work_within_its_limit_returns_what_it_returns() -> None:
    assert limited(10, pow, 2, 10) == 1024
    with pytest.raises(ZeroDivisionError):
        limited(10, divmod, 1, 0)
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_timer_that_fires_again_while_work_is_stopped_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for the work would not hear of another exception."""

    class Slow(TookTooLong):
        def __init__(self, text: str) -> None:
            signal.raise_signal(signal.SIGPROF)
            super().__init__(text)

    monkeypatch.setattr(workers, "TookTooLong", Slow)
    with pytest.raises(Slow):
        limited(0.01, spin)


# -- processes -------------------------------------------------------------------------------------


def play(test: Callable[[Workers], Awaitable[None]], **limits: Any) -> None:
    """Run a test with workers that are not given up because the machine is busy."""

    async def run() -> None:
        workers = Workers(WorkerLimits(**limits))
        try:
            await test(workers)
        finally:
            workers.close()

    with patch.object(workers, "MIN_WALL_S", 600.0):
        asyncio.run(run())


def spin_for(cpu_s: float) -> int:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
    return os.getpid()


def take_memory(size: int) -> int:
    return len(bytes(size))


def test_long_work_is_done_elsewhere_and_ends_at_its_limit() -> None:
    async def test(workers: Workers) -> None:
        quick = await workers.run("a", os.getpid)
        slow = asyncio.ensure_future(workers.run("b", spin_for, 0.3))
        while not len(workers.slow) and workers.slow._running is None:
            assert await workers.run("a", os.getpid) == quick
        assert not slow.done()
        assert await slow != quick
        with pytest.raises(TookTooLong):
            await workers.run("b", spin)
        for lane, pid in ((workers.quick, quick), (workers.slow, slow.result())):
            assert await lane.submit("a", os.getpid) == pid

    play(test, cpu_s=0.5)


def test_work_that_no_timer_ends_costs_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(workers: Workers) -> None:
        pid = await workers.quick.submit("a", os.getpid)
        monkeypatch.setattr("server.workers.MIN_WALL_S", 0.05)
        with pytest.raises(TookTooLong):
            await workers.quick.submit("a", time.sleep, 60)
        monkeypatch.undo()
        jobs = [workers.quick.submit(1, os.getpid), workers.quick.submit(1, time.sleep, 60)]
        assert await jobs[0] != pid
        jobs += [workers.quick.submit(2, os.getpid)]
        await asyncio.sleep(0)
        workers.close()
        await asyncio.wait(jobs, timeout=10)
        assert [job.cancelled() for job in jobs] == [False, True, True]

    play(test)


def test_clients_take_turns_and_what_is_given_up_is_not_run() -> None:
    async def test(workers: Workers) -> None:
        lane, order = workers.quick, []
        jobs = []
        for client, number in ((1, 0), (1, 1), (1, 2), (2, 3), (2, 4), (3, 5)):
            job = lane.submit(client, int, number)
            job.add_done_callback(
                lambda done: order.append(None if done.cancelled() else done.result())
            )
            jobs.append(job)
        jobs[4].cancel()
        await asyncio.sleep(0)
        assert len(lane) == 4
        await asyncio.wait(jobs)
        assert order == [None, 0, 3, 5, 1, 2]

    play(test)


def test_memory_of_work_is_bounded() -> None:
    async def test(workers: Workers) -> None:
        assert await workers.run("a", take_memory, 1 << 20) == 1 << 20
        with pytest.raises(TookTooMuch):
            await workers.run("a", take_memory, 1 << 30)
        assert await workers.run("a", take_memory, 1 << 20) == 1 << 20

    play(test, memory_bytes=256 << 20)


def test_permits_go_round_between_clients() -> None:
    async def run() -> None:
        permits, order = FairPermits(1), []

        async def hold(client: int) -> None:
            async with permits.permit(client):
                order.append(client)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(hold(client)) for client in (1, 1, 1, 2, 2, 3)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        await asyncio.wait(tasks)
        assert order == [1, 1, 2, 3, 1]
        # A permit that is granted and cancelled at the same moment is passed on.
        async with permits.permit(1):
            waiting = [asyncio.create_task(hold(client)) for client in (2, 3)]
            await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=5)
        assert order[5:] == [3]
        await hold(1)

    asyncio.run(run())
