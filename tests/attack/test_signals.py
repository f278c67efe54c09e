"""How a broker ends, and its behavior without a reader of its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.api import ApiKey

from ..support.broker_process import REPOSITORY, KwireBroker, end_process, free_port
from .conftest import Target

pytestmark = pytest.mark.e2e


def terminate_twice(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.002)
    os.kill(pid, signal.SIGTERM)


@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize("ask", [lambda pid: os.kill(pid, signal.SIGTERM), terminate_twice])
def test_broker_stops_cleanly(tmp_path: Path, ask: Callable[[int], None]) -> None:
    broker = Target(tmp_path)
    broker.start()
    broker.create_topic("a")
    assert broker.process is not None
    ask(broker.pid)
    status = broker.process.wait(60)
    broker.stop()
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    # On a busy machine, the second signal may meet a process that has stopped the broker and is about to exit.
    assert status == 0 or (ask is terminate_twice and status == -signal.SIGTERM)


@pytest.mark.usefixtures("hangup_not_ignored")
def test_broker_without_terminal_opens_its_log_again_on_sighup(tmp_path: Path) -> None:
    log = tmp_path / "kwire.log"
    with KwireBroker(tmp_path / "broker", config={"kwire.log.file": str(log)}) as broker:
        log.rename(tmp_path / "kwire.log.1")
        os.kill(broker.pid, signal.SIGHUP)
        deadline = time.monotonic() + 20
        while not (log.exists() and "reading the certificates again" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert "stopped" in log.read_text()
    assert "Data in" in (tmp_path / "kwire.log.1").read_text()


def test_broker_under_nohup_survives_its_terminal(tmp_path: Path) -> None:
    class UnderNohup(Target):
        def command(self) -> list[str]:
            return ["nohup", *super().command()]

    with UnderNohup(tmp_path) as broker:
        os.kill(broker.pid, signal.SIGHUP)
        time.sleep(0.2)
        assert isinstance(broker, Target)
        client = broker.client()
        assert client.call(ApiKey.API_VERSIONS, 0, {}) is not None
        client.close()


def test_broker_serves_when_nobody_reads_its_output(tmp_path: Path) -> None:
    port = free_port()
    reading, writing = os.pipe()
    os.close(reading)
    command = [
        *(sys.executable, "-m", "server", "serve", "--data-dir", str(tmp_path)),
        *("--listen", f"127.0.0.1:{port}"),
    ]
    broker = Target(tmp_path, port=port)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=writing, stderr=log)
    os.close(writing)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                client = broker.client()
                break
            except ConnectionRefusedError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        assert client.call(ApiKey.API_VERSIONS, 0, {}) is not None
        client.close()
    finally:
        assert end_process(process) == 0
    assert "cannot write" in (tmp_path / "log").read_text()
