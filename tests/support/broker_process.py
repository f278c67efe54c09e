"""Brokers as separate processes: the common parts of all tests against a whole broker, and `kwire serve`."""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

REPOSITORY = Path(__file__).resolve().parents[2]

# The same on every broker under test, so that answers can be compared: one machine, small internal
# topics.
SINGLE_BROKER_CONFIG: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


class BrokerFailed(Exception):
    """A broker process ended, or did not answer in time; carries the end of its log."""


#: Below the ports that Linux uses for outgoing connections, so that none of those takes a server's
#: port first. Each process that runs tests uses a part of the range; one that is not a worker, a part
#: that the workers of another run, of which there are four, do not use.
PORTS = range(12_000, 32_000)
_WORKER = (
    int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{4 + os.getpid() % 4}").removeprefix("gw")) % 8
)
_ports = itertools.count(random.Random(os.getpid()).randrange(2500))


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago and was not returned recently."""
    while True:
        port = PORTS.start + 2500 * _WORKER + next(_ports) % 2500
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def end_process(process: subprocess.Popen[bytes], timeout_s: float = 30.0) -> int:
    """Send SIGTERM, then SIGKILL after timeout_s; return the exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)  # a stopped process would not see the SIGTERM
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def metadata_answer(host: str, port: int, timeout_s: float = 5.0) -> bytes:
    """Return the body of the answer to a Metadata v1 request for no topics.

    Errors: OSError if the port refuses or the peer closes.
    """
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        return _ask_metadata(connection)


def _ask_metadata(connection: socket.socket) -> bytes:
    request = struct.pack(">hhih4si", 3, 1, 7, 4, b"wait", 0)
    connection.sendall(struct.pack(">i", len(request)) + request)
    size = struct.unpack(">i", _receive(connection, 4))[0]
    return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed while an answer was due")
        parts += part
    return parts


def has_controller(metadata_v1: bytes) -> bool:
    """Whether a Metadata v1 answer names at least one broker and a controller."""
    position = 4
    brokers = struct.unpack_from(">i", metadata_v1, 0)[0]
    for _ in range(brokers):
        host_length = struct.unpack_from(">h", metadata_v1, position + 4)[0]
        position += 4 + 2 + host_length + 4
        rack_length = struct.unpack_from(">h", metadata_v1, position)[0]
        position += 2 + max(rack_length, 0)
    controller_id: int = struct.unpack_from(">i", metadata_v1, position)[0]
    return brokers > 0 and controller_id >= 0


def cpu_seconds(pid: int) -> float:
    """Return the user and system CPU time of a process with all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class BrokerProcess(ABC):
    """A broker on a loopback port, which keeps its port and data when it is restarted."""

    kind: ClassVar[str]

    def __init__(
        self, directory: Path, *, config: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        self.directory = directory
        self.config = {**SINGLE_BROKER_CONFIG, **(config or {})}
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_in_s = 0.0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        """Return host:port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """Return the folder that holds the partition folders."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """Return the file with the output of the process."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int:
        """Return the process id of the running broker."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that starts the broker."""

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the process, and return once it answers Metadata with a controller."""
        begin = time.monotonic()
        command = self.command()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=self._stdout(), stderr=log, env=self._environment()
            )
        try:
            self._wait(begin + timeout_s)
        except BaseException:
            self.kill()
            raise
        self.started_in_s = time.monotonic() - begin

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _stdout(self) -> int:
        return subprocess.PIPE

    def _wait(self, deadline: float) -> None:
        while True:
            self._check_alive()
            try:
                if has_controller(metadata_answer(self.host, self.port, 2.0)):
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise BrokerFailed(f"no metadata in time\n{self.log_tail()}")
            time.sleep(0.02)

    def _check_alive(self) -> None:
        assert self.process is not None
        status = self.process.poll()
        if status is not None:
            raise BrokerFailed(f"{self.kind} ended with status {status}\n{self.log_tail()}")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines that the process wrote."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> int:
        """Stop the process as an operator would, and return its exit status."""
        if self.process is None:
            return 0
        status = end_process(self.process)
        self._forget()
        return status

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def _forget(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the process until resume()."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run again."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> BrokerProcess:
        """Start the broker."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop the broker."""
        self.stop()


class KwireBroker(BrokerProcess):
    """`kwire serve` with its embedded store, or with ZooKeeper if an address is given."""

    kind = "kwire"

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, config=config, port=port)
        self.arguments = arguments
        self.environment = environment or {}

    @property
    def version(self) -> str:
        """Return the name used in tables."""
        return "kwire"

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.environment}

    def command(self) -> list[str]:
        """Return the command line of this repository's broker."""
        options = [
            part for name, value in self.config.items() for part in ("-o", f"{name}={value}")
        ]
        return [
            *(sys.executable, "-m", "server", "serve"),
            *("--listen", f"{self.host}:{self.port}", "--data-dir", str(self.log_dir)),
            *options,
            *self.arguments,
        ]

    def _wait(self, deadline: float) -> None:
        """Read the line `kwire ready HOST:PORT`, the only thing on standard output."""
        assert self.process is not None and self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise BrokerFailed(f"no ready line in time\n{self.log_tail()}")
            if not poll.poll(left * 1000):
                continue
            part = os.read(descriptor, 4096)
            if not part:
                self.process.wait()
                self._check_alive()
            line += part
        words = line.decode().split()
        if words[:2] != ["kwire", "ready"] or len(words) != 3:
            raise BrokerFailed(f"unexpected first line {line!r}\n{self.log_tail()}")
        self.host, port = words[2].rsplit(":", 1)
        self.port = int(port)
