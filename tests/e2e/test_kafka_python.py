"""kafka-python against a whole broker."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..support.broker_process import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore"
    )  # the client reads its schemas in a deprecated way when imported
    import kafka.errors
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
    from kafka.structs import OffsetAndMetadata

# The client does not close its sockets and threads itself.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_leftovers() -> Iterator[None]:
    yield
    gc.collect()  # while this module's filters hold


def cell(feature: str) -> pytest.MarkDecorator:
    """Return the marker of this client's row."""
    return pytest.mark.compat("kafka-python", feature)


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    """Give an admin client of the shared broker."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def create(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    """Create one topic; underscores in config names stand for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics(
        [
            NewTopic(
                name=topic, num_partitions=partitions, replication_factor=1, topic_configs=settings
            )
        ]
    )


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    """Write values to partition 0 and return the acknowledged offsets."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5, **settings)
    futures = [producer.send(topic, value, partition=0) for value in values]
    producer.flush()
    offsets = [future.get(60).offset for future in futures]
    producer.close()
    return offsets


@pytest.fixture
def reader(broker: BrokerProcess) -> Iterator[Callable[..., Any]]:
    """Give a function that makes consumers; all are closed with the test."""
    consumers: list[Any] = []

    def make(*topics: str, bootstrap: str = broker.bootstrap, **settings: Any) -> Any:
        options = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
        }
        consumer = KafkaConsumer(*topics, bootstrap_servers=bootstrap, **(options | settings))
        consumers.append(consumer)
        return consumer

    yield make
    for consumer in consumers:
        consumer.close(autocommit=False)


def take(consumer: Any, count: int, timeout_s: float = 60.0) -> list[Any]:
    """Return exactly count records. Errors: fails when they do not arrive in time.

    Each poll is long, since one that ends during a rebalance may lose the assignment; it ends with the first records.
    """
    rows: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(rows) < count and time.monotonic() < deadline:
        for part in consumer.poll(20_000, max_records=count - len(rows)).values():
            rows += part
    assert len(rows) == count
    return rows


def poll_until(consumers: list[Any], condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Poll all consumers until the condition holds, each in its own thread.

    A poll() that ends during a rebalance may lose the assignment (FINDINGS.md of this client), so the polls are long,
    and no consumer waits for another's.
    """
    stop = threading.Event()

    def poll(consumer: Any) -> None:
        while not stop.is_set():
            consumer.poll(500)

    threads = [threading.Thread(target=poll, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert condition(), [consumer.assignment() for consumer in consumers]


@cell("create and delete topics")
def test_created_topic_is_listed_and_deleted_topic_is_not(admin: Any, name: str) -> None:
    """Create, create again, describe, delete."""
    create(admin, name, 3)
    described = admin.describe_topics([name])
    assert len(described[0]["partitions"]) == 3
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        create(admin, name)
    admin.delete_topics([name])
    assert name not in admin.list_topics()
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@cell("create and delete topics")
@pytest.mark.parametrize(
    ("topic", "partitions", "config", "error"),
    [
        ("bad name!", 1, {}, kafka.errors.InvalidTopicError),
        ("zero-partitions", 0, {}, kafka.errors.InvalidPartitionsError),
        ("bad-config", 1, {"retention_ms": "soon"}, kafka.errors.InvalidConfigurationError),
    ],
)
def test_topic_that_cannot_be_is_refused(
    admin: Any, topic: str, partitions: int, config: dict[str, str], error: type[Exception]
) -> None:
    """Each refusal has Kafka's error."""
    with pytest.raises(error):
        create(admin, topic, partitions, **config)


@cell("produce acks 0, 1, all")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_readable_whatever_the_acks(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str, acks: Any
) -> None:
    """Acknowledged offsets count up; with acks=0 there are none to compare."""
    create(admin, name)
    values = [b"%d" % number for number in range(200)]
    offsets = produce(broker, name, values, acks=acks, enable_idempotence=False)
    assert acks == 0 or offsets == list(range(200))
    consumer = reader(name)
    assert [row.value for row in take(consumer, 200)] == values


@cell("idempotent producer")
def test_idempotent_producer_writes_each_record_once_in_order(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """Many small batches, five in flight."""
    create(admin, name)
    values = [b"%d" % number for number in range(1000)]
    settings = {"enable_idempotence": True, "batch_size": 300}
    assert produce(broker, name, values, **settings) == list(range(1000))
    assert [row.value for row in take(reader(name), 1000)] == values


@cell("seek and offsets")
def test_seek_ends_and_times_find_the_offset(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """Rewind, both ends, and the first record at or after a time."""
    create(admin, name)
    now_ms = int(time.time() * 1000)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(100):
        producer.send(name, b"%d" % number, partition=0, timestamp_ms=now_ms + number * 10)
    producer.close()
    consumer = reader()
    tp = TopicPartition(name, 0)
    consumer.assign([tp])
    take(consumer, 100)
    consumer.seek(tp, 40)
    assert take(consumer, 1)[0].value == b"40"
    consumer.seek_to_beginning(tp)
    assert take(consumer, 1)[0].value == b"0"
    assert (consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]) == (0, 100)
    assert consumer.offsets_for_times({tp: now_ms + 255})[tp].offset == 26
    assert consumer.offsets_for_times({tp: now_ms + 10_000})[tp] is None


@cell("fetch sessions")
def test_incremental_fetch_session_delivers_from_many_partitions(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """Partitions without news are omitted from the answers; later news still arrives."""
    create(admin, name, 20)
    consumer = reader(fetch_max_wait_ms=50)
    consumer.assign([TopicPartition(name, partition) for partition in range(20)])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for turn in range(4):
        for partition in range(turn, 20, 4):
            producer.send(name, b"%d" % turn, partition=partition)
        producer.flush()
        rows = take(consumer, 5)
        assert {row.partition for row in rows} == set(range(turn, 20, 4))
    producer.close()


@cell("groups: rebalance")
def test_members_share_the_partitions_and_inherit_them(
    admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """A second member takes half of four partitions; when it leaves, the first has all again."""
    create(admin, name, 4)
    first, second = reader(name, group_id=name), None
    poll_until([first], lambda: len(first.assignment()) == 4)
    second = reader(name, group_id=name)
    both = [first, second]
    poll_until(both, lambda: [len(one.assignment()) for one in both] == [2, 2])
    assert not first.assignment() & second.assignment()
    second.close()
    poll_until([first], lambda: len(first.assignment()) == 4)


@cell("groups: cooperative")
def test_cooperative_sticky_members_share_the_partitions(
    admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """The first keeps two of its four throughout."""
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

    create(admin, name, 4)
    settings = {"partition_assignment_strategy": [CooperativeStickyAssignor], "group_id": name}
    first = reader(name, **settings)
    poll_until([first], lambda: len(first.assignment()) == 4)
    second = reader(name, **settings)
    both = [first, second]
    poll_until(both, lambda: [len(one.assignment()) for one in both] == [2, 2])
    assert not first.assignment() & second.assignment()


@cell("groups: static membership")
def test_static_member_returns_to_its_partitions(
    admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """The same group_instance_id finds its old assignment."""
    create(admin, name, 4)
    settings = {"group_id": name, "session_timeout_ms": 45000}
    stay = reader(name, group_instance_id="stay", **settings)
    leave = reader(name, group_instance_id="leave", **settings)
    both = [stay, leave]
    poll_until(both, lambda: [len(one.assignment()) for one in both] == [2, 2])
    had = leave.assignment()
    leave.close()
    again = reader(name, group_instance_id="leave", **settings)
    poll_until([stay, again], lambda: len(again.assignment()) == 2)
    assert again.assignment() == had


@cell("groups: commit and resume")
def test_committed_offset_is_where_the_next_member_begins(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """With metadata stored with the offset."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(20)])
    tp = TopicPartition(name, 0)
    first = reader(name, group_id=name)
    take(first, 10)
    first.commit({tp: OffsetAndMetadata(7, "noted", -1)})
    first.close(autocommit=False)
    second = reader(name, group_id=name)
    assert take(second, 1)[0].offset == 7
    assert second.committed(tp, metadata=True).metadata == "noted"


@cell("admin: partitions and configs")
def test_partitions_grow_and_configs_change(admin: Any, name: str) -> None:
    """Altered configs are described; a reset restores the default."""
    create(admin, name)
    admin.create_partitions({name: NewPartitions(3)})
    assert len(admin.describe_topics([name])[0]["partitions"]) == 3
    resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "1234567"})
    admin.alter_configs([resource])
    shown = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    assert shown["topic"][name]["retention.ms"]["value"] == "1234567"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, ["retention.ms"])])
    shown = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    assert "retention.ms" not in shown["topic"].get(name, {})


@cell("admin: records and offsets")
def test_records_are_deleted_and_offsets_listed(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    """Deleting moves the earliest offset."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(name, 0)
    admin.delete_records({tp: 4})
    assert admin.list_partition_offsets({tp: OffsetSpec.EARLIEST})[tp].offset == 4
    assert admin.list_partition_offsets({tp: OffsetSpec.LATEST})[tp].offset == 10


@cell("admin: groups")
def test_group_is_listed_described_reset_and_deleted(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """Stable with a member, empty without."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(20)])
    tp = TopicPartition(name, 0)
    consumer = reader(name, group_id=name)
    take(consumer, 20)
    consumer.commit()
    assert name in str(admin.list_groups())
    described = admin.describe_groups([name])[name]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 1
    consumer.close(autocommit=False)
    assert admin.list_group_offsets({name: [tp]})[name][tp].offset == 20
    admin.alter_group_offsets(name, {tp: OffsetAndMetadata(3, "", -1)})
    assert admin.list_group_offsets({name: [tp]})[name][tp].offset == 3
    admin.delete_group_offsets(name, [tp])
    admin.delete_groups([name])
    assert name not in str(admin.list_groups())


@cell("admin: cluster and log dirs")
def test_cluster_and_log_dirs_are_described(broker: BrokerProcess, admin: Any, name: str) -> None:
    """One broker; the partition's size on disk is there."""
    create(admin, name)
    produce(broker, name, [b"x" * 5000])
    assert len(admin.describe_cluster()["brokers"]) == 1
    assert name in str(admin.describe_log_dirs())


@cell("large messages")
def test_large_message_passes_when_the_topic_allows_it(
    broker: BrokerProcess, admin: Any, reader: Callable[..., Any], name: str
) -> None:
    """5 MB, also for a reader that requests far less at a time."""
    create(admin, name, max_message_bytes="10000000")
    value = bytes(range(256)) * 20_000
    produce(broker, name, [value, b"after"], max_request_size=10_000_000)
    consumer = reader(name, fetch_max_bytes=100_000, max_partition_fetch_bytes=1000)
    assert [row.value for row in take(consumer, 2)] == [value, b"after"]


@cell("errors")
def test_message_over_the_topics_limit_is_refused(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    """The sender gets MESSAGE_TOO_LARGE."""
    create(admin, name, max_message_bytes="2000")
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        produce(broker, name, [b"x" * 3000])
    assert produce(broker, name, [b"y"]) == [0]
