"""The store that a command opens itself, with its login and TLS."""

from __future__ import annotations

import asyncio
import ssl
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from kwire.testing.certificates import Authority
from server.__main__ import make_parser
from server.cli import users
from server.cli.kafka_words import in_order
from server.cli.stores import choose_store, open_store, zookeeper_config
from server.config import ConfigError
from server.coordination.zookeeper import ZooKeeperLogin, ZooKeeperStore

LOGIN = (
    "kwire.zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required"
    ' username="kafka" password="s3cret";\n'
)
PROPERTIES = (
    "log.dirs=/data/one, /data/two\nzookeeper.connect=zk1:2182/kafka\n"
    + LOGIN
    # Settings unrelated to ZooKeeper do not matter, even if they cannot work here.
    + "listeners=SASL_SSL://:9093\nsasl.enabled.mechanisms=FOO\nnum.io.threads=none\n"
)


def parsed(*words: str) -> Namespace:
    return make_parser(words[0]).parse_args(in_order(words))


@pytest.fixture(autouse=True)
def no_jaas_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    return path


@pytest.mark.parametrize(
    ("words", "zookeeper", "data_dir"),
    [
        ((), None, "kwire-data"),
        (("--data-dir", "d"), None, "d"),
        (("--zookeeper", "zk"), "zk", None),
        (("-o", "zookeeper.connect=zk2"), "zk2", "kwire-data"),
        (("-o", "log.dir=d"), None, "d"),
    ],
)
def test_store_is_the_one_that_is_named(
    words: tuple[str, ...], zookeeper: str | None, data_dir: str | None
) -> None:
    options = parsed("coordination", "export", *words)
    choose_store(options)
    assert (options.zookeeper, options.data_dir) == (zookeeper, data_dir)


def test_store_is_that_of_the_file_of_a_broker(properties: Path) -> None:
    options = parsed("coordination", "export", "--config", str(properties))
    choose_store(options)
    assert options.zookeeper == "zk1:2182/kafka"
    alone = parsed(
        "coordination", "export", "--config", str(properties), "-o", "zookeeper.connect="
    )
    choose_store(alone)
    assert (alone.zookeeper, alone.data_dir) == (None, "/data/one")


def connection(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[str, dict[str, Any]]:
    """To where a command would connect, and how."""
    made: list[tuple[str, dict[str, Any]]] = []

    async def connect(servers: str, **how: Any) -> None:
        made.append((servers, how))

    monkeypatch.setattr(ZooKeeperStore, "connect", connect)
    asyncio.run(open_store(parsed(*words), must_exist=True))
    return made[0]


@pytest.mark.parametrize(
    "words", [("coordination", "export"), ("users",)], ids=["coordination", "users"]
)
def test_login_and_tls_at_zookeeper_are_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
    properties: Path,
    tmp_path: Path,
    authority: Authority,
    words: tuple[str, ...],
) -> None:
    trusted = authority.write(tmp_path / "ca.pem")
    given = ("--zookeeper", "zk", "--config", str(properties))
    tls = (
        "-o",
        "zookeeper.ssl.client.enable=true",
        "-o",
        f"zookeeper.ssl.truststore.location={trusted}",
    )
    verb = ("list",) if words == ("users",) else ()
    servers, how = connection(monkeypatch, *words, *given, *tls, *verb)
    assert servers == "zk"
    assert how["login"] == ZooKeeperLogin("kafka", "s3cret")
    assert isinstance(how["tls"], ssl.SSLContext)
    servers, how = connection(monkeypatch, *words, "--zookeeper", "zk", *verb)
    assert (servers, how["login"], how["tls"]) == ("zk", None, None)


def test_login_that_cannot_work_is_refused_by_its_key(properties: Path) -> None:
    properties.write_text("kwire.zookeeper.sasl.jaas.config=a.B required;")
    options = parsed("coordination", "export", "--zookeeper", "zk", "--config", str(properties))
    with pytest.raises(ConfigError, match=r"kwire\.zookeeper\.sasl\.jaas\.config"):
        asyncio.run(open_store(options, must_exist=True))


def test_settings_of_a_broker_are_no_use_where_a_broker_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = parsed("users", "-o", "zookeeper.connect=zk", "list")
    assert users.run(options) == 2
    assert "--config and -o need --zookeeper" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "longest_ms"),
    [((), 10_000), (("-o", "zookeeper.connection.timeout.ms=60000"), 60_000)],
)
def test_command_waits_for_zookeeper_as_long_as_for_a_broker_unless_told(
    words: tuple[str, ...], longest_ms: int
) -> None:
    options = parsed("coordination", "export", "--zookeeper", "zk", *words)
    config = zookeeper_config(options)
    assert config.get_int("zookeeper.connection.timeout.ms") == longest_ms
