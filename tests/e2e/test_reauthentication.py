"""Stock clients under load that have to log in again and again (KIP-368): nothing is lost, and connections stay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from ..support.kafka import KAFKA_3
from ..support.kafka_tools import ToolServer, ToolServers
from ..support.secured import AGAIN, ALSO_AGAIN, REAUTH_MS, SCRAM, Secured

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.jvm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: Records of each client, of which it sends 200 in a second.
PACE = 200


def by_confluent(secured: Secured, topic: str, count: int) -> list[str]:
    """Send numbers at the pace; return the errors."""
    errors: list[str] = []
    said = {"error_cb": lambda error: errors.append(str(error)), "enable.idempotence": True}
    producer = Producer(secured.librdkafka(AGAIN) | said)
    for number in range(count):
        producer.produce(topic, b"%d" % number)
        producer.poll(1 / PACE)
    left = producer.flush(60)
    return [*errors, *(["not sent"] if left else [])]


def by_kafka_python(secured: Secured, topic: str, count: int) -> list[str]:
    """The same with kafka-python."""
    producer = KafkaProducer(enable_idempotence=True, **secured.kafka_python(AGAIN))
    sent = []
    for number in range(count):
        sent.append(producer.send(topic, b"%d" % number))
        time.sleep(1 / PACE)
    producer.flush(60)
    producer.close()
    return [str(future.exception) for future in sent if not future.succeeded()]


def by_aiokafka(secured: Secured, topic: str, count: int) -> list[str]:
    """The same with aiokafka, which cannot log in again on a connection."""

    async def run() -> list[str]:
        settings = secured.aiokafka(ALSO_AGAIN)
        async with AIOKafkaProducer(enable_idempotence=True, **settings) as producer:
            sent = []
            for number in range(count):
                sent.append(await producer.send(topic, b"%d" % number))
                await asyncio.sleep(1 / PACE)
            answers = await asyncio.gather(*sent, return_exceptions=True)
        return [str(answer) for answer in answers if isinstance(answer, BaseException)]

    return asyncio.run(run())


def by_java(tools: ToolServer, secured: Secured, topic: str, count: int) -> list[str]:
    """As many records with kafka-producer-perf-test."""
    file = secured.file(AGAIN, secured.java(AGAIN), "java")
    options = ("--num-records", str(count), "--record-size", "5", "--throughput", str(PACE))
    result = tools.run(
        *("kafka-producer-perf-test", "--topic", topic, *options, "--producer.config", file),
        *("--producer-props", f"bootstrap.servers={secured.bootstrap(AGAIN)}"),
    )
    return [] if result.status == 0 else [result.errors]


def read(secured: Secured, topic: str) -> list[str]:
    """All records of a topic of one partition."""
    consumer = Consumer(secured.librdkafka(SCRAM) | {"group.id": "alice-reader"})
    place = TopicPartition(topic, 0, 0)
    end = consumer.get_watermark_offsets(place, 60)[1]
    consumer.assign([place])
    values: list[str] = []
    deadline = time.monotonic() + 60
    while len(values) < end and time.monotonic() < deadline:
        values += [message.value().decode() for message in consumer.consume(1000, 0.2)]
    consumer.close()
    return values


@pytest.mark.compat("confluent-kafka", "security: re-authentication")
@pytest.mark.compat("kafka-python", "security: re-authentication")
@pytest.mark.compat("aiokafka", "security: new connection when a session ends")
@pytest.mark.compat("java-tools 3.9.2", "security: re-authentication")
def test_clients_under_load_log_in_again_and_lose_nothing(
    secured: Secured, name: str, tool_servers: ToolServers, long_form: bool
) -> None:
    seconds = 60 if long_form else 9
    count = seconds * PACE
    clients: dict[str, Callable[[Secured, str, int], list[str]]] = {
        "confluent": by_confluent,
        "python": by_kafka_python,
        "aiokafka": by_aiokafka,
        "java": partial(by_java, tool_servers(KAFKA_3)),
    }
    topics = {client: f"alice-{name}-{client}" for client in clients}
    made = [NewTopic(topic, 1) for topic in topics.values()]
    admin = AdminClient(secured.librdkafka(SCRAM))
    for future in admin.create_topics(made).values():
        future.result(60)
    before = [secured.counts(way) for way in (AGAIN, ALSO_AGAIN)]
    with ThreadPoolExecutor(len(clients)) as pool:
        jobs = {
            client: pool.submit(send, secured, topics[client], count)
            for client, send in clients.items()
        }
        errors = {client: job.result() for client, job in jobs.items()}
    assert errors == {client: [] for client in clients}
    numbers = [str(number) for number in range(count)]
    for client, topic in topics.items():
        values = read(secured, topic)
        assert len(values) == count, client
        assert values == numbers or client == "java", client
    again, also_again = (secured.counts(way) for way in (AGAIN, ALSO_AGAIN))
    stayed, renewed = again - before[0], also_again - before[1]
    # One less than there are: on a busy machine, a client reaches the end of each late.
    sessions = seconds * 1000 // REAUTH_MS - 1
    assert stayed["successful_reauthentication_total"] >= 3 * sessions
    assert stayed["failed_authentication_total"] == stayed["failed_reauthentication_total"] == 0
    assert stayed["expired_connections_killed_count"] == 0
    assert stayed["connection_creation_total"] <= 3 * 3  # bootstrap, the leader, one to spare
    assert renewed["expired_connections_killed_count"] >= sessions
    assert renewed["successful_reauthentication_total"] == 0
