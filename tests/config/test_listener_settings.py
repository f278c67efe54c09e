"""The settings of one listener: its own over the plain ones."""

from __future__ import annotations

import pytest

from server.config import BrokerConfig, ConfigError

STATIC = {
    "ssl.client.auth": "requested",
    "listener.name.external.ssl.client.auth": "required",
    "listener.name.external.sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-256",
    "connections.max.reauth.ms": "1000",
    "listener.name.external.connections.max.reauth.ms": "2000",
    "listener.name.external.scram-sha-256.connections.max.reauth.ms": "3000",
    "listener.name.external.plain.sasl.jaas.config": "a b;",
}


def test_own_value_hides_the_plain_one() -> None:
    config = BrokerConfig(STATIC)
    assert config.listener("EXTERNAL").get_str("ssl.client.auth") == "required"
    assert config.listener("INTERNAL").get_str("ssl.client.auth") == "requested"
    assert config.listener("INTERNAL").get_list("ssl.enabled.protocols") == ["TLSv1.2", "TLSv1.3"]
    assert config.listener("INTERNAL").get_optional_str("ssl.keystore.location") is None
    assert config.listener("EXTERNAL").get_list("sasl.enabled.mechanisms") == [
        "PLAIN",
        "SCRAM-SHA-256",
    ]


def test_mechanism_falls_back_to_the_listener_and_to_the_plain_key() -> None:
    external = BrokerConfig(STATIC).listener("EXTERNAL")
    assert external.get_int("connections.max.reauth.ms") == 2000
    assert external.mechanism("SCRAM-SHA-256").get_int("connections.max.reauth.ms") == 3000
    assert external.mechanism("PLAIN").get_int("connections.max.reauth.ms") == 2000
    assert external.mechanism("PLAIN").get_float("sasl.login.refresh.window.factor") == 0.8
    internal = BrokerConfig(STATIC).listener("INTERNAL")
    assert internal.mechanism("PLAIN").get_int("connections.max.reauth.ms") == 1000


def test_own_does_not_fall_back() -> None:
    external = BrokerConfig(STATIC).listener("EXTERNAL")
    assert external.mechanism("PLAIN").own("sasl.jaas.config") == "a b;"
    assert external.own("sasl.jaas.config") is None
    assert external.mechanism("PLAIN").own("connections.max.reauth.ms") is None
    assert external.has("ssl.client.auth") and not external.has("sasl.jaas.config")


def test_change_at_run_time_shows_and_is_announced_by_its_full_name() -> None:
    config = BrokerConfig(STATIC)
    external, seen = config.listener("EXTERNAL"), []
    config.subscribe(seen.append)
    key = "listener.name.external.ssl.keystore.location"
    config.set_dynamic(broker={key: "/new.pem"})
    assert external.get_str("ssl.keystore.location") == "/new.pem"
    assert config.listener("INTERNAL").get_optional_str("ssl.keystore.location") is None
    config.set_dynamic(broker={})
    assert external.get_optional_str("ssl.keystore.location") is None
    assert seen == [{key}, {key}]


def test_refusal_names_the_key_as_it_was_set_and_hides_secrets() -> None:
    config = BrokerConfig(STATIC | {"listener.name.external.ssl.key.password": "geheim"})
    external = config.listener("EXTERNAL")
    error = external.refusal("ssl.client.auth", "no truststore is set")
    assert error.explain() == (
        "listener.name.external.ssl.client.auth=required: no truststore is set"
    )
    secret = external.refusal("ssl.key.password", "does not open the key")
    assert "geheim" not in str(secret) + secret.explain()


def test_wrong_types_and_unknown_keys_are_errors() -> None:
    external = BrokerConfig(STATIC).listener("EXTERNAL")
    for get in (external.get_int, external.get_bool, external.get_float, external.get_list):
        with pytest.raises(TypeError, match=r"ssl\.client\.auth"):
            get("ssl.client.auth")
    with pytest.raises(TypeError, match=r"ssl\.keystore\.location"):
        external.get_str("ssl.keystore.location")
    with pytest.raises(KeyError):
        external["no.such.key"]
    with pytest.raises(ConfigError):
        BrokerConfig({"listener.name.x.ssl.client.auth": "maybe"})
