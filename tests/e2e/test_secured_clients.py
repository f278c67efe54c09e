"""Stock clients on a secured broker: SASL_SSL with SCRAM and PLAIN, client certificates, ACLs."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from aiokafka.errors import KafkaError as AioError

from ..support.kafka import KAFKA_3, KAFKA_4, refuse_or_skip
from ..support.kafka_tools import ToolResult, ToolServer, ToolServers
from ..support.secured import (
    ADMIN,
    MTLS,
    OTHER_HOST,
    PLAIN,
    SCRAM,
    UNKNOWN_AUTHORITY,
    WRONG_PASSWORD,
    Secured,
    Way,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COUNT = 10_000
ROWS = [(b"k%d" % number, b"value %d" % number, [("h", b"%d" % number)]) for number in range(COUNT)]
FEATURES = {
    SCRAM: "security: SASL_SSL with SCRAM",
    PLAIN: "security: SASL_SSL with PLAIN",
    MTLS: "security: mTLS with ACLs",
}


def each_way(client: str) -> pytest.MarkDecorator:
    """Run a test of a client for each way to log in; each is a cell of the matrix."""
    rows = [
        pytest.param(way, marks=pytest.mark.compat(client, feature), id=way.listener)
        for way, feature in FEATURES.items()
    ]
    return pytest.mark.parametrize("way", rows)


def denials(client: str) -> pytest.MarkDecorator:
    return pytest.mark.compat(client, "security: errors without permission")


def refusals(client: str) -> pytest.MarkDecorator:
    return pytest.mark.compat(client, "security: refused logins and certificates")


@pytest.fixture(autouse=True)
def _collect_leftovers() -> Iterator[None]:
    yield
    gc.collect()  # objects of refused clients, while this module's filters apply


# confluent-kafka


def read_by_confluent(settings: dict[str, Any], topic: str, count: int) -> list[tuple[Any, ...]]:
    """Read this many committed records in the group named like the topic."""
    consumer = confluent_kafka.Consumer(
        {
            **settings,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    rows: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + 60
    while len(rows) < count and time.monotonic() < deadline:
        for message in consumer.consume(2000, 0.5):
            assert message.error() is None, message.error()
            rows.append((message.key(), message.value(), message.headers()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return rows


@each_way("confluent-kafka")
def test_confluent_kafka(secured: Secured, way: Way) -> None:
    settings, topic = secured.librdkafka(way), f"{way.user}-confluent"
    admin = confluent_kafka.admin.AdminClient(settings)
    made = [confluent_kafka.admin.NewTopic(topic, 1, config={"retention.ms": "-1"})]
    admin.create_topics(made)[topic].result(60)
    producer = confluent_kafka.Producer({**settings, "linger.ms": 20})
    for key, value, headers in ROWS:
        producer.produce(topic, value, key, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0
    transactional = confluent_kafka.Producer({**settings, "transactional.id": topic})
    transactional.init_transactions(60)
    for value, end in ((b"aborted", "abort_transaction"), (b"committed", "commit_transaction")):
        transactional.begin_transaction()
        transactional.produce(topic, value)
        getattr(transactional, end)(60)
    read = read_by_confluent(settings, topic, COUNT + 1)
    assert read == [*ROWS, (None, b"committed", None)]
    names = admin.list_topics(timeout=60).topics
    assert topic in names and "secret" not in names
    described = admin.describe_consumer_groups([topic])[topic].result(60)
    assert described.state == confluent_kafka.ConsumerGroupState.EMPTY
    admin.delete_topics([topic])[topic].result(60)


@denials("confluent-kafka")
def test_confluent_kafka_without_permission(secured: Secured) -> None:
    settings = secured.librdkafka(SCRAM)
    said: list[str] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce("secret", "x", on_delivery=lambda error, _: said.append(error.name()))
    producer.flush(60)
    consumer = confluent_kafka.Consumer({**settings, "group.id": "alice-denied"})
    consumer.subscribe(["secret"])
    message = consumer.poll(60)
    said.append(message.error().name())
    consumer.close()
    consumer = confluent_kafka.Consumer({**settings, "group.id": "secret"})
    consumer.subscribe(["alice-denied"])
    message = consumer.poll(60)
    said.append(message.error().name())
    consumer.close()
    transactional = confluent_kafka.Producer({**settings, "transactional.id": "secret"})
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        transactional.init_transactions(60)
    said.append(failed.value.args[0].name())
    admin = confluent_kafka.admin.AdminClient(settings)
    secret = confluent_kafka.admin.NewTopic("secret-2", 1)
    acl = confluent_kafka.admin.AclBinding(
        confluent_kafka.admin.ResourceType.TOPIC,
        "secret",
        confluent_kafka.admin.ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        confluent_kafka.admin.AclOperation.ALL,
        confluent_kafka.admin.AclPermissionType.ALLOW,
    )
    for future in (admin.create_topics([secret])["secret-2"], admin.create_acls([acl])[acl]):
        with pytest.raises(confluent_kafka.KafkaException) as failed:
            future.result(60)
        said.append(failed.value.args[0].name())
    assert said == [
        *("TOPIC_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
        *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"),
        "CLUSTER_AUTHORIZATION_FAILED",
    ]


#: librdkafka's messages about a refused login or connection.
refused_by_librdkafka = pytest.mark.parametrize(
    ("way", "text"),
    [
        (WRONG_PASSWORD, "SASL authentication error: Authentication failed during authentication"),
        (UNKNOWN_AUTHORITY, "certificate verify failed"),
        (OTHER_HOST, "certificate verify failed"),
    ],
    ids=["password", "authority", "host"],
)


@refusals("confluent-kafka")
@refused_by_librdkafka
def test_confluent_kafka_says_why_it_is_refused(secured: Secured, way: Way, text: str) -> None:
    said: list[str] = []
    callback = {"error_cb": lambda error: said.append(error.str())}
    client = confluent_kafka.Producer(secured.librdkafka(way) | callback)
    deadline = time.monotonic() + 60
    while not said and time.monotonic() < deadline:
        client.poll(0.05)
    assert text in said[0]


# kafka-python


@each_way("kafka-python")
def test_kafka_python(secured: Secured, way: Way) -> None:
    settings, topic = secured.kafka_python(way), f"{way.user}-kafka-python"
    admin = kafka.KafkaAdminClient(**settings)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    producer = kafka.KafkaProducer(linger_ms=20, **settings)
    for key, value, headers in ROWS:
        producer.send(topic, value, key, headers)
    producer.flush(60)
    producer.close()
    transactional = kafka.KafkaProducer(transactional_id=topic, **settings)
    transactional.init_transactions()
    for value, end in ((b"aborted", "abort_transaction"), (b"committed", "commit_transaction")):
        transactional.begin_transaction()
        transactional.send(topic, value)
        getattr(transactional, end)()
    transactional.close()
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **settings,
    )
    rows: list[Any] = []
    deadline = time.monotonic() + 60
    while len(rows) <= COUNT and time.monotonic() < deadline:
        # Not shorter: a poll that ends during a rebalance may lose the assignment.
        for batch in consumer.poll(20_000, max_records=COUNT).values():
            rows += [(record.key, record.value, list(record.headers)) for record in batch]
    consumer.close()
    assert rows == [*ROWS, (None, b"committed", [])]
    assert topic in admin.list_topics() and "secret" not in admin.list_topics()
    assert topic in str(admin.list_groups())
    admin.delete_topics([topic])
    admin.close()


@denials("kafka-python")
def test_kafka_python_without_permission(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.kafka_python(SCRAM)
    producer = kafka.KafkaProducer(**settings)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("secret", b"x").get(60)
    producer.close()
    consumer = kafka.KafkaConsumer("secret", group_id="alice-denied", **settings)
    # Only the log gives the reason.
    deadline = time.monotonic() + 60
    while "Topic secret is not authorized for this client" not in caplog.text:
        assert consumer.poll(500) == {}
        assert time.monotonic() < deadline, caplog.text
    consumer.close()
    consumer = kafka.KafkaConsumer("alice-denied", group_id="secret", **settings)
    with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
        consumer.poll(60_000)
    consumer.close()
    producer = kafka.KafkaProducer(transactional_id="secret", **settings)
    with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close()
    admin = kafka.KafkaAdminClient(**settings)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        admin.create_topics([kafka.admin.NewTopic("secret-2", 1, 1)])
    admin.close()


@refusals("kafka-python")
@pytest.mark.parametrize(
    ("way", "text"),
    [
        (WRONG_PASSWORD, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        (UNKNOWN_AUTHORITY, "self-signed certificate in certificate chain"),
        (OTHER_HOST, "certificate is not valid for '127.0.0.1'"),
    ],
    ids=["password", "authority", "host"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_python_says_why_it_is_refused(
    secured: Secured, way: Way, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    # It tries again until its time is over, which has to be long enough for one attempt.
    for timeout_ms in (1000, 5000, 25_000):
        with pytest.raises(kafka.errors.KafkaError) as failed:
            kafka.KafkaProducer(bootstrap_timeout_ms=timeout_ms, **secured.kafka_python(way))
        said = repr(failed.value) + caplog.text
        del failed
        if text in said:
            break
    assert text in said
    caplog.clear()
    gc.collect()  # a client that does not start leaves its sockets open; other tests must not be blamed for them


# aiokafka


@each_way("aiokafka")
def test_aiokafka(secured: Secured, way: Way) -> None:
    topic = f"{way.user}-aiokafka"

    async def run() -> list[Any]:
        settings = secured.aiokafka(way)
        admin = aiokafka.admin.AIOKafkaAdminClient(**settings)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
        async with aiokafka.AIOKafkaProducer(linger_ms=20, **settings) as producer:
            sent = [
                await producer.send(topic, value, key, headers=headers)
                for key, value, headers in ROWS
            ]
            await asyncio.gather(*sent)
        async with aiokafka.AIOKafkaProducer(transactional_id=topic, **settings) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **settings,
        )
        rows: list[Any] = []
        async with consumer, asyncio.timeout(60):
            while len(rows) <= COUNT:
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    rows += [(record.key, record.value, list(record.headers)) for record in batch]
        names = await admin.list_topics()
        assert topic in names and "secret" not in names
        assert (topic, "consumer") in await admin.list_consumer_groups()
        await admin.delete_topics([topic])
        await admin.close()
        return rows

    assert asyncio.run(run()) == [*ROWS, (None, b"committed", [])]


@denials("aiokafka")
def test_aiokafka_without_permission(secured: Secured) -> None:
    async def run() -> None:
        settings = secured.aiokafka(SCRAM)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                await producer.send_and_wait("secret", b"x")
        consumer = aiokafka.AIOKafkaConsumer("secret", group_id="alice-denied", **settings)
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await consumer.start()
        await consumer.stop()
        consumer = aiokafka.AIOKafkaConsumer("alice-denied", group_id="secret", **settings)
        with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
            await consumer.start()
            await consumer.getone()
        await consumer.stop()
        producer = aiokafka.AIOKafkaProducer(transactional_id="secret", **settings)
        with pytest.raises(aiokafka.errors.TransactionalIdAuthorizationFailed):
            await producer.start()
        await producer.stop()
        admin = aiokafka.admin.AIOKafkaAdminClient(**settings)
        await admin.start()
        answer = await admin.create_topics([aiokafka.admin.NewTopic("secret-2", 1, 1)])
        refused = aiokafka.errors.TopicAuthorizationFailedError
        assert answer.topic_errors[0][1] == refused.errno
        await admin.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@refusals("aiokafka")
@pytest.mark.parametrize(
    ("way", "text"),
    [
        (
            WRONG_PASSWORD,
            "SaslAuthenticationFailed: Authentication failed during authentication due to invalid",
        ),
        (UNKNOWN_AUTHORITY, "self-signed certificate in certificate chain"),
        (OTHER_HOST, "certificate is not valid for '127.0.0.1'"),
    ],
    ids=["password", "authority", "host"],
)
def test_aiokafka_says_why_it_is_refused(
    secured: Secured, way: Way, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> str:
        producer = aiokafka.AIOKafkaProducer(**secured.aiokafka(way))
        with pytest.raises(AioError) as failed:
            await producer.start()
        await producer.stop()
        return repr(failed.value)

    said = asyncio.run(run()) + caplog.text
    assert text in said


# kcat


@pytest.fixture
def kcat(secured: Secured) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs kcat; errors: fails if it takes too long."""
    if shutil.which("kcat") is None:
        refuse_or_skip("needs kcat")

    def run(way: Way, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        settings = secured.librdkafka(way)
        del settings["log_level"]
        file = secured.file(way, settings, "kcat")
        return subprocess.run(
            ["kcat", "-F", file, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )

    return run


@each_way("kcat")
def test_kcat(
    secured: Secured, kcat: Callable[..., subprocess.CompletedProcess[str]], way: Way
) -> None:
    topic = f"{way.user}-kcat"
    admin = confluent_kafka.admin.AdminClient(secured.librdkafka(ADMIN))
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1)])[topic].result(60)
    lines = [f"{key.decode()}:{value.decode()}" for key, value, _ in ROWS]
    for more in ((), ("-X", f"transactional.id={topic}")):
        part = lines[: COUNT // 2] if not more else lines[COUNT // 2 :]
        wrote = kcat(way, "-P", "-t", topic, "-K:", "-H", "h=1", *more, text="\n".join(part) + "\n")
        assert wrote.returncode == 0, wrote.stderr
    settings = ("-X", "auto.offset.reset=earliest", "-X", "isolation.level=read_committed", "-q")
    read = kcat(way, *settings, f"-c{COUNT}", "-f", "%h %k:%s\n", "-G", topic, topic)
    assert read.stdout.splitlines() == [f"h=1 {line}" for line in lines], read.stderr
    listed = json.loads(kcat(way, "-L", "-J").stdout)
    names = {row["topic"] for row in listed["topics"]}
    assert topic in names and "secret" not in names


@denials("kcat")
def test_kcat_without_permission(kcat: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "Topic authorization failed" in kcat(SCRAM, "-P", "-t", "secret", text="x\n").stderr
    assert "Topic authorization failed" in kcat(SCRAM, "-C", "-t", "secret", "-e").stderr
    read = kcat(SCRAM, "-e", "-G", "secret", "alice-kcat")
    assert "Group authorization failed" in read.stderr
    wrote = kcat(SCRAM, "-P", "-t", "alice-kcat", "-X", "transactional.id=secret", text="x\n")
    assert "Transactional Id authorization failed" in wrote.stderr


@refusals("kcat")
@refused_by_librdkafka
def test_kcat_says_why_it_is_refused(
    kcat: Callable[..., subprocess.CompletedProcess[str]], way: Way, text: str
) -> None:
    ended = kcat(way, "-L", "-m", "1")
    assert ended.returncode != 0
    assert text in ended.stderr


# Apache Kafka's tools


def for_tools(feature: str) -> list[Any]:
    """Both releases, each a cell of the matrix."""
    return [
        pytest.param(version, marks=pytest.mark.compat(f"java-tools {version}", feature))
        for version in (KAFKA_3, KAFKA_4)
    ]


class Tools:
    """The tools of one release on the secured broker."""

    def __init__(self, server: ToolServer, secured: Secured) -> None:
        self.server = server
        self.secured = secured

    def run(self, tool: str, way: Way, *arguments: str, text: str = "") -> ToolResult:
        option = "--command-config"
        if self.server.version == KAFKA_3 and tool.startswith("kafka-console-"):
            option = f"--{tool.removeprefix('kafka-console-')}.config"
        return self.server.run(
            *(tool, "--bootstrap-server", self.secured.bootstrap(way)),
            *(option, self.file(way)),
            *arguments,
            text=text,
        )

    def file(self, way: Way) -> str:
        hasty = {"request.timeout.ms": "5000", "default.api.timeout.ms": "6000"}
        return self.secured.file(way, self.secured.java(way) | hasty, "java")

    def must(self, tool: str, way: Way, *arguments: str, text: str = "") -> str:
        result = self.run(tool, way, *arguments, text=text)
        assert result.status == 0, (result.output, result.errors)
        return result.output


@pytest.fixture
def all_tools(secured: Secured, tool_servers: ToolServers) -> Callable[[str], Tools]:
    """Release -> its tools."""
    return lambda version: Tools(tool_servers(version), secured)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("version", "way"),
    [
        pytest.param(
            *version.values, way, marks=version.marks, id=f"{version.values[0]}-{way.listener}"
        )
        for way in (SCRAM, MTLS)
        for version in for_tools(FEATURES[way])
    ],
)
def test_java_tools(all_tools: Callable[[str], Tools], version: str, way: Way) -> None:
    tools, topic = all_tools(version), f"{way.user}-java-{version}"
    tools.must("kafka-topics", way, "--create", "--topic", topic)
    lines = [
        f"h:{number}\t{key.decode()}\t{value.decode()}"
        for number, (key, value, _) in enumerate(ROWS)
    ]
    parsed = ("--property", "parse.key=true", "--property", "parse.headers=true")
    text = "\n".join(lines) + "\n"
    tools.must("kafka-console-producer", way, "--topic", topic, *parsed, text=text)
    options = ("--num-records", "10", "--record-size", "5", "--throughput", "-1")
    result = tools.server.run(
        *("kafka-producer-perf-test", "--topic", topic, *options, "--producer.config"),
        *(tools.file(way), "--transactional-id", topic, "--transaction-duration-ms", "60000"),
        *("--producer-props", f"bootstrap.servers={tools.secured.bootstrap(way)}"),
    )
    assert result.status == 0, result
    shown = ("--property", "print.key=true", "--property", "print.headers=true", "--group", topic)
    read = tools.must(
        *("kafka-console-consumer", way, "--topic", topic, *shown, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(COUNT)),
        *("--timeout-ms", "60000"),
    )
    said = read.splitlines()
    assert [line for line in said if not line.startswith("Option --property is dep")] == lines
    described = tools.must("kafka-consumer-groups", way, "--describe", "--group", topic)
    assert f"{COUNT}" in described
    assert tools.must("kafka-topics", way, "--list").count("secret") == 0
    tools.must("kafka-topics", way, "--delete", "--topic", topic)


@pytest.mark.jvm
@pytest.mark.parametrize("version", for_tools("security: errors without permission"))
def test_java_tools_without_permission(all_tools: Callable[[str], Tools], version: str) -> None:
    tools = all_tools(version)

    def said(tool: str, *arguments: str, text: str = "") -> str:
        result = tools.run(tool, SCRAM, *arguments, text=text)
        return result.output + result.errors

    wrote = said("kafka-console-producer", "--topic", "secret", text="x\n")
    assert "TopicAuthorizationException: Not authorized to access topics: [secret]" in wrote
    wait = ("--timeout-ms", "6000")
    read = said("kafka-console-consumer", "--topic", "secret", "--group", "alice-x", *wait)
    assert "TopicAuthorizationException: Not authorized to access topics: [secret]" in read
    read = said("kafka-console-consumer", "--topic", "alice-denied", "--group", "secret", *wait)
    assert "GroupAuthorizationException: Not authorized to access group: secret" in read
    made = said("kafka-topics", "--create", "--topic", "secret-2")
    assert "Authorization failed" in made
    assert "ClusterAuthorizationException" in said("kafka-acls", "--list")


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("version", "way", "text"),
    [
        pytest.param(
            *version.values, way, text, marks=version.marks, id=f"{version.values[0]}-{name}"
        )
        for version in for_tools("security: refused logins and certificates")
        for name, way, text in (
            (
                "password",
                WRONG_PASSWORD,
                "SaslAuthenticationException: Authentication failed during authentication due to"
                " invalid credentials with SASL mechanism SCRAM-SHA-512",
            ),
            ("authority", UNKNOWN_AUTHORITY, "unable to find valid certification path"),
            ("host", OTHER_HOST, "No subject alternative names matching IP address 127.0.0.1"),
        )
    ],
)
def test_java_tools_say_why_they_are_refused(
    all_tools: Callable[[str], Tools], version: str, way: Way, text: str
) -> None:
    result = all_tools(version).run("kafka-topics", way, "--list")
    assert result.status != 0
    assert text in result.output + result.errors
