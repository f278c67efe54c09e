"""Which mechanisms a listener has, and which settings are refused, by name."""

from __future__ import annotations

from collections.abc import Awaitable
from importlib import import_module
from typing import Any

import pytest

from server.config import BrokerConfig, ConfigError
from server.security.sasl.clients import password_client
from server.security.sasl.mechanisms import MECHANISMS, MechanismKind, build_mechanisms
from server.security.sasl.sources import LoginServices
from tests.support.clock import ManualClock

PLAIN_MODULE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="s3cret";'
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN_JAAS = "listener.name.clients.plain.sasl.jaas.config"
SCRAM_JAAS = "listener.name.clients.scram-sha-256.sasl.jaas.config"
BASE = {
    "listeners": "PLAINTEXT://:0,CLIENTS://:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
}
ENABLED = "sasl.enabled.mechanisms"


def in_thread(*_: object) -> Awaitable[Any]:
    raise AssertionError("nobody logs in")


SOURCES = LoginServices(dict, str, lambda *_: None, ManualClock(), lambda _: None, in_thread)


@pytest.mark.parametrize(
    ("settings", "mechanisms"),
    [
        ({ENABLED: "SCRAM-SHA-256"}, ["SCRAM-SHA-256"]),
        ({ENABLED: "SCRAM-SHA-512, SCRAM-SHA-256"}, ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ({ENABLED: "SCRAM-SHA-256", SCRAM_JAAS: SCRAM_MODULE}, ["SCRAM-SHA-256"]),
        ({ENABLED: "PLAIN", PLAIN_JAAS: PLAIN_MODULE}, ["PLAIN"]),
        ({"listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512"}, ["SCRAM-SHA-512"]),
    ],
)
def test_listener_has_the_mechanisms_that_are_enabled(
    settings: dict[str, str], mechanisms: list[str]
) -> None:
    config = BrokerConfig({**BASE, **settings})
    made = build_mechanisms(config.listener("CLIENTS"), SOURCES)
    assert list(made) == mechanisms


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({ENABLED: "FOO"}, "FOO for configuration sasl.enabled.mechanisms: kwire has no FOO"),
        ({ENABLED: ""}, "a SASL listener needs a mechanism"),
        ({ENABLED: "PLAIN"}, f"set {PLAIN_JAAS}="),
        # As in Apache Kafka, only the name with listener and mechanism counts.
        ({ENABLED: "PLAIN", "sasl.jaas.config": PLAIN_MODULE}, f"set {PLAIN_JAAS}="),
        (
            {ENABLED: "PLAIN", PLAIN_JAAS: SCRAM_MODULE},
            f"{PLAIN_JAAS}: PLAIN needs PlainLoginModule, not ScramLoginModule",
        ),
        ({ENABLED: "PLAIN", PLAIN_JAAS: PLAIN_MODULE[:-1]}, "not terminated by semi-colon"),
        ({ENABLED: "SCRAM-SHA-256", SCRAM_JAAS: PLAIN_MODULE}, "needs ScramLoginModule"),
        ({"listener.name.clients.sasl.enabled.mechanisms": "FOO"}, "listener.name.clients.sasl.en"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**BASE, **settings})
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_mechanisms_do_not_matter_without_a_sasl_listener() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://:0", ENABLED: "FOO"})
    assert config.get_list(ENABLED) == ["FOO"]
    with pytest.raises(ConfigError, match="kwire has no FOO"):
        BrokerConfig({**BASE, ENABLED: "FOO"})


@pytest.mark.parametrize("kind", MECHANISMS.values(), ids=MECHANISMS)
def test_row_of_a_mechanism_names_modules_with_both_sides(kind: MechanismKind) -> None:
    folder = "server.security.sasl"
    assert callable(import_module(f"{folder}.{kind.module}").mechanism_of)
    if kind.login is not None:
        assert callable(import_module(f"{folder}.{kind.login}").login_of)
    else:
        assert password_client(kind.name, "user", "password").start()
