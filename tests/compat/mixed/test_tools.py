"""Apache Kafka's tools for administrators, on clusters of kwire only and of kwire and Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ...support.broker_process import REPOSITORY
from ...support.kafka import KAFKA_3
from ...support.kafka_tools import ToolServer, ToolServers
from ...support.polling import wait_until
from .cluster import KAFKA, KWIRE, MixedCluster, Seat

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]


@pytest.fixture
def server(tool_servers: ToolServers) -> ToolServer:
    """The tools of 3.9.2."""
    return tool_servers(KAFKA_3)


class Administrator:
    """The tools, at work on one cluster."""

    def __init__(self, server: ToolServer, cluster: MixedCluster, directory: Path) -> None:
        self.server = server
        self.cluster = cluster
        self.directory = directory

    def run(self, tool: str, *arguments: str) -> str:
        """The output of a tool, which must succeed."""
        done = self.server.run(tool, "--bootstrap-server", self.cluster.bootstrap, *arguments)
        assert done.status == 0, f"{tool} {arguments}: {done.output}{done.errors}"
        return done.output

    def reassign(self, verb: str, topic: str, targets: Sequence[Sequence[int]], *more: str) -> str:
        """The output of kafka-reassign-partitions about new replicas for the partitions of a topic."""
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for number, replicas in enumerate(targets)
        ]
        plan = self.directory / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        words = ("--reassignment-json-file", str(plan), f"--{verb}", *more)
        return self.run("kafka-reassign-partitions", *words)

    def move(self, topic: str, targets: Sequence[Sequence[int]]) -> None:
        """Reassign, and wait until the tool reports completion."""
        said = self.reassign("execute", topic, targets)
        assert "Successfully started partition reassignment" in said
        wait_until(
            lambda: self.reassign("verify", topic, targets).count("is completed") == len(targets),
            "the reassignment is completed",
        )
        for number, replicas in enumerate(targets):
            state = self.cluster.partitions()[f"{topic}-{number}"]
            assert state["replicas"] == list(replicas)
            assert set(state["isr"]) == set(replicas)  # type: ignore[call-overload]

    def produce(self, topic: str, count: int, partitions: int, size: int = 0) -> None:
        """Produce with acks=all; every record must be acknowledged."""
        failed: list[str] = []
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for number in range(count):
            producer.produce(
                topic,
                b"%d" % number + bytes(size),
                partition=number % partitions,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        assert producer.flush(120) == 0
        assert not failed, failed[:3]

    def read(self, topic: str, count: int, partitions: int, group: str) -> None:
        """Read all records, and commit the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found = 0

        def more() -> bool:
            nonlocal found
            found += sum(message.error() is None for message in consumer.consume(500, 0.5))
            return found >= count

        wait_until(more, f"{count} records of {topic}")
        assert consumer.poll(0.5) is None
        consumer.commit(asynchronous=False)
        consumer.close()
        assert found == count

    def under_replicated(self) -> str:
        """The partitions that kafka-topics lists as under-replicated."""
        return self.run("kafka-topics", "--describe", "--under-replicated-partitions")

    def leaders(self, topic: str) -> list[object]:
        """The leader of each partition."""
        found = sorted(self.cluster.partitions().items())
        return [state.get("leader") for tp, state in found if tp.rpartition("-")[0] == topic]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kinds", [(KWIRE, KWIRE, KWIRE), (KWIRE, KAFKA, KWIRE)], ids=["kwire-alone", "mixed"]
)
def test_tools_work(server: ToolServer, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    with MixedCluster(tmp_path, kinds) as cluster:
        cluster.make_controller(len(cluster.seats) - 1 if KAFKA in kinds else 0)
        administrator = Administrator(server, cluster, tmp_path)
        topics_groups_and_configs(administrator)
        reassignments(administrator)
        elections(administrator)
        assert not cluster.complaints(), "\n".join(cluster.complaints())


def topics_groups_and_configs(admin: Administrator) -> None:
    """kafka-topics, kafka-configs, kafka-consumer-groups, kafka-log-dirs."""
    create = ("--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "3")
    assert "Created topic tools." in admin.run("kafka-topics", *create)
    admin.produce("tools", 300, 3)
    admin.read("tools", 300, 3, "tools-group")
    admin.cluster.wait_until_in_sync()
    assert admin.under_replicated() == ""
    described = admin.run("kafka-topics", "--describe", "--topic", "tools")
    assert "PartitionCount: 3" in described and "ReplicationFactor: 3" in described

    groups = "kafka-consumer-groups"
    assert "tools-group" in admin.run(groups, "--list").split()
    rows = [
        line.split()
        for line in admin.run(groups, "--describe", "--group", "tools-group").splitlines()
        if line.startswith("tools-group")
    ]
    assert sorted(row[1:6] for row in rows) == [
        ["tools", str(number), "100", "100", "0"] for number in range(3)
    ]
    back = ("--reset-offsets", "--to-earliest", "--topic", "tools", "--execute")
    assert "tools" in admin.run(groups, "--group", "tools-group", *back)

    topic = ("--entity-type", "topics", "--entity-name", "tools")
    admin.run("kafka-configs", *topic, "--alter", "--add-config", "retention.ms=12345678")
    assert "retention.ms=12345678" in admin.run("kafka-configs", *topic, "--describe")
    for seat in admin.cluster.seats:
        broker_config(admin, seat)

    said = admin.run("kafka-log-dirs", "--describe", "--topic-list", "tools")
    brokers = json.loads(said[said.index("{") :])["brokers"]
    sizes = {
        (broker["broker"], row["partition"]): row["size"]
        for broker in brokers
        for folder in broker["logDirs"]
        for row in folder["partitions"]
    }
    wanted = {(seat.id, f"tools-{number}") for seat in admin.cluster.seats for number in range(3)}
    assert set(sizes) == wanted
    assert len({size for (_, tp), size in sizes.items() if tp == "tools-0"}) == 1, sizes


def broker_config(admin: Administrator, seat: Seat) -> None:
    """kafka-configs of a broker: set, describe, delete."""
    broker = ("--entity-type", "brokers", "--entity-name", str(seat.id))
    name, rate = "leader.replication.throttled.rate", "123456"

    def shown() -> bool:
        return f"{name}={rate}" in admin.run("kafka-configs", *broker, "--describe")

    admin.run("kafka-configs", *broker, "--alter", "--add-config", f"{name}={rate}")
    if seat.kind == KAFKA:  # answers before it has applied the change
        wait_until(shown, f"{seat} shows {name}")
    assert shown(), f"{seat} does not show {name}"
    admin.run("kafka-configs", *broker, "--alter", "--delete-config", name)


def reassignments(admin: Administrator) -> None:
    """kafka-reassign-partitions: move, add, remove, list, cancel."""
    create = ("--create", "--topic", "moving", "--replica-assignment", "0,1")
    admin.run("kafka-topics", *create, "--config", "min.insync.replicas=1")
    admin.produce("moving", 200, 2)
    admin.move("moving", [[1], [2]])
    admin.move("moving", [[1, 2], [2, 0]])
    admin.move("moving", [[0, 1, 2], [0]])
    admin.produce("moving", 200, 2)

    # Broker 0 may fetch only a KB of this topic per second, so that this move does not finish.
    admin.move("moving", [[1], [2]])
    admin.produce("moving", 60, 2, size=100_000)
    topic = ("--entity-type", "topics", "--entity-name", "moving", "--alter")
    broker = ("--entity-type", "brokers", "--entity-name", "0", "--alter")
    replicas, rate = (
        "follower.replication.throttled.replicas",
        "follower.replication.throttled.rate",
    )
    admin.run("kafka-configs", *topic, "--add-config", f"{replicas}=*")
    for number in (2000, 1000):  # it has heard of the topic's before it answers to the second one
        admin.run("kafka-configs", *broker, "--add-config", f"{rate}={number}")
    targets = [[0], [0]]
    admin.reassign("execute", "moving", targets)
    listed = admin.run("kafka-reassign-partitions", "--list")
    assert "moving-0: replicas: 0,1. adding: 0. removing: 1." in listed, listed
    cancelled = admin.reassign("cancel", "moving", targets, "--preserve-throttles")
    assert "Successfully cancelled" in cancelled, cancelled
    listed = admin.run("kafka-reassign-partitions", "--list")
    assert "No partition reassignments found." in listed
    admin.run("kafka-configs", *topic, "--delete-config", replicas)
    admin.run("kafka-configs", *broker, "--delete-config", rate)
    states = admin.cluster.partitions()
    assert [states[f"moving-{number}"]["replicas"] for number in range(2)] == [[1], [2]]
    admin.read("moving", 460, 2, "moving-group")
    # At any level, a controller may log that partitions with a single replica cannot have a leader without it.
    admin.run("kafka-topics", "--delete", "--topic", "moving")
    wait_until(lambda: not admin.leaders("moving"), "the topic is deleted")


def elections(admin: Administrator) -> None:
    """kafka-topics --under-replicated-partitions and kafka-leader-election, as brokers die and come back."""
    cluster = admin.cluster
    create = ("--create", "--topic", "unclean", "--replica-assignment", "1:2")
    admin.run("kafka-topics", *create, "--config", "min.insync.replicas=1")
    admin.produce("unclean", 10, 1)
    one, two = cluster.seat(1), cluster.seat(2)
    two.kill()
    wait_until(lambda: cluster.partitions()["unclean-0"]["isr"] == [1], "broker 2 is out of sync")
    wait_until(lambda: cluster.controller() not in (2, None), "a controller")

    def is_told() -> bool:
        said = admin.under_replicated()
        return "Topic: unclean\tPartition: 0\tLeader: 1" in said and "Topic: tools" in said

    wait_until(is_told, "the broker that is asked has heard of it, which is after the store has it")
    words = ("topics", "--bootstrap-server", one.bootstrap, "describe", "--under-replicated")
    done = subprocess.run(
        [sys.executable, "-m", "server", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["0", "1", "1,2", "1"] in rows, done.stdout
    admin.produce("unclean", 10, 1)

    # The only replica in sync dies; records that the other one lacks are lost.
    one.kill()
    wait_until(lambda: admin.leaders("unclean") == [-1], "nobody leads")
    two.start()
    wait_until(lambda: cluster.controller() not in (1, None), "a controller")
    assert admin.leaders("unclean") == [-1]
    partition = ("--topic", "unclean", "--partition", "0")
    admin.run("kafka-leader-election", "--election-type", "unclean", *partition)
    wait_until(lambda: admin.leaders("unclean") == [2], "broker 2 leads")
    one.start()
    cluster.wait_until_in_sync()
    admin.read("unclean", 10, 1, "unclean-group")
    assert admin.under_replicated() == ""

    admin.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    states = cluster.partitions().values()
    assert all(state["leader"] == state["replicas"][0] for state in states)  # type: ignore[index]
