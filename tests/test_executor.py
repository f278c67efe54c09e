"""Threads and the worker process: the work that they run, and the worker ends with its broker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from server.executor import Executor

REPOSITORY = Path(__file__).parents[1]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_worker_is_one_other_process_until_it_is_idle() -> None:
    async def run() -> None:
        executor = Executor(idle_process_s=0.01)
        try:
            worker = await executor.in_process(os.getpid)
            assert worker != os.getpid()
            for _ in range(500):
                await asyncio.sleep(0.01)
                if not executor._process.is_running:
                    break
            assert await executor.in_process(os.getpid) != worker
        finally:
            executor.close()

    asyncio.run(run())


def test_exception_of_the_work_is_raised_here() -> None:
    async def run() -> None:
        executor = Executor()
        try:
            with pytest.raises(ValueError, match="invalid literal"):
                await executor.in_process(int, "x")
        finally:
            executor.close()

    asyncio.run(run())


def test_signals_to_the_process_group_leave_the_worker_alone() -> None:
    async def run() -> None:
        executor = Executor()
        try:
            worker = await executor.in_process(os.getpid)
            os.kill(worker, signal.SIGINT)
            os.kill(worker, signal.SIGTERM)
            assert await executor.in_process(os.getpid) == worker
        finally:
            executor.close()

    asyncio.run(run())


def test_work_survives_a_worker_that_was_killed_but_not_one_that_it_kills() -> None:
    async def run() -> None:
        executor = Executor()
        try:
            worker = await executor.in_process(os.getpid)
            os.kill(worker, signal.SIGKILL)
            assert await executor.in_process(os.getpid) != worker
            with pytest.raises(BrokenExecutor):
                await executor.in_process(die)
            await executor.in_process(os.getpid)
        finally:
            executor.close()

    asyncio.run(run())


def test_close_ends_work_under_way() -> None:
    async def run() -> None:
        executor = Executor()
        worker = await executor.in_process(os.getpid)
        sleeping = asyncio.ensure_future(executor.in_process(time.sleep, 60))
        await asyncio.sleep(0)
        executor.close()
        await asyncio.wait([sleeping], timeout=10)
        assert sleeping.cancelled()
        assert await ended(worker)

    asyncio.run(run())


def test_thread_runs_what_blocks() -> None:
    async def run() -> None:
        executor = Executor()
        try:
            assert await executor.in_thread(pow, 2, 10) == 1024
        finally:
            executor.close()

    asyncio.run(run())


def test_worker_ends_when_its_broker_is_killed() -> None:
    script = (
        "import asyncio, os, signal\n"
        "from server.executor import Executor\n"
        "async def run():\n"
        "    print(await Executor().in_process(os.getpid), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(run())\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert asyncio.run(ended(int(killed.stdout)))


async def ended(pid: int) -> bool:
    """Whether a process ends (or waits to be reaped) within a few seconds."""
    for _ in range(500):
        if is_gone(pid):
            return True
        await asyncio.sleep(0.01)
    return False


def is_gone(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    if state.exists():
        try:
            return state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
