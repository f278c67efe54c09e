"""A broker with a listener for each way to log in, and what each client needs to use it.

| listener | protocol | who is let in |
| --- | --- | --- |
| SCRAM | SASL_SSL | `alice`, SCRAM-SHA-512 |
| PLAIN | SASL_SSL | `carol`, PLAIN |
| MTLS | SSL, client certificates required | `bob` (CN=bob), and `admin`, a super user |
| AGAIN | SASL_SSL | `alice`, who has to log in again every REAUTH_MS |
| ALSO_AGAIN | SASL_SSL | the same, for a client whose logins are to be counted apart |
| ELSEWHERE | SSL | nobody who checks host names: its certificate is another host's |

Each of them may do everything with topics, groups and transactional ids whose names begin with the user's name and a
dash, and nothing else.
"""

from __future__ import annotations

import re
import ssl
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kwire.testing.certificates import Authority

from .broker_process import KwireBroker, free_port
from .certificates import write_client
from .kafka import write_properties

#: Clients log in again when at least 5 % of this time are left, which is long even for a thread of a busy machine.
REAUTH_MS = 4000
SECRET = "geheim 7,=;"  # needs quoting in some formats
LISTENERS = {
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_SSL",
    "MTLS": "SSL",
    "AGAIN": "SASL_SSL",
    "ALSO_AGAIN": "SASL_SSL",
    "ELSEWHERE": "SSL",
}
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"
_PLAIN, _SCRAM = _MODULE.format("plain.Plain"), _MODULE.format("scram.Scram")


class Way(NamedTuple):
    """One way to connect: a listener, a user, and what the client presents."""

    listener: str
    user: str
    mechanism: str | None = None
    password: str = SECRET
    authority: str = "ca"

    @property
    def protocol(self) -> str:
        return LISTENERS[self.listener]


SCRAM = Way("SCRAM", "alice", "SCRAM-SHA-512")
PLAIN = Way("PLAIN", "carol", "PLAIN")
MTLS = Way("MTLS", "bob")
ADMIN = Way("MTLS", "admin")
AGAIN = Way("AGAIN", "alice", "SCRAM-SHA-512")
ALSO_AGAIN = AGAIN._replace(listener="ALSO_AGAIN")
WAYS = (SCRAM, PLAIN, MTLS)
WRONG_PASSWORD = SCRAM._replace(password="wrong")
UNKNOWN_AUTHORITY = MTLS._replace(authority="other")
OTHER_HOST = Way("ELSEWHERE", "bob")


class Secured:
    """The broker, its certificates, and the settings of each client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {listener: free_port() for listener in LISTENERS}
        self.metrics = f"http://127.0.0.1:{free_port()}/metrics"
        authority = Authority()
        authority.write(folder / "ca.pem")
        Authority("Somebody else").write(folder / "other.pem")
        authority.issue("CN=broker").write(folder / "broker.pem")
        authority.issue("CN=elsewhere", hosts=("elsewhere.example",)).write(
            folder / "elsewhere.pem"
        )
        for user in ("bob", "admin"):
            write_client(authority, f"CN={user},O=Example", folder, user)
        self.process = KwireBroker(
            folder / "broker", config=self._config(), port=self.ports["MTLS"]
        )

    def _config(self) -> dict[str, str]:
        at = [f"{listener}://127.0.0.1:{port}" for listener, port in self.ports.items()]
        return {
            "listeners": ",".join(at),
            "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
            "inter.broker.listener.name": "MTLS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": f'{_PLAIN} user_carol="{SECRET}";',
            "listener.name.again.connections.max.reauth.ms": str(REAUTH_MS),
            "listener.name.also_again.connections.max.reauth.ms": str(REAUTH_MS),
            "connection.failed.authentication.delay.ms": "10",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.elsewhere.ssl.keystore.location": str(self.folder / "elsewhere.pem"),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin;User:CN=broker",
            "auto.create.topics.enable": "false",
            "kwire.http.listener": self.metrics.removeprefix("http://").removesuffix("/metrics"),
        }

    def start(self) -> None:
        """Start the broker; make its users and ACLs, and topics `secret` and `alice-denied`."""
        self.process.start()
        admin = AdminClient(self.librdkafka(ADMIN))
        alice = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SECRET.encode()
        )
        futures: dict[Any, Any] = dict(admin.alter_user_scram_credentials([alice]))
        futures |= admin.create_acls(
            [
                AclBinding(
                    *(kind, f"{way.user}-", ResourcePatternType.PREFIXED, f"User:{way.user}", "*"),
                    *(AclOperation.ALL, AclPermissionType.ALLOW),
                )
                for way in WAYS
                for kind in (
                    ResourceType.TOPIC,
                    ResourceType.GROUP,
                    ResourceType.TRANSACTIONAL_ID,
                )
            ]
        )
        futures |= admin.create_topics([NewTopic(name, 1) for name in ("secret", "alice-denied")])
        for future in futures.values():
            future.result(60)

    def counts(self, way: Way) -> Counter[str]:
        """The metrics of a listener's connections, such as `successful_authentication_total`."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            text = answer.read().decode()
        row = rf'kafka_server_socket_server_metrics_(\w+){{listener="{way.listener}",.*}} (\d+)\n'
        return Counter({metric: int(count) for metric, count in re.findall(row, text)})

    def bootstrap(self, way: Way) -> str:
        return f"127.0.0.1:{self.ports[way.listener]}"

    def librdkafka(self, way: Way) -> dict[str, Any]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap(way),
            "security.protocol": way.protocol,
            "ssl.ca.location": str(self.folder / f"{way.authority}.pem"),
            "log_level": 0,
            **self._librdkafka_login(way),
        }

    def _librdkafka_login(self, way: Way) -> dict[str, Any]:
        if way.mechanism is None:
            return {
                "ssl.certificate.location": str(self.folder / f"{way.user}.crt"),
                "ssl.key.location": str(self.folder / f"{way.user}.key"),
            }
        return {
            "sasl.mechanism": way.mechanism,
            "sasl.username": way.user,
            "sasl.password": way.password,
        }

    def kafka_python(self, way: Way) -> dict[str, Any]:
        """Arguments of kafka-python's clients."""
        login: dict[str, Any] = {
            "ssl_certfile": str(self.folder / f"{way.user}.crt"),
            "ssl_keyfile": str(self.folder / f"{way.user}.key"),
        }
        return {
            "bootstrap_servers": self.bootstrap(way),
            "security_protocol": way.protocol,
            "ssl_cafile": str(self.folder / f"{way.authority}.pem"),
            **(login if way.mechanism is None else self._python_login(way)),
        }

    def aiokafka(self, way: Way) -> dict[str, Any]:
        """Arguments of aiokafka's clients."""
        context = ssl.create_default_context(cafile=self.folder / f"{way.authority}.pem")
        if way.mechanism is None:
            names = (self.folder / f"{way.user}.crt", self.folder / f"{way.user}.key")
            context.load_cert_chain(*names)
        return {
            "bootstrap_servers": self.bootstrap(way),
            "security_protocol": way.protocol,
            "ssl_context": context,
            **self._python_login(way),
        }

    def _python_login(self, way: Way) -> dict[str, Any]:
        if way.mechanism is None:
            return {}
        return {
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": way.user,
            "sasl_plain_password": way.password,
        }

    def java(self, way: Way) -> dict[str, str]:
        """Properties of Apache Kafka's own clients."""
        stores = {
            "security.protocol": way.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / f"{way.authority}.pem"),
        }
        if way.mechanism is None:
            return {
                **stores,
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(self.folder / f"{way.user}.p12"),
                "ssl.keystore.password": "changeit",
                "ssl.key.password": "changeit",
            }
        module = _PLAIN if way.mechanism == "PLAIN" else _SCRAM
        return {
            **stores,
            "sasl.mechanism": way.mechanism,
            "sasl.jaas.config": f'{module} username="{way.user}" password="{way.password}";',
        }

    def file(self, way: Way, properties: Mapping[str, Any], name: str) -> str:
        """Write properties to a file of the way's own and return its path."""
        path = self.folder / f"{name}-{way.listener}-{way.user}-{way.authority}-{len(way.password)}"
        return str(write_properties(path, {key: str(value) for key, value in properties.items()}))
