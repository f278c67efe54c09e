"""Three brokers of one kind under a ZooKeeper that both kinds share, each kind below its own path."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kwire.api import ApiKey
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import Kafka39Broker, KafkaProcess, ZooKeeperProcess
from tests.support.wire_client import WireClient

KAFKA = "Apache Kafka 3.9.2"
KWIRE = "kwire"
BROKERS = 3

SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
    # Only the measurement moves leaders.
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
}


class JoiningKafka(Kafka39Broker):
    """Apache Kafka 3.9.2 with a ZooKeeper that is already running."""

    def start(self, timeout_s: float = 120.0) -> None:
        """Start only the broker."""
        KafkaProcess.start(self, timeout_s)

    def stop(self) -> int:
        """Stop only the broker."""
        return BrokerProcess.stop(self)


def wait_until(true: Callable[[], object], what: str, timeout_s: float = 300.0) -> float:
    """Wait for other processes; returns the seconds it took."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(what)
        time.sleep(0.02)
    return time.monotonic() - began


class Trio:
    """Brokers 0, 1 and 2 of one kind."""

    def __init__(
        self,
        name: str,
        directory: Path,
        zookeeper: ZooKeeperProcess,
        settings: Mapping[str, str],
        jvm: tuple[str, ...],
    ) -> None:
        self.name = name
        chroot = f"{zookeeper.address}/{directory.name}-{name.split()[-1]}"
        self.tree = KazooClient(chroot)
        self.brokers: list[BrokerProcess] = []
        for number in range(BROKERS):
            folder = directory / f"{name.split()[-1]}-{number}"
            config = {
                **SETTINGS,
                **settings,
                "broker.id": str(number),
                "zookeeper.connect": chroot,
            }
            self.brokers.append(
                KwireBroker(folder, config=config)
                if name == KWIRE
                else JoiningKafka(folder, config=config, jvm=jvm)
            )

    def start(self) -> None:
        """Start all brokers; returns when all are registered."""
        self.brokers[0].start(120.0)  # it creates the path in ZooKeeper
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda broker: broker.start(120.0), self.brokers[1:]))
        self.tree.start(30)
        wait_until(lambda: len(self.tree.get_children("/brokers/ids")) == BROKERS, "brokers")

    def stop(self) -> None:
        """Stop all brokers at once."""
        for broker in self.brokers:
            broker.kill()
        self.tree.stop()
        self.tree.close()

    def registered(self, number: int) -> bool:
        """Whether ZooKeeper has a broker's node."""
        return self.tree.exists(f"/brokers/ids/{number}") is not None

    def controller(self) -> int:
        """The controller's id, -1 for none."""
        if self.tree.exists("/controller") is None:
            return -1
        return int(json.loads(self.tree.get("/controller")[0])["brokerid"])

    def start_again(self, number: int) -> None:
        """Start a killed broker once its session has ended: Apache Kafka exits if its old node still exists."""
        wait_until(lambda: not self.registered(number), "the session ends")
        self.brokers[number].start(120.0)
        wait_until(lambda: self.registered(number), "it registers")

    @contextmanager
    def client(self, number: int, timeout_s: float = 60.0) -> Iterator[WireClient]:
        """A connection to one broker. Errors: OSError."""
        broker = self.brokers[number]
        client = WireClient(broker.host, broker.port, timeout_s)
        try:
            yield client
        finally:
            client.close()

    def ask(self, number: int, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """A broker's answer. Errors: OSError."""
        with self.client(number) as client:
            answer = client.call(api, version, values)
        if answer is None:
            raise ConnectionError("closed")
        return answer

    def topics(self, number: int, *names: str) -> list[dict[str, Any]]:
        """A broker's metadata of these topics, or of all. Errors: OSError."""
        wanted = [{"name": name} for name in names] or None
        return list(self.ask(number, ApiKey.METADATA, 5, {"topics": wanted})["topics"])

    def create(self, factor: int, partitions: int, names: list[str]) -> None:
        """Have the controller create topics, and return when it has answered. Errors: OSError."""
        request = {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": factor,
                    "assignments": [],
                    "configs": [],
                }
                for name in names
            ],
            "timeout_ms": 120_000,
            "validate_only": False,
        }
        with self.client(self.controller(), 180.0) as client:
            answer = client.call(ApiKey.CREATE_TOPICS, 4, request)
        assert answer is not None
        wrong = [row for row in answer["topics"] if row["error_code"]]
        if wrong:
            raise RuntimeError(f"{self.name}: {wrong[0]}")

    def in_sync(self, topic: str) -> bool:
        """Whether every replica of a topic is in sync, according to the controller."""
        try:
            (row,) = self.topics(max(0, self.controller()), topic)
        except OSError:
            return False
        return bool(row["partitions"]) and all(
            len(part["isr_nodes"]) == len(part["replica_nodes"]) for part in row["partitions"]
        )

    def elect_preferred(self) -> None:
        """Make the first replica of each partition its leader."""
        request = {"election_type": 0, "topic_partitions": None, "timeout_ms": 30_000}
        self.ask(self.controller(), ApiKey.ELECT_LEADERS, 1, request)


@contextmanager
def both(
    directory: Path, settings: Mapping[str, str], jvm: tuple[str, ...]
) -> Iterator[list[Trio]]:
    """Apache Kafka's cluster and kwire's, running."""
    zookeeper = ZooKeeperProcess(directory / "zookeeper")
    zookeeper.start()
    trios = [Trio(name, directory, zookeeper, settings, jvm) for name in (KAFKA, KWIRE)]
    try:
        for trio in trios:
            trio.start()
        yield trios
    finally:
        for trio in trios:
            trio.stop()
        zookeeper.stop()
