"""Passwords among dynamic configs, and the settings that encode them."""

from __future__ import annotations

import logging

import pytest

from server.config import BrokerConfig, ConfigError
from server.config.stored_passwords import NoSecret, StoredPasswords

KEY = "listener.name.external.ssl.key.password"
JAAS = "listener.name.external.scram-sha-256.sasl.jaas.config"


def config_of(**settings: str) -> BrokerConfig:
    named = {
        f"password.encoder.{name.replace('_', '.')}": value for name, value in settings.items()
    }
    return BrokerConfig({"broker.id": "0", "password.encoder.iterations": "1024", **named})


def test_stored_password_is_encoded_and_takes_effect_plain():
    config = config_of(secret="s")
    stored = config.to_stored({KEY: "hush", JAAS: "hush2", "log.roll.ms": "5"}, {})
    assert stored["log.roll.ms"] == "5"
    assert not any("hush" in text for text in stored.values())
    config.set_dynamic(broker=stored)
    assert config.listener("EXTERNAL")["ssl.key.password"] == "hush"
    assert config.listener("EXTERNAL").mechanism("SCRAM-SHA-256").own("sasl.jaas.config") == "hush2"


def test_unchanged_password_keeps_its_stored_text():
    config = config_of(secret="s")
    first = config.to_stored({KEY: "hush", JAAS: "a"}, {})
    again = config_of(secret="s")
    plain = again.usable_dynamic(first, per_broker=True)
    second = again.to_stored({**plain, JAAS: "b"}, first)
    assert second[KEY] == first[KEY]
    assert second[JAAS] != first[JAAS]


def test_without_a_secret_no_password_is_stored():
    config = config_of()
    with pytest.raises(NoSecret, match="Password encoder secret not configured"):
        config.to_stored({KEY: "hush"}, {})
    assert config.to_stored({"log.roll.ms": "5"}, {}) == {"log.roll.ms": "5"}


@pytest.mark.parametrize(
    ("secret", "reason"),
    [({}, "password.encoder.secret is not set"), ({"secret": "t"}, "it was encoded with another secret")],
)  # fmt: skip
def test_password_that_cannot_be_decoded_is_left_out_and_logged_once(secret, reason, caplog):
    stored = config_of(secret="s").to_stored({KEY: "hush", "log.roll.ms": "5"}, {})
    config = config_of(**secret)
    with caplog.at_level(logging.ERROR):
        config.set_dynamic(broker=stored)
        config.set_dynamic(broker={**stored, "log.roll.ms": "6"})
    assert config.dynamic_broker == {"log.roll.ms": "6"}
    expected = f"Dynamic password config {KEY} could not be decoded, ignoring: {reason}"
    assert caplog.messages == [expected]


def test_old_secret_is_used_until_passwords_are_encoded_again():
    stored = config_of(secret="old").to_stored({KEY: "hush", "log.roll.ms": "5"}, {})
    both = config_of(secret="new", old_secret="old")
    assert both.usable_dynamic(stored, per_broker=True)[KEY] == "hush"
    renewed = both.passwords.encode_again(stored)
    assert renewed["log.roll.ms"] == "5"
    assert config_of(secret="new").usable_dynamic(renewed, per_broker=True)[KEY] == "hush"
    assert both.passwords.encode_again(renewed) == renewed


def test_without_an_old_secret_nothing_is_encoded_again():
    stored = config_of(secret="old").to_stored({KEY: "hush"}, {})
    assert config_of(secret="new").passwords.encode_again(stored) == stored
    assert config_of(old_secret="old").passwords.encode_again(stored) == stored


def test_what_no_secret_decodes_is_not_encoded_again():
    stored = {KEY: "plain text"}
    assert config_of(secret="new", old_secret="old").passwords.encode_again(stored) == stored


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cipher_algorithm", "DESede/CBC/PKCS5Padding"),
        ("keyfactory_algorithm", "PBEWithMD5AndDES"),
        ("key_length", "100"),
        ("iterations", "200001"),
    ],
)
def test_encoding_that_kwire_lacks_is_refused_at_start(setting, value):
    key = f"password.encoder.{setting.replace('_', '.')}"
    with pytest.raises(
        ConfigError, match=f"Invalid value {value} for configuration {key}"
    ) as refused:
        config_of(secret="s", **{setting: value})
    assert refused.value.key == key
    assert config_of(**{setting: value})["password.encoder.secret"] is None


def test_secret_is_not_shown():
    config = config_of(secret="hush", old_secret="hush")
    assert "hush" not in repr(config.passwords) + repr(StoredPasswords(config.values))
