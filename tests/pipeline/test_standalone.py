"""Jobs on a standalone Spark cluster whose workers are killed; kwire is on none of its machines, only in a wheel.

The short form archives, and the other worker finishes the job; with KWIRE_LONG=1 a new worker starts, and it also
replays and aggregates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import Archive

from ..packaging.conftest import copy_sources
from ..support.broker_process import BrokerProcess
from .aggregate_model import START_MS, iso
from .archive_model import archived, create_topic, digest, produce
from .replay_data import add_to_archive, create, read_committed, some_records, without_offsets
from .standalone import PATIENCE_S, Standalone, Submitted

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
MINUTE = 60_000

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kwire without its native module, which nothing can import from an archive."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copy_sources(source)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, str(source)],
        env={**os.environ, "KWIRE_PURE": "1"},
        check=True,
    )
    (built,) = folder.glob("kwire-*-none-any.whl")
    return built


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


def kill_in_the_middle(
    standalone: Standalone, job: Submitted, is_there: Callable[[], bool]
) -> None:
    """Kill a worker once the job is in its middle; another may take its place, and the job ends well."""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not is_there():
            assert job.process.poll() is None, job.said()[-6000:]
            assert time.monotonic() < deadline, job.said()[-6000:]
            time.sleep(0.05)
        standalone.kill_worker()
        assert job.process.poll() is None, "the job had ended before the worker was killed"
        if LONG:
            standalone.start_worker()
        assert job.process.wait(900) == 0, job.said()[-6000:]
    finally:
        job.kill()
    if LONG:  # for the next job
        standalone.wait_for_workers(2)


def test_archive_has_each_record_once_though_a_worker_is_killed(
    standalone: Standalone,
    pure_wheel: Path,
    connector: Path,
    broker: BrokerProcess,
    tmp_path: Path,
    topic: str,
) -> None:
    create_topic(broker.bootstrap, topic, 3)
    wanted = produce(broker.bootstrap, topic, 3000, partitions=3)
    path = tmp_path / "archive"
    words = ["archive", "-b", broker.bootstrap, f"--topics={topic}", f"--path={path}", "--once"]
    job = standalone.submit(pure_wheel, connector, *words, "--max-offsets-per-trigger=500")
    kill_in_the_middle(standalone, job, lambda: len(list(path.glob("_archive/*[0-9].json"))) >= 2)
    assert digest(archived(path)) == digest(wanted)
    named = {str(path / file.path) for entry in Archive(path).entries() for file in entry.files}
    assert {str(file) for file in path.glob("topic=*/**/*.parquet")} == named


@pytest.mark.skipif(not LONG, reason="takes minutes: KWIRE_LONG=1")
def test_replay_writes_each_record_once_though_a_worker_is_killed(
    standalone: Standalone,
    pure_wheel: Path,
    connector: Path,
    broker: BrokerProcess,
    tmp_path: Path,
    topic: str,
) -> None:
    path, to = tmp_path / "archive", f"{topic}-again"
    wanted = [some_records(1000, number) for number in range(3)]
    for number, some in enumerate(wanted):
        add_to_archive(path, topic, number, some)
    create(broker.bootstrap, to, 3)
    words = ["replay", "-b", broker.bootstrap, f"--archive={path}", f"--to={to}"]
    words += ["--keep-partitions", "--name=job", "--rate=150", "--transaction-records=100"]
    job = standalone.submit(pure_wheel, connector, *words)

    def is_there() -> bool:
        with Cluster(broker.bootstrap) as cluster:
            groups = [cluster.committed(f"job-{topic}-{number}") for number in range(3)]
        return sum(place.offset for group in groups for place in group.values()) >= 300

    kill_in_the_middle(standalone, job, is_there)
    found = read_committed(broker.bootstrap, to, 3)
    assert [without_offsets(some) for some in found] == [without_offsets(some) for some in wanted]


@pytest.mark.skipif(not LONG, reason="takes minutes: KWIRE_LONG=1")
def test_aggregate_counts_each_record_once_though_a_worker_is_killed(
    standalone: Standalone,
    pure_wheel: Path,
    connector: Path,
    broker: BrokerProcess,
    tmp_path: Path,
    topic: str,
) -> None:
    create_topic(broker.bootstrap, topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(3000):
        at, name = START_MS + number * 1000, f"name {number % 4}"
        value = json.dumps({"time": iso(at), "name": name, "value": number})
        producer.produce(topic, value, partition=number % 3, timestamp=at)
        expected[name, iso(at // MINUTE * MINUTE)] += 1
    # Closes all windows before it.
    end = START_MS + 86_400_000
    last = json.dumps({"time": iso(end), "name": "last", "value": 0})
    producer.produce(topic, last, partition=0, timestamp=end)
    assert producer.flush(60) == 0
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    words = ["aggregate", "metrics", "-b", broker.bootstrap, f"--topics={topic}", "--once"]
    words += [f"--to-parquet={store}", f"--checkpoint-dir={checkpoint}", "--watermark=1h"]
    job = standalone.submit(pure_wheel, connector, *words, "--max-offsets-per-trigger=800")
    commits = checkpoint / "commits"
    kill_in_the_middle(standalone, job, lambda: len(list(commits.glob("[0-9]*"))) >= 1)
    table = pyarrow.dataset.dataset(store / "windows", partitioning="hive").to_table()
    found = Counter(
        {
            (row["name"], iso(round(row["window_start"].timestamp() * 1000))): row["count"]
            for row in table.to_pylist()
        }
    )
    assert table.num_rows == len(found)
    assert found == expected
