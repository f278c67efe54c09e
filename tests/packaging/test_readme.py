"""The commands of README.md, in a reader's working directory: in a clone, in any folder, next to their own modules.

kwire is installed as a wheel. Only the broker's address is changed, to a free port.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..pipeline.conftest import SMALL
from ..support.kafka import jars_or_skip
from ..support.spark_start import quick_flags
from .conftest import ROOT

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def commands(section: str) -> list[str]:
    """The commands in the console blocks of a section."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"^## {section}$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return [line[2:] for line in found[1].splitlines() if line.startswith("$ ")]


def variables(environment: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return plain | {"PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def serving(environment: Path, folder: Path) -> Iterator[str]:
    """`kwire serve` in a folder, with its data there; yields the address."""
    with subprocess.Popen(
        ["kwire", "serve", "--listen", "127.0.0.1:0"],
        executable=environment / "bin" / "kwire",
        cwd=folder,
        env=variables(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        try:
            line = broker.stdout.readline()
            assert line.startswith("kwire ready "), line or broker.stderr.read()
            yield line.split()[2]
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(timeout=30) == 0
        finally:
            broker.kill()
            broker.communicate()


def typed(command: str, address: str, environment: Path, folder: Path, **more: str) -> str:
    """Run a command in a shell; returns its output. Fails with the output of the command."""
    done = subprocess.run(
        f"{command} --bootstrap-server {address}",
        shell=True,
        cwd=folder,
        env=variables(environment) | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize(
    ("place", "records"), [("clone", 100_000), ("users_folder", 1000), ("tmp_path", 1000)]
)
def test_commands_without_spark_work(
    place: str, records: int, environment: Path, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(place)
    clients = [line for line in commands("Use it") if re.search(r"kwire (?!serve)", line)]
    assert len(clients) == 4
    assert clients[1].startswith("seq 100000 ")
    clients[1] = clients[1].replace("100000", str(records))
    with serving(environment, folder) as address:
        said = [typed(command, address, environment, folder) for command in clients]
        described = typed("kwire topics describe events", address, environment, folder)
    assert len(said[2].split()) == 3, "what `kwire consume ... --max 3` printed"
    ends = [int(line.split()[-1]) for line in described.splitlines()[2:]]
    assert (len(ends), sum(ends)) == (6, records)
    assert (folder / "kwire-data").is_dir()


def test_installed_broker_can_start_worker_processes(environment: Path, tmp_path: Path) -> None:
    """One looks up an offset by its time, because the batches are large."""
    with serving(environment, tmp_path) as address:
        typed("seq 20000 | kwire produce events", address, environment, tmp_path)
        found = typed("kwire consume events -o @-1h --max 1", address, environment, tmp_path)
    assert found == "1\n"


@pytest.mark.spark
def test_commands_with_spark_work_in_a_clone(environment: Path, clone: Path) -> None:
    jobs = [line for line in commands("Move data with Spark") if line.startswith("kwire ")]
    assert [line.split()[2] for line in jobs] == ["archive", "audit", "create", "replay"]
    if not LONG:
        del jobs[1]  # each starts a Spark; this one's workers do the same as those of a replay
    # Not in a `spark-defaults.conf`, whose options for Java would be overridden by those of the jobs.
    settings = [f"-D{key}={text}" for key, text in SMALL.items() if "driver" not in key]
    spark = {
        "SPARK_SUBMIT_OPTS": " ".join([*quick_flags(), *settings]),
        "KWIRE_SPARK_JARS": str(jars_or_skip("spark-4.0.0")),
        "KWIRE_SPARK_MASTER": "local[2]",
    }
    with serving(environment, clone) as address:
        for command in ("kwire topics create events -p 6", "seq 1000 | kwire produce events"):
            typed(command, address, environment, clone)
        for command in jobs:
            typed(command, address, environment, clone, **spark)
        described = typed("kwire topics describe events-again", address, environment, clone)
    # The markers of the replay's transactions take offsets too.
    assert sum(int(line.split()[-1]) for line in described.splitlines()[2:]) >= 1000
