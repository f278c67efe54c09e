"""Transactions of several clients against a whole broker, with one transaction log."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition
from kafka.structs import OffsetAndMetadata

from kwire.api import ApiKey
from kwire.codec import decode
from kwire.messages.internal.transaction_log import TransactionLogKey, TransactionLogValue
from kwire.records.batch import iter_batches

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, KAFKA_4
from ..support.kafka_tools import ToolServers
from ..support.wire_client import WireClient

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
confluent = pytest.mark.compat("confluent-kafka", "transactions")


@pytest.fixture(autouse=True)
def _collect_leftovers() -> Iterator[None]:
    yield
    gc.collect()  # while this module's filters hold


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def transactional(broker: BrokerProcess, name: str, **settings: Any) -> Producer:
    """Return a producer that has its id and epoch."""
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(config | settings)
    producer.init_transactions(60)
    return producer


def consumer(
    broker: BrokerProcess, group: str, isolation: str = "read_committed", wait_ms: int = 500
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": wait_ms,
        }
    )


def values(found: Consumer, count: int, timeout_s: float = 60.0) -> list[bytes]:
    """Return up to count values, as many as arrive in time."""
    read: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(read) < count and time.monotonic() < deadline:
        message = found.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            read.append(message.value())
    return read


def all_values(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[bytes]:
    """Return the records that a consumer of partition 0 reads from its beginning, and check that no more follow."""
    reader = consumer(broker, "reader", isolation)
    reader.assign([TopicPartition(topic, 0, 0)])
    read = values(reader, count)
    read += values(reader, 1, 0.3)
    reader.close()
    return read


@confluent
def test_aborted_records_are_read_only_by_read_uncommitted(
    broker: BrokerProcess, name: str
) -> None:
    create(broker, name)
    producer = transactional(broker, name)
    for number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(name, b"%d" % number)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    assert all_values(broker, name, 4, "read_committed") == [b"0", b"0", b"2", b"2"]
    everything = [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert all_values(broker, name, 6, "read_uncommitted") == everything


@confluent
def test_reader_that_waits_is_woken_by_the_commit(broker: BrokerProcess, name: str) -> None:
    create(broker, name)
    producer = transactional(broker, name)
    reader = consumer(broker, name, wait_ms=20_000)  # a consumer that is not woken is late
    reader.assign([TopicPartition(name, 0, 0)])
    producer.begin_transaction()
    producer.produce(name, b"late")
    producer.flush(60)
    assert values(reader, 1, 1.0) == []
    began = time.monotonic()
    producer.commit_transaction(60)
    assert values(reader, 1) == [b"late"]
    assert time.monotonic() - began < 15
    reader.close()


@confluent
def test_second_producer_fences_the_first_and_aborts_its_transaction(
    broker: BrokerProcess, name: str
) -> None:
    create(broker, name)
    first = transactional(broker, name)
    first.begin_transaction()
    first.produce(name, b"first")
    first.flush(60)
    second = transactional(broker, name)
    first.produce(name, b"zombie")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(60)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce(name, b"second")
    second.commit_transaction(60)
    assert all_values(broker, name, 1, "read_committed") == [b"second"]


@confluent
def test_consume_process_produce_moves_records_and_offsets_together(
    broker: BrokerProcess, name: str
) -> None:
    source, target = name + "-in", name + "-out"
    create(broker, source)
    create(broker, target)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        plain.produce(source, b"%d" % number)
    plain.flush(60)
    producer = transactional(broker, name)
    reader = consumer(broker, name)
    reader.subscribe([source])
    for round_number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        batch = values(reader, 3)
        assert len(batch) == 3
        for value in batch:
            producer.produce(target, value)
        positions = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), 60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
            reader.seek(TopicPartition(source, 0, 3))
        committed = reader.committed([TopicPartition(source, 0)], 60)[0].offset
        assert committed == [3, 3, 6][round_number]
    reader.close()
    assert all_values(broker, target, 6, "read_committed") == [b"%d" % n for n in range(6)]


@confluent
def test_transaction_that_takes_too_long_is_aborted(
    new_broker: Callable[..., BrokerProcess], name: str
) -> None:
    interval = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    broker = new_broker(interval)
    create(broker, name)
    producer = transactional(broker, name, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(name, b"slow")
    producer.flush(60)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(name, b"behind")
    plain.flush(60)
    assert all_values(broker, name, 1, "read_committed") == [b"behind"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


@confluent
def test_killed_broker_keeps_what_was_committed_and_the_open_transaction(
    new_broker: Callable[..., BrokerProcess], name: str
) -> None:
    broker = new_broker()
    create(broker, name)
    producer = transactional(broker, name, **{"reconnect.backoff.max.ms": 200})
    for number in range(3):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        producer.flush(60)
        broker.kill()
        broker.start()
        producer.commit_transaction(60)
    assert all_values(broker, name, 3, "read_committed") == [b"%d" % n for n in range(3)]


@pytest.mark.compat("kafka-python", "transactions")
def test_kafka_python_commits_aborts_and_stores_offsets(broker: BrokerProcess, name: str) -> None:
    create(broker, name)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    producer.init_transactions()
    tp = PyTopicPartition(name, 0)
    for number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.send(name, b"%d" % number).get(60)
        offsets = {tp: OffsetAndMetadata(number + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=name,
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    reader.assign([tp])
    assert reader.committed(tp) == 3
    reader.seek_to_beginning()
    read: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(read) < 2 and time.monotonic() < deadline:
        read += [r.value for rows in reader.poll(200).values() for r in rows]
    reader.close()
    assert read == [b"0", b"2"]


@pytest.mark.compat("aiokafka", "transactions")
def test_aiokafka_commits_aborts_and_stores_offsets(broker: BrokerProcess, name: str) -> None:
    create(broker, name)

    async def run() -> tuple[list[bytes], int | None]:
        tp = AioTopicPartition(name, 0)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(name, b"0")
            await producer.send_offsets_to_transaction({tp: 1}, name)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(name, b"1")
                await producer.send_offsets_to_transaction({tp: 2}, name)
                raise ZeroDivisionError
        second = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        await second.start()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait(name, b"zombie")
        await producer.stop()
        async with second.transaction():
            await second.send_and_wait(name, b"2")
        await second.stop()
        reader = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=name,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        await reader.start()
        reader.assign([tp])
        await reader.seek_to_beginning()
        read = [(await asyncio.wait_for(reader.getone(), 60)).value for _ in range(2)]
        committed = await reader.committed(tp)
        await reader.stop()
        return read, committed

    assert asyncio.run(run()) == ([b"0", b"2"], 1)


def transaction_version(broker: BrokerProcess) -> int:
    """Return the finalized level of transaction.version on a broker; 0 if it has none."""
    client = WireClient(broker.host, broker.port)
    request = {"client_software_name": "test", "client_software_version": "1"}
    answer = client.call(ApiKey.API_VERSIONS, 3, request)
    client.close()
    assert answer is not None
    levels = {row["name"]: row["max_version_level"] for row in answer["finalized_features"]}
    level: int = levels.get("transaction.version", 0)
    return level


def protocols(broker: BrokerProcess, transactional_id: str) -> set[int]:
    """Return the versions of the protocol in which a producer's transactions were committed.

    From the values of its id in __transaction_state; with version 2, each transaction must have the epoch after that of
    the previous one.
    """
    client = WireClient(broker.host, broker.port)
    values = []
    for partition in range(int(broker.config["transaction.state.log.num.partitions"])):
        offset = 0
        while records := fetched(client, "__transaction_state", partition, offset):
            for batch in iter_batches(records):
                offset = batch.header.base_offset + batch.header.last_offset_delta + 1
                for record in batch.records():
                    key = decode(TransactionLogKey, bytes(record.key or b""), 0, 2)
                    if key.transactional_id == transactional_id and record.value is not None:
                        value = bytes(record.value)
                        values.append(decode(TransactionLogValue, value, value[1], 2))
    client.close()
    committed = [value for value in values if value.transaction_status == 4]
    epochs = [value.producer_epoch for value in committed]
    versions = {value.client_transaction_version for value in committed}
    first = epochs[0]
    assert epochs == (
        list(range(first, first + len(epochs))) if 2 in versions else [first] * len(epochs)
    )
    return versions


def fetched(client: WireClient, topic: str, partition: int, offset: int) -> bytes:
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    row |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    request = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [row]}]
    answer = client.call(ApiKey.FETCH, 11, request | {"session_epoch": -1, "topics": topics})
    assert answer is not None
    return answer["responses"][0]["partitions"][0]["records"] or b""


@pytest.mark.jvm
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.compat(f"java-tools {version}", "transactions"))
        for version in (KAFKA_3, KAFKA_4)
    ],
)
def test_java_producer_commits_and_its_tools_see_and_abort_transactions(
    broker: BrokerProcess, name: str, version: str, tool_servers: ToolServers
) -> None:
    """kafka-producer-perf-test in transactions, and kafka-transactions (KIP-664)."""
    create(broker, name)
    tools = tool_servers(version)
    sent = tools.run(
        *("kafka-producer-perf-test", "--topic", name, "--num-records", "500"),
        *("--record-size", "100", "--throughput", "-1", "--transactional-id", name),
        *("--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "500 records sent" in sent.output, sent
    assert protocols(broker, name) == {min(transaction_version(broker), 2 * (version == KAFKA_4))}

    def transactions(*arguments: str) -> str:
        result = tools.run("kafka-transactions", "--bootstrap-server", broker.bootstrap, *arguments)
        assert result.status == 0, result
        return result.output

    listed = [line.split() for line in transactions("list").splitlines()]
    assert [row[3] for row in listed if row[0].startswith(name)] == ["CompleteCommit"]

    open_name = name + "-open"
    producer = transactional(broker, open_name)
    producer.begin_transaction()
    producer.produce(name, b"hanging")
    producer.flush(60)
    described = transactions("describe", "--transactional-id", open_name)
    assert "Ongoing" in described and f"{name}-0" in described
    described = transactions("describe-producers", "--topic", name, "--partition", "0")
    rows = [line.split() for line in described.splitlines()[1:]]
    (start,) = {row[5] for row in rows if row[5] != "None"}
    transactions("abort", "--topic", name, "--partition", "0", "--start-offset", start)
    assert len(all_values(broker, name, 500, "read_committed")) == 500
