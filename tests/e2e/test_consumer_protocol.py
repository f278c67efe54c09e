"""Consumers that speak the consumer protocol (KIP-848), against a whole broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import BrokerProcess
from ..support.kwire_cluster import KwireCluster
from .test_confluent_groups import partitions_of, poll_until
from .test_confluent_kafka import create, produce, take

pytestmark = pytest.mark.e2e
compat = pytest.mark.compat


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """Give an admin client of the shared broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def member(broker: BrokerProcess | KwireCluster, group: str, **settings: object) -> Consumer:
    """Make a consumer of the consumer protocol, or of another if the settings say so."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


@compat("confluent-kafka", "groups: consumer protocol")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_inherit_them(
    broker: BrokerProcess, admin: AdminClient, name: str, assignor: str
) -> None:
    create(admin, name, 4)
    first = member(broker, name, group_remote_assignor=assignor)
    first.subscribe([name])
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    second = member(broker, name, group_remote_assignor=assignor)
    second.subscribe([name])
    both = [first, second]
    poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
    assert partitions_of(first) | partitions_of(second) == set(range(4))
    second.close()
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    first.close()


@compat("confluent-kafka", "groups: consumer protocol: commit and resume")
def test_offsets_are_committed_with_the_members_epoch_and_read_by_the_next(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    create(admin, name, 1)
    produce(broker, name, [b"a", b"b", b"c"])
    first = member(broker, name, enable_auto_commit=False)
    first.subscribe([name])
    assert [each.value() for each in take(first, 2)] == [b"a", b"b"]
    first.commit(offsets=[TopicPartition(name, 0, 2)], asynchronous=False)
    first.close()
    second = member(broker, name)
    second.subscribe([name])
    assert [each.value() for each in take(second, 1)] == [b"c"]
    second.close()


@compat("confluent-kafka", "groups: consumer protocol: regex subscription")
def test_a_regular_expression_is_resolved_by_the_broker_and_again_for_new_topics(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    def assigned() -> set[str]:
        return {tp.topic for tp in one.assignment()}

    create(admin, f"{name}-a", 1)
    one = member(broker, name)
    one.subscribe([f"^{name}-.*"])
    poll_until([one], lambda: assigned() != set())
    assert assigned() == {f"{name}-a"}
    create(admin, f"{name}-b", 1)
    create(admin, f"other-{name}", 1)
    # As in Apache Kafka, topics are matched again at the earliest ten seconds after the last time.
    poll_until([one], lambda: len(assigned()) > 1)
    assert assigned() == {f"{name}-a", f"{name}-b"}
    one.close()


@compat("confluent-kafka", "groups: consumer protocol: listed and described")
def test_a_group_is_listed_and_described_as_one_of_the_consumer_protocol(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    create(admin, name, 2)
    one = member(broker, name, client_id="reader", group_instance_id="i1")
    one.subscribe([name])
    poll_until([one], lambda: len(partitions_of(one)) == 2)
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert {each.group_id: each.type for each in listed}[name] is ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups([name])[name].result()
    assert described.type is ConsumerGroupType.CONSUMER
    assert described.state is ConsumerGroupState.STABLE
    (found,) = described.members
    assert (found.client_id, found.group_instance_id) == ("reader", "i1")
    assert len(found.assignment.topic_partitions) == 2
    one.close()


@compat("confluent-kafka", "groups: change of protocol")
def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_reads(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """A rolling change of all members, first to the new protocol and then back to the old one."""
    create(admin, name, 4)
    first = member(broker, name, group_protocol="classic", session_timeout_ms=6000)
    first.subscribe([name])
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    second = member(broker, name)
    second.subscribe([name])
    both = [first, second]
    poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
    first.close()
    poll_until([second], lambda: len(partitions_of(second)) == 4)
    third = member(broker, name, group_protocol="classic", session_timeout_ms=6000)
    third.subscribe([name])
    both = [second, third]
    poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
    second.close()
    poll_until([third], lambda: len(partitions_of(third)) == 4)
    (row,) = (each for each in admin.list_consumer_groups().result().valid if each.group_id == name)
    assert row.type is ConsumerGroupType.CLASSIC
    third.close()


@compat("confluent-kafka", "groups: consumer protocol: with ZooKeeper")
def test_with_zookeeper_brokers_of_kwire_serve_them_and_another_takes_over(tmp_path: Path) -> None:
    """Apache Kafka has no consumer groups with ZooKeeper."""
    # The member that leaves while its coordinator is dead stays until its session ends.
    sessions = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
    beats = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")
    settings = {**dict.fromkeys(sessions, "6000"), **dict.fromkeys(beats, "1000")}
    cluster = KwireCluster(tmp_path, settings=settings)
    try:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 4, 3)])["t"].result(30)
        both = [member(cluster, "g"), member(cluster, "g")]
        for one in both:
            one.subscribe(["t"])
        poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
        assert partitions_of(both[0]) | partitions_of(both[1]) == set(range(4))
        listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
        assert [each.group_id for each in listed] == ["g"]
        cluster.brokers[cluster.coordinator(0, "g")].kill()
        both[1].close()
        poll_until(both[:1], lambda: len(partitions_of(both[0])) == 4)
        assert partitions_of(both[0]) == set(range(4))
        both[0].close()
    finally:
        cluster.stop()
