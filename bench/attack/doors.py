"""A broker with a listener for each kind of login, and clients that log in there in arbitrary ways."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.testing.certificates import Authority
from server.security.sasl.clients import PlainClient, ScramClient
from server.security.sasl.scram import new_salt, salted_password
from tests.security.tokens import key_set, public_jwk, rsa_key
from tests.support.broker_process import BrokerProcess, KwireBroker, free_port
from tests.support.kafka import Kafka39Broker

from .target import KAFKA_JVM, SETTINGS
from .wire import Wire, body_of

SCRAM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MODULE = "org.apache.kafka.common.security.{}LoginModule required"
MAPPING = r"RULE:^CN=([a-z]+)$/$1/,RULE:^.*$/nobody/"
#: Secrets that must not appear anywhere: passwords, keys and the secret that encrypts them.
SECRETS = {
    "alice": "alice-secret-Zq81",
    "mallory": "mallory-secret-Zq82",
    "tokens": "token-secret-Zq83",
    "encoder": "encoder-secret-Zq84",
}
TOPIC = "treasure"
LOGIN_LISTENERS = ("tls", "sasl")


class Ports(NamedTuple):
    """The port for each kind of client."""

    admin: int  # without login; a super user, for the needs of the attacks
    tls: int  # SASL_SSL
    sasl: int  # SASL_PLAINTEXT
    mutual: int  # SSL with client certificates
    http: int


class Secured(BrokerProcess):
    """A broker with an authorizer and a listener for each kind of login."""

    def open_doors(self, directory: Path) -> dict[str, str]:
        """Choose the ports, write the stores; return the settings that kwire and Apache Kafka have in common."""
        self._doors: list[Door] = []
        self.ports = ports = Ports(*(free_port() for _ in Ports._fields))
        self.authority = Authority()
        directory.mkdir(parents=True, exist_ok=True)
        self.trusted = self.authority.write(directory / "trusted.pem")
        self.authority.issue("CN=broker").write(directory / "broker.pem")
        plain = " ".join(f'user_{who}="{SECRETS[who]}"' for who in ("alice", "mallory"))
        modules = {"PLAIN": MODULE.format("plain.Plain") + f" {plain};"}
        modules |= {name: MODULE.format("scram.Scram") + ";" for name in SCRAM}
        return {
            **SETTINGS,
            "auto.create.topics.enable": "false",
            "listeners": f"ADMIN://127.0.0.1:{ports.admin},TLS://127.0.0.1:{ports.tls},"
            f"SASL://127.0.0.1:{ports.sasl},MUTUAL://127.0.0.1:{ports.mutual}",
            "listener.security.protocol.map": "ADMIN:PLAINTEXT,TLS:SASL_SSL,SASL:SASL_PLAINTEXT,MUTUAL:SSL",
            "inter.broker.listener.name": "ADMIN",
            "sasl.enabled.mechanisms": ",".join(modules),
            **{
                f"listener.name.{listener}.{name.lower()}.sasl.jaas.config": module
                for listener in LOGIN_LISTENERS
                for name, module in modules.items()
            },
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": MAPPING,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "delegation.token.secret.key": SECRETS["tokens"],
            "password.encoder.secret": SECRETS["encoder"],
            "listener.name.sasl.plain.connections.max.reauth.ms": "600000",
            "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": "600000",
        }

    def admin(self) -> Door:
        """A connection of the super user, closed together with the broker."""
        door = Door(self.ports.admin)
        self._doors.append(door)
        return door

    def stop(self) -> int:
        for door in self._doors:
            door.socket.close()
        return super().stop()

    def prepare(self) -> None:
        """Create the users, and a topic that only alice may use."""
        admin = self.admin()
        for who in ("alice", "mallory"):
            assert add_users(admin, {who: SECRETS[who]}) == [0]
        topics = [
            {
                "name": TOPIC,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ]
        answer = admin.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=10_000)
        assert answer["topics"][0]["error_code"] == 0, answer
        assert allow(admin, "User:alice", 2, TOPIC) == 0
        self._taken_up()

    def _taken_up(self) -> None:
        """Wait until users and ACLs have an effect."""


class SecuredKwire(Secured, KwireBroker):
    """kwire, with its settings in a file, because command lines are visible to everyone."""

    def __init__(self, directory: Path, *, level: str = "INFO", **config: str) -> None:
        common = self.open_doors(directory)
        super().__init__(directory, port=self.ports.admin)
        self.level = level
        (directory / "keys.json").write_bytes(key_set(public_jwk(rsa_key(), "k1")))
        self.config = {
            **common,
            "sasl.enabled.mechanisms": f"{common['sasl.enabled.mechanisms']},OAUTHBEARER",
            **{
                f"listener.name.{listener}.oauthbearer.sasl.oauthbearer.{key}": value
                for listener in LOGIN_LISTENERS
                for key, value in (
                    ("jwks.endpoint.url", f"file://{directory}/keys.json"),
                    ("expected.audience", "kafka"),
                    ("expected.issuer", "us"),
                )
            },
            "kwire.http.listener": f"127.0.0.1:{self.ports.http}",
            **config,
        }

    def command(self) -> list[str]:
        path = self.directory / "server.properties"
        lines = (f"{key}={escaped(value)}\n" for key, value in self.config.items())
        path.write_text("".join(lines))
        path.chmod(0o600)
        return [
            *(sys.executable, "-m", "server", "serve", "--config", str(path)),
            *("--data-dir", str(self.log_dir), "--log-level", self.level),
        ]


class SecuredKafka(Secured, Kafka39Broker):
    """Apache Kafka 3.9.2 with the same settings, but without OAUTHBEARER and HTTP, and the JVM options of its script."""

    def __init__(self, directory: Path, **config: str) -> None:
        common = self.open_doors(directory)
        super().__init__(directory, port=self.ports.admin, jvm=KAFKA_JVM)
        self.config = {**common, **config}

    def properties(self) -> dict[str, str]:
        return {name: escaped(value) for name, value in super().properties().items()}

    def _taken_up(self) -> None:
        time.sleep(2.0)  # after ZooKeeper's notification


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def allow(admin: Wire, principal: str, kind: int, name: str, pattern: int = 3) -> int:
    """Add an ACL that allows everything; return the error code."""
    row = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }
    code: int = admin.call(ApiKey.CREATE_ACLS, 2, creations=[row])["results"][0]["error_code"]
    return code


def add_users(admin: Wire, passwords: dict[str, str], iterations: int = 4096) -> list[int]:
    """Add SCRAM credentials of both mechanisms in one request; return the error code of each user."""
    rows = []
    for user, password in passwords.items():
        for name, number in SCRAM.items():
            salt = new_salt()
            rows.append(
                {
                    "name": user,
                    "mechanism": number,
                    "iterations": iterations,
                    "salt": salt,
                    "salted_password": salted_password(name, password, salt, iterations),
                }
            )
    answer = admin.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=rows)
    return [row["error_code"] for row in answer["results"]]


class Door(Wire):
    """One connection, with or without TLS, that can log in. Errors: OSError (also of TLS)."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, timeout_s: float = 30.0):
        super().__init__(port, timeout_s)
        if context is not None:
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            except OSError:
                self.socket.close()
                raise

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self.socket.sendall(data)

    def handshake(self, mechanism: str, version: int = 1) -> int:
        """The error code of SaslHandshake."""
        code: int = self.call(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)["error_code"]
        return code

    def token(self, data: bytes) -> dict[str, Any]:
        """The answer to one SaslAuthenticate request."""
        return self.call(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=data)

    def log_in(self, client: Any, mechanism: str) -> int:
        """Log in; return the error code of the last step."""
        code = self.handshake(mechanism)
        token = client.start()
        while not code and token is not None:
            answer = self.token(token)
            code = answer["error_code"]
            token = None if code else client.evaluate(bytes(answer["auth_bytes"]))
        return code

    def scram(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> int:
        return self.log_in(ScramClient(mechanism, user, password), mechanism)

    def plain(self, user: str, password: str) -> int:
        return self.log_in(PlainClient(user, password), "PLAIN")

    def is_served(self) -> bool:
        """Whether a request that needs a login is answered."""
        try:
            self.call(ApiKey.METADATA, 1, topics=[])
        except OSError:
            return False
        return True

    def is_closed(self) -> bool:
        """Wait until the broker has closed; False if it sends something."""
        try:
            return self.socket.recv(1) == b""
        except OSError as error:
            return not isinstance(error, TimeoutError)

    def may_read(self, topic: str = TOPIC) -> bool:
        """Whether the topic's data can be read or written, or the topic is visible."""
        rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        body = body_of(
            ApiKey.FETCH,
            11,
            max_wait_ms=0,
            min_bytes=0,
            topics=[{"topic": topic, "partitions": rows}],
        )
        self.send(ApiKey.FETCH, 11, body)
        answer = self.receive(ApiKey.FETCH, 11)
        fetched = answer["responses"][0]["partitions"][0]["error_code"] == 0
        seen = self.call(ApiKey.METADATA, 7, topics=[{"name": topic}])
        return fetched or seen["topics"][0]["error_code"] == 0


def trusting(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    """A client's context; with a certificate if there is a file of one."""
    context = ssl.create_default_context(cadata=authority.pem)
    if own is not None:
        context.load_cert_chain(own)
    return context


def client_hello() -> bytes:
    """The first message of a TLS 1.3 client."""
    context = ssl.create_default_context()
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


def http(port: int, data: bytes, timeout_s: float = 5.0) -> bytes:
    """The answer of the HTTP listener to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(data)
        got = b""
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                got += part
        return got
