"""Apache Kafka and kwire replicate to each other over SASL_SSL, and only brokers that log in may take part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ...security.tokens import key_set, public_jwk, rsa_key, token
from ...support.broker_process import free_port
from ...support.certificates import Authority
from ...support.kafka_tools import ToolServers
from ...support.kdc import REALM, Kdc
from ...support.polling import wait_until
from ...support.wire_client import WireClient
from .cluster import KAFKA, KWIRE, MixedCluster, Seat

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

SECURITY = "org.apache.kafka.common.security"
SCRAM, OAUTHBEARER, GSSAPI = "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
SETTINGS = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    # Sessions end during the test, so that each broker has to log in again on its connections.
    "listener.name.internal.connections.max.reauth.ms": "3000",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # Clients, which do not log in here, have all permissions; of the users that log in, only the brokers do.
    "super.users": "User:broker;User:ANONYMOUS",
}


def logins(mechanism: str, module: str) -> dict[str, str]:
    """The settings of logins with a mechanism; each broker logs in with `module`."""
    return {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": module,
    }


def by_password() -> Mapping[str, str]:
    module = f"{SECURITY}.scram.ScramLoginModule"
    return logins(SCRAM, f'{module} required username="broker" password="secret";')


def by_token(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """A token and the key that it was signed with are in files, which all brokers read."""
    now = int(time.time())
    keys, own = directory / "keys.json", directory / "token"
    keys.write_bytes(key_set(public_jwk(rsa_key(), "k1")))
    own.write_text(token({"sub": "broker", "iat": now - 10, "exp": now + 900, "scope": "a"}))
    # Without it, newer releases refuse every URL.
    urls = f"{keys.as_uri()},{own.as_uri()}"
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"
    )
    prefix = "listener.name.internal.oauthbearer."
    return logins(OAUTHBEARER, f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;") | {
        f"{prefix}sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{prefix}sasl.server.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.token.endpoint.url": own.as_uri(),
    }


@pytest.fixture
def by_ticket(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Mapping[str, str]]]:
    """All brokers are kafka/localhost in a realm of the test; its rules call them broker."""
    kdcs: list[Kdc] = []

    def start() -> Mapping[str, str]:
        kdc = Kdc(tmp_path_factory.mktemp("kdc"))
        kdcs.append(kdc)
        kdc.wait_until_open()
        for name, value in kdc.environment.items():
            monkeypatch.setenv(name, value)
        krb5_conf = kdc.environment["KRB5_CONFIG"]
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={krb5_conf}")
        principal = f"kafka/localhost@{REALM}"
        module = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
            f' keyTab="{kdc.keytab(principal)}" principal="{principal}";'
        )
        return logins(GSSAPI, module) | {
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1]s/kafka/broker/,DEFAULT",
        }

    yield start
    for kdc in kdcs:
        kdc.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mechanism", [SCRAM, OAUTHBEARER, GSSAPI])
def test_brokers_of_both_kinds_log_in_at_each_other(
    mechanism: str,
    by_ticket: Callable[[], Mapping[str, str]],
    tmp_path: Path,
    authority: Authority,
    tool_servers: ToolServers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusted = authority.write(tmp_path / "trusted.pem")
    settings = {
        SCRAM: by_password,
        OAUTHBEARER: lambda: by_token(tmp_path, monkeypatch),
        GSSAPI: by_ticket,
    }[mechanism]()

    def prepare(seat: Seat) -> None:
        if seat.id == 0 and mechanism == SCRAM:
            added = tool_servers("3.9.2").run(
                "kafka-configs",
                *("--zookeeper", seat.zookeeper, "--alter", "--entity-type", "users"),
                *("--entity-name", "broker", "--add-config", "SCRAM-SHA-512=[password=secret]"),
            )
            assert added.status == 0, added.errors
        seat.directory.mkdir(parents=True, exist_ok=True)
        own = authority.issue(f"CN=broker-{seat.id}").write(seat.directory / "own.pem")
        seat.settings |= {
            "listeners": f"CLIENTS://127.0.0.1:{seat.port},INTERNAL://localhost:{free_port()}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
        }

    with MixedCluster(
        tmp_path, (KAFKA, KWIRE, KWIRE), {**SETTINGS, **settings}, prepare
    ) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", 3, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        admin.create_topics([topic])["t"].result(60)
        cluster.wait_until_in_sync()
        written = 0
        for controller in (1, 0):
            cluster.make_controller(controller)
            cluster.wait_until_in_sync()
            written += write(cluster)
        assert read(cluster, written) == written
        cluster.wait_until_in_sync()
        assert cluster.complaints() == []
        for seat in cluster.seats:
            log = seat.log_path.read_text(errors="replace")
            assert "Cannot log in" not in log
            assert "secret" not in log


@pytest.mark.timeout(600)
def test_password_between_brokers_is_changed_while_they_run(tmp_path: Path) -> None:
    def module(password: str) -> str:
        return (
            f'{SECURITY}.plain.PlainLoginModule required username="broker" password="{password}"'
            f' user_broker="{password}";'
        )

    internal = {}

    def prepare(seat: Seat) -> None:
        internal[seat.id] = free_port()
        seat.settings["listeners"] = (
            f"CLIENTS://127.0.0.1:{seat.port},INTERNAL://localhost:{internal[seat.id]}"
        )

    settings = {
        **SETTINGS,
        **logins("PLAIN", module("one")),
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "password.encoder.secret": "x",
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
    }
    with MixedCluster(tmp_path, (KWIRE, KWIRE), settings, prepare) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", 3, replica_assignment=[[0, 1], [1, 0], [0, 1]])
        admin.create_topics([topic])["t"].result(60)
        cluster.wait_until_in_sync()
        written = write(cluster)
        name = "listener.name.internal.plain.sasl.jaas.config"
        for seat in cluster.seats:
            with closing(WireClient("127.0.0.1", seat.port)) as client:
                change = {"name": name, "config_operation": 0, "value": module("two")}
                row = {"resource_type": 4, "resource_name": str(seat.id), "configs": [change]}
                answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row]})
                assert answer and answer["responses"][0]["error_code"] == 0, answer

        def errors(password: str) -> set[int]:
            return {plain_login(internal[seat.id], password) for seat in cluster.seats}

        wait_until(lambda: errors("two") == {0}, "the new password is accepted")
        assert errors("one") == {ErrorCode.SASL_AUTHENTICATION_FAILED}
        time.sleep(4)  # all connections have logged in again
        written += write(cluster)
        cluster.wait_until_in_sync()
        cluster.seats[0].kill()  # its connections are new
        cluster.seats[0].start()
        cluster.wait_until_in_sync()
        assert read(cluster, written) == written


def plain_login(port: int, password: str) -> int:
    """The error of a login as broker."""
    with closing(WireClient("127.0.0.1", port)) as client:
        client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        message = f"\0broker\0{password}".encode()
        answer = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        assert answer is not None
        return int(answer["error_code"])


def write(cluster: MixedCluster) -> int:
    """Write records to every partition with acks=all; returns how many were acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(300):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda e, _: e and failed.append(e),
        )
    assert producer.flush(60) == 0
    assert failed == []
    return 300


def read(cluster: MixedCluster, count: int) -> int:
    """Read all records; returns how many there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    found = 0
    while found < count:
        messages = consumer.consume(count - found, timeout=60)
        assert messages
        assert all(message.error() is None for message in messages)
        found += len(messages)
    consumer.close()
    return found
