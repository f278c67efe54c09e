"""Three kwire brokers: transactions over all of them while brokers are killed, first use, DeleteRecords."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey

from ..support.kwire_cluster import KwireCluster
from ..support.polling import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RECORDS = 240
BATCH = 20
PARTITIONS = 3
HANGING_S = 12.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KwireCluster]:
    """Three brokers."""
    cluster = KwireCluster(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
        gc.collect()  # while this module's filters hold


def create(cluster: KwireCluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics])
    for future in made.values():
        future.result(60)
    for number in range(len(cluster.brokers)):
        for topic in topics:
            wait_until(
                lambda n=number, t=topic: len(cluster.leaders(n, t)) == PARTITIONS,  # type: ignore[misc]
                f"broker {number} knows {topic}",
            )


def fill(cluster: KwireCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def values(cluster: KwireCluster, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values in a topic, up to its end offsets for this isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "verifier",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 90
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message.value())
    consumer.close()
    assert len(ended) == PARTITIONS, "not read to the end in time"
    return found


class Transformer:
    """Consumes, transforms and produces, each batch in a transaction with its offsets."""

    def __init__(self, cluster: KwireCluster, source: str, target: str) -> None:
        self.cluster = cluster
        self.target = target
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 45_000,
            }
        )
        self.tps = [TopicPartition(source, number) for number in range(PARTITIONS)]
        self.committed = 0
        self.aborted = 0
        self._renew()
        self._resume()

    def _renew(self) -> None:
        """Create a new producer with the same id, which aborts the open transaction of the previous one."""
        self.producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": "transformer",
                "transaction.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(60)

    def _resume(self) -> None:
        """Continue at the group's committed offsets."""
        deadline = time.monotonic() + 60
        while True:
            try:
                found = self.consumer.committed(self.tps, 10)
                break
            except KafkaException:
                assert time.monotonic() < deadline
        start = [TopicPartition(tp.topic, tp.partition, max(tp.offset, 0)) for tp in found]
        self.positions = {tp.partition: tp.offset for tp in start}
        self.consumer.assign(start)

    @property
    def done(self) -> int:
        """The number of records in committed transactions."""
        return sum(self.positions.values())

    def _send_offsets(self, offsets: list[TopicPartition]) -> bool:
        """Make offsets part of the transaction; False if that does not end.

        librdkafka waits forever if a coordinator is unavailable at the wrong moment (its issue 5456).
        """
        producer = self.producer
        errors: list[KafkaException | None] = []
        metadata = self.consumer.consumer_group_metadata()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(offsets, metadata, 10)
                errors.append(None)
            except KafkaException as error:
                errors.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(HANGING_S)
        for error in errors:
            if error is not None:
                raise error
        return bool(errors)

    def step(self, *, abort: bool, middle: Callable[[], None] = lambda: None) -> None:
        """Run one transaction; `middle` is called when everything is sent and nothing is decided."""
        records: list[Message] = [
            each for each in self.consumer.consume(BATCH, 1.0) if each.error() is None
        ]
        if not records:
            return
        try:
            self.producer.begin_transaction()
            for number, record in enumerate(records):
                self.producer.produce(self.target, record.value(), partition=number % PARTITIONS)
            ends = {record.partition(): record.offset() + 1 for record in records}
            if not self._send_offsets([TopicPartition("in", *each) for each in ends.items()]):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            middle()
            if abort:
                self.producer.abort_transaction(30)
            else:
                self.producer.commit_transaction(60)
                self.committed += 1
                self.positions |= ends
                return
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self.producer.abort_transaction(60)
            else:
                self._renew()
        self.aborted += 1  # or committed, but without an answer: the group's offset shows it
        self._resume()


def test_transactions_survive_the_death_of_their_coordinator_and_of_leaders(
    cluster: KwireCluster,
) -> None:
    create(cluster, "in", "out")
    assert sorted(cluster.leaders(0, "out")) == [0, 1, 2]
    fill(cluster, "in", RECORDS)
    transformer = Transformer(cluster, "in", "out")
    coordinator = cluster.coordinator(0, "transformer", transaction=True)
    deadline = time.monotonic() + 300

    def progress(until: int) -> None:
        while transformer.done < until:
            assert time.monotonic() < deadline, transformer.done
            transformer.step(abort=transformer.committed % 4 == 1 and transformer.aborted < 2)

    def in_sync() -> bool:
        return all(cluster.in_sync(coordinator, topic) == [3, 3, 3] for topic in ("in", "out"))

    progress(RECORDS // 4)
    transformer.step(abort=False, middle=cluster.brokers[coordinator].kill)
    progress(RECORDS // 2)
    cluster.brokers[coordinator].start()
    wait_until(in_sync, "all replicas in sync")
    # The next is the group's coordinator, or else a partition's leader.
    leaders = [cluster.coordinator(coordinator, "g"), *cluster.leaders(coordinator, "out")]
    leader = next(each for each in leaders if each != coordinator)
    transformer.step(abort=False, middle=cluster.brokers[leader].kill)
    progress(RECORDS)
    print(f"\n{transformer.committed} transactions committed, {transformer.aborted} not")
    assert sorted(map(int, values(cluster, "out"))) == list(range(RECORDS))
    assert transformer.aborted >= 2
    transformer.consumer.close()


def test_topics_of_first_use_are_made_where_the_controller_is_elsewhere(
    cluster: KwireCluster,
) -> None:
    other = (cluster.controller() + 1) % 3
    bootstrap = cluster.brokers[other].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("first-use", b"value")
    assert producer.flush(60) == 0

    def replicas() -> list[int]:
        """The number of replicas of each partition; the producer may have asked another broker."""
        (row,) = cluster.metadata(other, "first-use")["topics"]
        return [len(each["replica_nodes"]) for each in row["partitions"]]

    wait_until(lambda: replicas() == [3], "three replicas")
    wait_until(lambda: cluster.coordinator(other, "some group") >= 0, "a coordinator")
    wait_until(lambda: cluster.in_sync(other, "__consumer_offsets") == [3, 3, 3], "all in sync")
    # A client's request must not create topics with the names that it asks about.
    (row,) = cluster.metadata(other, "never")["topics"]
    assert row["error_code"] == 3


def test_deleted_records_are_gone_on_all_replicas_when_it_is_answered(
    cluster: KwireCluster,
) -> None:
    create(cluster, "in")
    fill(cluster, "in", 30)

    def delete(offset: int, alive: int) -> list[tuple[int, int]]:
        """The error and low watermark of each partition, from its leader."""
        found = []
        for number, leader in enumerate(cluster.leaders(alive, "in")):
            rows = [{"partition_index": number, "offset": offset}]
            answer = cluster.ask(
                leader,
                ApiKey.DELETE_RECORDS,
                2,
                {"topics": [{"name": "in", "partitions": rows}], "timeout_ms": 20_000},
            )
            (row,) = answer["topics"][0]["partitions"]
            found.append((row["error_code"], row["low_watermark"]))
        return found

    assert delete(7, 0) == [(0, 7)] * PARTITIONS
    assert len(values(cluster, "in")) == 30 - 7 * PARTITIONS
    # The leader then knows it.
    cluster.brokers[2].kill()
    wait_until(lambda: 2 not in cluster.leaders(0, "in"), "other leaders")
    assert len(values(cluster, "in")) == 30 - 7 * PARTITIONS
    began = time.monotonic()
    assert delete(8, 0) == [(0, 8)] * PARTITIONS  # a broker that is gone is not waited for
    print(f"\ndeleted without the third broker in {time.monotonic() - began:.1f} s")
