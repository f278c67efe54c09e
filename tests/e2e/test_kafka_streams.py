"""Kafka Streams' word count with exactly_once_v2, its broker killed every few seconds."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, KAFKA_4, write_properties
from ..support.kafka_apps import WORD_COUNT, KafkaApp

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

LINES = "lines"
PARTITIONS = 3
VOCABULARY = [f"word{number}" for number in range(200)]
WORDS_PER_LINE = 5


class Lines:
    """An idempotent producer in a thread that sends lines of random words, and counts the words."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.words: Counter[str] = Counter()
        self.failed: list[str] = []
        self._choice = random.Random(seed)
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            for _ in range(8):
                words = self._choice.choices(VOCABULARY, k=WORDS_PER_LINE)
                self.words.update(words)
                self._producer.produce(
                    LINES,
                    " ".join(words).encode(),
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """Stop sending and wait until everything is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(180) == 0


class WordCount:
    """The application of one release, with its input, output and internal topics."""

    def __init__(self, version: str, broker: BrokerProcess, folder: Path, purge_ms: int) -> None:
        self.id = f"count-{version}"
        self.bootstrap = broker.bootstrap
        self.output = output_topic(version)
        self.repartition = f"{self.id}-words-repartition"
        self.changelog = f"{self.id}-counts-changelog"
        properties = {
            "application.id": self.id,
            "bootstrap.servers": broker.bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "state.dir": str(folder / self.id),
            "replication.factor": "1",
            "num.stream.threads": "2",
            "statestore.cache.max.bytes": "0",  # each count is written, not the last of many alone
            "repartition.purge.interval.ms": str(purge_ms),
            "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
            "consumer.auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": "200",
            # A thread that closes does not leave its group: the other waits for its session to end.
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
        }
        path = write_properties(folder / f"{self.id}.properties", properties)
        log = folder / f"{self.id}.log"
        self.start = lambda: KafkaApp(version, log, WORD_COUNT, str(path), LINES, self.output)
        self.app = self.start()

    def restart(self) -> None:
        """Kill the application and start it again in the same state directory."""
        self.app.kill()
        self.app = self.start()

    def wait_until_running(self) -> None:
        """Wait until the application reports that it is running."""
        deadline = time.monotonic() + 180
        while "state RUNNING" not in self.app.output:
            assert self.app.running and time.monotonic() < deadline, self.app.tail
            time.sleep(0.05)

    def wait_for_output(self, count: int) -> None:
        """Wait until this many counts are committed."""
        reader = reading(self.bootstrap, self.output)
        found, deadline = 0, time.monotonic() + 300
        while found < count:
            for message in reader.consume(2000, timeout=0.2):
                found += message.error() is None
            assert self.app.running and time.monotonic() < deadline, (found, count, self.app.tail)
        reader.close()

    def replaced_threads(self) -> list[str]:
        """Return the errors with which stream threads failed."""
        lines = self.app.output.splitlines()
        return [line for line in lines if line.startswith("failed ")]


def output_topic(version: str) -> str:
    return f"count-{version}-output"


def create_topics(broker: BrokerProcess, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(60)


def reading(bootstrap: str, topic: str) -> Consumer:
    """Return a consumer of all of a topic's committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    return consumer


def committed(bootstrap: str, topic: str) -> dict[str, list[bytes]]:
    """Return key -> values in order, of all committed records of a topic."""
    consumer = reading(bootstrap, topic)
    values: dict[str, list[bytes]] = defaultdict(list)
    open_partitions = set(range(PARTITIONS))
    deadline = time.monotonic() + 300  # the long form has some 400,000 records in a topic
    while open_partitions:
        assert time.monotonic() < deadline, (topic, open_partitions)
        for message in consumer.consume(2000, timeout=0.2):
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes) and isinstance(value, bytes)
                values[key.decode()].append(value)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition() or 0)
    consumer.close()
    return values


def log_starts(bootstrap: str, topic: str) -> list[int]:
    """Return the first offset of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    starts = [consumer.get_watermark_offsets(each, timeout=20)[0] for each in partitions]
    consumer.close()
    return starts


def check(count: WordCount, words: Counter[str], *, purged: bool) -> None:
    """Compare everything the application wrote with the words that were sent."""
    upwards = {
        word: [struct.pack(">q", n) for n in range(1, times + 1)] for word, times in words.items()
    }
    assert committed(count.bootstrap, count.output) == upwards
    changelog = committed(count.bootstrap, count.changelog)
    counts = {word: struct.unpack_from(">q", values[-1])[0] for word, values in changelog.items()}
    assert counts == words
    assert changelog == upwards
    if purged:
        assert all(start > 0 for start in log_starts(count.bootstrap, count.repartition))
    else:
        repartition = committed(count.bootstrap, count.repartition)
        assert {word: len(values) for word, values in repartition.items()} == words
        assert all(set(values) == {word.encode()} for word, values in repartition.items())


@pytest.mark.compat("java-apps 3.9.2", "Streams: exactly_once_v2, the broker killed")
@pytest.mark.compat("java-apps 4.3.0", "Streams: exactly_once_v2, the broker killed")
@pytest.mark.timeout(1800)
def test_word_count_is_exact_while_the_broker_is_killed(
    new_broker: Callable[..., BrokerProcess], long_form: bool, tmp_path: Path
) -> None:
    """Both releases at once; one keeps its repartition topic, the other purges it.

    Every tenth time, the applications are also killed: uncommitted results must not count.
    """
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    kills = int(os.environ.get("KWIRE_KILLS", "90" if long_form else "2"))
    broker = new_broker()
    create_topics(broker, [LINES, *map(output_topic, (KAFKA_3, KAFKA_4))])
    counts = {
        version: WordCount(version, broker, tmp_path, purge_ms)
        for version, purge_ms in ((KAFKA_3, 24 * 3_600_000), (KAFKA_4, 1000))
    }
    try:
        for count in counts.values():
            count.wait_until_running()
        lines = Lines(broker.bootstrap, seed)
        for kill in range(kills):
            time.sleep(choice.uniform(1.5, 4.0))
            if kill % 10 == 1:
                for count in counts.values():
                    count.restart()
            broker.kill()
            broker.start()
        lines.finish()
        assert not lines.failed
        for count in counts.values():
            count.wait_for_output(lines.words.total())
            assert count.app.finish(180) == 0, count.app.tail
        for version, count in counts.items():
            failed = count.replaced_threads()
            print(
                f"\nStreams {version}: {kills} kills, {lines.words.total()} words,"
                f" {len(failed)} threads replaced (seed {seed})"
            )
            print("\n".join(sorted({line[:200] for line in failed})))
            check(count, lines.words, purged=version == KAFKA_4)
    finally:
        for count in counts.values():
            count.app.close()
