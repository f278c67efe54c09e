"""The settings for the connection to ZooKeeper."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from kwire.testing.certificates import Authority
from server.composition.zookeeper import connect_to_zookeeper, login_of, tls_of
from server.config import BrokerConfig, ConfigError
from server.coordination.store import StoreClosed
from tests.support.broker_process import free_port

LOGIN = "kwire.zookeeper.sasl.jaas.config"
DIGEST = (
    'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="hush";'
)


def config_of(**settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"broker.id": "0", **named})


def test_login_is_that_of_the_login_module():
    assert login_of(config_of()) is None
    login = login_of(BrokerConfig({"broker.id": "0", LOGIN: DIGEST}))
    assert login is not None
    assert (login.user, login.password) == ("kafka", "hush")


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule required hush=hush;", "kwire has no Krb5LoginModule for ZooKeeper"),
        ('a.DigestLoginModule required username="kafka";', "has no option password"),
        ("hush", "control flag not specified"),
    ],
)  # fmt: skip
def test_login_that_cannot_work_is_refused(jaas, reason):
    with pytest.raises(ConfigError, match=reason) as refused:
        login_of(BrokerConfig({"broker.id": "0", LOGIN: jaas}))
    assert refused.value.key == LOGIN
    assert "hush" not in refused.value.explain() + str(refused.value)


def test_acls_need_an_identity():
    with pytest.raises(
        ConfigError, match=r"zookeeper\.set\.acl is true, but this broker has no identity"
    ):
        asyncio.run(connect_to_zookeeper(config_of(zookeeper_set_acl="true"), "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("settings", "longest_ms"),
    [
        ({"zookeeper_session_timeout_ms": "50"}, 50),
        ({"zookeeper_session_timeout_ms": "5000", "zookeeper_connection_timeout_ms": "60"}, 60),
    ],
)
def test_server_has_the_connection_timeout_to_answer_or_else_that_of_sessions(
    settings: dict[str, str], longest_ms: int
) -> None:
    with pytest.raises(StoreClosed, match=f"answered within {longest_ms} ms"):
        asyncio.run(connect_to_zookeeper(config_of(**settings), f"127.0.0.1:{free_port()}"))


def test_without_tls_there_is_no_context():
    assert tls_of(config_of()) is None


@pytest.mark.parametrize("key", ["zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"])
def test_check_of_revocation_is_refused(key):
    with pytest.raises(ConfigError, match=f"Invalid value true for configuration {key}"):
        tls_of(BrokerConfig({"broker.id": "0", "zookeeper.ssl.client.enable": "true", key: "true"}))


def test_missing_store_is_refused_by_the_name_of_the_setting_for_zookeeper(tmp_path):
    key = "zookeeper.ssl.truststore.location"
    settings = {"zookeeper.ssl.client.enable": "true", key: str(tmp_path / "no.pem")}
    with pytest.raises(ConfigError) as refused:
        tls_of(BrokerConfig({"broker.id": "0", **settings}))
    assert refused.value.key == key


def test_context_trusts_the_truststore_and_checks_the_host(tmp_path, authority: Authority):
    trusted = tmp_path / "trusted.pem"
    authority.write(trusted)
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(trusted),
    }
    context = tls_of(BrokerConfig({"broker.id": "0", **settings}))
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    settings["zookeeper.ssl.endpoint.identification.algorithm"] = ""
    context = tls_of(BrokerConfig({"broker.id": "0", **settings}))
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
