"""The archive and its tables while driver and broker are killed: each has each acknowledged record once.

KWIRE_LONG=1 kills the driver 40 times, KWIRE_KILLS=N N times, and the broker twice as often; KWIRE_SEED=N chooses when, and
KWIRE_KILL_S=N starts no more drivers after N seconds. A line for each kill of the driver goes to standard output (`pytest -s`).
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline.archive.job import archive_topics
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import make_parser
from kwire.pipeline.manifest import Archive

from ..support.broker_process import BrokerProcess
from .archive_model import archived, create_topic, digest
from .killing import KILLS, SEED, Driver, Load, kills
from .tables.table_model import BOTH, in_table, ranges_follow, ranges_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For each kill of the driver, which takes much longer to start.
BROKER_KILLS = 2 if KILLS > 1 else 1

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(KILLS * 300 + 600)]


def commits(path: Path) -> int:
    return len(list(path.glob("_archive/*[0-9].json")))


def left_behind(path: Path) -> str:
    """The step of a batch in which a driver was killed, derived from the remaining files."""
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
    with Load(broker.bootstrap, topic, 3) as load:
        for done in kills():
            driver = Driver(
                [sys.executable, "-m", "kwire.server", "pipeline", "archive", *busy], connector, log
            )
            try:
                for _ in range(BROKER_KILLS):
                    driver.wait_for(lambda: commits(path), 1)
                    time.sleep(chance.uniform(0, 1))
                    broker.kill()
                    broker.start()
                driver.wait_for(lambda: commits(path), 1)
                time.sleep(chance.uniform(0, 3))
            finally:
                driver.kill()
            places[left_behind(path)] += 1
            print(f"kill {done}: {left_behind(path)}", end="")
    options = make_parser("archive").parse_args(["archive", *words, "--once"])
    with Cluster(broker.bootstrap) as cluster:
        assert archive_topics(spark, cluster, options) == 0
    assert not load.failed
    found, wanted = archived(path), sorted(load.acknowledged)
    print(
        f"seed {SEED}: {done} kills of the driver ({dict(places)}) and {done * BROKER_KILLS} of the broker, {len(wanted):,} records,"
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
