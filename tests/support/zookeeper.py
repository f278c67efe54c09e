"""A real ZooKeeper server from Apache Kafka's jars, for tests marked `zookeeper`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from .broker_process import free_port
from .class_archives import ZOOKEEPER, flags_for
from .kafka import QUICK_JVM

JAVA = Path(__file__).parents[2] / "compat" / "java"
RELEASE = "kafka-3.9.2"
SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"


def jars() -> list[Path]:
    """ZooKeeper's jars and their dependencies, fetched by Maven if needed; [] without Java or Maven."""
    if shutil.which("java") is None:
        return []
    folder = JAVA / "target" / RELEASE
    if not list(folder.glob("zookeeper-3*.jar")) and shutil.which("mvn"):
        subprocess.run([str(JAVA / "fetch.sh"), RELEASE], check=False, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.jar"))


def jars_or_skip() -> list[Path]:
    """The jars; without them the test is skipped, or fails if CI=true."""
    found = jars()
    if not found:
        reason = "needs Java and the jars of compat/java"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class ZooKeeperServer:
    """One standalone server on loopback, with its data in a temporary directory."""

    def __init__(self, tick_ms: int = 200, jaas: str = "") -> None:
        """Shape: `jaas` is a section named Server; with it, clients may log in with SASL."""
        self.jaas = jaas
        self.port = free_port()
        self.tick_ms = tick_ms
        self.directory = Path(tempfile.mkdtemp(prefix="kwire-zookeeper-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / "log"

    @property
    def connect(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, also after `kill`, and return when it accepts connections."""
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"tickTime={self.tick_ms}\ndataDir={self.directory}/data\n"
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nminSessionTimeout=400\nmaxSessionTimeout=60000\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\n"
            + (f"authProvider.sasl={SASL_PROVIDER}\n" if self.jaas else "")
        )
        flags = []
        if self.jaas:
            logins = self.directory / "jaas.conf"
            logins.write_text(self.jaas)
            flags = [f"-Djava.security.auth.login.config={logins}"]
        command = [
            "java",
            *QUICK_JVM,
            "-Xmx256m",
            *flags_for(JAVA / "target" / RELEASE, ZOOKEEPER),
            "-Dzookeeper.fsync.warningthresholdms=1000",
            *flags,
            "-cp",
            ":".join(str(jar) for jar in jars_or_skip()),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if self.answers():
                return
            time.sleep(0.05)  # waits for another process, which cannot notify us
        raise RuntimeError(f"ZooKeeper did not start:\n{self.log.read_text()[-3000:]}")

    def answers(self) -> bool:
        """Whether the server answers `imok`."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"srvr")
                return b"Mode:" in probe.recv(4096)
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process; its data is kept."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End the process and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
