"""A stream of `kwire-log` while its driver and the broker are killed: its sink has each acknowledged record once.

KWIRE_LONG=1 kills the driver 40 times, KWIRE_KILLS=N N times, and the broker as often; KWIRE_SEED=N chooses when, and
KWIRE_KILL_S=N starts no more drivers after N seconds.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ...support.broker_process import BrokerProcess
from ..archive_model import create_topic, digest, rows_of
from ..killing import KILLS, SEED, Driver, Load, kills
from .follow import until_started, writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(KILLS * 300 + 600)]


def test_killed_stream_and_broker_leave_each_record_once(
    spark: SparkSession,
    new_broker: Callable[..., BrokerProcess],
    connector: Path,
    tmp_path: Path,
    topic: str,
) -> None:
    broker = new_broker({"replica.high.watermark.checkpoint.interval.ms": "200"})
    chance = random.Random(SEED)
    create_topic(broker.bootstrap, topic, 3, segment_bytes="20000")
    out, log = tmp_path / "out", tmp_path / "driver.log"
    follow = [sys.executable, "-m", "tests.pipeline.segments.follow"]
    follow += [str(broker.log_dir), topic, str(out), "1000"]

    def batches() -> int:
        # Not how many files there are: Spark keeps the newest hundred only.
        numbers = [int(path.name) for path in tmp_path.glob("out-checkpoint/commits/[0-9]*")]
        return max(numbers, default=-1) + 1

    with Load(broker.bootstrap, topic, 3) as load:
        for done in kills():
            driver = Driver(follow, connector, log)
            try:
                driver.wait_for(batches, 1)
                time.sleep(chance.uniform(0, 1))
                broker.kill()
                broker.start()
                driver.wait_for(batches, 1)
                time.sleep(chance.uniform(0, 3))
            finally:
                driver.kill()
            print(f"kill {done}: {batches()} batches", end="")
    broker.stop()  # which writes how far its log may be read
    # On a busy machine the producer is quicker than a stream of small batches, so that much may be left.
    query = writer(spark, str(broker.log_dir), topic, str(out), 100_000)
    until_started(query, lambda started: started.processAllAvailable())
    assert not load.failed
    found, wanted = rows_of(spark.read.parquet(str(out))), sorted(load.acknowledged)
    print(
        f"seed {SEED}: {done} kills of the driver and {done} of the broker, {len(wanted):,} records, {batches()} batches,"
        f" sha256 {digest(found)[:16]}"
    )
    assert len(found) == len(wanted) > 0
    assert digest(found) == digest(wanted)
