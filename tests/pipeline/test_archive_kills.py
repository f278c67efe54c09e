"""The archive and its tables while driver and broker are killed: each has each acknowledged record once.

KWIRE_LONG=1 kills both 40 times, KWIRE_KILLS=N N times; KWIRE_SEED=N chooses when. A line for each kill goes to standard
output (`pytest -s`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kwire.pipeline.archive import archive_topics
from kwire.pipeline.cluster import Cluster, silent
from kwire.pipeline.main import make_parser
from kwire.pipeline.manifest import Archive

from ..support.broker_process import REPOSITORY, BrokerProcess
from .archive_model import Record, archived, create_topic, digest
from .conftest import SMALL
from .tables.table_model import BOTH, in_table, ranges_follow, ranges_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
KILLS = int(os.environ.get("KWIRE_KILLS", "40" if LONG else "1"))
SEED = int(os.environ.get("KWIRE_SEED", "0")) or random.randrange(1, 1 << 30)
#: Seconds in which a batch must come about on a slow machine that does other things, too.
PATIENCE_S = 240.0

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(KILLS * 300 + 600)]


class Load:
    """Produces until told to stop, whatever happens to the broker; remembers acknowledged records."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.acknowledged: list[Record] = []
        self.failed: list[KafkaError] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
            },
            logger=silent(),
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                self._produce(number)
                number += 1
            self._producer.poll(0.05)
            time.sleep(0.1)

    def _produce(self, number: int) -> None:
        key, value = f"k{number % 97}".encode(), f"value {number}".encode()
        stamp = 1_767_398_280_000 + number * 100

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(error)
                return
            at = (message.partition() or 0, message.offset() or 0)
            self.acknowledged.append(Record(self.topic, *at, key, value, (), stamp))

        self._producer.produce(
            self.topic,
            key=key,
            value=value,
            partition=number % self.partitions,
            timestamp=stamp,
            on_delivery=delivered,
        )


class Driver:
    """`kwire pipeline archive` as a process group of its own, its JVM included."""

    def __init__(self, words: list[str], connector: Path, log: Path) -> None:
        confs = [f"--conf={key}={value}" for key, value in SMALL.items()]
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kwire.server", "pipeline", "archive", *words, *confs],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "KWIRE_SPARK_JARS": str(connector),
                    "KWIRE_SPARK_MASTER": "local[2]",
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the driver and its JVM at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def commits(path: Path) -> int:
    return len(list(path.glob("_archive/*[0-9].json")))


def wait_for_commits(path: Path, count: int, driver: Driver) -> None:
    """Wait until this number of further batches is archived."""
    wanted, deadline = commits(path) + count, time.monotonic() + PATIENCE_S
    while commits(path) < wanted:
        assert driver.process.poll() is None, driver.log.read_text()[-5000:]
        assert time.monotonic() < deadline, driver.log.read_text()[-5000:]
        time.sleep(0.1)


def left_behind(path: Path) -> str:
    """The step of a batch in which a driver was killed, derived from what it left behind."""
    folders = list(path.glob("_staging/*"))
    if not folders:
        return "between batches"
    return "while moving" if (folders[0] / "moves.json").exists() else "while writing"


def test_killed_driver_and_broker_leave_each_record_once(
    spark: SparkSession,
    new_broker: Callable[..., BrokerProcess],
    connector: Path,
    tmp_path: Path,
    topic: str,
) -> None:
    broker, path, log = new_broker(), tmp_path / "archive", tmp_path / "driver.log"
    chance = random.Random(SEED)
    create_topic(broker.bootstrap, topic, 3)
    tables = [f"--table={format}" for format in BOTH]
    words = ["-b", broker.bootstrap, f"--topics={topic}", f"--path={path}", "--quiet", *tables]
    # One batch follows another, so that most kills meet one.
    busy = [*words, "--interval=100ms", "--max-offsets-per-trigger=2000"]
    places: Counter[str] = Counter()
    began = time.monotonic()
    with Load(broker.bootstrap, topic, 3) as load:
        for kill in range(KILLS):
            driver = Driver(busy, connector, log)
            try:
                wait_for_commits(path, 1, driver)
                time.sleep(chance.uniform(0, 1))
                broker.kill()
                broker.start()
                wait_for_commits(path, 1, driver)
                time.sleep(chance.uniform(0, 3))
            finally:
                driver.kill()
            places[left_behind(path)] += 1
            print(f"kill {kill + 1} at {time.monotonic() - began:.0f} s: {left_behind(path)}")
    options = make_parser("archive").parse_args(["archive", *words, "--once"])
    with Cluster(broker.bootstrap) as cluster:
        assert archive_topics(spark, cluster, options) == 0
    assert not load.failed
    found, wanted = archived(path), sorted(load.acknowledged)
    print(
        f"seed {SEED}: {KILLS} kills of the driver ({dict(places)}) and of the broker, {len(wanted):,} records,"
        f" {commits(path)} commits, {len(Archive(path).files())} files, sha256 {digest(found)[:16]}"
    )
    assert len(found) == len({(r.partition, r.offset) for r in found}) == len(wanted)
    assert digest(found) == digest(wanted)
    for format in BOTH:
        rows, said = in_table(path, format, topic), ranges_of(path, format, topic)
        print(f"{format}: {len(rows):,} records, {len(said)} commits, sha256 {digest(rows)[:16]}")
        assert digest(rows) == digest(wanted)
        assert ranges_follow(said)
    named = {str(path / f.path) for e in Archive(path).entries() for f in e.files}
    assert {str(file) for file in path.glob("topic=*/date=*/**/*.parquet")} == named
