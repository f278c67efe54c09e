"""The login at other brokers, according to the settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from server.config import BrokerConfig, ConfigError
from server.interbroker.login import BrokerLogin, login_of, missing_super_user
from server.security.sasl.clients import PlainClient, ScramClient
from tests.support.clock import ManualClock

MODULES = "org.apache.kafka.common.security"
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="broker" password="hush";'
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="broker" password="hush" user_broker="hush";'


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def config_of(mechanism: str, jaas: str | None, **settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    if jaas is not None:
        named[f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"] = jaas
    return BrokerConfig(
        {
            "broker.id": "0",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            **named,
        }
    )


def login(config: BrokerConfig) -> BrokerLogin | None:
    return login_of(config, ManualClock(), in_thread)


def test_plaintext_between_brokers_needs_no_login():
    assert login(BrokerConfig({"broker.id": "0"})) is None


@pytest.mark.parametrize(
    ("mechanism", "jaas", "client"),
    [("PLAIN", PLAIN, PlainClient), ("SCRAM-SHA-512", SCRAM, ScramClient)],
)
def test_login_is_that_of_the_listener_and_mechanism(mechanism, jaas, client):
    found = login(config_of(mechanism, jaas))
    assert found is not None
    assert (found.mechanism, found.user) == (mechanism, "broker")
    assert isinstance(asyncio.run(found.client("host")), client)
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "reason"),
    [
        ("SCRAM-SHA-256", None, "must name the user that this broker logs in as"),
        ("SCRAM-SHA-256", PLAIN, "needs ScramLoginModule, not PlainLoginModule"),
        ("PLAIN", SCRAM, "needs PlainLoginModule, not ScramLoginModule"),
        ("PLAIN", f'{MODULES}.plain.PlainLoginModule required user_a="hush";', "has no option username"),
        ("PLAIN", f'{MODULES}.plain.PlainLoginModule required username="broker";', "has no option password"),
        ("PLAIN", "hush", "control flag not specified"),
        ("PLAIN", f"{PLAIN} {PLAIN}", "contains 2 login modules"),
    ],
)  # fmt: skip
def test_login_that_cannot_work_is_refused_at_start_by_its_key(mechanism, jaas, reason):
    with pytest.raises(ConfigError, match=reason) as refused:
        _ = login(config_of(mechanism, jaas))
    assert "hush" not in refused.value.explain() + str(refused.value)
    assert "sasl." in str(refused.value.key)


def test_login_changed_at_run_time_counts_for_the_next_connection():
    config = config_of("PLAIN", PLAIN, password_encoder_secret="x")
    found = login(config)
    assert found is not None
    config.subscribe(found.take_up)
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    new = {name: PLAIN.replace("hush", "shush")}
    config.check_dynamic(new, per_broker=True)
    config.set_dynamic(broker=config.to_stored(new, {}))
    assert asyncio.run(found.client("host")).start() == b"\0broker\0shush"
    config.set_dynamic(broker={})
    assert asyncio.run(found.client("host")).start() == b"\0broker\0hush"


def test_login_that_cannot_work_is_refused_at_run_time(caplog):
    config = config_of("PLAIN", PLAIN)
    found = login(config)
    assert found is not None
    for name, text, reason in [
        ("listener.name.sasl_plaintext.plain.sasl.jaas.config", SCRAM, "not ScramLoginModule"),
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512", "must be included in"),
    ]:
        with pytest.raises(ConfigError, match=reason) as refused:
            config.check_dynamic({name: text}, per_broker=True)
        assert "hush" not in refused.value.explain() + str(refused.value)
    config.subscribe(found.take_up)
    config.set_dynamic(broker={"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"})
    assert "not applied" in caplog.text
    assert found.mechanism == "PLAIN"


def test_mechanism_that_is_not_enabled_is_refused():
    config = config_of("PLAIN", PLAIN, sasl_enabled_mechanisms="SCRAM-SHA-256")
    with pytest.raises(ConfigError) as refused:
        login(config)
    assert str(refused.value).endswith(
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is"
        " used for inter-broker communication"
    )


def test_operator_is_told_if_the_brokers_are_no_super_users():
    acls = "kafka.security.authorizer.AclAuthorizer"
    config = config_of("PLAIN", PLAIN, authorizer_class_name=acls, super_users="User:admin")
    advice = missing_super_user(config, login(config))
    assert advice is not None
    assert "super.users does not name User:broker" in advice
    config = config_of(
        "PLAIN", PLAIN, authorizer_class_name=acls, super_users="User:admin;User:broker"
    )
    assert missing_super_user(config, login(config)) is None
    config = config_of("PLAIN", PLAIN)
    assert missing_super_user(config, login(config)) is None


def test_refused_login_is_logged_once_a_minute_for_each_broker(caplog):
    clock = ManualClock()
    found = login_of(config_of("PLAIN", PLAIN), clock, in_thread)
    assert found is not None
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            found.failed("b:1", "Invalid username or password")
        found.failed("b:2", "Invalid username or password")
        assert caplog.messages == [
            f"Cannot log in to the broker at b:{n} as broker with PLAIN, trying again: Invalid username or password"
            for n in (1, 2)
        ]
        caplog.clear()
        found.succeeded("b:1")
        found.succeeded("b:1")
        assert caplog.messages == ["The broker at b:1 accepts this broker's login again"]
