"""Aggregates of a topic equal a plain computation over the same records, over restarts, faults and late records."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kwire.pipeline.main import make_parser

from ..support.broker_process import BrokerProcess
from .aggregate_model import START_MS, Model, Sent, broken, iso, percentile, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.aggregates.batches import Counts

pytestmark = pytest.mark.spark
HEADER = "kwire.dead-letter."
MINUTE = 60_000


class Room:
    """A topic with what a job makes of it: two output topics, a folder of Parquet, a checkpoint."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, topic: str, path: Path) -> None:
        self.spark, self.broker, self.topic, self.path = spark, broker, topic, path
        self.results, self.letters = f"{topic}-results", f"{topic}-letters"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for answer in self.admin.create_topics(
            [NewTopic(topic, 3, 1, config={"retention.ms": "-1"})]
        ).values():
            answer.result()

    def send(self, records: Iterable[Sent], seed: random.Random) -> None:
        """Produce records to partitions by chance, and note where they went."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})

        def noted(sent: Sent) -> Callable[[Any, Message], None]:
            def note(error: Any, message: Message) -> None:
                assert error is None
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                sent.place = (partition, offset)

            return note

        for sent in records:
            producer.produce(
                self.topic,
                sent.value,
                sent.key,
                partition=seed.randrange(3),
                timestamp=sent.timestamp_ms,
                headers=sent.headers,
                on_delivery=noted(sent),
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def run(self, kind: str, *words: str, checkpoint: str = "checkpoint") -> Counts:
        """One run with --once in the shared Spark."""
        from kwire.pipeline.aggregate import aggregate, check_options

        options = make_parser("aggregate").parse_args(
            [
                "aggregate",
                kind,
                f"--bootstrap-server={self.broker.bootstrap}",
                f"--topics={self.topic}",
                f"--checkpoint-dir={self.path / checkpoint}",
                f"--group={self.topic}",
                "--once",
                "--quiet",
                *words,
            ]
        )
        check_options(options)
        return aggregate(self.spark, options)

    def read(self, topic: str) -> list[Message]:
        """All records of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([topic])
            found, ended = [], 0
            partitions = len(consumer.list_topics(topic, 10).topics[topic].partitions)
            while ended < partitions:
                message = consumer.poll(30)
                assert message is not None, f"no end of {topic} in time"
                if message.error():
                    ended += 1
                else:
                    found.append(message)
            return found
        finally:
            consumer.close()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a folder of Parquet, as any reader sees them."""
        folder = self.path / "out" / name
        return pq.read_table(folder).to_pylist() if folder.exists() else []


@pytest.fixture
def room(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> Room:
    """A topic of three partitions without records."""
    return Room(spark, broker, topic, tmp_path)


def letters_of(room: Room) -> dict[tuple[int, int], tuple[str, Message]]:
    """Place -> reason and record of the dead letters; a place may not stand there twice."""
    found = {}
    for message in room.read(room.letters):
        headers = dict(message.headers() or [])
        said = {
            key[len(HEADER) :]: value for key, value in headers.items() if key.startswith(HEADER)
        }
        assert said["topic"] == room.topic.encode()
        place = (int(said["partition"]), int(said["offset"]))
        assert place not in found
        found[place] = (said["reason"].decode(), message)
    return found


def check_letters(room: Room, sent: list[Sent], late: list[Sent]) -> None:
    """Each malformed or late record is among the dead letters, as it was, with where it was and why."""
    found = letters_of(room)
    reasons = {one.place: one.fault for one in sent if one.fault is not None}
    reasons |= {one.place: "late: the watermark, 20" for one in late}
    assert found.keys() == reasons.keys()
    by_place = {one.place: one for one in sent}
    for place, (reason, message) in found.items():
        assert reason.startswith(str(reasons[place])), reason
        one = by_place[place]
        assert (message.key(), message.value()) == (one.key, one.value)
        headers = message.headers() or []
        assert [pair for pair in headers if not pair[0].startswith(HEADER)] == one.headers
        assert dict(headers)[f"{HEADER}timestamp"] == str(one.timestamp_ms).encode()


def metrics(seed: random.Random, count: int, first_ms: int, span_ms: int) -> list[Sent]:
    """Values of five names, events over a span in no order."""
    found = []
    for _ in range(count):
        time_ms = first_ms + seed.randrange(span_ms)
        name, value = seed.choice("abcdé"), seed.randrange(-4000, 4000) / 4
        text = json.dumps(
            {"time": iso(time_ms), "name": name, "value": value, "n": "x", "other": [1]}
        )
        found.append(
            Sent(text.encode(), b"k", [("h", b"1")], time_ms=time_ms, group=(name,), number=value)
        )
    return found


def test_metrics_in_sliding_windows_with_late_and_malformed_records_equal_the_model(
    room: Room,
) -> None:
    seed = random.Random(11)
    model = Model(5 * MINUTE, windows(4 * MINUTE, MINUTE))
    everything: list[Sent] = []
    counted: Counter[str] = Counter()
    # The second run's records reach back behind the watermark of the first; the third's close all windows but its own.
    for first, span in ((0, 20), (5, 25), (60, 1)):
        sent = metrics(seed, 250, START_MS + first * MINUTE, span * MINUTE)
        sent += broken(seed, "value", "DOUBLE") if first != 60 else []
        seed.shuffle(sent)
        room.send(sent, seed)
        model.run(sent)
        counts = room.run(
            "metrics",
            "--schema=time TIMESTAMP, name STRING, value DOUBLE, n BIGINT",
            "--percentiles=0,50,99.9",
            "--exact",
            "--window=4 minutes",
            "--slide=1 minute",
            "--watermark=5 minutes",
            f"--to-topic={room.results}",
            f"--to-parquet={room.path / 'out'}",
            f"--dead-letter-topic={room.letters}",
            "--late=dead-letter",
        )
        everything += sent
        counted.update(malformed=counts.malformed, late=counts.late, results=counts.results)
        assert counts.records == sum(one.fault is None for one in sent)

    wanted = {}
    for group, start, end, events in model.results:
        numbers = [event.number for event in events]
        wanted[group[0], iso(start), iso(end)] = {
            "count": len(numbers),
            "min": min(numbers),
            "max": max(numbers),
            "mean": pytest.approx(sum(numbers) / len(numbers)),
            "p0": min(numbers),
            "p50": percentile(numbers, 50),
            "p99_9": pytest.approx(percentile(numbers, 99.9)),
        }
    got = {}
    for message in room.read(room.results):
        row = json.loads(message.value() or b"")
        assert (message.key() or b"").decode() == row["name"]
        place = row.pop("name"), row.pop("window_start"), row.pop("window_end")
        assert place not in got
        got[place] = row
    assert got == wanted
    stored = {
        (row["name"], iso_of(row["window_start"]), iso_of(row["window_end"])): row["count"]
        for row in room.rows("windows")
    }
    assert stored == {place: row["count"] for place, row in wanted.items()}
    assert model.late
    check_letters(room, everything, model.late)
    malformed = sum(one.fault is not None for one in everything)
    assert counted == {
        "malformed": malformed,
        "late": len(model.late),
        "results": len(wanted),
    }


def iso_of(time: Any) -> str:
    """A time of Parquet like one of JSON."""
    return iso(round(time.timestamp() * 1000))
