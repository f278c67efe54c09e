"""`kwire serve`: from options and a file to settings."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from server.__main__ import make_parser
from server.cli.serve import static_properties
from server.config import BrokerConfig, ConfigError
from server.config.properties import PropertiesError


def options(*words: str) -> Namespace:
    return make_parser("serve").parse_args(["serve", *words])


def settings(*words: str) -> dict[str, str]:
    return static_properties(options(*words))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=4\nlisteners=PLAINTEXT://:9094\nlog.dir=/old\nnum.partitions=3\n")
    return path


def test_without_a_file_it_is_a_single_broker_for_this_machine() -> None:
    config = BrokerConfig(settings())
    assert [str(endpoint) for endpoint in config.listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ["kwire-data"]
    assert config["offsets.topic.replication.factor"] == 1
    assert config["transaction.state.log.min.isr"] == 1


def test_with_zookeeper_internal_topics_keep_kafkas_replication() -> None:
    config = BrokerConfig(settings("--zookeeper", "a:2181,b:2181/kafka"))
    assert config["zookeeper.connect"] == "a:2181,b:2181/kafka"
    assert config["offsets.topic.replication.factor"] == 3


def test_a_file_is_taken_as_it_is(file: Path) -> None:
    assert settings("--config", str(file)) == {
        "broker.id": "4",
        "listeners": "PLAINTEXT://:9094",
        "log.dir": "/old",
        "num.partitions": "3",
    }


def test_options_win_over_the_file_and_o_over_options(file: Path) -> None:
    words = [
        "--config",
        str(file),
        "--listen",
        "10.0.0.1:1",
        "--data-dir",
        "/new",
        "--node-id",
        "7",
    ]
    config = BrokerConfig(settings(*words, "-o", "num.partitions=9", "-o", "broker.id=8"))
    assert [str(endpoint) for endpoint in config.listeners] == ["PLAINTEXT://10.0.0.1:1"]
    assert config.log_dirs == ["/new"]
    assert (config.node_id, config["num.partitions"]) == (8, 9)


def test_node_id_given_by_hand_replaces_either_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kraft.properties"
    path.write_text("node.id=1\n")
    assert BrokerConfig(settings("--config", str(path), "--node-id", "2")).node_id == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:9092", "PLAINTEXT://localhost:9092"),
        (":9092", "PLAINTEXT://:9092"),
        ("[::1]:0", "PLAINTEXT://[::1]:0"),
        ("ssl://:9093", "SSL://:9093"),
    ],
)
def test_addresses_become_listeners(given: str, expected: str) -> None:
    assert settings("--listen", given)["listeners"] == expected


def test_a_protocol_of_the_address_is_that_of_brokers_and_of_the_advertised_address() -> None:
    found = settings("--listen", "SASL_SSL://:9093", "--advertise", "kafka.example.com:9093")
    assert found["security.inter.broker.protocol"] == "SASL_SSL"
    assert found["advertised.listeners"] == "SASL_SSL://kafka.example.com:9093"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["listeners=SSL://:9093"],
            "security.inter.broker.protocol=PLAINTEXT: no listener has this protocol, which brokers use for"
            " connections to each other; set it to SSL, also for a broker that is alone",
        ),
        (
            ["inter.broker.listener.name=INTERNAL"],
            "inter.broker.listener.name=INTERNAL: there is no listener of this name in listeners, but PLAINTEXT",
        ),
    ],
)
def test_a_broker_whose_brokers_have_no_listener_is_told_which_there_are(
    words: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(settings(*(part for word in words for part in ("-o", word))))
    assert caught.value.explain() == message


def test_level_of_the_log_may_be_written_small() -> None:
    assert settings("--log-level", "debug")["kwire.log.level"] == "DEBUG"


def test_advertised_address_becomes_a_listener() -> None:
    assert settings("--advertise", "a:1")["advertised.listeners"] == "PLAINTEXT://a:1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "9092"], "--listen"),
        (["--listen", "host:99999"], "HOST:PORT"),
        (["--listen", "TLS://host:1"], "TLS is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (["--advertise", ":9092"], "give the host that clients should connect to"),
        (["--advertise", "0.0.0.0:9092"], "give the host"),
        (["-o", "num.partitions"], "not KEY=VALUE"),
        (["-o", "num.partition=3"], "num.partition is not a config of Apache Kafka or kwire; the nearest known one is num.partitions"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*words)
    assert message in caught.value.explain()


def test_unknown_key_in_a_file_is_only_reported(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partition=3\n")
    config = BrokerConfig(settings("--config", str(path)))
    assert "the nearest known one is num.partitions" in config.notices()[0]


def test_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PropertiesError, match=r"server\.properties: not a text file"):
        settings("--config", str(path))


def test_wrong_value_ends_with_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from server.__main__ import main

    path = tmp_path / "server.properties"
    path.write_text("log.segment.bytes=12\n")
    assert main(["serve", "--config", str(path)]) == 2
    assert capsys.readouterr().err == (
        "kwire: log.segment.bytes=12: Value must be at least 14; allowed: INT [14,...]\n"
    )


def test_missing_file_ends_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    from server.__main__ import main

    assert main(["serve", "--config", "/no/such/file"]) == 2
    assert capsys.readouterr().err == "kwire: /no/such/file: No such file or directory\n"
