"""Several kwire brokers, each a process that can be killed, with the store of `kwire zookeeper`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kwire.api import ApiKey

from .broker_process import REPOSITORY, KwireBroker, end_process
from .polling import wait_until
from .wire_client import WireClient

#: Three replicas of everything, two of which must have a record; a killed broker is noticed soon.
SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "5000",
}


class KwireCluster:
    """Brokers 0 to n-1 and their store; a broker keeps its port and data when it is restarted."""

    def __init__(
        self, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = (directory / "zookeeper.log").open("ab")
        options = ("--listen", "127.0.0.1:0", "--data-dir", str(directory / "zookeeper"))
        self._store = subprocess.Popen(
            [sys.executable, "-m", "server", "zookeeper", "--tick-ms", "500", *options],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._store.stdout is not None
        line = self._store.stdout.readline().decode()
        assert line.startswith("kwire zookeeper ready "), line
        self.zookeeper = line.split()[-1]
        self.brokers = [
            KwireBroker(
                directory / f"broker-{number}",
                config={**SETTINGS, **(settings or {}), "broker.id": str(number)},
                arguments=("--zookeeper", self.zookeeper),
            )
            for number in range(count)
        ]

    def start(self) -> KwireCluster:
        """Start all brokers, and return when each knows all of them."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(KwireBroker.start, self.brokers))
        count = len(self.brokers)
        for number in range(count):
            wait_until(lambda n=number: len(self.metadata(n)["brokers"]) == count, "all brokers")  # type: ignore[misc]
        return self

    def stop(self) -> None:
        """Stop all of them at once, without handing over leadership."""
        for broker in self.brokers:
            if broker.process is not None:
                broker.kill()
        end_process(self._store)
        assert self._store.stdout is not None
        self._store.stdout.close()
        self._log.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    # Asking one broker

    def ask(self, number: int, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Return a broker's answer to a request."""
        client = WireClient(self.brokers[number].host, self.brokers[number].port, 30.0)
        try:
            answer = client.call(api, version, values)
        finally:
            client.close()
        assert answer is not None
        return answer

    def metadata(self, number: int, *topics: str, create: bool = False) -> dict[str, Any]:
        """A broker's view of the cluster."""
        values = {"topics": [{"name": name} for name in topics]}
        return self.ask(number, ApiKey.METADATA, 9, values | {"allow_auto_topic_creation": create})

    def leaders(self, number: int, topic: str) -> list[int]:
        """The leader of each partition of a topic, as a broker knows them."""
        (row,) = self.metadata(number, topic)["topics"]
        rows = sorted(row["partitions"], key=lambda each: each["partition_index"])
        return [each["leader_id"] for each in rows]

    def in_sync(self, number: int, topic: str) -> list[int]:
        """The number of in-sync replicas of each partition."""
        (row,) = self.metadata(number, topic)["topics"]
        return [len(each["isr_nodes"]) for each in row["partitions"]]

    def coordinator(self, number: int, key: str, *, transaction: bool = False) -> int:
        """The coordinator of a group or transactional id; -1 as long as there is none."""
        values = {"key": key, "key_type": int(transaction)}
        return int(self.ask(number, ApiKey.FIND_COORDINATOR, 3, values)["node_id"])

    def controller(self, number: int = 0) -> int:
        """The controller, as a broker knows it."""
        return int(self.metadata(number)["controller_id"])
