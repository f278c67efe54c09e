"""One of several log directories fills up: its partitions fail, the others work, nothing is lost."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ..support.broker_process import KwireBroker
from ..support.small_disk import SmallDisk, small_disk
from ..support.wire_client import WireClient

pytestmark = pytest.mark.e2e

TOPIC = "spread"
PARTITIONS = 4
MEGABYTES = 4
VALUE = bytes(20_000)
QUIET = {"log_level": 0, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


class BrokerOnDisk(KwireBroker):
    """A broker with two log directories, the first of which is small; its metadata is elsewhere."""

    disk: SmallDisk

    def command(self) -> list[str]:
        return self.disk.limit(self)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerOnDisk]:
    with small_disk(tmp_path / "small", MEGABYTES) as disk:
        started = BrokerOnDisk(tmp_path / "broker", config={"delete.topic.enable": "true"})
        started.disk = disk
        started.config["log.dirs"] = f"{disk.folder},{started.log_dir}"
        started.config["metadata.log.dir"] = str(tmp_path / "metadata")
        started.start()
        try:
            yield started
        finally:
            started.stop()


def in_folder(folder: Path, topic: str) -> set[int]:
    """The partitions of a topic that are in a log directory."""
    return {int(path.name.rsplit("-", 1)[1]) for path in folder.glob(f"{topic}-?")}


class Sent:
    """The records produced to each partition, in order, with the outcomes."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.refused: dict[int, int] = defaultdict(int)
        self.number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                # How long records for a failed directory wait for a leader, and all others may take.
                "message.timeout.ms": 6000,
                "max.in.flight": 1,
                **QUIET,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number, value, offset = message.partition(), message.value(), message.offset()
        assert number is not None
        if error is not None:
            self.refused[number] += 1
        else:
            assert isinstance(value, bytes)
            assert offset is not None
            self.acknowledged[number].append((offset, value[:8]))

    def send(self, topic: str, partition: int) -> None:
        value = b"%08d" % self.number + VALUE
        self.number += 1
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def wait(self) -> None:
        assert self._producer.flush(60) == 0


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[tuple[int, bytes]]:
    """The first records of a partition: offset and the number that each begins with."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **QUIET})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            value, offset = message.value(), message.offset()
            assert isinstance(value, bytes)
            assert offset is not None
            found.append((offset, value[:8]))
    consumer.close()
    return found


def end_offset(broker: KwireBroker, partition: int) -> tuple[int, int]:
    """(error code, end offset) that the broker answers for a partition."""
    row: dict[str, Any] = {
        "partition_index": partition,
        "current_leader_epoch": -1,
        "timestamp": -1,
    }
    request = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": TOPIC, "partitions": [row]}],
    }
    with closing(WireClient(broker.host, broker.port)) as client:
        answer = client.call(ApiKey.LIST_OFFSETS, 5, request)
    assert answer is not None
    found = answer["topics"][0]["partitions"][0]
    return found["error_code"], found["offset"]


def create(broker: KwireBroker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(60)


def test_full_directory_goes_offline_and_everything_acknowledged_is_there_when_it_is_back(
    broker: BrokerOnDisk,
) -> None:
    create(broker, TOPIC, PARTITIONS)
    small, large = in_folder(broker.disk.folder, TOPIC), in_folder(broker.log_dir, TOPIC)
    assert (len(small), len(large)) == (PARTITIONS // 2, PARTITIONS // 2)
    sent = Sent(broker.bootstrap)
    rounds = 3 * (MEGABYTES << 20) // len(VALUE) // PARTITIONS
    for number in range(rounds):
        for partition in range(PARTITIONS):
            sent.send(TOPIC, partition)
        if number % (rounds // 10) == 0 and not sent.refused:
            sent.wait()  # or all of one partition could be there before the other fills the directory
    sent.wait()
    assert set(sent.refused) == small
    assert all(sent.acknowledged[partition] for partition in range(PARTITIONS))

    told = broker.log_path.read_text()
    assert told.count(f"log directory {broker.disk.folder} is offline") == 1
    assert "No space left on device" in told
    assert "Traceback" not in told
    for partition in small:
        assert end_offset(broker, partition)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    for partition in large:
        acknowledged = sent.acknowledged[partition]
        assert end_offset(broker, partition) == (0, len(acknowledged))
        assert read(broker.bootstrap, TOPIC, partition, len(acknowledged)) == acknowledged

    create(broker, "later", 3)
    assert in_folder(broker.log_dir, "later") == {0, 1, 2}
    assert in_folder(broker.disk.folder, "later") == set()
    assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    assert not (broker.disk.folder / ".kafka_cleanshutdown").exists()

    broker.disk.resize(16 * MEGABYTES)
    broker.start()
    for partition in range(PARTITIONS):
        sent.send(TOPIC, partition)
    sent.wait()
    for partition in range(PARTITIONS):
        acknowledged = sent.acknowledged[partition]
        error, end = end_offset(broker, partition)
        assert error == 0
        # Refused records may exist: no answer said that they do not.
        assert len(acknowledged) <= end <= len(acknowledged) + sent.refused[partition]
        stored = read(broker.bootstrap, TOPIC, partition, end)
        assert [offset for offset, _ in stored] == list(range(end))
        assert set(acknowledged) <= set(stored)


def test_directory_that_is_gone_at_the_start_leaves_the_others_serving(
    broker: BrokerOnDisk,
) -> None:
    create(broker, TOPIC, PARTITIONS)
    small = in_folder(broker.disk.folder, TOPIC)
    sent = Sent(broker.bootstrap)
    for partition in range(PARTITIONS):
        sent.send(TOPIC, partition)
    sent.wait()
    assert broker.stop() == 0
    away = broker.disk.folder.parent / "away"
    own = broker.config["log.dirs"]
    away.write_text("a file where the directory should be")
    broker.config["log.dirs"] = own.replace(str(broker.disk.folder), str(away))
    broker.start()
    assert broker.log_path.read_text().count(f"log directory {away} is offline") == 1
    for partition in range(PARTITIONS):
        expected = (ErrorCode.KAFKA_STORAGE_ERROR, -1) if partition in small else (0, 1)
        assert end_offset(broker, partition) == expected
    assert broker.stop() == 0
    broker.config["log.dirs"] = own
    broker.start()
    for partition in range(PARTITIONS):
        assert end_offset(broker, partition) == (0, 1)
        assert read(broker.bootstrap, TOPIC, partition, 1) == sent.acknowledged[partition]
