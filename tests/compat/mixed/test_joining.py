"""`kwire cluster --brokers 3` without a JVM; then Apache Kafka 3.9.2 joins through the store that it serves."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ...e2e.test_cluster_command import ClusterCommand
from ...support.polling import wait_until
from ...support.wire_client import WireClient
from .cluster import SETTINGS, JoiningKafka, state_of

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

JOINS = 7


def produce(bootstrap: str, topic: str, values: range) -> None:
    """Produce with acks=all; every record must be acknowledged."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(
            topic,
            b"%d" % value,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    assert producer.flush(120) == 0
    assert not failed, failed[:3]


def read(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    """The records that a member of a group receives."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []

    def more() -> bool:
        messages = consumer.consume(500, 0.5)
        found.extend(int(each.value() or b"") for each in messages if each.error() is None)
        return len(found) >= count

    wait_until(more, f"{count} records of {topic}")
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def in_sync(client: KazooClient, topic: str, partition: int) -> bool:
    """Whether three replicas are in sync."""
    isr = state_of(client, topic, partition).get("isr", [])
    assert isinstance(isr, list)
    return len(isr) == 3


def new_member(bootstrap: str) -> tuple[int, str]:
    """The error and its message when a member of the new protocol joins at one broker."""
    host, port = bootstrap.split(",")[0].split(":")
    client = WireClient(host, int(port), 30.0)
    request = {
        "group_id": "new",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["before"],
        "topic_partitions": [],
    }
    answer = client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, request)
    client.close()
    assert answer is not None
    return answer["error_code"], answer["error_message"] or ""


@pytest.mark.timeout(600)
def test_apache_kafka_joins_a_cluster_that_has_no_jvm(tmp_path: Path) -> None:
    settings = [part for item in SETTINGS.items() for part in ("-o", "=".join(item))]
    cluster = ClusterCommand(tmp_path, *settings)
    client = kafka = None
    try:
        bootstrap = ",".join(cluster.ready())
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("before", 3, 3)])["before"].result(60)
        produce(bootstrap, "before", range(1000))
        assert read(bootstrap, "before", "first", 1000) == list(range(1000))

        served = (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        assert new_member(bootstrap)[0] in served
        client = KazooClient(cluster.zookeeper)
        client.start(30)
        own = {"zookeeper.connect": cluster.zookeeper, "broker.id": str(JOINS)}
        kafka = JoiningKafka(tmp_path / "kafka", config={**SETTINGS, **own})
        kafka.start()
        wait_until(
            lambda: set(client.get_children("/brokers/ids")) == {"0", "1", "2", str(JOINS)},
            "it is registered",
        )
        # It leads and follows; clients know only its address.
        wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 4, "all know it")
        after = NewTopic("after", 2, replica_assignment=[[JOINS, 0, 1], [2, JOINS, 0]])
        admin.create_topics([after])["after"].result(60)
        for number in range(2):
            wait_until(partial(in_sync, client, "after", number), "all three are in sync")
        assert state_of(client, "after", 0)["leader"] == JOINS

        def is_refused() -> bool:
            """It is not, as long as the broker that is asked has not read the registration of the new one."""
            error, reason = new_member(bootstrap)
            return (
                error == ErrorCode.UNSUPPORTED_VERSION and f"because of broker {JOINS}:" in reason
            )

        wait_until(is_refused, "members of the new protocol are refused")
        produce(kafka.bootstrap, "after", range(1000))
        assert read(kafka.bootstrap, "after", "second", 1000) == list(range(1000))
        assert read(kafka.bootstrap, "before", "third", 1000) == list(range(1000))

        # It dies, and kwire brokers take over its partitions.
        kafka.kill()
        wait_until(lambda: state_of(client, "after", 0)["leader"] == 0, "a kwire broker leads")
        wait_until(lambda: new_member(bootstrap)[0] in served, "consumer groups are served again")
        produce(bootstrap, "after", range(1000, 2000))
        assert read(bootstrap, "after", "fourth", 2000) == list(range(2000))
    finally:
        if kafka is not None:
            kafka.kill()
        if client is not None:
            client.stop()
            client.close()
        status = cluster.end()
    assert status == 0, cluster.log()
