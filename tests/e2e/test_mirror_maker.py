"""MirrorMaker 2 between Apache Kafka 3.9.2 and kwire, both ways: records, configs and groups move."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, Kafka39Broker, write_properties
from ..support.kafka_apps import MIRROR_MAKER, KafkaApp
from .conftest import build_broker

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "123456789",
    "max.message.bytes": "654321",
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "60000",
}
Record = tuple[object, ...]


class Mirror(NamedTuple):
    """Two clusters, and MirrorMaker between them."""

    clusters: dict[str, BrokerProcess]
    app: KafkaApp


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """Give Apache Kafka, kwire, and a MirrorMaker that copies topics named move-* both ways."""
    folder = tmp_path_factory.mktemp("mirror")
    clusters = {
        "kafka": Kafka39Broker(folder / "kafka"),
        "kwire": build_broker(folder / "kwire"),
    }
    properties = {
        "clusters": "kafka, kwire",
        "kafka->kwire.enabled": "true",
        "kwire->kafka.enabled": "true",
        "topics": "move-.*",
        "groups": "move-.*",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "sync.topic.acls.interval.seconds": "1",
        "emit.heartbeats.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "500",
    }
    stack = contextlib.ExitStack()
    for alias, broker in clusters.items():
        stack.callback(broker.stop)
        properties[f"{alias}.bootstrap.servers"] = broker.bootstrap
        properties[f"{alias}.consumer.isolation.level"] = "read_committed"
        properties[f"{alias}.exactly.once.source.support"] = "enabled"
    path = write_properties(folder / "mirror.properties", properties)
    with stack:
        for broker in clusters.values():
            broker.start()
        app = KafkaApp(KAFKA_3, folder / "mirror.log", MIRROR_MAKER, str(path))
        stack.callback(app.close)
        yield Mirror(clusters, app)


def administrator(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def write(broker: BrokerProcess, topic: str, first: int, count: int) -> None:
    """Write numbered records: each codec, some without key, value or headers, some never committed."""
    now_ms = int(time.time() * 1000)  # old records are deleted by retention.ms
    for place, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec,
                "transactional.id": f"{topic}-{codec}",
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        producer.init_transactions(60)
        for commit in (True, False, True):
            producer.begin_transaction()
            for number in range(first + place, first + count, len(CODECS)):
                producer.produce(
                    topic,
                    b"%d %s %s" % (number, codec.encode(), b"x" * (number % 100)),
                    b"key %d" % (number % 50) if commit else b"aborted",
                    partition=number % PARTITIONS,
                    timestamp=now_ms - number,
                    headers=[("n", str(number).encode()), ("null", None)][: number % 3],
                )
                if number % 7 == 0 and commit:
                    producer.produce(topic, None, b"gone %d" % number, number % PARTITIONS)
            producer.flush(60)
            (producer.commit_transaction if commit else producer.abort_transaction)(60)


def reader(broker: BrokerProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )


def record(message: Message) -> Record:
    """Return the parts that must be the same in both clusters: all but the offset."""
    return (message.key(), message.value(), message.timestamp(), message.headers() or [])


def drain(consumer: Consumer, timeout_s: float = 90.0) -> dict[int, list[Record]]:
    """Return the records up to the end of each partition."""
    found: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    open_partitions = set(found)
    deadline = time.monotonic() + timeout_s
    while open_partitions:
        assert time.monotonic() < deadline, open_partitions
        for message in consumer.consume(1000, timeout=0.2):
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                found[partition].append(record(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(partition)
    return found


def added(before: dict[int, list[Record]], now: dict[int, list[Record]]) -> dict[int, list[Record]]:
    """Return each partition's records since the previous state."""
    return {partition: records[len(before[partition]) :] for partition, records in now.items()}


def everything(broker: BrokerProcess, topic: str) -> dict[int, list[Record]]:
    """Return partition -> committed records."""
    consumer = reader(broker, "check")
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = drain(consumer)
    consumer.close()
    return found


def size(records: dict[int, list[Record]]) -> int:
    return sum(map(len, records.values()))


def read_in_group(broker: BrokerProcess, topic: str, group: str) -> dict[int, list[Record]]:
    """Return the records from a group's position to the end, and commit them."""
    consumer = reader(broker, group)
    consumer.subscribe([topic])
    found = drain(consumer)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def wait_for(what: Callable[[], bool], mirror: Mirror, timeout_s: float = 180.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert mirror.app.running and time.monotonic() < deadline, mirror.app.tail
        time.sleep(0.2)


def wait_for_records(mirror: Mirror, broker: BrokerProcess, topic: str, count: int) -> None:
    """Wait until a topic exists and contains this many committed records."""
    admin = administrator(broker)
    wait_for(lambda: topic in admin.list_topics(timeout=60).topics, mirror)
    wait_for(lambda: size(everything(broker, topic)) >= count, mirror)


def read_to_end(
    mirror: Mirror, alias: str, target_alias: str, topic: str, group: str
) -> dict[int, list[Record]]:
    """Let a group read everything, until the target knows it; return the records.

    MirrorMaker loses offsets that it has not written yet when it restarts its own task, which it does when topics are
    created; it writes the next ones with the next records, which this function sends.
    """
    source, target = mirror.clusters[alias], mirror.clusters[target_alias]
    copy = f"{alias}.{topic}"
    found: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    for attempt in range(5):
        more = read_in_group(source, topic, group)
        found = {partition: found[partition] + more[partition] for partition in found}
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            if is_at_end(target, copy, group):
                return found
            time.sleep(0.2)
        write(source, topic, 1_000_000 * (attempt + 1), 30)
        wait_for_records(mirror, target, copy, size(everything(source, topic)))
    raise AssertionError((group, committed_offsets(target, copy, group), mirror.app.tail))


def committed_offsets(broker: BrokerProcess, topic: str, group: str) -> dict[int, int]:
    """Return partition -> committed offset of a group, of the topic alone."""
    asked = ConsumerGroupTopicPartitions(group)
    admin = administrator(broker)
    rows = admin.list_consumer_group_offsets([asked])[group].result(60)
    return {row.partition: row.offset for row in rows.topic_partitions if row.topic == topic}


def is_at_end(broker: BrokerProcess, topic: str, group: str) -> bool:
    """Whether a group has committed everything: only a transaction's marker may follow its offset."""
    committed = committed_offsets(broker, topic, group)
    ends = end_offsets(broker, topic)
    return all(ends[number] - committed.get(number, -9) in (0, 1) for number in ends)


def end_offsets(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """Return partition -> end."""
    consumer = reader(broker, "check")
    found = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)[1]
        for partition in range(PARTITIONS)
    }
    consumer.close()
    return found


def configs_of(broker: BrokerProcess, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = administrator(broker)
    entries = admin.describe_configs([resource])[resource].result(60)
    return {name: entries[name].value for name in CONFIGS}


@pytest.mark.compat("java-apps 3.9.2", "MirrorMaker 2: records, configs and groups, both ways")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("alias", "target_alias"), [("kafka", "kwire"), ("kwire", "kafka")])
def test_topic_and_its_groups_move_to_the_other_cluster(
    mirror: Mirror, name: str, alias: str, target_alias: str, long_form: bool
) -> None:
    """Copied while being written; a group that moves continues where it was. The long form kills kwire."""
    source, target = mirror.clusters[alias], mirror.clusters[target_alias]
    topic = f"move-{name}"
    copy = f"{alias}.{topic}"
    count, kills = (4000, 8) if long_form else (600, 0)
    early, late = f"{topic}-early", f"{topic}-late"
    admin = administrator(source)
    new = NewTopic(topic, PARTITIONS, 1, config=CONFIGS)
    admin.create_topics([new])[topic].result(60)
    write(source, topic, 0, count)
    wait_for_records(mirror, target, copy, count)
    before = read_to_end(mirror, alias, target_alias, topic, early)

    write(source, topic, count, count)  # it is being copied now
    for kill in range(2, kills + 2):
        mirror.clusters["kwire"].kill()
        mirror.clusters["kwire"].start()
        write(source, topic, kill * count, count)
    written = everything(source, topic)
    wait_for_records(mirror, target, copy, size(written))
    for partition, records in everything(target, copy).items():
        assert records[: len(before[partition])] == before[partition]
        pairs = zip(records, written[partition], strict=False)
        assert [pair for pair in pairs if pair[0] != pair[1]][:2] == []
        assert len(records) == len(written[partition])
    assert sum(end_offsets(target, copy).values()) > size(written)  # markers: it was exactly once
    wait_for(lambda: configs_of(target, copy) == CONFIGS, mirror)

    assert read_in_group(target, copy, early) == added(before, written)
    written = read_to_end(mirror, alias, target_alias, topic, late)
    write(source, topic, (kills + 2) * count, 30)
    grown = everything(source, topic)
    wait_for_records(mirror, target, copy, size(grown))
    assert read_in_group(target, copy, late) == added(written, grown)
    assert "syncing topic ACLs" not in mirror.app.output  # the scheduler's message about a failure
    print(f"\n{alias} to {target_alias}: {size(grown)} records, {kills} kills")
