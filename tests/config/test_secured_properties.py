"""server.properties of secured Apache Kafka 3.9 brokers: each works unchanged, or is refused with the name of the
unsupported key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.testing.certificates import Authority
from server.config import BrokerConfig, ConfigError
from server.config.properties import parse_properties
from server.interbroker.login import login_of
from server.security.tls.contexts import load_credentials
from tests.support.certificates import pkcs12
from tests.support.clock import ManualClock

SCRAM = r"""
listeners=SASL_SSL://0.0.0.0:9093
advertised.listeners=SASL_SSL://kafka1.example.com:9093
security.inter.broker.protocol=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="admin" \
    password="admin-secret";
ssl.keystore.location=/var/private/ssl/kafka.server.keystore.p12
ssl.keystore.password=hush
ssl.key.password=hush
ssl.truststore.location=/var/private/ssl/kafka.server.truststore.pem
ssl.truststore.type=PEM
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
"""
MUTUAL = """
listeners=SSL://kafka1.example.com:9093
security.inter.broker.protocol=SSL
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=/etc/kafka/secrets/kafka.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/secrets/ca.pem
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.cipher.suites=TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT
ssl.secure.random.implementation=SHA1PRNG
"""
SEVERAL = r"""
listeners=INTERNAL://:9092,EXTERNAL://:9093,PLAIN://127.0.0.1:9094
listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT,EXTERNAL:SASL_SSL,PLAIN:PLAINTEXT
inter.broker.listener.name=INTERNAL
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.internal.sasl.enabled.mechanisms=PLAIN
listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";
listener.name.external.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.external.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.external.ssl.keystore.location=/etc/kafka/external.p12
listener.name.external.ssl.keystore.password=hush
listener.name.external.connections.max.reauth.ms=3600000
"""
OAUTH = """
listeners=SASL_PLAINTEXT://:9092,PLAINTEXT://:9091
security.inter.broker.protocol=PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url=https://idp.example.com/keys
sasl.oauthbearer.expected.audience=kafka
"""
KERBEROS = """
listeners=SASL_PLAINTEXT://kafka1.example.com:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.kerberos.service.name=kafka
"""


def changed(text: str, **lines: str) -> str:
    """A file with other values; lines that are added count, as the last ones do."""
    return text + "".join(f"{name.replace('_', '.')}={value}\n" for name, value in lines.items())


#: The content of the file; the key that is refused (None: it works); the text of the message.
FILES: dict[str, tuple[str, str | None, str]] = {
    "SASL_SSL with SCRAM, PKCS12": (SCRAM, None, ""),
    "the same, with a JKS keystore": (
        SCRAM.replace("keystore.p12", "keystore.jks"),
        "ssl.keystore.location",
        "keytool",
    ),
    "the same, without the brokers' login": (
        SCRAM.replace('username="admin"', 'user_admin="hush"'),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        "has no option username",
    ),
    "the same, with another mechanism between brokers": (
        SCRAM.replace("broker.protocol=SCRAM-SHA-512", "broker.protocol=PLAIN"),
        "sasl.mechanism.inter.broker.protocol",
        "must be included in sasl.enabled.mechanisms",
    ),
    "mutual TLS": (MUTUAL, None, ""),
    "mutual TLS, with one suite of TLS 1.3": (
        changed(MUTUAL, ssl_cipher_suites="TLS_AES_256_GCM_SHA384"),
        "ssl.cipher.suites",
        "add TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256",
    ),
    "mutual TLS, with a wrong rule": (
        MUTUAL.replace("RULE:^CN=(.*?),OU=.*$/$1/L", "RULE:^CN=(.*?)"),
        "ssl.principal.mapping.rules",
        "",
    ),
    "mutual TLS, with principals made by a Java class": (
        changed(MUTUAL, principal_builder_class="com.example.Principals"),
        "principal.builder.class",
        "kwire cannot run Java classes",
    ),
    "several listeners": (SEVERAL, None, ""),
    "several listeners, PLAIN with users in a Java class": (
        SEVERAL
        + "listener.name.internal.plain.sasl.server.callback.handler.class=com.example.Users\n",
        "listener.name.internal.plain.sasl.server.callback.handler.class",
        "kwire cannot run Java classes",
    ),
    "OAUTHBEARER with a key set": (OAUTH, None, ""),
    "OAUTHBEARER without a validator, which accepts unsigned tokens in Apache Kafka": (
        "\n".join(line for line in OAUTH.splitlines() if "callback.handler" not in line and "jwks" not in line),
        "sasl.oauthbearer.jwks.endpoint.url",
        "the URL of a JSON Web Key Set",
    ),
    "Kerberos, with its login module in a JAAS file that is missing": (
        KERBEROS,
        "sasl.enabled.mechanisms",
        "",
    ),
    "an authorizer of another vendor": (
        changed(SCRAM, authorizer_class_name="org.apache.ranger.RangerKafkaAuthorizer"),
        "authorizer.class.name",
        "kwire has no such class",
    ),
}  # fmt: skip


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


@pytest.mark.parametrize("name", FILES)
def test_file_of_a_secured_broker_works_or_is_refused_by_its_key(name, authority: Authority):
    text, key, said = FILES[name]
    issued = authority.issue("CN=kafka1")
    stores = {
        "p12": pkcs12(issued, authority, "hush"),
        "pem": (issued.key_pem + issued.certificate_pem + authority.pem).encode(),
        "jks": bytes.fromhex("feedfeed00000002"),
    }
    stores_of_file = lambda path: stores[path.rpartition(".")[2]]  # noqa: E731

    def start() -> None:
        config = BrokerConfig({"broker.id": "1", **parse_properties(text)})
        for endpoint in config.listeners:
            if endpoint.is_encrypted:
                settings = config.listener(endpoint.listener)
                load_credentials(settings, stores_of_file, login=endpoint.has_logins)
        login_of(config, ManualClock(), in_thread)

    if key is None:
        start()
        return
    with pytest.raises(ConfigError) as refused:
        start()
    message = refused.value.explain() + str(refused.value)
    assert (refused.value.key, said in message) == (key, True), message
    assert "hush" not in message
    assert "-secret" not in message
