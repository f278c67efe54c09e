"""One data directory and its ZooKeeper, served by Apache Kafka 3.9.2 and by kwire in turn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ...support.broker_process import REPOSITORY, BrokerProcess, KwireBroker, free_port
from ...support.kafka import Kafka39Broker, KafkaProcess, ZooKeeperProcess
from .content import SETTINGS

KAFKA = "Apache Kafka"
KWIRE = "kwire"
EMBEDDED = "kwire with its embedded store"

#: Apache Kafka's broker logs messages about logs at WARN and above under these names.
LOG_LOGGERS = re.compile(
    r"\((kafka\.log\.|kafka\.utils\.CoreUtils|org\.apache\.kafka\.storage\.|"
    r"kafka\.coordinator\.|org\.apache\.kafka\.coordinator\.|kafka\.server\.checkpoints|"
    r"kafka\.server\.epoch|kafka\.server\.ReplicaManager|kafka\.cluster\.|state\.change\.logger)"
)


class Home:
    """The directory, and the broker that serves it now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper")
        self.broker: BrokerProcess | None = None

    @property
    def address(self) -> str:
        """The address of the current broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """log.dirs."""
        return self.directory / "data"

    def start(self, kind: str, **config: str) -> None:
        """Start one of the two brokers; dots in settings are written as underscores."""
        if self.zookeeper.process is None:
            self.zookeeper.start()
        settings = SETTINGS | {name.replace("_", "."): value for name, value in config.items()}
        settings["zookeeper.session.timeout.ms"] = "6000"
        if kind == KAFKA:
            settings["log.initial.task.delay.ms"] = "100"  # checkpoints are not written sooner
            broker = Kafka39Broker(self.directory, config=settings, port=self.port)
            broker.zookeeper = self.zookeeper
            self.zookeeper.end_sessions()  # of a killed broker: Apache Kafka does not wait for it
            self.broker = broker
        else:
            store = ("--zookeeper", self.zookeeper.address) if kind == KWIRE else ()
            self.broker = KwireBroker(
                self.directory,
                config=settings,
                port=self.port,
                arguments=("--node-id", "0", *store),
            )
        self.broker.log_path.unlink(missing_ok=True)
        self.broker.start()

    def carry(self, source: str, target: str) -> None:
        """Move the cluster's metadata to where the next broker expects it."""
        if (source == EMBEDDED) == (target == EMBEDDED):
            return
        places = {
            True: ("--data-dir", str(self.data)),
            False: ("--zookeeper", self.zookeeper.address),
        }
        file = str(self.directory / "metadata")
        for verb, place in (("export", source), ("import", target)):
            replace = ("--replace",) if verb == "import" else ()
            options = (*places[place == EMBEDDED], *replace, file)
            command = [sys.executable, "-m", "server", "coordination", verb, *options]
            done = subprocess.run(
                command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr

    def leave(self, *, killed: bool) -> str:
        """Stop the broker; returns its log."""
        broker = self.broker
        assert broker is not None
        self.broker = None
        if killed:
            broker.kill()
        elif isinstance(broker, Kafka39Broker):
            assert KafkaProcess.stop(broker) in (0, 143)
        else:
            assert broker.stop() == 0, broker.log_tail(60)
        return broker.log_path.read_text(errors="replace")

    def close(self) -> None:
        """End everything."""
        if self.broker is not None:
            self.leave(killed=True)
        self.zookeeper.stop()


#: kwire's warnings after a kill: that it recovers, that nothing was truncated, and that the killed broker's session
#: still lasts some seconds.
RECOVERY = re.compile(
    r"was not closed cleanly|recovery read \d+ bytes and truncated 0$|is registered by session 0x"
)


def complaints(kind: str, log: str) -> list[str]:
    """The messages of Apache Kafka about its logs at WARN and above, or of kwire about anything."""
    lines = log.splitlines()
    if kind == KAFKA:
        return [line for line in lines if LOG_LOGGERS.search(line)]
    return [
        line
        for line in lines
        if (" WARNING " in line or " ERROR " in line) and not RECOVERY.search(line)
    ]
