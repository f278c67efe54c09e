"""confluent-kafka (librdkafka) against a whole broker: producing, reading, admin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ..support.broker_process import BrokerProcess

pytestmark = pytest.mark.e2e
compat = pytest.mark.compat


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """Give an admin client of the shared broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(
    admin: AdminClient, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    """Create one topic, and wait for the answer."""
    futures = admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])
    futures[topic].result(60)


def error_of(action: Callable[[], Any]) -> int:
    """Return the error code with which an action fails."""
    with pytest.raises(KafkaException) as caught:
        action()
    code: int = caught.value.args[0].code()
    return code


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under librdkafka's names, in which only callbacks have underscores."""
    return {
        key if key.endswith("_cb") else key.replace("_", "."): value
        for key, value in settings.items()
    }


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    """Write values to partition 0 and return the offsets that were acknowledged."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, str(error)
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": broker.bootstrap} | dotted(settings))
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    return offsets


def reader(broker: BrokerProcess, group: str, **settings: Any) -> Consumer:
    """Return a consumer that starts at the earliest record and commits only explicitly."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
    }
    return Consumer(config | dotted(settings))


def take(consumer: Consumer, count: int, timeout_s: float = 60.0) -> list[Message]:
    """Return exactly count messages. Errors: fails when they do not arrive in time."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            assert message.error() is None, str(message.error())
            messages.append(message)
    assert len(messages) == count
    return messages


@compat("confluent-kafka", "create and delete topics")
def test_created_topic_is_listed_and_deleted_topic_is_not(admin: AdminClient, name: str) -> None:
    """Create, create again, list, delete, delete again."""
    create(admin, name, 3)
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 3
    assert error_of(lambda: create(admin, name)) == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([name])[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics
    gone = error_of(lambda: admin.delete_topics([name])[name].result(60))
    assert gone == KafkaError.UNKNOWN_TOPIC_OR_PART


@compat("confluent-kafka", "create and delete topics")
@pytest.mark.parametrize(
    ("topic", "partitions", "config", "expected"),
    [
        ("bad name!", 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("zero-partitions", 0, {}, KafkaError.INVALID_PARTITIONS),
        ("bad-config", 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", 1, {"retention.years": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_topic_that_cannot_be_is_refused(
    admin: AdminClient, topic: str, partitions: int, config: dict[str, str], expected: int
) -> None:
    """Each refusal has Kafka's code."""
    assert error_of(lambda: create(admin, topic, partitions, config)) == expected


@compat("confluent-kafka", "create and delete topics")
def test_validate_only_creates_nothing(admin: AdminClient, name: str) -> None:
    """The answer is as if it had been created."""
    admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics


@compat("confluent-kafka", "produce acks 0, 1, all")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_readable_whatever_the_acks(
    broker: BrokerProcess, admin: AdminClient, name: str, acks: str
) -> None:
    """Acknowledged offsets count up; with acks=0 there are none to compare."""
    create(admin, name)
    values = [b"%d" % number for number in range(200)]
    offsets = produce(broker, name, values, acks=acks)
    if acks != "0":
        assert offsets == list(range(200))
    consumer = reader(broker, name)
    consumer.assign([TopicPartition(name, 0, 0)])
    assert [message.value() for message in take(consumer, 200)] == values
    consumer.close()


@compat("confluent-kafka", "idempotent producer")
def test_idempotent_producer_writes_each_record_once_in_order(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Many small batches in flight, five at a time."""
    create(admin, name)
    values = [b"%d" % number for number in range(3000)]
    offsets = produce(broker, name, values, enable_idempotence=True, batch_num_messages=10)
    assert offsets == list(range(3000))
    consumer = reader(broker, name)
    consumer.assign([TopicPartition(name, 0, 0)])
    assert [message.value() for message in take(consumer, 3000)] == values
    consumer.close()


@compat("confluent-kafka", "seek and offsets")
def test_seek_watermarks_and_times_find_the_offset(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Rewind to an offset, get both ends and the first record at or after a time."""
    create(admin, name)
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce(name, b"%d" % number, partition=0, timestamp=now_ms + number * 10)
    assert producer.flush(60) == 0
    consumer = reader(broker, name)
    consumer.assign([TopicPartition(name, 0, 0)])
    take(consumer, 100)
    consumer.seek(TopicPartition(name, 0, 40))
    assert take(consumer, 1)[0].value() == b"40"
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (0, 100)
    asked = [TopicPartition(name, 0, now_ms + 255)]
    assert consumer.offsets_for_times(asked, timeout=60)[0].offset == 26
    late = [TopicPartition(name, 0, now_ms + 10_000)]
    assert consumer.offsets_for_times(late, timeout=60)[0].offset == -1
    consumer.close()


@compat("confluent-kafka", "seek and offsets")
@pytest.mark.parametrize(("policy", "expected"), [("earliest", b"5"), ("latest", b"new")])
def test_offset_out_of_range_resets_by_policy(
    broker: BrokerProcess, admin: AdminClient, name: str, policy: str, expected: bytes
) -> None:
    """The records before offset 5 were deleted while the consumer stood at 0."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(name, 0, 5)
    admin.delete_records([tp])[tp].result(60)
    consumer = reader(broker, name, auto_offset_reset=policy, enable_partition_eof=True)
    consumer.assign([TopicPartition(name, 0, 0)])
    if policy == "latest":
        message = consumer.poll(60)
        assert message is not None and message.error() is not None
        assert (message.error().code(), message.offset()) == (KafkaError._PARTITION_EOF, 10)
        produce(broker, name, [b"new"])
    assert take(consumer, 1)[0].value() == expected
    consumer.close()


@compat("confluent-kafka", "read_committed")
def test_read_committed_sees_plain_records(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Without transactions the last stable offset is the high watermark."""
    create(admin, name)
    produce(broker, name, [b"a", b"b"])
    consumer = reader(broker, name, isolation_level="read_committed")
    consumer.assign([TopicPartition(name, 0, 0)])
    assert [message.value() for message in take(consumer, 2)] == [b"a", b"b"]
    consumer.close()


@compat("confluent-kafka", "partitions and metadata refresh")
def test_producer_and_consumer_find_added_partitions(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """A topic grows from one partition to three while both are running."""
    create(admin, name)
    consumer = reader(broker, name, topic_metadata_refresh_interval_ms=300)
    consumer.subscribe([name])
    produce(broker, name, [b"first"])
    take(consumer, 1)
    consumer.commit(asynchronous=False)  # the next rebalance starts from the committed offsets
    admin.create_partitions([NewPartitions(name, 3)])[name].result(60)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "topic.metadata.refresh.interval.ms": 300}
    )
    for partition in range(3):
        producer.produce(name, b"p%d" % partition, partition=partition)
    assert producer.flush(60) == 0
    found: set[bytes | None] = set()
    deadline = time.monotonic() + 60
    while not found >= {b"p0", b"p1", b"p2"}:  # the rebalance may bring p0 twice
        assert time.monotonic() < deadline, found
        found |= {message.value() for message in consumer.consume(3, timeout=0.2)}
    fewer = error_of(lambda: admin.create_partitions([NewPartitions(name, 2)])[name].result(60))
    assert fewer == KafkaError.INVALID_PARTITIONS
    consumer.close()


@compat("confluent-kafka", "large messages")
def test_large_message_passes_when_the_topic_allows_it(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """5 MB, also for a reader that requests far less at a time."""
    create(admin, name, config={"max.message.bytes": "10000000"})
    value = bytes(range(256)) * 20_000
    produce(broker, name, [value, b"after"], message_max_bytes=10_000_000)
    consumer = reader(
        broker,
        name,
        fetch_max_bytes=100_000,
        max_partition_fetch_bytes=1000,
        message_max_bytes=1000,
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    assert [message.value() for message in take(consumer, 2)] == [value, b"after"]
    consumer.close()


@compat("confluent-kafka", "errors")
def test_message_over_the_topics_limit_is_refused(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """The topic's limit counts, not the producer's."""
    create(admin, name, config={"max.message.bytes": "2000"})
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"x" * 3000, b"y"):
        producer.produce(
            name,
            value,
            partition=0,
            on_delivery=lambda error, _: errors.append(error and error.code()),
        )
        assert producer.flush(60) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE, None]


@compat("confluent-kafka", "errors")
def test_unknown_topic_is_an_error_when_not_created_on_demand(
    broker: BrokerProcess, name: str
) -> None:
    """A consumer does not create topics unless it requests it."""
    consumer = reader(broker, name, allow_auto_create_topics=False)
    consumer.subscribe([name])
    deadline = time.monotonic() + 60
    message = None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.5)
    assert message is not None and message.error() is not None
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


@compat("confluent-kafka", "auto-creation")
def test_producing_to_an_unknown_topic_creates_it(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """With the broker's default number of partitions."""
    produce(broker, name, [b"x"])
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 1


@compat("confluent-kafka", "configs")
def test_altered_topic_config_is_described_and_takes_effect(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Incremental set and delete; source and default are reported as by Kafka."""
    create(admin, name)
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "1500", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    asked = ConfigResource(ResourceType.TOPIC, name)
    entry = admin.describe_configs([asked])[asked].result(60)["max.message.bytes"]
    assert (entry.value, entry.is_default, entry.source) == ("1500", False, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    codes: list[int] = []
    producer.produce(
        name, b"x" * 2000, partition=0, on_delivery=lambda error, _: codes.append(error.code())
    )
    producer.flush(60)
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE]
    undo = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE)
        ],
    )
    admin.incremental_alter_configs([undo])[undo].result(60)
    assert produce(broker, name, [b"x" * 2000]) == [0]


@compat("confluent-kafka", "configs")
def test_broker_config_is_described(broker: BrokerProcess, admin: AdminClient) -> None:
    """Static settings are described with their source."""
    broker_id = str(next(iter(admin.list_topics(timeout=60).brokers)))
    asked = ConfigResource(ResourceType.BROKER, broker_id)
    entries = admin.describe_configs([asked])[asked].result(60)
    entry = entries["offsets.topic.num.partitions"]
    assert (entry.value, entry.is_read_only, entry.source) == ("5", True, 4)
    assert entries["log.segment.bytes"].value == "1073741824"


@compat("confluent-kafka", "delete records")
def test_deleted_records_move_the_start(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Up to an offset, up to the end, and beyond it."""
    create(admin, name)
    produce(broker, name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(name, 0, 4)
    assert admin.delete_records([tp])[tp].result(60).low_watermark == 4
    beyond = TopicPartition(name, 0, 11)
    code = error_of(lambda: admin.delete_records([beyond])[beyond].result(60))
    assert code == KafkaError.OFFSET_OUT_OF_RANGE
    end = TopicPartition(name, 0, -1)
    assert admin.delete_records([end])[end].result(60).low_watermark == 10


@compat("confluent-kafka", "list offsets")
def test_admin_lists_offsets_of_every_kind(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Earliest, latest, of the highest timestamp, and by time."""
    create(admin, name)
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, shift in enumerate((0, 900, 500)):
        producer.produce(name, b"%d" % number, partition=0, timestamp=now_ms + shift)
        assert producer.flush(60) == 0
    tp = TopicPartition(name, 0)

    def ask(spec: Any) -> int:
        futures = admin.list_offsets({tp: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        offset: int = futures[tp].result(60).offset
        return offset

    assert ask(OffsetSpec.earliest()) == 0
    assert ask(OffsetSpec.latest()) == 3
    assert ask(OffsetSpec.max_timestamp()) == 1
    assert ask(OffsetSpec.for_timestamp(now_ms + 100)) == 1
    assert ask(OffsetSpec.for_timestamp(now_ms + 1000)) == -1


@compat("confluent-kafka", "describe topics and cluster")
def test_topic_and_cluster_are_described(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    """Topic id, leaders and in-sync replicas; cluster id and controller."""
    create(admin, name, 2)
    described = admin.describe_topics(TopicCollection([name]))[name].result(60)
    assert described.topic_id is not None
    assert [len(partition.isr) for partition in described.partitions] == [1, 1]
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id and len(cluster.nodes) == 1
    assert (cluster.controller.host, cluster.controller.port) == (broker.host, broker.port)
