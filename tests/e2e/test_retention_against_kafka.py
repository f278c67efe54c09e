"""A week's records on Apache Kafka 3.9.2 and on kwire: the same segments, deleted in the same order.

Records have timestamps in the past, so a week of them can be written at once; intervals and delays
of the brokers are scaled down to parts of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.directory_watch import DirectoryWatch
from ..support.kafka import Kafka39Broker
from ..support.wire_client import WireClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

HOUR = 3600 * 1000
DAY = 24 * HOUR
#: So long that a directory which was set aside is seen before it is removed, and that it matters little when an event is
#: read.
DELAY_S = 3.0
PATIENCE_S = 90.0
BROKER = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.segment.delete.delay.ms": str(int(DELAY_S * 1000)),
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
}
KEEP = {"retention.ms": "-1"}
TOPICS = {
    "by-age": KEEP | {"segment.ms": str(9 * HOUR)},
    "by-size": KEEP | {"segment.bytes": "20000"},
    "by-index": KEEP | {"segment.index.bytes": "120", "index.interval.bytes": "1000"},
    "by-all": KEEP
    | {
        "segment.ms": str(7 * HOUR),
        "segment.bytes": "9000",
        "segment.index.bytes": "200",
        "index.interval.bytes": "600",
    },
}


class Side:
    """One of the two brokers, with its topics watched."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self.watches: dict[str, DirectoryWatch] = {}

    def folder(self, topic: str) -> Path:
        return self.broker.log_dir / f"{topic}-0"

    def create(self, topic: str, config: dict[str, str]) -> None:
        for made in self.admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
            made.result(30)
        deadline = time.monotonic() + PATIENCE_S
        while not self.folder(topic).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.watches[topic] = DirectoryWatch(self.folder(topic))

    def set(self, topic: str, **config: str) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    name.replace("_", "."),
                    value,
                    incremental_operation=AlterConfigOpType.SET,
                )
                for name, value in config.items()
            ],
        )
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(30)

    def produce(self, topic: str, batches: list[bytes]) -> None:
        """Append each batch in a separate request, and try again while there is no leader."""
        with closing(WireClient(self.broker.host, self.broker.port)) as client:
            for batch in batches:
                request = {
                    "acks": -1,
                    "timeout_ms": 20_000,
                    "topic_data": [
                        {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
                    ],
                }
                deadline = time.monotonic() + PATIENCE_S
                while True:
                    answer = client.call(ApiKey.PRODUCE, 8, request)
                    assert answer is not None
                    row = answer["responses"][0]["partition_responses"][0]
                    if row["error_code"] == 0:
                        break
                    assert row["error_code"] in (3, 5, 6), row
                    assert time.monotonic() < deadline
                    time.sleep(0.05)

    def segments(self, topic: str) -> list[tuple[str, int]]:
        """Name and size of each segment."""
        try:
            return sorted((p.name, p.stat().st_size) for p in self.folder(topic).glob("*.log"))
        except FileNotFoundError:  # deleted in the meantime
            return []

    def order(self, topic: str, kind: str) -> list[str]:
        """The segments that were renamed (`moved`) or removed (`deleted`), in order."""
        names = [
            change.name
            for change in list(self.watches[topic].changes)
            if change.kind == kind and change.name.endswith(".log.deleted")
        ]
        return names

    def first_offset(self, topic: str) -> int:
        row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        with closing(WireClient(self.broker.host, self.broker.port)) as client:
            answer = client.call(ApiKey.LIST_OFFSETS, 5, request)
        assert answer is not None
        offset: int = answer["topics"][0]["partitions"][0]["offset"]
        return offset


@contextmanager
def both_brokers(folder: Path) -> Iterator[tuple[Side, Side]]:
    brokers = [
        Kafka39Broker(folder / "kafka", config=BROKER),
        KwireBroker(folder / "kwire", config=BROKER),
    ]
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda broker: broker.start(90.0), brokers))
        sides = Side(brokers[0]), Side(brokers[1])
        yield sides
        for side in sides:
            for watch in side.watches.values():
                watch.close()
    finally:
        for broker in brokers:
            broker.stop()


def week(now_ms: int) -> list[bytes]:
    """A batch every two hours for a week; some records are late."""
    batches = []
    for number in range(7 * 12):
        builder = BatchBuilder(2, 0)
        timestamp = now_ms - 7 * DAY + number * 2 * HOUR
        for record in range(1 + number % 3):
            late = 5 * HOUR if number % 10 == 9 else 0
            builder.append(timestamp - late + record, None, b"v" * (200 + number * 37 % 900))
        batches.append(bytes(builder.build()))
    return batches


def wait(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def agree(kafka: Side, kwire: Side, topic: str, before: list[tuple[str, int]]) -> None:
    """Wait until both have deleted something and hold the same segments."""

    def same() -> bool:
        return before != kafka.segments(topic) == kwire.segments(topic) != before

    try:
        wait("the same segments", same)
    except AssertionError:
        assert kwire.segments(topic) == kafka.segments(topic), topic
        raise
    assert kwire.first_offset(topic) == kafka.first_offset(topic)


def test_week_scaled_down_leaves_the_segments_that_apache_kafka_leaves(tmp_path: Path) -> None:
    batches = week(int(time.time() * 1000))
    with both_brokers(tmp_path) as (kafka, kwire):
        for side in (kafka, kwire):
            for topic, config in TOPICS.items():
                side.create(topic, config)
                side.produce(topic, batches)
        for topic in TOPICS:
            assert kwire.segments(topic) == kafka.segments(topic), topic
            assert len(kafka.segments(topic)) > 5, topic

        def step(change: Callable[[Side, str], object], topics: list[str]) -> None:
            before = {topic: kafka.segments(topic) for topic in topics}
            for topic in topics:
                change(kafka, topic)
                change(kwire, topic)
            for topic in topics:
                agree(kafka, kwire, topic, before[topic])

        every = list(TOPICS)
        step(lambda side, topic: side.set(topic, retention_bytes="40000"), ["by-size", "by-all"])
        step(lambda side, topic: side.set(topic, retention_ms=str(3 * DAY)), ["by-age", "by-index"])
        step(lambda side, topic: side.set(topic, retention_ms=str(DAY)), ["by-age"])
        last = {topic: kwire.segments(topic)[-2][0] for topic in every}
        step(lambda side, topic: delete_before(side, topic, int(last[topic][:20]) + 1), every)
        # Everything is too old: the active segment is removed too, and replaced by an empty one.
        step(lambda side, topic: side.set(topic, retention_ms=str(HOUR // 2)), ["by-index"])
        assert [size for _, size in kwire.segments("by-index")] == [0]
        for side in (kafka, kwire):
            side.produce("by-index", batches[-1:])
        assert kwire.segments("by-index")[-1:] == kafka.segments("by-index")[-1:]

        for topic in every:
            aside = kafka.order(topic, "moved")
            assert aside == sorted(aside)
            assert kwire.order(topic, "moved") == aside, topic
            wait("files removed", lambda t=topic: removed(kafka, t) and removed(kwire, t))
            assert sorted(kwire.order(topic, "deleted")) == sorted(kafka.order(topic, "deleted"))
            for side in (kafka, kwire):
                assert shortest_delay_s(side, topic) > DELAY_S * 0.8, (side.broker.kind, topic)
        for side in (kafka, kwire):
            delete_topic(side, "by-all")


def delete_before(side: Side, topic: str, offset: int) -> None:
    wanted = [TopicPartition(topic, 0, offset)]
    for done in side.admin.delete_records(wanted).values():
        assert done.result(30).low_watermark == offset


def removed(side: Side, topic: str) -> bool:
    return len(side.order(topic, "deleted")) == len(side.order(topic, "moved"))


def shortest_delay_s(side: Side, topic: str) -> float:
    """The shortest time between renaming a segment and removing its file."""
    changes = list(side.watches[topic].changes)
    moved = {each.name: each.at_s for each in changes if each.kind == "moved"}
    return min(
        each.at_s - moved[each.name]
        for each in changes
        if each.kind == "deleted" and each.name.endswith(".log.deleted")
    )


def delete_topic(side: Side, topic: str) -> None:
    """Delete a topic: its directory is renamed immediately, and removed later."""

    def left() -> list[Path]:
        return list(side.broker.log_dir.glob(f"{topic}-0.*-delete"))

    for done in side.admin.delete_topics([topic]).values():
        done.result(30)
    wait("set aside", lambda: not side.folder(topic).exists())
    assert len(left()) == 1, side.broker.kind
    wait("removed", lambda: not left())
