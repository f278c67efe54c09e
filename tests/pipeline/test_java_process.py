"""A signal while Spark starts leaves no Java process behind; without Spark and Java."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import accumulators

from kwire.pipeline import java_process
from kwire.pipeline import main as module
from kwire.pipeline.interrupts import Interrupts
from kwire.pipeline.java_process import ended_by_signals
from kwire.pipeline.main import main
from kwire.pipeline.session import log_broken_connections

from ..support.broker_process import REPOSITORY, end_process
from .replay_data import add_to_archive, some_records

#: Ends neither at the end of its input nor on SIGTERM, like a Java that hangs.
HANGS = [
    sys.executable,
    "-c",
    "import signal; signal.signal(15, lambda *_: None); print(flush=True)\nwhile True: signal.pause()",
]
#: Java that is still starting: it answers `spark-class`, which asks for the command line, and then reads no input.
STARTING = """#!/bin/bash
if [[ "$*" == *org.apache.spark.launcher.Main* ]]; then
    printf '\\0\\n%s\\0starting\\0' "$0"
else
    echo $$ > "$0.pid"
    exec sleep 600
fi
"""


def started(*words: str) -> subprocess.Popen[bytes]:
    """A process, started as PySpark starts Java."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process: subprocess.Popen[bytes] = java_process._launcher.Popen(words, **pipes)
    return process


def test_start_that_is_interrupted_leaves_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_process, "PATIENCE_S", 0.0)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        process = started(*HANGS)
        assert process.stdout is not None and process.stdout.readline()
        raise KeyboardInterrupt
    with process:  # closes the pipes
        assert process.returncode == -signal.SIGKILL
    assert java_process._launcher.Popen is subprocess.Popen


def test_java_is_still_there_to_explain_an_error() -> None:
    with pytest.raises(ValueError, match="no such setting"), ended_by_signals():
        process = started("cat")
        raise ValueError("no such setting")
    with process:  # closes the pipes, at which it ends
        assert process.poll() is None


@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_interrupt_before_the_new_process_is_known_loses_none(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def interrupted(*words: Any, **settings: Any) -> subprocess.Popen[bytes]:
        made.append(real(*words, **settings))
        signal.raise_signal(number)
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with Interrupts(), pytest.raises(KeyboardInterrupt), ended_by_signals():
        started("cat")
    with made[0] as process:
        assert process.returncode is not None


def is_running(pid: int) -> bool:
    """Whether a process with this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "how"),
    [(signal.SIGINT, 130, "was interrupted"), (signal.SIGTERM, 143, "was ended by SIGTERM")],
    ids=["SIGINT", "SIGTERM"],
)
def test_signal_while_spark_starts_is_one_line_and_leaves_no_java(
    tmp_path: Path, number: signal.Signals, status: int, how: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(STARTING)
    java.chmod(0o755)
    add_to_archive(tmp_path / "archive", "orders", 0, some_records(10))
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "kwire.server", "pipeline", "audit"),
            f"--archive={tmp_path}/archive",
        ],
        cwd=REPOSITORY,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        pid = Path(f"{java}.pid")
        deadline = time.monotonic() + 120.0
        while not (pid.exists() and pid.read_text().strip()):
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        # Ctrl-C reaches all processes of a terminal, `kill` only one.
        (os.killpg if number == signal.SIGINT else os.kill)(job.pid, number)
        _, said = job.communicate(timeout=120)
    finally:
        end_process(job)
    assert job.returncode == status
    assert said.decode() == f"audit: starting Spark\nkwire pipeline: audit {how}\n"
    assert not is_running(int(pid.read_text()))


def test_interrupt_that_an_imported_module_swallows_still_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = module.import_module

    def swallow(name: str, package: str | None = None) -> Any:
        if name != ".status.job":
            return load(name, package)
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return SimpleNamespace(run=lambda _: 0)

    monkeypatch.setattr(module, "import_module", swallow)
    assert main(["status", "--checkpoint-dir=c"]) == 130
    assert capsys.readouterr().err == "kwire pipeline: status was interrupted\n"


def test_java_that_ends_during_a_job_causes_no_traceback_on_standard_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    printed = accumulators.AccumulatorServer.handle_error
    monkeypatch.setattr(accumulators.AccumulatorServer, "handle_error", printed)  # for afterwards
    log_broken_connections()
    handler = accumulators._UpdateRequestHandler
    with accumulators.AccumulatorServer(("localhost", 0), handler, "token") as server:
        server.timeout = 60
        answer = threading.Thread(target=server.handle_request)
        answer.start()
        socket.create_connection(("127.0.0.1", server.server_address[1])).close()
        answer.join()
    assert capsys.readouterr().err == ""
    assert "the connection from" in caplog.text and "Traceback" in caplog.text
