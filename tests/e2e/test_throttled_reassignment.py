"""kafka-reassign-partitions --throttle on three kwire brokers: its duration, and no slower clients."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ..support.kafka import KAFKA_3
from ..support.kafka_tools import ToolServer, ToolServers
from ..support.kwire_cluster import KwireCluster
from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

MEGABYTE = 1_000_000
SIZE_MB = 20
RATE_MB = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KwireCluster]:
    """Three brokers."""
    cluster = KwireCluster(tmp_path / "cluster")
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def tools(tool_servers: ToolServers) -> ToolServer:
    """The tools of 3.9.2."""
    return tool_servers(KAFKA_3)


class Administrator:
    """Administers the cluster: moves the only partition of topic "moved"."""

    def __init__(self, tools: ToolServer, cluster: KwireCluster, folder: Path) -> None:
        self.tools = tools
        self.cluster = cluster
        self.plan = folder / "plan.json"

    def run(self, tool: str, *words: str) -> str:
        done = self.tools.run(tool, "--bootstrap-server", self.cluster.bootstrap, *words)
        assert done.status == 0, f"{done.output}{done.errors}"
        return done.output

    def reassign(self, verb: str, *more: str) -> str:
        words = ("--reassignment-json-file", str(self.plan), f"--{verb}", *more)
        return self.run("kafka-reassign-partitions", *words)

    def move(self, target: int, *more: str) -> float:
        """Move the partition to one broker; returns how many seconds that took."""
        row = {"topic": "moved", "partition": 0, "replicas": [target]}
        self.plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        self.reassign("execute", *more)
        begin = time.monotonic()
        wait_until(lambda: self.replicas() == [target], f"it is on broker {target}", 120)
        return time.monotonic() - begin

    def replicas(self) -> list[int]:
        (topic,) = self.cluster.metadata(0, "moved")["topics"]
        replicas: list[int] = topic["partitions"][0]["replica_nodes"]
        return replicas

    def throttles(self) -> str:
        """The throttles shown by kafka-configs."""
        kinds = [("topics", "moved"), *(("brokers", str(n)) for n in range(3))]
        shown = ""
        for kind, name in kinds:
            entity = ("--entity-type", kind, "--entity-name", name)
            lines = self.run("kafka-configs", *entity, "--describe").splitlines()
            shown += "".join(line for line in lines if "throttled" in line)
        return shown


def test_throttled_reassignment_takes_its_time_and_slows_nobody_else(
    cluster: KwireCluster, tools: ToolServer, tmp_path: Path
) -> None:
    administrator = Administrator(tools, cluster, tmp_path)
    one = ("--replica-assignment", "0", "--config", "min.insync.replicas=1")
    administrator.run("kafka-topics", "--create", "--topic", "moved", *one)
    administrator.run("kafka-topics", "--create", "--topic", "steady", one[0], "0:1:2")
    fill(cluster, "moved", SIZE_MB * MEGABYTE)

    with Stopwatch(cluster, "steady") as watch:
        took = administrator.move(1, "--throttle", str(RATE_MB * MEGABYTE))
    # It begins with the bytes of one second and a fetch; the rest follows at the rate.
    assert took > (SIZE_MB - RATE_MB - 2) / RATE_MB - 1, took
    assert took < 4 * SIZE_MB / RATE_MB, took
    assert len(watch.seconds) > 20
    assert statistics.median(watch.seconds) < 0.2, watch.seconds
    assert "0:0" in administrator.throttles()

    said = administrator.reassign("verify")
    assert "is completed" in said
    assert "Clearing topic-level throttles" in said
    assert administrator.throttles() == ""
    free = administrator.move(2)
    assert free < took
    print(f"{SIZE_MB} MB at {RATE_MB} MB/s: {took:.1f} s, without a throttle {free:.1f} s")


def fill(cluster: KwireCluster, topic: str, size: int) -> None:
    """Produce records that cannot be compressed."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50})
    for number in range(size // 10_000):
        producer.produce(topic, number.to_bytes(4, "big") * 2500)
        if number % 500 == 499:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


class Stopwatch:
    """Measures how long single records take, one after another, with acks=all."""

    def __init__(self, cluster: KwireCluster, topic: str) -> None:
        self.seconds: list[float] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0}
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            begin = time.monotonic()
            self._producer.produce(self._topic, b"x")
            self._producer.flush(60)
            self.seconds.append(time.monotonic() - begin)
