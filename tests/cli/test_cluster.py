"""`kwire cluster` and `kwire zookeeper`: from options to the processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.__main__ import main, make_parser
from server.cli.cluster import broker_arguments
from server.cli.cluster_processes import ClusterPlan
from server.cli.serve import static_properties
from server.cli.zookeeper import settings_of
from server.config import ConfigError
from server.coordination.zookeeper_server.machine import SessionTimeoutLimits
from server.coordination.zookeeper_server.words import WORDS


def properties_of_broker(broker_id: int, *words: str) -> dict[str, str]:
    """The settings of a broker of the cluster, from its command line."""
    options = make_parser("cluster").parse_args(["cluster", *words])
    plan = ClusterPlan(
        brokers=options.brokers,
        host="::1",
        port=9092,
        data_dir=Path("/data"),
        zookeeper=None,
        store=None,
        arguments=tuple(broker_arguments(options)),
        prefix_logs=True,
    )
    command = plan.command(broker_id, "localhost:2181")
    serve = command[command.index("serve") :]
    return static_properties(make_parser("serve").parse_args(serve))


def test_each_broker_has_its_own_id_port_and_folder() -> None:
    properties = properties_of_broker(2)
    assert properties["broker.id"] == "2"
    assert properties["listeners"] == "PLAINTEXT://[::1]:9094"
    assert properties["log.dirs"] == "/data/broker-2"
    assert properties["zookeeper.connect"] == "localhost:2181"


@pytest.mark.parametrize(
    ("brokers", "factor", "isr"), [(1, "1", "1"), (2, "2", "2"), (5, "3", "2")]
)
def test_internal_topics_have_as_many_replicas_as_there_can_be(
    brokers: int, factor: str, isr: str
) -> None:
    properties = properties_of_broker(0, "--brokers", str(brokers))
    assert properties["offsets.topic.replication.factor"] == factor
    assert properties["transaction.state.log.replication.factor"] == factor
    assert properties["transaction.state.log.min.isr"] == isr


def test_file_that_sets_the_replicas_of_internal_topics_is_heeded(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("offsets.topic.replication.factor=2\n")
    properties = properties_of_broker(0, "--brokers", "1", "--config", str(file))
    assert properties["offsets.topic.replication.factor"] == "2"
    assert properties["transaction.state.log.replication.factor"] == "1"
    assert properties["transaction.state.log.min.isr"] == "1"


def test_override_goes_to_every_broker() -> None:
    words = ("-o", "offsets.topic.replication.factor=1", "-o", "num.partitions=7")
    properties = properties_of_broker(1, *words)
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["num.partitions"] == "7"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--brokers", "0"), "at least one broker"),
        (("--listen", "localhost:65534"), "not 3 ports"),
        (("--listen", "localhost"), "HOST:PORT"),
        (("--zookeeper", ""), "omit the option"),
        (("--config", "/there/is/none"), "/there/is/none: No such file"),
    ],
)
def test_options_without_a_possible_cluster_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *words]) == 2
    assert said in capsys.readouterr().err


def test_data_directory_of_a_single_broker_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its topics would be there, led and empty: their logs are not in a folder of the cluster's brokers."""
    (tmp_path / "meta.properties").touch()
    assert main(["cluster", "--data-dir", str(tmp_path)]) == 2
    assert (
        f"--data-dir {tmp_path}: this folder holds the logs of a single broker"
        in capsys.readouterr().err
    )


def test_session_timeouts_come_from_the_tick() -> None:
    settings = settings_of("localhost:0", 500, "*")
    assert settings.limits == SessionTimeoutLimits(1000, 10_000)
    assert settings.words == frozenset(WORDS)
    assert settings_of(":2181", 500, "ruok, srvr").words == {"ruok", "srvr"}


@pytest.mark.parametrize(("tick_ms", "words"), [(0, "*"), (2000, "ruok,kill")])
def test_unknown_word_and_no_tick_are_refused(tick_ms: int, words: str) -> None:
    with pytest.raises(ConfigError):
        settings_of("localhost:2181", tick_ms, words)
