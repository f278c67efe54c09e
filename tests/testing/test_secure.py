"""A broker with TLS, logins and ACLs: stock clients get in as they should, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import kafka as kafka_python
import kafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kwire.messages.create_delegation_token import CreateDelegationTokenRequest
from kwire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kwire.server.security.jaas import parse_jaas_config
from kwire.testing import Acl, Broker, SecureBroker
from kwire.testing.secure import MECHANISMS, jaas
from tests.support.cpu_time import cpu_time

from .clients import consumer, producer, read, send

#: With characters that are difficult for JAAS, properties files and base64.
PASSWORD = 'ge"he\\im=é+#'


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    with SecureBroker() as made:
        made.user("alice", password=PASSWORD)
        made.allow("User:alice", "Read", "Write", topic="orders")
        made.allow("User:alice", "Read", group="shop-", prefixed=True)
        made.topic("orders")
        made.topic("private")
        yield made


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_logs_in_with_each_mechanism_and_may_do_what_is_allowed(
    broker: SecureBroker, mechanism: str
) -> None:
    settings = broker.client_config("alice", mechanism=mechanism)
    sent = send(producer(**own_names(settings)), "orders", mechanism.encode())
    [record] = broker.consume("orders", partition=0, offset=sent.offset())
    assert record.value == mechanism.encode()


def test_consumer_of_librdkafka_reads_in_an_allowed_group(broker: SecureBroker) -> None:
    broker.produce("orders", "x")
    with consumer(**own_names(broker.client_config("alice")), group="shop-1") as reader:
        reader.subscribe(["orders"])
        read(reader, 1)
        assert broker.group("shop-1").state == "Stable"


def test_client_with_a_certificate_is_its_subject(broker: SecureBroker) -> None:
    certificate = broker.certificate("CN=app,O=Example")
    assert certificate.principal == "User:CN=app,O=Example"
    settings = own_names(broker.client_config(certificate))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        send(producer(**settings), "private")
    broker.allow(certificate.principal, "Write", topic="private")
    send(producer(**settings), "private", b"by certificate")
    assert broker.consume("private")[-1].value == b"by certificate"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(broker: SecureBroker, mechanism: str) -> None:
    client = kafka_python.KafkaProducer(
        **broker.kafka_python_config("alice", mechanism=mechanism), api_version=(2, 6)
    )
    try:
        sent = client.send("orders", b"x").get(10)
        assert broker.consume("orders", offset=sent.offset)[0].value == b"x"
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            client.send("private", b"x").get(10)
    finally:
        client.close()


def test_kafka_python_connects_with_a_certificate(broker: SecureBroker) -> None:
    certificate = broker.certificate("CN=python")
    broker.allow(certificate.principal, "All", topic="orders")
    client = kafka_python.KafkaProducer(
        **broker.kafka_python_config(certificate), api_version=(2, 6)
    )
    try:
        sent = client.send("orders", b"by certificate").get(10)
    finally:
        client.close()
    [record] = broker.consume("orders", partition=sent.partition, offset=sent.offset)
    assert record.value == b"by certificate"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sasl.password": "wrong"}, "invalid credentials"),
        ({"ssl.ca.location": ""}, "does not trust the certificate"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "looks like Kafka without TLS"),
    ],
    ids=["password", "authority", "protocol"],
)
def test_client_that_may_not_in_is_refused_with_a_line_in_the_log(
    broker: SecureBroker, wrong: dict[str, str], reason: str
) -> None:
    settings = {**broker.client_config("alice"), **wrong, "log_level": 0}
    admin = AdminClient({key: value for key, value in settings.items() if value != ""})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)
    broker.wait_for(lambda: any(reason in line for line in broker.log), message=reason)


def test_expired_certificate_is_refused(broker: SecureBroker) -> None:
    expired = broker.certificate("CN=old", valid_for="-1d")
    admin = AdminClient({**broker.client_config(expired), "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)
    broker.wait_for(lambda: any("certificate has expired" in line for line in broker.log))


def test_changed_password_counts_for_the_next_login(broker: SecureBroker) -> None:
    broker.user("bob", password="first")
    before = broker.client_config("bob", mechanism="PLAIN")
    broker.user("bob")
    with pytest.raises(KafkaException):
        AdminClient({**before, "log_level": 0}).list_topics(timeout=0.4)
    for mechanism in MECHANISMS:
        AdminClient(broker.client_config("bob", mechanism=mechanism)).list_topics(timeout=10)


def test_denial_goes_before_permission(broker: SecureBroker) -> None:
    user = broker.user("carol")
    broker.allow(user, "Write", topic="*")
    broker.deny(user, "Write", topic="pri", prefixed=True)
    settings = own_names(broker.client_config("carol"))
    send(producer(**settings), "orders")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        send(producer(**settings), "private")
    expected = Acl("User:carol", "DENY", "WRITE", "TOPIC", "pri", "PREFIXED", "*")
    assert expected in broker.acls


def test_java_properties_say_all_that_a_client_needs(broker: SecureBroker) -> None:
    text = broker.java_properties("alice").read_text(encoding="ascii")
    lines = dict(line.split("=", 1) for line in text.splitlines())
    # As java.util.Properties reads it, whose escapes Python's literals share.
    value = lines["sasl.jaas.config"].encode().decode("unicode_escape")
    assert parse_jaas_config(value).options == {"username": "alice", "password": PASSWORD}
    assert lines["bootstrap.servers"] == broker.bootstrap_servers
    assert lines["ssl.truststore.location"] == str(broker.ca_path)
    lines = dict(
        line.split("=", 1)
        for line in broker.java_properties(broker.certificate("CN=java")).read_text().splitlines()
    )
    with open(lines["ssl.keystore.location"]) as stored:
        assert "PRIVATE KEY" in stored.read()


def test_unknown_words_are_refused_with_the_nearest_known_one(broker: SecureBroker) -> None:
    for call, match in (
        (lambda: broker.allow("User:a", "Reed", topic="t"), "'Reed'; did you mean 'Read'"),
        (
            lambda: broker.allow("alice", "Read", topic="t"),
            "a principal is 'User:alice', not 'alice'",
        ),
        (lambda: broker.allow("User:a", "Read"), "one of topic, group"),
        (lambda: broker.allow("User:a", topic="t"), "needs an operation"),
        (lambda: broker.client_config("alise"), "no user 'alise'; did you mean 'alice'"),
        (lambda: broker.client_config("alice", mechanism="SCRAM"), "did you mean 'SCRAM-SHA"),
        (lambda: broker.certificate("app"), "not the subject of a certificate"),
        (lambda: broker.user("a b"), "letters, digits"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


def test_delegation_token_ends_in_the_brokers_time() -> None:
    with SecureBroker({"delegation.token.secret.key": "a long random text"}) as broker:
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        made = broker.client.ask(request, 2)
        assert made.error_code == 0
        counts = []
        for duration in ("23h", "2h"):
            broker.clock.advance(duration)
            described = broker.client.ask(DescribeDelegationTokenRequest(owners=None), 2)
            counts.append(len(described.tokens))
        assert counts == [1, 0]


def test_jaas_escapes_what_ends_a_value() -> None:
    module = parse_jaas_config(jaas("PLAIN", {"user_alice": PASSWORD}))
    assert module.options == {"user_alice": PASSWORD}


def test_secure_broker_starts_in_a_few_milliseconds_of_cpu() -> None:
    Broker().start().stop()
    with cpu_time() as taken:
        for _ in range(8):
            with taken.piece():
                SecureBroker().start().stop()
    assert taken.median_s < 0.05


def own_names(settings: dict[str, str]) -> dict[str, str]:
    """Settings of librdkafka as arguments of tests/testing/clients.py."""
    names = {key.replace(".", "_"): value for key, value in settings.items()}
    return {"bootstrap": names.pop("bootstrap_servers"), **names}
