"""Stock clients log in with PLAIN and SCRAM, over SASL_PLAINTEXT. Their users are made by kafka-configs."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiokafka.errors
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from ..support.broker_process import BrokerProcess, KwireBroker, free_port
from ..support.kafka import KAFKA_3, KAFKA_4, refuse_or_skip
from ..support.kafka_tools import ToolResult, ToolServer, ToolServers

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.jvm,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PLAIN, SHA_256, SHA_512 = MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
SECRET = "geheim-7"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(autouse=True)
def _collect_leftovers() -> Iterator[None]:
    yield
    gc.collect()  # objects of refused clients, while this module's filters apply


class SaslBroker:
    """A broker with a listener for administrators, and one where clients log in."""

    def __init__(self, process: BrokerProcess, port: int) -> None:
        self.process = process
        self.bootstrap = f"127.0.0.1:{port}"

    def log(self) -> str:
        return self.process.log_path.read_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    admin, clients = free_port(), free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{admin},CLIENTS://127.0.0.1:{clients}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="{SECRET}";',
        "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "4000",
    }
    process = KwireBroker(tmp_path_factory.mktemp("sasl"), config=config, port=admin)
    process.start()
    yield SaslBroker(process, clients)
    process.stop()


@pytest.fixture(scope="module", params=[KAFKA_3, KAFKA_4])
def tools(request: pytest.FixtureRequest, tool_servers: ToolServers) -> ToolServer:
    return tool_servers(request.param)


def configure_users(tools: ToolServer, broker: SaslBroker, *arguments: str) -> ToolResult:
    """Run kafka-configs on the users."""
    where = ("--bootstrap-server", broker.process.bootstrap, "--entity-type", "users")
    return tools.run("kafka-configs", *where, *arguments)


def login_file(folder: Path, mechanism: str, user: str, password: str) -> str:
    """A file of client properties."""
    module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} username="{user}" password="{password}";\n'
    )
    return str(path)


def test_kafka_configs_makes_users_and_its_release_logs_in_as_one(
    broker: SaslBroker, tools: ToolServer, tmp_path: Path
) -> None:
    user = f"java-{tools.version}"
    made = configure_users(
        tools,
        broker,
        *("--entity-name", user, "--alter", "--add-config"),
        f"SCRAM-SHA-256=[iterations=8192,password={tools.version}],SCRAM-SHA-512=[password=x]",
    )
    assert made.status == 0, made
    shown = configure_users(tools, broker, "--describe", "--entity-name", user).output
    assert f"SCRAM credential configs for user-principal '{user}' are" in shown
    assert "SCRAM-SHA-256=iterations=8192" in shown and "SCRAM-SHA-512=iterations=4096" in shown

    def topics(password: str) -> ToolResult:
        file = login_file(tmp_path, SHA_256, user, password)
        asked = ("--bootstrap-server", broker.bootstrap, "--command-config", file, "--list")
        return tools.run("kafka-topics", *asked)

    assert topics(tools.version).status == 0
    failed = topics("wrong")
    assert failed.status != 0
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in str(failed)
    deleted = configure_users(
        tools, broker, "--entity-name", user, "--alter", "--delete-config", "SCRAM-SHA-256"
    )
    assert deleted.status == 0, deleted
    assert topics(tools.version).status != 0


@pytest.fixture(scope="module")
def alice(broker: SaslBroker) -> SaslBroker:
    """The broker with a SCRAM user, made by our own command while the broker runs."""
    kwire, bootstrap = broker.process.command()[:3], broker.process.bootstrap
    result = subprocess.run(
        [*kwire, "users", "--bootstrap", bootstrap, "add", "alice"],
        input=SECRET + "\n",
        text=True,
        capture_output=True,
    )
    assert result.returncode == 0, result.stderr
    return broker


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@each_mechanism
def test_kafka_python_logs_in(
    alice: SaslBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    def settings(password: str) -> dict[str, object]:
        return {
            "bootstrap_servers": alice.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
        }

    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**settings(SECRET))
    producer.send(topic, b"v").get(10)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **settings(SECRET))
    assert next(consumer).value == b"v"
    consumer.close()
    with pytest.raises(kafka.errors.KafkaError):
        KafkaProducer(bootstrap_timeout_ms=700, **settings("wrong"))
    caplog.clear()
    gc.collect()  # a client that does not start leaves its sockets open; other tests must not be blamed for them


@each_mechanism
def test_confluent_kafka_logs_in_and_stays(alice: SaslBroker, mechanism: str) -> None:
    """With SCRAM-SHA-512 the session ends after four seconds, and librdkafka logs in again."""
    errors: list[str] = []
    settings = {
        "bootstrap.servers": alice.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "error_cb": lambda error: errors.append(str(error)),
        "log_level": 0,
    }
    topic = f"confluent-{mechanism}"
    producer = Producer(settings)
    for number in range(45 if mechanism == SHA_512 else 1):
        producer.produce(topic, b"v%d" % number)
        assert producer.flush(60) == 0
        producer.poll(0.1)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None and message.value() == b"v0"
    assert errors == []


def aiokafka_login(broker: SaslBroker, mechanism: str, password: str) -> dict[str, str]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


async def refused_by(broker: SaslBroker, mechanism: str) -> None:
    """Try a wrong password."""
    refused = AIOKafkaProducer(**aiokafka_login(broker, mechanism, "wrong-secret"))
    with pytest.raises(aiokafka.errors.KafkaError):
        await refused.start()
    await refused.stop()


@each_mechanism
def test_aiokafka_logs_in(alice: SaslBroker, mechanism: str) -> None:
    async def run() -> None:
        def settings(password: str) -> dict[str, str]:
            return aiokafka_login(alice, mechanism, password)

        topic = f"aiokafka-{mechanism}"
        async with AIOKafkaProducer(**settings(SECRET)) as producer:
            await producer.send_and_wait(topic, b"v")
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings(SECRET))
        async with consumer:
            assert (await consumer.getone()).value == b"v"
        await refused_by(alice, mechanism)

    asyncio.run(run())


@each_mechanism
def test_kcat_logs_in(alice: SaslBroker, mechanism: str, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        refuse_or_skip("needs kcat")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": mechanism}
    login |= {"sasl.username": "alice", "sasl.password": SECRET}
    file = tmp_path / "kcat.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    command = ["kcat", "-F", str(file), "-b", alice.bootstrap, "-t", f"kcat-{mechanism}"]
    subprocess.run([*command, "-P"], input=b"v\n", check=True, timeout=30)
    read = subprocess.run([*command, "-C", "-c1", "-q"], capture_output=True, timeout=30)
    assert read.stdout == b"v\n"


def test_log_names_who_failed_and_holds_no_secret(alice: SaslBroker) -> None:
    asyncio.run(refused_by(alice, SHA_256))
    log = alice.log()
    assert "login of 'alice' with SCRAM-SHA-256 has failed" in log
    assert SECRET not in log and "wrong-secret" not in log and "stored_key" not in log
