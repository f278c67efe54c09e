"""`kwire serve --workers`: from options to the settings of each worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.__main__ import main, make_parser
from server.cli.cluster_processes import LONGEST_WAIT_S, restart_wait_s
from server.cli.serve import static_properties
from server.cli.workers import WorkerPlan, plan_of
from server.config import BrokerConfig


def plan(tmp_path: Path, *words: str) -> WorkerPlan:
    """The plan for a command line."""
    arguments = ["serve", "--data-dir", str(tmp_path / "data"), *words]
    options = make_parser("serve").parse_args(arguments)
    properties = static_properties(options)
    return plan_of(options, properties, BrokerConfig(properties))


def properties_of_worker(
    found: WorkerPlan, number: int, address: str | None = None
) -> dict[str, str]:
    """The settings of a worker, from its command line."""
    command = found.command(found.ids[number], "127.0.0.1:1", address)
    serve = command[command.index("serve") :]
    return static_properties(make_parser("serve").parse_args(serve))


def test_each_worker_has_the_next_id_and_ports_and_a_folder_of_its_own(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        *("--workers", "3", "--node-id", "10", "--listen", "SSL://[::1]:9092"),
        *("--advertise", "[::2]:19092", "--http", "localhost:9644", "--log-file", "/log/kwire"),
    )
    assert list(found.ids) == [10, 11, 12]
    properties = properties_of_worker(found, 2)
    assert properties["broker.id"] == "12"
    assert properties["listeners"] == "SSL://[::1]:9094"
    assert properties["advertised.listeners"] == "SSL://[::2]:19094"
    assert properties["security.inter.broker.protocol"] == "SSL"
    assert properties["kwire.http.listener"] == "localhost:9646"
    assert properties["kwire.log.file"] == "/log/kwire.worker-2"
    assert properties["log.dirs"] == f"{tmp_path}/data/worker-2"
    assert properties["zookeeper.connect"] == "127.0.0.1:1"
    # The machine is the rack, so that copies of a partition are on different ones.
    assert properties["broker.rack"] == found.machine


def test_settings_of_a_file_and_overrides_reach_each_worker(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=4\nlisteners=PLAINTEXT://:9092,SSL://:9192\nlog.dirs=/a, /b\nnum.partitions=7\n"
        "zookeeper.connect=zk:2181/x\n"
    )
    words = ("--workers", "2", "--config", str(file), "-o", "broker.rack=r", "-o", "log.dirs=/c,/d")
    found = plan(tmp_path, *words)
    assert (found.zookeeper, found.store) == ("zk:2181/x", None)
    properties = properties_of_worker(found, 1)
    assert properties["broker.id"] == "5"
    assert properties["listeners"] == "PLAINTEXT://:9093,SSL://:9193"
    assert properties["log.dirs"] == "/c/worker-1,/d/worker-1"
    assert properties["broker.rack"] == "r"
    assert properties["num.partitions"] == "7"


def test_workers_with_a_store_of_their_own_keep_one_copy_as_a_single_broker_does(
    tmp_path: Path,
) -> None:
    found = plan(tmp_path, "--workers", "2")
    assert found.store is not None and found.zookeeper is None
    properties = properties_of_worker(found, 1)
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["transaction.state.log.min.isr"] == "1"


def test_secret_of_a_file_is_not_in_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("ssl.keystore.password=hush\nlisteners=PLAINTEXT://:9092\n")
    command = plan(tmp_path, "--workers", "2", "--config", str(file)).command(0, "zk:1", None)
    assert "hush" not in " ".join(command)


def test_restarted_worker_has_the_port_that_it_was_given(tmp_path: Path) -> None:
    found = plan(tmp_path, "--workers", "2", "--listen", "SSL://localhost:0")
    assert properties_of_worker(found, 1)["listeners"] == "SSL://localhost:0"
    again = properties_of_worker(found, 1, "localhost:40123")
    assert again["listeners"] == "SSL://localhost:40123"


def test_wait_before_a_restart_doubles_up_to_a_bound() -> None:
    waits = [restart_wait_s(deaths) for deaths in (1, 2, 3, 100)]
    assert waits == [0.1, 0.2, 0.4, LONGEST_WAIT_S]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0"), "not between 1 and 256"),
        (("--workers", "2", "--listen", "localhost:65535"), "no 1 ports above 65535"),
        (("--workers", "2", "--http", "localhost:9093"), "9093 would belong to both"),
        (("--workers", "2", "--control", "localhost:0"), "cannot be combined with --workers"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    tmp_path: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data-dir", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folders", "words", "said"),
    [
        (("worker-0", "worker-1"), (), "the logs of 2 workers: start with --workers 2"),
        (("worker-0", "worker-1"), ("--workers", "1"), "start with --workers 2 or more"),
        ((".",), ("--workers", "2"), "the logs of a single broker"),
    ],
)
def test_directory_of_which_a_part_would_not_be_served_is_refused(
    tmp_path: Path,
    folders: tuple[str, ...],
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "meta.properties").write_text("")
    assert main(["serve", "--data-dir", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_file_instead_of_the_data_directory_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "data"
    file.write_text("")
    assert main(["serve", "--workers", "2", "--data-dir", str(file)]) == 2
    assert f"{file}: this is a file, where the workers' folders" in capsys.readouterr().err
