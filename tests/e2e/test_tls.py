"""Stock clients over TLS, all of them with their own certificate, and two brokers that replicate over TLS."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kwire.testing.certificates import Authority
from tests.support.certificates import write_client

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.kafka import KAFKA_3, refuse_or_skip, write_properties
from ..support.kafka_tools import ToolServers
from ..support.kwire_cluster import KwireCluster
from ..support.polling import wait_until

pytestmark = pytest.mark.e2e

RECORDS = [f"record {number}" for number in range(50)]
#: The only listener of the broker is called PLAINTEXT, and uses TLS.
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
}


@pytest.fixture(scope="module")
def stores(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores of the broker and of a client, in the format of each client."""
    folder = tmp_path_factory.mktemp("stores")
    authority.write(folder / "ca.pem")
    authority.issue("CN=broker").write(folder / "broker.pem")
    write_client(authority, "CN=alice", folder, "alice")
    return folder


def settings(stores: Path, **others: str) -> dict[str, str]:
    """The settings of a broker with TLS; `_` in names of others stands for a dot."""
    return {
        **SETTINGS,
        "ssl.keystore.location": str(stores / "broker.pem"),
        "ssl.truststore.location": str(stores / "ca.pem"),
        **{name.replace("_", "."): value for name, value in others.items()},
    }


@pytest.fixture(scope="module")
def secured(stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker to which clients must present a certificate; ACLs allow only alice."""
    config = settings(
        stores,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:alice;User:CN=broker",
        ssl_principal_mapping_rules="RULE:^CN=(alice)$/$1/,DEFAULT",
    )
    before = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # nohup has it ignored, also by the broker
    try:
        started = KwireBroker(tmp_path_factory.mktemp("secured"), config=config)
        started.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    yield started
    started.stop()


def librdkafka(stores: Path, who: str = "alice") -> dict[str, str]:
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(stores / "ca.pem"),
        "ssl.certificate.location": str(stores / f"{who}.pem"),
        "ssl.key.location": str(stores / f"{who}.pem"),
    }


def exchange_by_confluent(bootstrap: str, topic: str, options: Mapping[str, str]) -> list[str]:
    """Write the records and read them back."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, **options})
    for record in RECORDS:
        producer.produce(topic, record)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            **options,
        }
    )
    consumer.subscribe([topic])
    read: list[str] = []
    deadline = time.monotonic() + 60
    while len(read) < len(RECORDS) and time.monotonic() < deadline:
        read += [message.value().decode() for message in consumer.consume(100, 0.5)]
    consumer.close()
    return read


def test_confluent_kafka(secured: BrokerProcess, stores: Path) -> None:
    assert exchange_by_confluent(secured.bootstrap, "confluent", librdkafka(stores)) == RECORDS


def test_kafka_python(secured: BrokerProcess, stores: Path) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    options = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(stores / "ca.pem"),
        "ssl_certfile": str(stores / "alice.crt"),
        "ssl_keyfile": str(stores / "alice.key"),
    }
    producer = KafkaProducer(**options)
    for record in RECORDS:
        producer.send("kafka-python", record.encode())
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **options)
    read: list[str] = []
    deadline = time.monotonic() + 60
    while len(read) < len(RECORDS) and time.monotonic() < deadline:
        for batch in consumer.poll(500).values():
            read += [record.value.decode() for record in batch]
    consumer.close()
    assert read == RECORDS


def test_aiokafka(secured: BrokerProcess, stores: Path) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    async def exchange() -> list[str]:
        options = {
            "bootstrap_servers": secured.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": create_ssl_context(
                cafile=str(stores / "ca.pem"),
                certfile=str(stores / "alice.crt"),
                keyfile=str(stores / "alice.key"),
            ),
        }
        async with AIOKafkaProducer(**options) as producer:
            for record in RECORDS:
                await producer.send_and_wait("aiokafka", record.encode())
        consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options)
        async with consumer, asyncio.timeout(60):
            return [(await anext(consumer)).value.decode() for _ in RECORDS]

    assert asyncio.run(exchange()) == RECORDS


def test_kcat(secured: BrokerProcess, stores: Path) -> None:
    if shutil.which("kcat") is None:
        refuse_or_skip("needs kcat")
    words = [f"-X{name}={value}" for name, value in librdkafka(stores).items()]
    kcat = ["kcat", "-b", secured.bootstrap, *words, "-t", "kcat"]
    subprocess.run([*kcat, "-P"], input="\n".join(RECORDS), text=True, check=True, timeout=60)
    read = subprocess.run(
        [*kcat, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=60
    )
    assert read.stdout.splitlines() == RECORDS


@pytest.mark.jvm
def test_java_tools_with_a_pkcs12_store(
    secured: BrokerProcess, stores: Path, tmp_path: Path, tool_servers: ToolServers
) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / "ca.pem"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(stores / "alice.p12"),
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "changeit",
    }
    path = str(write_properties(tmp_path / "client.properties", options))
    tools = tool_servers(KAFKA_3)
    at = ("--bootstrap-server", secured.bootstrap, "--topic", "java")
    wrote = tools.run(
        "kafka-console-producer", *at, "--producer.config", path, text="\n".join(RECORDS)
    )
    assert wrote.status == 0, wrote.errors
    count = ("--max-messages", str(len(RECORDS)), "--timeout-ms", "60000")
    read = tools.run(
        *("kafka-console-consumer", *at, "--consumer.config", path),
        *("--from-beginning", *count),
    )
    assert read.output.splitlines() == RECORDS, read.errors


def test_client_without_permission_and_one_without_a_certificate_are_refused(
    secured: BrokerProcess, stores: Path, authority: Authority
) -> None:
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    authority.issue("CN=mallory").write(stores / "mallory.pem")
    bootstrap = {"bootstrap.servers": secured.bootstrap}
    said: list[str] = []
    producer = Producer(bootstrap | librdkafka(stores, "mallory"))
    producer.produce("private", "x", on_delivery=lambda error, _: said.append(error.name()))
    producer.flush(60)
    assert said == ["TOPIC_AUTHORIZATION_FAILED"]
    nobody = {name: value for name, value in librdkafka(stores).items() if "key" not in name}
    del nobody["ssl.certificate.location"]
    refused = AdminClient(bootstrap | nobody)
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=1.5)
    # The client goes on trying.
    reason = "it presented no certificate (ssl.client.auth is required)"
    wait_until(lambda: reason in secured.log_path.read_text())


def test_hang_up_signal_has_the_certificates_read_again(
    secured: BrokerProcess, stores: Path
) -> None:
    os.kill(secured.pid, signal.SIGHUP)
    wait_until(lambda: "reading the certificates again" in secured.log_path.read_text())
    assert exchange_by_confluent(secured.bootstrap, "after", librdkafka(stores)) == RECORDS


def test_two_brokers_replicate_over_tls(stores: Path, tmp_path: Path) -> None:
    """acks=all with two replicas in sync: each record has gone from one broker to the other."""
    factors = (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    )
    cluster = KwireCluster(tmp_path, 2, settings(stores) | dict.fromkeys(factors, "2"))
    try:
        for broker in cluster.brokers:
            broker.start()
        assert exchange_by_confluent(cluster.bootstrap, "replicated", librdkafka(stores)) == RECORDS
    finally:
        cluster.stop()
