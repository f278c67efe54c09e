"""kafka-delegation-tokens of 3.9.2, unmodified, and a login with the token that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.broker_process import KwireBroker
from ..support.kafka import KAFKA_3, write_properties
from ..support.kafka_tools import ToolResult, ToolServer, ToolServers

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

SECRET = "the brokers' own secret"
SECURITY = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireBroker]:
    made = KwireBroker(
        tmp_path_factory.mktemp("broker"),
        config={
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connection.failed.authentication.delay.ms": "10",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{SECURITY}.plain.PlainLoginModule"
            ' required user_alice="pw-a" user_bob="pw-b";',
            "delegation.token.secret.key": SECRET,
        },
    )
    made.config["listeners"] = f"SASL_PLAINTEXT://{made.bootstrap},PLAINTEXT://127.0.0.1:0"
    with made:
        yield made


class Tools:
    """Runs tools as different users."""

    def __init__(self, broker: KwireBroker, directory: Path, server: ToolServer) -> None:
        self.server = server
        self._broker = broker
        self._directory = directory

    def run(self, tool: str, mechanism: str, options: str, *arguments: str) -> ToolResult:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        properties = write_properties(
            self._directory / "client.properties",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"{SECURITY}.{kind}LoginModule required {options};",
            },
        )
        where = ("--bootstrap-server", self._broker.bootstrap, "--command-config", str(properties))
        return self.server.run(tool, *where, *arguments)

    def tokens(self, user: str, *arguments: str) -> ToolResult:
        options = f'username="{user}" password="pw-{user[0]}"'
        return self.run("kafka-delegation-tokens", "PLAIN", options, *arguments)


def test_token_is_made_used_renewed_and_ended(
    broker: KwireBroker, tmp_path: Path, tool_servers: ToolServers
) -> None:
    tools = Tools(broker, tmp_path, tool_servers(KAFKA_3))
    made = tools.tokens(
        "alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    )
    assert made.status == 0, made
    row = next(line for line in made.output.splitlines() if "User:alice" in line).split()
    token_id, hmac = row[:2]
    login = f'username="{token_id}" password="{hmac}" tokenauth="true"'

    topic = tools.run("kafka-topics", "SCRAM-SHA-256", login, "--create", "--topic", "t")
    assert topic.status == 0, topic
    arguments = ("--create", "--max-life-time-period", "-1")
    refused = tools.run("kafka-delegation-tokens", "SCRAM-SHA-256", login, *arguments)
    assert refused.status != 0
    assert "not allowed on" in refused.output + refused.errors

    listed = tools.tokens("bob", "--describe", "--owner-principal", "User:alice")
    assert token_id in listed.output, listed
    for step in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        done = tools.tokens("bob", *step, "-1", "--hmac", hmac)
        assert done.status == 0, done
    gone = tools.run("kafka-topics", "SCRAM-SHA-256", login, "--list")
    assert gone.status != 0
    assert "Authentication failed" in gone.output + gone.errors
    log = broker.log_path.read_text()
    assert token_id in log
    assert hmac not in log and SECRET not in log
