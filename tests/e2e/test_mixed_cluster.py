"""One kwire and one Apache Kafka 3.9.2 broker on one ZooKeeper, each in turn the controller.

The clients know both and must see no error: records are produced with acks=all to a topic
that both have replicas of.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from kwire.api import ApiKey

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.kafka import KAFKA_3, Kafka39Broker, ZooKeeperProcess, java_command
from ..support.polling import wait_until
from ..support.wire_client import CLIENT_ID, WireClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
KWIRE, KAFKA = 1, 2
SETTINGS = {
    # Apache Kafka does not start if its session ends meanwhile, as after six seconds on a very busy machine.
    "zookeeper.session.timeout.ms": "12000",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "controlled.shutdown.enable": "true",
    "auto.create.topics.enable": "false",
}


class Member(Kafka39Broker):
    """An Apache Kafka broker that uses an existing ZooKeeper."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperProcess) -> None:
        super().__init__(directory, config={**SETTINGS, "broker.id": str(KAFKA)})
        self.zookeeper = zookeeper

    def stop(self) -> int:
        """Stop the broker alone."""
        return BrokerProcess.stop(self)


class Cluster:
    """Both brokers, their state in ZooKeeper, and clients that count records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper")
        self.zookeeper.start()
        own = {**SETTINGS, "broker.id": str(KWIRE), "zookeeper.connect": self.zookeeper.address}
        self.kwire = KwireBroker(directory / "kwire", config=own)
        self.kafka = Member(directory / "kafka", self.zookeeper)
        self.tree = KazooClient(self.zookeeper.address)
        self.tree.start()
        self.errors: list[KafkaError] = []
        self.acknowledged = 0

    def close(self) -> None:
        """End everything."""
        self.tree.stop()
        self.tree.close()
        self.kafka.stop()
        self.kwire.stop()
        self.zookeeper.stop()

    @property
    def bootstrap(self) -> str:
        """Both addresses."""
        return f"{self.kwire.bootstrap},{self.kafka.bootstrap}"

    def admin(self, broker: BrokerProcess | None = None) -> AdminClient:
        """A client of one broker, or of both."""
        address = self.bootstrap if broker is None else broker.bootstrap
        return AdminClient({"bootstrap.servers": address})

    def controller(self) -> int:
        """The broker that is the controller, -1 if none is."""
        if self.tree.exists("/controller") is None:
            return -1
        return int(json.loads(self.tree.get("/controller")[0])["brokerid"])

    def states(self, topic: str) -> list[dict[str, Any]]:
        """The state nodes of a topic's partitions."""
        path = f"/brokers/topics/{topic}/partitions"
        return [
            json.loads(self.tree.get(f"{path}/{number}/state")[0])
            for number in sorted(self.tree.get_children(path))
        ]

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition."""
        return [state["leader"] for state in self.states(topic)]

    def told_leaders(self, broker: BrokerProcess, topic: str) -> list[int]:
        """The leader of each partition as a broker knows them, which is after the store does."""
        told = self.admin(broker).list_topics(topic, timeout=30).topics[topic]
        return [told.partitions[number].leader for number in sorted(told.partitions)]

    def produce(self, topic: str, count: int, partitions: int) -> None:
        """Produce with acks=all, and count the acknowledged records."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True}
        )

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged += 1
            else:
                self.errors.append(error)

        for number in range(count):
            producer.produce(
                topic, b"%d" % number, partition=number % partitions, on_delivery=delivered
            )
        producer.flush(60)

    def count(self, topic: str, partitions: int) -> int:
        """The number of records, read from the beginning."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "count",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([Place(topic, number, 0) for number in range(partitions)])
        found, ends = 0, 0
        deadline = time.monotonic() + 60
        while ends < partitions and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
        consumer.close()
        return found

    def tool(self, name: str, *arguments: str) -> str:
        """The output of one of Apache Kafka's tools."""
        command = [*java_command(KAFKA_3), name, "--bootstrap-server", self.bootstrap, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def move(self, topic: str, targets: Sequence[Sequence[int]]) -> str:
        """Reassign replicas with kafka-reassign-partitions and wait until it is done."""
        plan = self.directory / "plan.json"
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for number, replicas in enumerate(targets)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        said = self.tool(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
        assert "Successfully started partition reassignment" in said
        wait_until(lambda: self.replicas(topic) == list(targets))
        return self.tool(REASSIGN, "--reassignment-json-file", str(plan), "--verify")

    def replicas(self, topic: str) -> list[list[int]]:
        """The replicas of each partition."""
        node = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])
        return [node["partitions"][number] for number in sorted(node["partitions"])]

    def is_whole(self, topic: str) -> bool:
        """Whether each partition has a leader."""
        return min(self.leaders(topic)) >= 0

    def in_sync(self, topic: str) -> bool:
        """Whether both brokers are in sync everywhere."""
        return all(len(state["isr"]) == 2 for state in self.states(topic))


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("mixed"))
    yield made
    made.close()


def create(cluster: Cluster, name: str, partitions: int, factor: int) -> None:
    wait_until(lambda: len(cluster.tree.get_children("/brokers/ids")) == 2)
    wait_until(lambda: len(cluster.admin().list_topics(timeout=30).brokers) == 2)
    admin = cluster.admin()
    for made in admin.create_topics([NewTopic(name, partitions, factor)]).values():
        made.result(30)


def test_kwire_controls_an_apache_kafka_broker(cluster: Cluster) -> None:
    cluster.kwire.start()
    cluster.kafka.start()
    assert cluster.controller() == KWIRE
    create(cluster, "both", 4, 2)
    cluster.produce("both", 2000, 4)
    assert sorted(cluster.leaders("both")) == [KWIRE, KWIRE, KAFKA, KAFKA]
    # Both give the same answers, each from its own metadata.
    for broker in (cluster.kwire, cluster.kafka):
        wait_until(
            lambda broker=broker: cluster.told_leaders(broker, "both") == cluster.leaders("both")
        )  # type: ignore[misc]

    # Replicas move from each to the other.
    create(cluster, "moved", 2, 1)
    cluster.produce("moved", 1000, 2)
    targets = [[KAFKA if leader == KWIRE else KWIRE] for leader in cluster.leaders("moved")]
    said = cluster.move("moved", targets)
    assert "Reassignment of partition moved-0 is completed." in said
    assert "Reassignment of partition moved-1 is completed." in said
    assert cluster.leaders("moved") == [target[0] for target in targets]
    assert cluster.count("moved", 2) == 1000

    # The Apache Kafka broker dies, comes back into sync, and leads again on request.
    preferred = cluster.leaders("both")
    cluster.kafka.kill()
    wait_until(lambda: cluster.leaders("both") == [KWIRE] * 4)
    cluster.produce("both", 500, 4)
    # Apache Kafka would stop because of its own old node; the leaders moved before that disappears.
    wait_until(lambda: cluster.tree.exists(f"/brokers/ids/{KAFKA}") is None)
    cluster.kafka.start()
    # The tool elects leaders of all topics, and fails if a preferred one is not in sync.
    wait_until(lambda: cluster.is_whole("moved") and cluster.in_sync("both"))
    if cluster.tree.exists("/brokers/topics/__consumer_offsets"):
        wait_until(lambda: cluster.in_sync("__consumer_offsets"))
    cluster.tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    assert cluster.leaders("both") == preferred

    admin = cluster.admin()
    for deleted in admin.delete_topics(["moved"]).values():
        deleted.result(30)
    wait_until(lambda: cluster.tree.exists("/brokers/topics/moved") is None)
    for broker in (cluster.kwire, cluster.kafka):
        assert not list(broker.log_dir.glob("moved-[0-9]"))
    assert cluster.count("both", 4) == cluster.acknowledged - 1000
    assert cluster.errors == []


def test_control_goes_to_apache_kafka_and_back(cluster: Cluster) -> None:
    cluster.kafka.start()
    cluster.kwire.start()
    assert cluster.controller() == KAFKA
    create(cluster, "both", 4, 2)
    cluster.produce("both", 1000, 4)

    # It stops: kwire takes over with the state in ZooKeeper.
    cluster.kafka.stop()
    wait_until(lambda: cluster.controller() == KWIRE)
    assert cluster.leaders("both") == [KWIRE] * 4
    cluster.produce("both", 500, 4)
    cluster.kafka.start()
    wait_until(lambda: cluster.in_sync("both"))

    # kwire stops: it hands over its leaderships, and Apache Kafka is the controller again.
    cluster.kwire.stop()
    wait_until(lambda: cluster.controller() == KAFKA)
    assert cluster.leaders("both") == [KAFKA] * 4
    cluster.produce("both", 500, 4)
    cluster.kwire.start()
    wait_until(lambda: cluster.in_sync("both"))
    assert cluster.count("both", 4) == cluster.acknowledged == 2000
    assert cluster.errors == []


def quotas_of(broker: BrokerProcess) -> dict[str, Any]:
    """A broker's answer about the quotas of users, clients and addresses."""
    client = WireClient(broker.host, broker.port)
    answer = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    client.close()
    assert answer is not None
    return {
        json.dumps(sorted(part.items() for part in entry["entity"]), default=list): sorted(
            (value["key"], value["value"]) for value in entry["values"]
        )
        for entry in answer["entries"]
    }


def throttled_ms(broker: BrokerProcess) -> int:
    """For how long a second Metadata request is throttled, after one that has used up the quota of requests."""
    client = WireClient(broker.host, broker.port)
    told = 0
    for _ in range(2):
        answer = client.call(ApiKey.METADATA, 7, {"topics": None})
        assert answer is not None
        told = max(told, answer["throttle_time_ms"])
    client.close()
    return told


def test_quotas_that_either_kind_stores_hold_at_both(cluster: Cluster) -> None:
    """With names that must be encoded in paths; a very small request percentage throttles immediately."""
    brokers = (cluster.kwire, cluster.kafka)
    for broker in brokers:
        broker.start()
    parts: list[dict[str, str | None]] = [
        {"user": "a b/*"},
        {"user": None, "client-id": "é%"},
        {"ip": "127.8.8.8"},
    ]
    for writer in brokers:
        for number, entity in enumerate(parts):
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            alter_quota(writer, entity, key, 1e6 + number)
        wait_until(lambda: quotas_of(cluster.kwire) == quotas_of(cluster.kafka))
        assert len(quotas_of(cluster.kwire)) == 3
        for entity in parts:
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            alter_quota(writer, entity, key, None)
        wait_until(lambda: quotas_of(cluster.kwire) == quotas_of(cluster.kafka) == {})
        limited = {"client-id": CLIENT_ID}
        alter_quota(writer, limited, "request_percentage", 0.00001)
        for reader in brokers:
            wait_until(lambda reader=reader: throttled_ms(reader) > 0)
        alter_quota(writer, limited, "request_percentage", None)
        for reader in brokers:
            wait_until(lambda reader=reader: throttled_ms(reader) == 0)


def alter_quota(
    broker: BrokerProcess, parts: dict[str, str | None], key: str, value: float | None
) -> None:
    """Set a quota, or remove it."""
    client = WireClient(broker.host, broker.port)
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()]
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    answer = client.call(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {"entries": [{"entity": entity, "ops": ops}], "validate_only": False},
    )
    client.close()
    assert answer is not None and answer["entries"][0]["error_code"] == 0, answer
