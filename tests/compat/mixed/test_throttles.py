"""Replication throttles (KIP-73) of one broker, while the other one, Apache Kafka, has none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ...support.kafka import KAFKA_3
from ...support.kafka_tools import ToolServer, ToolServers
from ...support.polling import wait_until
from .cluster import KAFKA, KWIRE, MixedCluster
from .test_tools import Administrator

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

SIZE = 12_000_000
RATE = 3_000_000


@pytest.fixture
def server(tool_servers: ToolServers) -> ToolServer:
    """The tools of 3.9.2."""
    return tool_servers(KAFKA_3)


@pytest.mark.timeout(600)
def test_kwire_keeps_its_rate_as_leader_and_as_follower_of_apache_kafka(
    server: ToolServer, tmp_path: Path
) -> None:
    with MixedCluster(tmp_path, (KWIRE, KAFKA, KWIRE)) as cluster:
        admin = Administrator(server, cluster, tmp_path)
        create = ("--create", "--topic", "moved", "--replica-assignment", "0")
        admin.run("kafka-topics", *create, "--config", "min.insync.replicas=1")
        fill(cluster.bootstrap)
        for target, broker, side in ((1, 0, "leader"), (2, 2, "follower")):
            set_config(admin, "brokers", broker, f"{side}.replication.throttled.rate={RATE}")
            set_config(admin, "topics", "moved", f"{side}.replication.throttled.replicas=*")
            admin.reassign("execute", "moved", [[target]])
            begin = time.monotonic()
            wait_until(lambda n=target: moved_to(cluster, n), f"it is on broker {target}")  # type: ignore[misc]
            took = time.monotonic() - begin
            # The bytes of one second and of one fetch may arrive immediately.
            assert took > (SIZE - RATE - 2_000_000) / RATE - 1, (side, took)
            assert took < 4 * SIZE / RATE, (side, took)
            print(f"{SIZE} bytes at {RATE}/s with kwire as {side}: {took:.1f} s")
            for kind, name in (("brokers", broker), ("topics", "moved")):
                key = "rate" if kind == "brokers" else "replicas"
                set_config(admin, kind, name, f"{side}.replication.throttled.{key}", "delete")
        assert not cluster.complaints(), "\n".join(cluster.complaints())


def moved_to(cluster: MixedCluster, target: int) -> bool:
    state = cluster.partitions()["moved-0"]
    return (state["replicas"], state["isr"]) == ([target], [target])


def set_config(
    admin: Administrator, kind: str, name: object, config: str, verb: str = "add"
) -> None:
    entity = ("--entity-type", kind, "--entity-name", str(name))
    admin.run("kafka-configs", *entity, "--alter", f"--{verb}-config", config)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 50})
    for number in range(SIZE // 10_000):
        producer.produce("moved", number.to_bytes(4, "big") * 2500)
        if number % 500 == 499:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
