"""Deliberate failures of a cluster, and its time, from the view of stock clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kwire.testing import Broker, Cluster
from tests.support.cpu_time import cpu_time

from .clients import consumer, polling, producer, read, send

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    for rule in shared.faults:
        rule.remove()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_producer_follows_a_leader_that_was_moved(cluster: Cluster) -> None:
    topic = cluster.topic()
    client = producer(cluster.bootstrap_servers, acks="all")
    send(client, topic, b"1")
    before = cluster.leader(topic)
    recorder = cluster.record()
    after = cluster.move_leader(topic)
    assert after != before
    assert cluster.leader(topic) == after
    send(client, topic, b"2")
    recorder.stop()
    assert [record.value for record in topic.consume(2)] == [b"1", b"2"]
    codes = [
        row["errorCode"]
        for each in recorder.requests("Produce", topic=topic)
        for row in (each.response or {})["responses"][0]["partitionResponses"]
    ]
    assert codes == [KafkaError.NOT_LEADER_FOR_PARTITION, 0]


def test_leader_can_be_moved_to_a_replica_in_sync_only(cluster: Cluster) -> None:
    topic = cluster.topic(replication_factor=1)
    [there] = cluster.in_sync(topic)
    other = next(each for each in cluster.brokers if each != there)
    with pytest.raises(
        ValueError, match=rf"broker {other} cannot lead {topic}-0; in sync are {there}"
    ):
        cluster.move_leader(topic, to=other)


def test_consumer_goes_on_at_a_coordinator_that_was_moved(cluster: Cluster) -> None:
    topic = cluster.topic()
    topic.produce("1", "2")
    with consumer(cluster.bootstrap_servers, "moved", enable_auto_commit=False) as client:
        client.subscribe([topic])
        assert read(client, 2) == [b"1", b"2"]
        client.commit(asynchronous=False)
        before = cluster.coordinator(group="moved")
        assert cluster.move_coordinator(group="moved") != before
        topic.produce("3")
        assert read(client, 1) == [b"3"]
        client.commit(asynchronous=False)
        assert client.committed([TopicPartition(topic, 0)], 10)[0].offset == 3


def test_broker_whose_session_expires_registers_again_and_producers_go_on(cluster: Cluster) -> None:
    topic = cluster.topic()
    client = producer(cluster.bootstrap_servers, acks="all")
    send(client, topic, b"1")
    leader = next(each for each in cluster.brokers if each != cluster.controller)
    if cluster.leader(topic) != leader:
        cluster.move_leader(topic, to=leader)
    cluster.expire_session(leader)
    cluster.wait_for(lambda: cluster.leader(topic) != leader)  # the controller has seen it go
    send(client, topic, b"2")
    assert [record.value for record in topic.consume(2)] == [b"1", b"2"]
    cluster.wait_for(lambda: leader in cluster.in_sync(topic))


def test_controller_whose_session_expires_is_replaced_or_elected_again(cluster: Cluster) -> None:
    cluster.expire_session(cluster.controller)
    assert cluster.controller in cluster.brokers
    send(producer(cluster.bootstrap_servers, acks="all"), cluster.topic())


def test_follower_that_is_kept_waiting_leaves_the_replicas_in_sync_in_time(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(configs={"min.insync.replicas": 3})
    client = producer(cluster.bootstrap_servers, acks="all", retries=0)
    send(client, topic)
    leader = cluster.leader(topic)
    follower = next(each for each in cluster.brokers if each != leader)
    rule = cluster.fault("Fetch", topic=topic, from_broker=follower, delay="2min")
    cluster.wait_for(lambda: rule.hits, message="no fetch of the follower")
    send(producer(cluster.bootstrap_servers, acks=1), topic)
    cluster.clock.advance("50s")  # replica.lag.time.max.ms is 30 s, checked twice in that time
    cluster.wait_for(lambda: follower not in cluster.in_sync(topic))
    with pytest.raises(KafkaException) as refused:
        send(client, topic)
    assert refused.value.args[0].name() == "NOT_ENOUGH_REPLICAS"
    rule.remove()
    cluster.clock.advance("2min")
    cluster.wait_for(lambda: follower in cluster.in_sync(topic))
    send(client, topic)


def test_fault_between_brokers_is_not_for_clients_and_the_other_way_round(cluster: Cluster) -> None:
    topic = cluster.topic()
    of_brokers = cluster.fault(
        "Fetch", topic=topic, from_broker=range(1, 4), error="UNKNOWN_SERVER_ERROR", times=1
    )
    topic.produce("1")
    with consumer(cluster.bootstrap_servers, "plain") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
    assert of_brokers.hits == 1
    cluster.wait_for(lambda: len(cluster.in_sync(topic)) == 3)


def test_rule_for_one_broker_of_a_cluster(cluster: Cluster) -> None:
    topic = cluster.topic()
    leader = cluster.leader(topic)
    with cluster.fault("Produce", broker=leader, error="INVALID_RECORD") as rule:
        with pytest.raises(KafkaException):
            send(producer(cluster.bootstrap_servers), topic)
        cluster.move_leader(topic)
        send(producer(cluster.bootstrap_servers), topic)
        assert rule.hits == 1


def test_week_of_retention_passes_in_a_cluster_whose_replicas_stay_in_sync(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(configs={"retention.ms": 7 * 86_400_000})
    send(producer(cluster.bootstrap_servers, acks="all"), topic)
    with cpu_time() as taken:
        cluster.clock.advance("8d")
    assert taken.seconds < 10
    assert topic.start_offset() == 1
    assert cluster.in_sync(topic) == (1, 2, 3)
    send(producer(cluster.bootstrap_servers, acks="all"), topic)


def test_session_timeout_removes_a_member_in_a_cluster_unless_it_is_kept(cluster: Cluster) -> None:
    topic = cluster.topic()
    with consumer(
        cluster.bootstrap_servers, "timed", session_timeout_ms=45_000, heartbeat_interval_ms=40_000
    ) as client:
        client.subscribe([topic])
        while not client.assignment():
            client.poll(0.1)
        cluster.clock.advance("1h", keep_members=True)
        assert len(cluster.group("timed").members) == 1
        cluster.clock.advance("46s")
        assert cluster.group("timed").members == ()


def test_producer_that_is_fenced_cannot_commit(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers, transactional_id="checkout")
    client.init_transactions(10)
    client.begin_transaction()
    client.produce(topic, "half an order")
    client.flush(10)
    broker.fence(transactional_id="checkout")
    with pytest.raises(KafkaException) as fenced:
        client.commit_transaction(10)
    assert fenced.value.args[0].fatal()
    assert topic.consume(read_committed=True) == []


def test_members_that_are_fenced_join_again(broker: Broker) -> None:
    topic = broker.topic()
    lost: list[object] = []
    with consumer(broker.bootstrap_servers, "kitchen") as client:
        client.subscribe([topic], on_lost=lambda _, partitions: lost.append(partitions))
        while not client.assignment():
            client.poll(0.1)
        [before] = broker.group("kitchen").members
        broker.fence(group="kitchen")
        broker.wait_for(polling(client, lambda: lost))
        topic.produce("one pizza")
        assert read(client, 1) == [b"one pizza"]
        assert broker.group("kitchen").members != (before,)
    with pytest.raises(ValueError, match="group 'nobody' has no members"):
        broker.fence(group="nobody")


def test_answer_that_takes_four_times_as_long(broker: Broker) -> None:
    topic = broker.topic()
    with (
        broker.record() as recorder,
        broker.fault("Fetch", nth=2, slowdown=4) as rule,
        consumer(broker.bootstrap_servers, "slow") as client,
    ):
        client.subscribe([topic])
        broker.wait_for(polling(client, lambda: rule.matched > 2))
    # An empty Fetch waits for 50 ms; see clients.py.
    took = [each.replied_ms - each.at_ms for each in recorder.requests("Fetch") if each.replied_ms]
    assert took[1] >= 200 > took[0] >= 50
