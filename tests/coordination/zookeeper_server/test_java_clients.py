"""Apache's own clients on `kwire zookeeper`: zookeeper-shell, and Apache Kafka 3.9.2 brokers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.support.broker_process import REPOSITORY, KwireBroker, end_process, free_port
from tests.support.kafka import KAFKA_3, Kafka39Broker, KafkaProcess, java_command

from ...support.polling import wait_until

pytestmark = pytest.mark.jvm

#: As in Kafka's clients, so that a session expires soon.
SESSION_MS = "6000"


class Served:
    """`kwire zookeeper` as a process, which keeps its port and folder over restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it is ready."""
        command = [sys.executable, "-m", "server", "zookeeper", "--listen", self.connect]
        command += ["--data-dir", str(self.directory), "--tick-ms", "500"]
        log = (self.directory.parent / "zookeeper.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"kwire zookeeper ready ")

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            assert end_process(self.process) == 0
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A running `kwire zookeeper`."""
    server = Served(tmp_path / "coordination")
    server.start()
    yield server
    server.stop()


def shell(served: Served, script: str) -> str:
    """The output of zookeeper-shell for lines of commands."""
    command = [*java_command(KAFKA_3), "org.apache.zookeeper.ZooKeeperMain"]
    done = subprocess.run(
        [*command, "-server", served.connect],
        input=script,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_zookeeper_shell_does_what_it_does(served: Served) -> None:
    said = shell(
        served,
        "\n".join(
            (
                "create /a one",
                "create -s /a/q- two",
                "create -e /a/e three",
                "create -c /a/c four",
                "create -t 1000 /a/ttl five",
                "get -s /a",
                "set /a changed",
                "set -v 7 /a never",
                "ls -R /a",
                "getAllChildrenNumber /a",
                "getEphemerals /a",
                "addauth digest anna:secret",
                "setAcl /a/q-0000000000 auth::cdrwa",
                "getAcl /a/q-0000000000",
                "whoami",
                "delete /a",
                "deleteall /a",
                "ls /",
                "sync /",
                "config",
                "quit",
            )
        ),
    )
    for expected in (
        "Created /a/q-0000000000",
        "Created /a/e",
        "Created /a/c",
        "numChildren = 3",
        "version No is not valid",
        "/a/q-0000000000",
        "'digest,'anna:",
        "anna",
        "Node not empty: /a",
        "[zookeeper]",
        "Sync is OK",
    ):
        assert expected in said, (expected, said)


class JoiningKafka(Kafka39Broker):
    """An Apache Kafka 3.9.2 that uses a given tree."""

    def __init__(
        self, directory: Path, served: Served, broker_id: int, config: Mapping[str, str]
    ) -> None:
        own = {
            "zookeeper.connect": served.connect,
            "broker.id": str(broker_id),
            "zookeeper.session.timeout.ms": SESSION_MS,
            **config,
        }
        super().__init__(directory, config=own)

    def start(self, timeout_s: float = 60.0) -> None:
        """Start only the broker."""
        KafkaProcess.start(self, timeout_s)

    def stop(self) -> int:
        """Stop only the broker."""
        return KafkaProcess.stop(self)


def brokers(admin: KafkaAdminClient) -> set[int]:
    """The broker ids in a broker's metadata."""
    return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}


def round_trip(bootstrap: str, topic: str, count: int) -> None:
    """Produce records and consume them all."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", request_timeout_ms=20_000)
    sent = [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(count)]
    for each in sent:
        each.get(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    read: set[bytes] = set()
    deadline = time.monotonic() + 90
    while len(read) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            read |= {record.value for record in records}
    consumer.close()
    assert read == {b"%d" % n for n in range(count)}


def test_apache_kafka_lives_on_the_tree_beside_a_kwire_broker(
    tmp_path: Path, served: Served
) -> None:
    """Both register and serve topics of either; they survive a restart and the expiry of sessions."""
    from kazoo.client import KazooClient

    kafka = JoiningKafka(tmp_path / "kafka", served, 1, {})
    kwire = KwireBroker(
        tmp_path / "kwire",
        config={"broker.id": "2", "zookeeper.session.timeout.ms": SESSION_MS},
        arguments=("--zookeeper", served.connect),
    )
    client = KazooClient(hosts=served.connect)
    client.start(60)
    admin = None
    try:
        kafka.start()
        kwire.start()
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        wait_until(lambda: brokers(admin) == {1, 2}, "both brokers in Apache Kafka's metadata")
        assert set(client.get_children("/brokers/ids")) == {"1", "2"}
        on_kafka = NewTopic("on-kafka", replica_assignments={0: [1], 1: [1]})
        admin.create_topics([on_kafka])
        round_trip(kafka.bootstrap, "on-kafka", 100)

        # The server restarts: sessions continue, so the broker keeps its epoch.
        epoch = client.exists("/brokers/ids/1").czxid
        served.stop()
        served.start()
        wait_until(lambda: client.connected, "kazoo is back")
        admin.create_topics([NewTopic("after-restart", replica_assignments={0: [1], 1: [1]})])
        round_trip(kafka.bootstrap, "after-restart", 100)
        assert client.exists("/brokers/ids/1").czxid == epoch

        # The broker is suspended until its session has ended, and registers again. It is alone, so it also becomes
        # controller again.
        kwire.stop()
        wait_until(lambda: brokers(admin) == {1}, "the stopped broker leaves")
        kafka.pause()
        wait_until(lambda: client.exists("/brokers/ids/1") is None, "the paused broker's node goes")
        kafka.resume()
        wait_until(lambda: client.exists("/brokers/ids/1") is not None, "it registers again")
        assert client.exists("/brokers/ids/1").czxid > epoch
        wait_until(lambda: client.exists("/controller") is not None, "it is controller again")
        wait_until(lambda: brokers(admin) == {1}, "it knows itself")
        admin.create_topics([NewTopic("after-expiry", replica_assignments={0: [1], 1: [1]})])
        round_trip(kafka.bootstrap, "after-expiry", 100)
    finally:
        if admin is not None:
            admin.close()
        kafka.stop()
        kwire.stop()
        client.stop()
        client.close()
