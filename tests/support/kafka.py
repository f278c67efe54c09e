"""Apache Kafka itself as a process: 3.9.2 with its ZooKeeper, 4.3.0 as one KRaft node."""

from __future__ import annotations

import base64
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from .broker_process import (
    REPOSITORY,
    BrokerFailed,
    BrokerProcess,
    end_process,
    free_port,
)
from .class_archives import BROKER, ZOOKEEPER, flags_for, jars_in

JAVA_ROOM = REPOSITORY / "compat" / "java"
KAFKA_3 = "3.9.2"
KAFKA_4 = "4.3.0"

# Only C1, the serial collector, and no verification of the classes in the jars (a seventh of the CPU time that a
# broker's start takes), since a test's JVM lives for seconds. Benchmarks pass Kafka's own flags.
QUICK_JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)


def refuse_or_skip(reason: str) -> NoReturn:
    """Skip the test with the reason, or fail if CI=true, where a passing run means that all ran."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def fetched_jars(name: str) -> Path | str:
    """Return the folder with the jars of one pom in compat/java, or why there is none."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"needs {program}"
    fetched = subprocess.run(
        [str(JAVA_ROOM / "fetch.sh"), name], capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        return f"fetching {name} failed: {(fetched.stdout + fetched.stderr)[-600:]}"
    return JAVA_ROOM / "target" / name


def jars_or_skip(name: str) -> Path:
    """Return a folder of jars (`kafka-3.9.2`, `apps-3.9.2`, `spark-4.0.0`); fetch it if needed."""
    jars = fetched_jars(name)
    if isinstance(jars, str):
        refuse_or_skip(jars)
    return jars


def java_command(
    version: str,
    *,
    flags: tuple[str, ...] = QUICK_JVM,
    room: str = "kafka",
    archive: str = BROKER,
) -> list[str]:
    """Return `java`, its flags and the class path of one Apache Kafka release.

    Shape: room is `kafka` (the broker and its tools) or `apps` (Streams, Connect, MirrorMaker 2).
    """
    jars = jars_or_skip(f"{room}-{version}")
    quick = flags[: len(QUICK_JVM)] == QUICK_JVM
    recorded = any(each.startswith("-XX:ArchiveClassesAtExit") for each in flags)
    archived = flags_for(jars, archive) if quick and not recorded else ()
    logging = (
        f"-Dlog4j.configuration=file:{JAVA_ROOM}/logging/log4j.properties",
        f"-Dlog4j2.configurationFile={JAVA_ROOM}/logging/log4j2.properties",
    )
    class_path = ":".join(map(str, jars_in(jars)))
    return ["java", *flags, *archived, *logging, "-Djava.awt.headless=true", "-cp", class_path]


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a Java properties file and return its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


class ZooKeeperProcess:
    """One ZooKeeper server, which runs as long as its Apache Kafka broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.jvm: tuple[str, ...] = (*QUICK_JVM, "-Xmx128m")
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the server, and return when its port is open."""
        settings = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": "500",
        }
        path = write_properties(self.directory / "zookeeper.properties", settings)
        command = [
            *java_command(KAFKA_3, flags=self.jvm, archive=ZOOKEEPER),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(path)),
        ]
        with (self.directory / "zookeeper.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    text = (self.directory / "zookeeper.log").read_text(errors="replace")
                    end_process(self.process)
                    raise BrokerFailed(f"ZooKeeper did not start\n{text[-2000:]}") from None
                time.sleep(0.05)

    def end_sessions(self) -> None:
        """Remove what killed brokers have registered, as the end of their sessions would seconds later."""
        client = KazooClient(self.address)
        client.start(20)
        try:
            if client.exists("/brokers/ids"):
                paths = [f"/brokers/ids/{name}" for name in client.get_children("/brokers/ids")]
                for path in ("/controller", *paths):
                    with suppress(NoNodeError):
                        client.delete(path)
        finally:
            client.stop()
            client.close()

    def stop(self) -> None:
        """End the server."""
        if self.process is not None:
            end_process(self.process)
            self.process = None


class KafkaProcess(BrokerProcess):
    """An Apache Kafka broker process."""

    version: str

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        jvm: tuple[str, ...] = QUICK_JVM,
    ) -> None:
        super().__init__(directory, config=config, port=port)
        self.jvm = jvm

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Return the whole server.properties."""

    def command(self) -> list[str]:
        """Return the command line, after writing server.properties."""
        path = write_properties(self.directory / "server.properties", self.properties())
        return [*java_command(self.version, flags=self.jvm), "kafka.Kafka", str(path)]

    def _stdout(self) -> int:
        return subprocess.DEVNULL


class Kafka39Broker(KafkaProcess):
    """Apache Kafka 3.9.2 with its own ZooKeeper: the reference for every answer."""

    kind = "Apache Kafka"
    version = KAFKA_3

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        jvm: tuple[str, ...] = QUICK_JVM,
    ) -> None:
        super().__init__(directory, config=config, port=port, jvm=jvm)
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper")

    def properties(self) -> dict[str, str]:
        """Return the settings of a ZooKeeper broker."""
        return {
            "broker.id": "0",
            "zookeeper.connect": self.zookeeper.address,
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "log.dirs": str(self.log_dir),
            "controlled.shutdown.enable": "false",
            **self.config,
        }

    def start(self, timeout_s: float = 60.0) -> None:
        """Start ZooKeeper, if it does not run yet, and the broker."""
        starts_it = self.zookeeper.process is None
        if starts_it:
            self.zookeeper.start()
        try:
            super().start(timeout_s)
        except BaseException:
            if starts_it:
                self.zookeeper.stop()
            raise

    def stop(self) -> int:
        """Stop the broker and its ZooKeeper."""
        status = super().stop()
        self.zookeeper.stop()
        return status

    def restart(self) -> None:
        """Stop the broker alone and start it again."""
        super().stop()
        self.start()


class Kafka43Broker(KafkaProcess):
    """Apache Kafka 4.3.0, broker and controller in one KRaft process."""

    kind = "Apache Kafka"
    version = KAFKA_4

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        jvm: tuple[str, ...] = QUICK_JVM,
    ) -> None:
        super().__init__(directory, config=config, port=port, jvm=jvm)
        self.controller_port = free_port()

    def properties(self) -> dict[str, str]:
        """Return the settings of a combined node."""
        node_id = self.config.get("node.id", "0")
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@{self.host}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAINTEXT://{self.host}:{self.port},"
                f"CONTROLLER://{self.host}:{self.controller_port}"
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.log_dir),
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # The death and the return of a broker have to be noticed soon.
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
            **self.config,
        }

    def start(self, timeout_s: float = 60.0) -> None:
        """Format the storage the first time, then start."""
        if not (self.log_dir / "meta.properties").exists():
            shutil.copytree(formatted_storage(self.version), self.log_dir, dirs_exist_ok=True)
            node = self.properties()["node.id"]
            directory_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
            with (self.log_dir / "meta.properties").open("a") as file:
                file.write(f"node.id={node}\ndirectory.id={directory_id}\n")
        super().start(timeout_s)


def formatted_storage(version: str) -> Path:
    """What Apache Kafka's tool writes into a new log directory, without the ids of the node and of the directory.

    The tool runs once for each release, since its JVM takes a second of CPU time.
    """
    jars = jars_or_skip(f"kafka-{version}")
    made = jars.with_name(f"{jars.name}-storage")
    with jars.with_name(f"{made.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=jars.parent) as place:
                _format(Kafka43Broker(Path(place)), version)
                (Path(place) / "data").rename(made)
    return made


def _format(node: Kafka43Broker, version: str) -> None:
    path = write_properties(node.directory / "server.properties", node.properties())
    tool = ("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(path))
    subprocess.run([*java_command(version), *tool], check=True, capture_output=True)
    meta = node.log_dir / "meta.properties"
    lines = meta.read_text().splitlines(keepends=True)
    meta.write_text("".join(x for x in lines if not x.startswith(("node.id=", "directory.id="))))


def kafka_broker(version: str, directory: Path, **options: object) -> KafkaProcess:
    """Return the class for a release, not yet started."""
    classes = {KAFKA_3: Kafka39Broker, KAFKA_4: Kafka43Broker}
    return classes[version](directory, **options)  # type: ignore[arg-type]
