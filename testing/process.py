"""A broker in a separate process, which a test can kill and start again on the same data."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from . import folders
from .helpers import Helpers
from .patched import refuse_files
from .settings import refuse_unknown
from .thread import LOG_LINES

#: How long a process may take to start or to stop. Unit: seconds.
PATIENCE_S = 60.0


class ProcessBroker(Helpers):
    """A broker as a child process: the real thing, with the data flushed as in production.

    Shape: `properties` are Kafka's broker settings. It keeps its port and its data from one start to the next. It ends when this process ends,
    however it does.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._properties = {key: str(value) for key, value in (properties or {}).items()}
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""
        #: For the report of a failed test, as a Broker has them; this one has neither rules nor a list of requests.
        self.faults: tuple[Any, ...] = ()
        self.last_requests: tuple[str, ...] = ()

    def start(self) -> Self:
        """Start; when this returns, clients can connect. Errors: RuntimeError with the end of the broker's log;
        ValueError for an unknown setting.
        """
        if self._process is not None:
            raise RuntimeError("the process is already running")
        refuse_unknown(self._properties)
        refuse_files()
        if self._folder is None:
            self._folder = folders.new_directory("process")
        port = self.bootstrap_servers.rpartition(":")[2] or "0"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **self._properties,
            "log.dirs": str(self._folder / "data"),
        }
        with self._log_file.open("ab") as log:
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "kwire.testing.child", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        folders.hold(process.stdin)
        line = self._first_line(process)
        if not line.startswith("kwire ready "):
            self.kill()
            raise RuntimeError("the broker cannot start:\n" + "\n".join(self.log[-10:]))
        self.bootstrap_servers = line.split()[-1]
        return self

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        return process.stdout.readline().decode() if readable else ""

    def kill(self) -> None:
        """End it at once with SIGKILL, as a crash does; harmless if it does not run."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """Let it stop in an orderly way (SIGTERM), and wait; harmless if it does not run."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start it again, with its port and data; stop it first if it runs."""
        self.terminate()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), as a long pause of the machine does, until `resume`."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process continue after `pause`."""
        self._running().send_signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running().pid

    @property
    def log(self) -> list[str]:
        """The last lines of its log."""
        if self._folder is None or not self._log_file.exists():
            return []
        return self._log_file.read_text(errors="replace").splitlines()[-LOG_LINES:]

    @property
    def _log_file(self) -> Path:
        assert self._folder is not None
        return self._folder / "broker.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the process is not running")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        self._close_client()
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def become_copy(self) -> None:
        super().become_copy()
        self._process = self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._folder is not None:
            folders.remove(self._folder)
            self._folder = None
