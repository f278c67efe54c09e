"""confluent-kafka's consumer groups, and admin calls for groups, against a whole broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from ..support.broker_process import BrokerProcess
from .test_confluent_kafka import create, produce, reader, take

pytestmark = pytest.mark.e2e
compat = pytest.mark.compat


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """Give an admin client of the shared broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def poll_until(
    consumers: list[Consumer], condition: Callable[[], bool], timeout_s: float = 60.0
) -> None:
    """Poll all consumers in turn until the condition holds. Errors: fails after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.05)


def partitions_of(consumer: Consumer) -> set[int]:
    """Return the partitions that a consumer has now."""
    return {tp.partition for tp in consumer.assignment()}


@compat("confluent-kafka", "groups: rebalance")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_inherit_them(
    broker: BrokerProcess, admin: AdminClient, name: str, strategy: str
) -> None:
    """A second member takes half of four partitions; when it leaves, the first has all again."""
    create(admin, name, 4)
    first = reader(broker, name, partition_assignment_strategy=strategy)
    first.subscribe([name])
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    second = reader(broker, name, partition_assignment_strategy=strategy)
    second.subscribe([name])
    both = [first, second]
    poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
    assert partitions_of(first) | partitions_of(second) == {0, 1, 2, 3}
    second.close()
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    first.close()


@compat("confluent-kafka", "groups: cooperative")
def test_cooperative_member_keeps_what_it_has_while_another_joins(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Only the moved partitions are revoked."""
    create(admin, name, 4)
    revoked: list[int] = []
    first = reader(broker, name, partition_assignment_strategy="cooperative-sticky")
    first.subscribe([name], on_revoke=lambda _, tps: revoked.extend(tp.partition for tp in tps))
    poll_until([first], lambda: len(partitions_of(first)) == 4)
    second = reader(broker, name, partition_assignment_strategy="cooperative-sticky")
    second.subscribe([name])
    poll_until([first, second], lambda: len(partitions_of(second)) == 2)
    assert set(revoked) == partitions_of(second)
    second.close()
    first.close()


@compat("confluent-kafka", "groups: static membership")
def test_static_member_returns_without_a_rebalance(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """The same group.instance.id returns to the same partitions; the other member notices nothing."""
    create(admin, name, 4)
    changes: list[str] = []
    stay = reader(broker, name, group_instance_id="stay", session_timeout_ms=45000)
    stay.subscribe([name], on_assign=lambda _, tps: changes.append(str(tps)))
    leave = reader(broker, name, group_instance_id="leave", session_timeout_ms=45000)
    leave.subscribe([name])
    both = [stay, leave]
    poll_until(both, lambda: [len(partitions_of(one)) for one in both] == [2, 2])
    had, seen = partitions_of(leave), len(changes)
    leave.close()
    again = reader(broker, name, group_instance_id="leave", session_timeout_ms=45000)
    again.subscribe([name])
    poll_until([stay, again], lambda: len(partitions_of(again)) == 2)
    assert partitions_of(again) == had
    assert len(changes) == seen
    again.close()
    stay.close()


@compat("confluent-kafka", "groups: static membership")
def test_second_holder_of_an_instance_id_fences_the_first(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """FENCED_INSTANCE_ID ends the older consumer."""
    create(admin, name)
    errors: list[int] = []
    old = reader(
        broker, name, group_instance_id="one", error_cb=lambda error: errors.append(error.code())
    )
    old.subscribe([name])
    poll_until([old], lambda: len(partitions_of(old)) == 1)
    new = reader(broker, name, group_instance_id="one")
    new.subscribe([name])
    poll_until([new], lambda: len(partitions_of(new)) == 1)
    deadline = time.monotonic() + 60
    while KafkaError._FATAL not in errors and time.monotonic() < deadline:
        message = old.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(message.error().code())
    assert KafkaError._FATAL in errors or KafkaError.FENCED_INSTANCE_ID in errors
    new.close()
    old.close()


@compat("confluent-kafka", "groups: session timeout")
def test_partitions_of_a_silent_member_go_to_the_others(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """A member that exceeds max.poll.interval.ms leaves its partitions."""
    create(admin, name, 2)
    settings = {"session_timeout_ms": 1500, "max_poll_interval_ms": 1500}
    silent = reader(broker, name, **settings)
    silent.subscribe([name])
    poll_until([silent], lambda: len(partitions_of(silent)) == 2)
    other = reader(broker, name)
    other.subscribe([name])
    poll_until([other], lambda: len(partitions_of(other)) == 2)
    assert partitions_of(other) == {0, 1}
    other.close()
    silent.close()


@compat("confluent-kafka", "groups: commit and resume")
def test_committed_offset_is_where_the_next_member_begins(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Commits with metadata; a second consumer continues; a third, in another group, starts over."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(20)])
    first = reader(broker, name)
    first.subscribe([name])
    take(first, 10)
    first.commit(offsets=[TopicPartition(name, 0, 7, "noted")], asynchronous=False)
    first.close()
    second = reader(broker, name)
    second.subscribe([name])
    assert take(second, 1)[0].offset() == 7
    found = second.committed([TopicPartition(name, 0)], timeout=60)[0]
    assert (found.offset, found.metadata) == (7, "noted")
    second.close()
    other = reader(broker, name + "-other")
    other.subscribe([name])
    assert take(other, 1)[0].offset() == 0
    other.close()


@compat("confluent-kafka", "groups: auto commit")
def test_auto_commit_on_close_keeps_the_position(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Closing commits the offsets of records that the application received."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(20)])
    first = reader(broker, name, enable_auto_commit=True)
    first.subscribe([name])
    take(first, 5)
    first.close()
    second = reader(broker, name)
    second.subscribe([name])
    assert take(second, 1)[0].offset() == 5
    second.close()


@compat("confluent-kafka", "groups: regex subscription")
def test_pattern_subscription_finds_a_topic_made_later(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """The new topic is found with the next metadata."""
    create(admin, f"{name}-a")
    consumer = reader(broker, name, topic_metadata_refresh_interval_ms=300)
    consumer.subscribe([f"^{name}-.*"])
    topics = lambda: {tp.topic for tp in consumer.assignment()}  # noqa: E731 - used twice below
    poll_until([consumer], lambda: topics() == {f"{name}-a"})
    create(admin, f"{name}-b")
    poll_until([consumer], lambda: topics() == {f"{name}-a", f"{name}-b"})
    assert len(consumer.assignment()) == 2
    consumer.close()


@compat("confluent-kafka", "admin: groups")
def test_group_is_listed_described_moved_and_deleted(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Stable with a member, then empty; its offsets can be set only when empty."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(20)])
    consumer = reader(broker, name, client_id="shown")
    consumer.subscribe([name])
    take(consumer, 20)
    consumer.commit(asynchronous=False)
    states = {ConsumerGroupState.STABLE}
    listed = admin.list_consumer_groups(states=states).result(60).valid
    assert name in {group.group_id for group in listed}
    described = admin.describe_consumer_groups([name])[name].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert [member.client_id for member in described.members] == ["shown"]
    assert described.members[0].assignment.topic_partitions == [TopicPartition(name, 0)]
    target = [ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 3)])]
    with pytest.raises(KafkaException) as busy:
        admin.delete_consumer_groups([name])[name].result(60)
    assert busy.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    moved = admin.alter_consumer_group_offsets(target)[name].result(60)
    assert moved.topic_partitions[0].error is None
    asked = [ConsumerGroupTopicPartitions(name)]
    stored = admin.list_consumer_group_offsets(asked)[name].result(60)
    assert [(tp.topic, tp.partition, tp.offset) for tp in stored.topic_partitions] == [(name, 0, 3)]
    admin.delete_consumer_groups([name])[name].result(60)
    with pytest.raises(KafkaException) as gone:
        admin.delete_consumer_groups([name])[name].result(60)
    assert gone.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@compat("confluent-kafka", "groups: fencing")
def test_commit_of_a_member_that_was_replaced_is_refused(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """A consumer whose session ended cannot move the group's offsets."""
    create(admin, name)
    produce(broker, name, [b"a", b"b"])
    late = reader(broker, name, session_timeout_ms=1500, max_poll_interval_ms=1500)
    late.subscribe([name])
    take(late, 1)
    new = reader(broker, name)
    new.subscribe([name])
    poll_until([new], lambda: len(partitions_of(new)) == 1)
    with pytest.raises(KafkaException) as refused:
        late.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() in {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError._STATE,
    }
    new.close()
    late.close()


@compat("confluent-kafka", "groups: commit and resume")
def test_offsets_and_groups_survive_a_restart(
    new_broker: Callable[..., BrokerProcess], name: str
) -> None:
    """Members return to their group, and topics and records are still there."""
    own = new_broker()
    own_admin = AdminClient({"bootstrap.servers": own.bootstrap})
    create(own_admin, name, 2)
    produce(own, name, [b"%d" % number for number in range(10)])
    consumer = reader(own, name)
    consumer.subscribe([name])
    take(consumer, 6)
    consumer.commit(asynchronous=False)
    own.restart()
    assert [message.offset() for message in take(consumer, 4)] == [6, 7, 8, 9]
    consumer.close()
    other = reader(own, name)
    found = other.committed([TopicPartition(name, 0)], timeout=60)[0]
    assert found.offset == 6
    other.close()
    producer = Producer({"bootstrap.servers": own.bootstrap, "enable.idempotence": True})
    producer.produce(name, b"after", partition=0)
    assert producer.flush(60) == 0
