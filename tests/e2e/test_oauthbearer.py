"""OAUTHBEARER with stock clients: signed tokens, with keys from an HTTP server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from ..security.tokens import Documents, documents, key_set, public_jwk, rsa_key, token
from ..support.broker_process import KwireBroker
from ..support.kafka import KAFKA_3, write_properties
from ..support.kafka_tools import ToolServers
from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e]

MECHANISM = "listener.name.sasl_plaintext.oauthbearer."


@pytest.fixture(scope="module")
def keys() -> Iterator[Documents]:
    with documents() as server:
        server.documents["/keys"] = key_set(public_jwk(rsa_key(), "k1"))
        yield server


@pytest.fixture(scope="module")
def broker(keys: Documents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireBroker]:
    config = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
        MECHANISM + "sasl.oauthbearer.jwks.endpoint.url": keys.url("/keys"),
        MECHANISM + "sasl.oauthbearer.expected.audience": "kafka",
        MECHANISM + "sasl.server.callback.handler.class": "org.apache.kafka.common.security"
        ".oauthbearer.OAuthBearerValidatorCallbackHandler",
    }
    made = KwireBroker(tmp_path_factory.mktemp("broker"), config=config)
    made.config["listeners"] = f"SASL_PLAINTEXT://{made.bootstrap},PLAINTEXT://127.0.0.1:0"
    with made:
        yield made


def good_token(**change: object) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "scope": "all", "iat": now, "exp": now + 600}
    return token(claims | change)


def librdkafka(broker: KwireBroker, text: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (text, time.time() + 600, "alice", {}),
            "log_level": 0,
        }
    )


@pytest.mark.compat("confluent-kafka", "security: OAUTHBEARER")
def test_librdkafka_logs_in(broker: KwireBroker) -> None:
    client = librdkafka(broker, good_token())
    client.poll(0)
    assert client.list_topics(timeout=60).cluster_id


def test_token_that_is_not_accepted_is_refused_and_the_log_says_why(broker: KwireBroker) -> None:
    text = good_token(aud="other")
    refused = librdkafka(broker, text)
    refused.poll(0)
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=1)
    # The client keeps trying.
    reason = "login with OAUTHBEARER has failed: the audience (aud) is not one of"
    wait_until(lambda: reason in broker.log_path.read_text(), "the reason is in the log")
    assert text not in broker.log_path.read_text()


@pytest.mark.compat("kafka-python", "security: OAUTHBEARER")
def test_kafka_python_logs_in(broker: KwireBroker) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return good_token()

    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    try:
        assert isinstance(client.list_topics(), list)  # a login that fails raises
    finally:
        client.close()


@pytest.mark.compat("aiokafka", "security: OAUTHBEARER")
def test_aiokafka_logs_in(broker: KwireBroker) -> None:
    class Provider(AioTokenProvider):
        async def token(self) -> str:
            return good_token()

    async def body() -> None:
        client = AIOKafkaAdminClient(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        await client.start()
        try:
            assert isinstance(await client.list_topics(), list)
        finally:
            await client.close()

    asyncio.run(body())


@pytest.mark.jvm
@pytest.mark.compat("java-tools 3.9.2", "security: OAUTHBEARER")
def test_java_logs_in(broker: KwireBroker, tmp_path: Path, tool_servers: ToolServers) -> None:
    (tmp_path / "token").write_text(good_token())
    properties = write_properties(
        tmp_path / "client.properties",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
            ".OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
            ".OAuthBearerLoginModule required;",
        },
    )
    tools = tool_servers(KAFKA_3)
    where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(properties))
    made = tools.run("kafka-topics", *where, "--create", "--topic", "by-java")
    assert made.status == 0, made
