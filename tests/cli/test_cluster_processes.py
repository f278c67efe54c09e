"""The child processes of `kwire cluster` and `kwire serve --workers`."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

import pytest

from server.cli import cluster_processes
from server.cli.cluster_processes import BrokerChild, Processes

#: Far more than a pipe holds.
LINES = "sys.stderr.write('a line of a log\\n' * 100_000)"
READY = "print('kwire ready 127.0.0.1:1', flush=True)"
WAIT = "signal.pause()"
TIMEOUT_S = 60


def python(*steps: str) -> list[str]:
    return [sys.executable, "-S", "-c", "\n".join(("import signal, sys", *steps))]


class Plan:
    """One child, started with the next of some commands, and with the last one from then on."""

    noun = "worker"
    ids = range(1)
    restarts = True
    data_dir = Path("/none")
    zookeeper = "localhost:1"
    store = None
    prefix_logs = True

    def __init__(self, *commands: list[str]) -> None:
        self.commands = list(commands)

    def command(self, broker_id: int, zookeeper: str, address: str | None) -> list[str]:
        return self.commands.pop(0) if len(self.commands) > 1 else self.commands[0]


class Watched(Processes):
    """Tells which children were started."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.begun: asyncio.Queue[BrokerChild] = asyncio.Queue()

    async def _start(self, broker_id: int) -> None:
        await super()._start(broker_id)
        self.begun.put_nowait(self.children[broker_id])


class Unwritable:
    """A standard error that is closed, or on a full disk."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, "it is lost")

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_child_goes_on_if_its_log_cannot_be_written(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Unwritable(number))

    async def run() -> int:
        processes = Processes(Plan(python(LINES, READY)))
        await processes.start_brokers("localhost:1")
        child = processes.children[0]
        assert await child.ready == "127.0.0.1:1"
        return await child.ended

    assert asyncio.run(asyncio.wait_for(run(), TIMEOUT_S)) == 0


def test_worker_is_restarted_although_the_system_starts_no_process_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[int] = []

    def wait_s(deaths: int) -> float:
        waits.append(deaths)
        return 0.0

    monkeypatch.setattr(cluster_processes, "restart_wait_s", wait_s)
    missing = ["/there/is/no/such/program"]
    plan = Plan(python(READY, WAIT), missing, missing, python(READY, WAIT))

    async def run() -> None:
        processes = Watched(plan)
        await processes.start_brokers("localhost:1")
        running = asyncio.create_task(processes.run())
        first = await processes.begun.get()
        await first.ready
        first.stop(signal.SIGKILL)
        await (await processes.begun.get()).ready
        processes.stopping.set()
        await running
        await processes.stop()
        assert not processes.failed

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert waits == [1, 2, 3]
    assert caplog.text.count("worker 0 cannot be started: ") == 2


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signal_that_also_reaches_children_that_are_starting_is_no_failure(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        processes = Processes(Plan(python(READY, WAIT)))
        await processes.start_brokers("localhost:1")
        child = processes.children[0]
        await child.ready
        child.stop(number)
        processes.stopping.set()
        await processes.stop()
        assert not processes.failed

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert "Traceback" not in capsys.readouterr().err


def test_request_to_reload_ends_no_worker_that_is_starting() -> None:
    async def run() -> None:
        processes = Processes(Plan(python(READY, "sys.stdin.read()", WAIT)))
        processes.listen_to_signals()
        await processes.start_brokers("localhost:1")
        os.kill(os.getpid(), signal.SIGHUP)
        child = processes.children[0]
        await child.ready
        await asyncio.sleep(0)
        processes.stopping.set()
        await processes.stop()
        assert child.ended.result() == -signal.SIGTERM

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_status_of_a_child_that_ends_when_it_is_told_something_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> list[int]:
        processes = Processes(Plan(python(READY)))
        statuses = []
        for _ in range(20):
            await processes.start_brokers("localhost:1")
            child = processes.children[0]
            await child.ready
            while not child.ended.done():
                child.stop(signal.SIGHUP)
                await asyncio.sleep(0)
            statuses.append(child.ended.result())
        return statuses

    assert asyncio.run(asyncio.wait_for(run(), TIMEOUT_S)) == [0] * 20
    assert "Unknown child process" not in caplog.text
