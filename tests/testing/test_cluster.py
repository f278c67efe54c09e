"""A cluster in this process, and the versions of Apache Kafka 3.9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kwire.api import ApiKey
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.testing import Broker, Cluster

from .clients import consumer, producer, read, send


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def test_acknowledged_records_survive_the_death_of_the_leader(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.wait_for(lambda: cluster.in_sync(topic) == (1, 2, 3))
    client: Producer = producer(cluster.bootstrap_servers, acks="all")
    send(client, topic, b"1")
    leader = cluster.leader(topic)
    cluster.kill(leader)
    assert leader not in cluster.brokers
    send(client, topic, b"2", timeout_s=30)
    assert cluster.leader(topic) != leader
    assert [record.value for record in topic.consume()] == [b"1", b"2"]
    cluster.start_broker(leader)
    cluster.wait_for(lambda: cluster.in_sync(topic) == (1, 2, 3), timeout="20s")


def test_group_goes_on_when_its_coordinator_dies(cluster: Cluster) -> None:
    topic = cluster.topic(configs={"min.insync.replicas": 1})
    topic.produce("1")
    with consumer(cluster.bootstrap_servers, "g") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        client.commit(asynchronous=False)
        cluster.kill(cluster.leader("__consumer_offsets"))
        topic.produce("2")
        assert read(client, 1) == [b"2"]
        assert cluster.committed("g", topic) == 1


def test_controller_that_dies_is_replaced_and_a_new_topic_can_be_made(cluster: Cluster) -> None:
    before = cluster.controller
    cluster.kill(before)
    assert cluster.controller != before
    assert cluster.topic(replication_factor=2).end_offset() == 0


def test_fault_of_one_partition_in_a_cluster(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=3)
    client = producer(cluster.bootstrap_servers)
    with cluster.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        send(client, topic)
    assert fault.hits == 2


def test_unknown_broker_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="broker 7 is not running; running brokers: 1, 2, 3"):
        cluster.kill(7)
    with pytest.raises(ValueError, match="broker 1 is already running"):
        cluster.start_broker(1)
    with pytest.raises(ValueError, match="1 to 9 brokers, not 0"):
        Cluster(0)


def test_api_of_3_9_is_served() -> None:
    highest = {}
    for api in ("3.9", "4.3"):
        with Broker(api=api) as broker:
            answer = broker.client.ask(ApiVersionsRequest(), 0)
            highest[api] = {row.api_key: row.max_version for row in answer.api_keys}
            topic = broker.topic(configs={"retention.ms": 3_600_000})
            topic.produce("1")
            broker.clock.advance("2h")
            assert topic.consume() == []
    assert highest["3.9"][ApiKey.PRODUCE] < highest["4.3"][ApiKey.PRODUCE]
    with pytest.raises(ValueError, match=r"api is '3.9' or '4.3', not '4.0'"):
        Broker(api="4.0")


def test_helpers_work_at_once_after_the_controller_is_killed_and_after_all_brokers_are(
    cluster: Cluster,
) -> None:
    cluster.kill(cluster.controller)
    topic = cluster.topic(replication_factor=2)
    for broker in cluster.brokers:
        cluster.kill(broker)
    for broker in (1, 2, 3):
        cluster.start_broker(broker)
    cluster.wait_for(lambda: cluster.leader(topic))
    assert topic.end_offset() == 0
