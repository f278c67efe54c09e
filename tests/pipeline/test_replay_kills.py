"""A replay and its broker, killed with SIGKILL repeatedly: the result is exact.

`KWIRE_LONG=1` kills 20 times each, at moments drawn from `KWIRE_SEED`, and each run is a separate process. The short
form continues after the first kill in this process, on the Spark that all tests share.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import main

from ..support.broker_process import REPOSITORY, BrokerProcess, end_process
from .conftest import SMALL
from .replay_data import add_to_archive, create, read_committed, some_records, without_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = bool(os.environ.get("KWIRE_LONG"))
#: The replay and the broker in turn, so that each has the other's restart behind it.
VICTIMS = ["replay", "broker"] * (20 if LONG else 1)
PARTITIONS = 3

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(3600 if LONG else 600)]


class Replay:
    """`kwire pipeline replay` as a process, with its child processes."""

    def __init__(self, words: list[str], log: Path, jars: Path) -> None:
        self.log = log
        confs = [f"--conf={key}={value}" for key, value in SMALL.items()]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kwire.server", "pipeline", "replay", *words, *confs],
                env={
                    **os.environ,
                    "KWIRE_SPARK_JARS": str(jars),
                    "KWIRE_SPARK_MASTER": "local[2]",
                },
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and the Python workers, the children first."""
        pids = [self.process.pid]
        for pid in pids:
            pids += children(pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def has_ended(self) -> bool:
        """Whether the process has ended without a kill."""
        return self.process.poll() is not None

    def wait(self) -> None:
        """Wait until it ends without a kill."""
        try:
            code = self.process.wait(600)
        finally:
            end_process(self.process)
        assert code == 0, self.log.read_text()[-4000:]


class ReplayHere:
    """The same in a thread of this process, which is not killed."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.log = log
        self._pool = ThreadPoolExecutor(1)
        self._code = self._pool.submit(main, ["replay", *words, "--quiet"])

    def kill(self) -> None:
        """Do nothing: the replay ends on its own."""
        self._pool.shutdown()

    def has_ended(self) -> bool:
        """Whether it has."""
        return self._code.done()

    def wait(self) -> None:
        """Until it has."""
        assert self._code.result(600) == 0


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def replayed(bootstrap: str, name: str) -> int:
    """The sum of the positions, which shows the committed records."""
    with Cluster(bootstrap) as cluster:
        groups = [cluster.committed(f"{name}-orders-{number}") for number in range(PARTITIONS)]
    return sum(place.offset for group in groups for place in group.values())


def test_killed_again_and_again_each_record_is_there_once_and_in_order(
    spark: SparkSession,
    connector: Path,
    new_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
) -> None:
    broker = new_broker()
    chance = random.Random(int(os.environ.get("KWIRE_SEED", "1")))
    archive = tmp_path / "archive"
    count = 1500 * (len(VICTIMS) + 2)
    records = [some_records(count, number) for number in range(PARTITIONS)]
    for number, some in enumerate(records):
        add_to_archive(archive, "orders", number, some)
    create(broker.bootstrap, "again", PARTITIONS)
    words = ["--bootstrap-server", broker.bootstrap, "--archive", str(archive), "--to", "again"]
    words += ["--keep-partitions", "--name", "job", "--transaction-records", "1000"]
    words += ["--rate", "8000"]
    log = tmp_path / "replay.log"
    replay: Replay | ReplayHere = Replay(words, log, connector)
    killed = dict.fromkeys(VICTIMS, 0)
    began = time.monotonic()
    try:
        position = 0
        for victim in VICTIMS:
            # Somewhere in the next transactions.
            position += chance.randrange(500, 5000)
            if not reached(replay, broker, position):
                break
            if victim == "broker":
                broker.kill()
                broker.start()
            else:
                replay.kill()
                replay = Replay(words, log, connector) if LONG else ReplayHere(words, log)
            killed[victim] += 1
            position = max(position, replayed(broker.bootstrap, "job"))
        replay.wait()
    finally:
        replay.kill()
    print(f"killed {killed} in {time.monotonic() - began:.0f} s, {PARTITIONS * count:,} records")
    assert sum(killed.values()) == len(VICTIMS)
    found = read_committed(broker.bootstrap, "again", PARTITIONS)
    for number in range(PARTITIONS):
        assert without_offsets(found[number]) == without_offsets(records[number])


def reached(replay: Replay | ReplayHere, broker: BrokerProcess, position: int) -> bool:
    """Wait for a position; False when the replay has ended before."""
    deadline = time.monotonic() + 180.0
    while replayed(broker.bootstrap, "job") < position:
        if replay.has_ended():
            return False
        assert time.monotonic() < deadline, replay.log.read_text()[-4000:]
        time.sleep(0.05)
    return True
