"""A broker with TLS, logins and ACLs, in this process."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kwire.messages.create_acls import AclCreation, CreateAclsRequest
from kwire.messages.describe_acls import DescribeAclsRequest
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.server.security.acl import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kwire.server.security.identity import NotAPrincipal, parse_principal
from kwire.server.security.sasl.scram import salted_password
from kwire.server.security.sasl.scram_numbers import MIN_ITERATIONS

from . import certificates, folders
from .broker import Broker
from .certificates import Certificate
from .client.connections import Client, KafkaError
from .durations import Duration, to_timedelta
from .nearest import nearest

PLAIN, SCRAM_256, SCRAM_512 = MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: The numbers of the SCRAM mechanisms in AlterUserScramCredentials. Source: ScramMechanism.
SCRAM_TYPES = {SCRAM_256: 1, SCRAM_512: 2}

PLAIN_USERS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.{}LoginModule required"
MODULES = {
    PLAIN: MODULE.format("plain.Plain"),
    SCRAM_256: MODULE.format("scram.Scram"),
    SCRAM_512: MODULE.format("scram.Scram"),
}

CREATE_ACLS, DESCRIBE_ACLS, ALTER_CONFIGS, ALTER_USERS = 2, 2, 1, 0
RESOURCE_BROKER, SET = 4, 0
ANY = 1


class Acl(NamedTuple):
    """One access control list entry. Shape: all are Kafka's words, as `kafka-acls.sh` writes them in capitals."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    name: str
    pattern_type: str
    host: str


class SecureBroker(Broker):
    """A broker where clients need a certificate or a login, and may do what ACLs allow.

        with SecureBroker() as broker:
            broker.user("alice", password="secret")
            broker.allow("User:alice", "Write", topic="orders")
            producer = Producer(broker.client_config("alice"))

    Shape: `bootstrap_servers` is the listener SASL_SSL (PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512), `ssl_bootstrap_servers` the listener SSL,
    which wants a certificate of `certificate`. The other arguments are those of Broker. The helpers are a super user, and so may do everything.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__({**settings(), **(properties or {})}, **options)
        self.ssl_bootstrap_servers = ""
        self._passwords: dict[str, str] = {}
        self._secrets: Path | None = None
        self._made = 0

    def start(self) -> Self:
        """Start; when this returns, clients can connect."""
        self._secrets = self._folders[0] = folders.new_directory("secrets")
        self.ca_path.write_text(certificates.authority().pem)
        super().start()
        self.ssl_bootstrap_servers = self._nodes[1].address_of("SSL")
        return self

    def _like(self) -> Self:
        other = super()._like()
        other._passwords = dict(self._passwords)
        return other

    def _connect(self) -> Client:
        return Client(self.ssl_bootstrap_servers, tls_of_helpers(self._folder))

    @property
    def _folder(self) -> Path:
        if self._secrets is None:
            raise RuntimeError("this broker is not running")
        return self._secrets

    @property
    def ca_path(self) -> Path:
        """The file with the certificate of the authority, which clients have to trust, in PEM."""
        return self._folder / "ca.pem"

    # -- who there is

    def user(self, name: str, *, password: str | None = None) -> str:
        """Add a user who can log in with any of the mechanisms, or change the password, which is random if not given.

        Shape: returns the principal, "User:alice". A new user has no permissions. Errors: ValueError for a name that
        the settings of PLAIN cannot have, KafkaError.
        """
        if not name or not all(each.isalnum() or each in "_.-@" for each in name):
            raise ValueError(f"a user's name consists of letters, digits and _.-@, not {name!r}")
        password = secrets.token_urlsafe(12) if password is None else password
        if not password:
            raise ValueError("a password cannot be empty")
        self._passwords[name] = password
        self._set_scram(name, password)
        self._set_plain()
        return f"User:{name}"

    def _set_scram(self, name: str, password: str) -> None:
        rows = []
        for mechanism, number in SCRAM_TYPES.items():
            salt = secrets.token_bytes(16)
            salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
            rows.append(
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=number,
                    iterations=MIN_ITERATIONS,
                    salt=salt,
                    salted_password=salted,
                )
            )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=rows)
        for row in self.client.ask(request, ALTER_USERS).results:
            if row.error_code:
                raise KafkaError(f"cannot add user {name!r}", row.error_code, row.error_message)

    def _set_plain(self) -> None:
        options = {f"user_{name}": password for name, password in self._passwords.items()}
        resource = AlterConfigsResource(
            resource_type=RESOURCE_BROKER,
            resource_name="1",
            configs=[
                AlterableConfig(name=PLAIN_USERS, config_operation=SET, value=jaas(PLAIN, options))
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        for row in self.client.ask(request, ALTER_CONFIGS).responses:
            if row.error_code:
                raise KafkaError("cannot set users of PLAIN", row.error_code, row.error_message)

    def certificate(self, subject: str, *, valid_for: Duration = "1d") -> Certificate:
        """Issue a certificate for a client, such as "CN=app" or "CN=app,O=Example".

        Shape: a negative `valid_for` makes one that has expired. Errors: ValueError.
        """
        life = to_timedelta(valid_for)
        issued = certificates.authority().issue(subject, hosts=(), valid_for=life)
        self._made += 1
        return Certificate(issued, self._folder, f"client-{self._made}")

    # -- what they may do

    def allow(self, principal: str, *operations: str, **resource: Any) -> None:
        """Allow operations on a resource.

        Shape: `principal` is "User:alice", the principal of a certificate, or "User:*"; operations are Kafka's: "Read",
        "DescribeConfigs", "All". The resource is one of `topic`, `group`, `transactional_id`, each a name or "*", and
        `cluster=True`; with `prefixed=True`, the name is a prefix. `host` is an address, by default any. Errors:
        ValueError for an unknown word, with the nearest known one.
        """
        self._add(Permission.ALLOW, principal, operations, **resource)

    def deny(self, principal: str, *operations: str, **resource: Any) -> None:
        """Deny operations on a resource, whatever else allows them. Shape and errors: as for `allow`."""
        self._add(Permission.DENY, principal, operations, **resource)

    def _add(
        self,
        permission: Permission,
        principal: str,
        operations: tuple[str, ...],
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = "*",
    ) -> None:
        try:
            parse_principal(principal)
        except NotAPrincipal:
            raise ValueError(f"a principal is 'User:alice', not {principal!r}") from None
        named = {
            ResourceType.TOPIC: topic,
            ResourceType.GROUP: group,
            ResourceType.TRANSACTIONAL_ID: transactional_id,
            ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
        }
        given = [(kind, name) for kind, name in named.items() if name is not None]
        if len(given) != 1:
            raise ValueError("an ACL is for one of topic, group, transactional_id and cluster=True")
        if not operations:
            raise ValueError("an ACL needs an operation, such as 'Read'")
        [(kind, name)] = given
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        rows = [
            AclCreation(
                resource_type=kind,
                resource_name=str(name),
                resource_pattern_type=pattern,
                principal=principal,
                host=host,
                operation=checked_operation(each),
                permission_type=permission,
            )
            for each in operations
        ]
        for row in self.client.ask(CreateAclsRequest(creations=rows), CREATE_ACLS).results:
            if row.error_code:
                raise KafkaError("cannot add the ACL", row.error_code, row.error_message)

    @property
    def acls(self) -> list[Acl]:
        """The ACLs that there are."""
        request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        return [
            Acl(
                each.principal,
                Permission(each.permission_type).name,
                AclOperation(each.operation).name,
                ResourceType(row.resource_type).name,
                row.resource_name,
                PatternType(row.pattern_type).name,
                each.host,
            )
            for row in self.client.ask(request, DESCRIBE_ACLS).resources
            for each in row.acls
        ]

    # -- settings of clients

    def client_config(
        self, client: str | Certificate, *, mechanism: str = SCRAM_512
    ) -> dict[str, str]:
        """The settings of librdkafka (confluent-kafka and others) for a user, or for a certificate.

        Errors: ValueError for a user who has not been added, or an unknown mechanism.
        """
        trusted = {"ssl.ca.location": str(self.ca_path)}
        if isinstance(client, Certificate):
            return {
                "bootstrap.servers": self.ssl_bootstrap_servers,
                "security.protocol": "SSL",
                **trusted,
                "ssl.certificate.location": str(client.certificate_path),
                "ssl.key.location": str(client.key_path),
            }
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            **trusted,
            "sasl.mechanism": checked_mechanism(mechanism),
            "sasl.username": client,
            "sasl.password": self._password(client),
        }

    def kafka_python_config(
        self, client: str | Certificate, *, mechanism: str = SCRAM_512
    ) -> dict[str, str]:
        """The arguments of kafka-python's clients for a user, or for a certificate. Errors: as for `client_config`."""
        if isinstance(client, Certificate):
            return {
                "bootstrap_servers": self.ssl_bootstrap_servers,
                "security_protocol": "SSL",
                "ssl_cafile": str(self.ca_path),
                "ssl_certfile": str(client.certificate_path),
                "ssl_keyfile": str(client.key_path),
            }
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.ca_path),
            "sasl_mechanism": checked_mechanism(mechanism),
            "sasl_plain_username": client,
            "sasl_plain_password": self._password(client),
        }

    def java_properties(self, client: str | Certificate, *, mechanism: str = SCRAM_512) -> Path:
        """A properties file of Java clients and Kafka's tools (`--command-config`) for a user, or for a certificate.

        Errors: as for `client_config`.
        """
        lines = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_path)}
        if isinstance(client, Certificate):
            lines |= {
                "bootstrap.servers": self.ssl_bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(client.path),
            }
            name = client.path.stem
        else:
            login = {"username": client, "password": self._password(client)}
            lines |= {
                "bootstrap.servers": self.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": checked_mechanism(mechanism),
                "sasl.jaas.config": jaas(mechanism, login),
            }
            name = f"user-{client}-{mechanism}"
        path = self._folder / f"{name}.properties"
        path.write_text(
            "".join(f"{key}={_in_properties(value)}\n" for key, value in lines.items()),
            encoding="ascii",
        )
        return path

    def _password(self, user: str) -> str:
        if user not in self._passwords:
            raise ValueError(
                f"there is no user {user!r}{nearest(user, self._passwords)}: add one with user({user!r})"
            )
        return self._passwords[user]


def settings() -> dict[str, str]:
    """The settings that make a broker secure."""
    own = certificates.of_brokers()
    return {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem,
        "ssl.keystore.certificate.chain": own.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.authority().pem,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        PLAIN_USERS: jaas(PLAIN, {}),
        "password.encoder.secret": secrets.token_urlsafe(12),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"{certificates.of_helpers().principal};{own.principal}",
    }


def tls_of_helpers(folder: Path) -> ssl.SSLContext:
    """How the helpers connect: with a certificate of their own."""
    own = Certificate(certificates.of_helpers(), folder, "helpers")
    context = ssl.create_default_context(cadata=certificates.authority().pem)
    context.load_cert_chain(own.path)
    return context


def checked_mechanism(name: str) -> str:
    """Return the name of a mechanism. Errors: ValueError, with the nearest known name."""
    if name not in MECHANISMS:
        raise ValueError(f"unknown mechanism {name!r}{nearest(name, MECHANISMS)}")
    return name


def checked_operation(name: str) -> AclOperation:
    """Return an operation by the name that `kafka-acls.sh` gives it. Errors: ValueError, with the nearest known name."""
    known = {
        each.name.title().replace("_", ""): each
        for each in AclOperation
        if each >= AclOperation.ALL
    }
    if name not in known:
        raise ValueError(f"unknown operation {name!r}{nearest(name, known)}")
    return known[name]


def jaas(mechanism: str, options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config`."""
    quoted = {
        key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in options.items()
    }
    return " ".join([MODULES[mechanism], *(f'{key}="{quoted[key]}"' for key in quoted)]) + ";"


def _in_properties(value: str) -> str:
    """A value as Java's Properties reads it: backslashes doubled, and what is not ASCII as UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    pairs = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(each) if 32 <= each < 127 else f"\\u{each:04x}" for each in pairs)
