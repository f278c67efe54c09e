"""The child processes of `kwire cluster` and `kwire serve --workers`."""

from __future__ import annotations

import asyncio
import errno
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
