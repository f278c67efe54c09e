"""Spark's built-in kafka source and sink against a whole broker."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import REPOSITORY, BrokerProcess, end_process
from ..support.kafka import jars_or_skip, refuse_or_skip
from ..support.secured import (
    MTLS,
    OTHER_HOST,
    SCRAM,
    UNKNOWN_AUTHORITY,
    WRONG_PASSWORD,
    Secured,
    Way,
)
from ..support.spark_start import quick_flags
from .conftest import build_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

PYSPARK = "4.0.0"


def cell(feature: str) -> pytest.MarkDecorator:
    """Return the marker of Spark's row."""
    return pytest.mark.compat("spark", feature)


def python_with_pyspark() -> str:
    """Return a Python with the pinned pyspark, creating a virtual environment if needed."""
    here = "import pyspark, sys; sys.exit(pyspark.__version__ != '" + PYSPARK + "')"
    cache = REPOSITORY / "compat" / ".cache"
    cache.mkdir(exist_ok=True)
    made = cache / f"venv-spark-{PYSPARK}" / "bin" / "python"
    for python in (sys.executable, str(made)):
        if (
            Path(python).exists()
            and subprocess.run([python, "-c", here], capture_output=True, check=False).returncode
            == 0
        ):
            return python
    with (cache / "venv-spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        commands = (
            [sys.executable, "-m", "venv", str(made.parents[1])],
            [str(made), "-m", "pip", "install", "-q", f"pyspark=={PYSPARK}"],
        )
        for command in commands:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                refuse_or_skip(f"installing pyspark failed: {ended.stderr[-500:]}")
    return str(made)


class Spark:
    """Controls compat/spark/session.py."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        jars = jars_or_skip("spark-4.0.0")
        script = REPOSITORY / "compat" / "spark" / "session.py"
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [python_with_pyspark(), str(script), bootstrap, str(jars)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(quick_flags())},
            )
        self._answer()

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Do something in the session and return its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text(errors="replace")[-3000:]
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        """End the session."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        end_process(self.process)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Give a broker that may be restarted."""
    jars_or_skip("spark-4.0.0")
    with build_broker(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="module")
def spark(spark_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Give a session."""
    session = Spark(spark_broker.bootstrap, tmp_path_factory.mktemp("session") / "spark.log")
    yield session
    session.close()


@pytest.fixture
def topic(spark_broker: BrokerProcess, name: str) -> str:
    """Give a topic of two partitions."""
    admin = AdminClient({"bootstrap.servers": spark_broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(15)
    return name


def produce(broker: BrokerProcess, topic: str, numbers: range, timestamp: int = 0) -> None:
    """Write numbered records, even ones to partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"k", number % 2, timestamp=timestamp)
    assert producer.flush(30) == 0


@cell("batch write and read")
def test_batch_read_finds_what_batch_write_wrote(spark: Spark, topic: str) -> None:
    """Keys, values, partitions and headers, null ones too."""
    spark("write", topic=topic, first=0, count=100, partitions=2)
    rows = spark("read", options={"subscribe": topic}, headers=True)
    assert [row[:2] for row in rows] == [[p, offset] for p in (0, 1) for offset in range(50)]
    found = sorted([int(row[2]), row[0], *row[3:]] for row in rows)  # two tasks wrote at once
    assert found == [[n, n % 2, f"value {n}", ["h=1", "n=NULL"]] for n in range(100)]


@cell("offsets by number and time")
def test_bounds_by_offset_and_by_time_select_rows(
    spark: Spark, spark_broker: BrokerProcess, topic: str
) -> None:
    """startingOffsets, endingOffsets, startingOffsetsByTimestamp, startingTimestamp."""
    now_ms = int(time.time() * 1000)
    produce(spark_broker, topic, range(10), now_ms - 60_000)
    produce(spark_broker, topic, range(10, 20), now_ms - 30_000)

    def values(**options: Any) -> list[str]:
        texts = {
            key: one if isinstance(one, str) else json.dumps(one) for key, one in options.items()
        }
        return sorted(
            (row[3] for row in spark("read", options={"subscribe": topic, **texts})), key=int
        )

    bounded = values(
        startingOffsets={topic: {"0": 3, "1": -2}}, endingOffsets={topic: {"0": 5, "1": 1}}
    )
    assert bounded == ["1", "6", "8"]
    since = {topic: {"0": now_ms - 40_000, "1": now_ms - 40_000}}
    later = [str(number) for number in range(10, 20)]
    assert values(startingOffsetsByTimestamp=since) == later
    assert values(startingTimestamp=str(now_ms - 40_000)) == later
    earlier = [str(number) for number in range(10)]
    assert values(endingOffsetsByTimestamp=since) == earlier


@cell("minPartitions")
def test_min_partitions_splits_the_read(
    spark: Spark, spark_broker: BrokerProcess, topic: str
) -> None:
    """Six tasks for two partitions."""
    produce(spark_broker, topic, range(120))
    assert spark("tasks", options={"subscribe": topic, "minPartitions": "6"}) >= 6
    assert len(spark("read", options={"subscribe": topic, "minPartitions": "6"})) == 120


@cell("streaming with a checkpoint")
def test_stream_goes_on_after_restarts_of_broker_and_query(
    spark: Spark, spark_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Every record once: before and after a broker restart, and after the query was restarted."""
    where = {"checkpoint": str(tmp_path / "checkpoint"), "output": str(tmp_path / "rows")}
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(spark_broker, topic, range(50))
    spark("start", name="q", options=options, **where)

    def wait(count: int) -> list[Any]:
        rows: list[Any] = spark("wait", output=where["output"], count=count)
        return rows

    assert len(wait(50)) == 50
    spark_broker.restart()
    produce(spark_broker, topic, range(50, 100))
    assert len(wait(100)) == 100
    spark("stop", name="q")
    produce(spark_broker, topic, range(100, 150))
    spark("start", name="q", options=options, **where)
    rows = wait(150)
    spark("stop", name="q")
    assert rows == [[p, offset, "k", str(offset * 2 + p)] for p in (0, 1) for offset in range(75)]


@cell("streaming sink")
def test_stream_copies_a_topic_into_another(
    spark: Spark, spark_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """availableNow; a second run copies only new records."""
    admin = AdminClient({"bootstrap.servers": spark_broker.bootstrap})
    copy = f"{topic}-copy"
    admin.create_topics([NewTopic(copy, 2, 1)])[copy].result(15)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    for turn in range(2):
        produce(spark_broker, topic, range(turn * 10, turn * 10 + 10))
        arguments = {"options": options, "topic": copy, "checkpoint": str(tmp_path / "c")}
        assert spark("forward", **arguments)
        rows = spark("read", options={"subscribe": copy})
        assert sorted(int(row[3]) for row in rows) == list(range(turn * 10 + 10))


def login(secured: Secured, way: Way) -> dict[str, str]:
    """Spark's options for the secured broker."""
    properties = secured.java(way) | {"bootstrap.servers": secured.bootstrap(way)}
    # Refusals must be reported soon.
    properties |= {"request.timeout.ms": "4000", "default.api.timeout.ms": "4000"}
    return {f"kafka.{key}": text for key, text in properties.items()}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(SCRAM, marks=cell("security: SASL_SSL with SCRAM"), id="SCRAM"),
        pytest.param(MTLS, marks=cell("security: mTLS with ACLs"), id="MTLS"),
    ],
)
def test_source_and_sink_log_in(spark: Spark, secured: Secured, way: Way, tmp_path: Path) -> None:
    """Batch and, with SCRAM, stream; `groupIdPrefix` gives the groups names for which there is a permission."""
    topic, options = f"{way.user}-spark", login(secured, way)
    admin = AdminClient(secured.librdkafka(way))
    topics = [NewTopic(name, 2, 1) for name in (topic, f"{topic}-copy")]
    for future in admin.create_topics(topics).values():
        future.result(15)
    spark("write", topic=topic, first=0, count=10_000, partitions=2, options=options)
    options |= {"subscribe": topic, "groupIdPrefix": topic, "startingOffsets": "earliest"}
    rows = spark("read", options=options, headers=True)
    expected = [[number % 2, str(number), f"value {number}"] for number in range(10_000)]
    assert sorted([row[0], *row[2:4]] for row in rows) == sorted(expected)
    assert {tuple(row[4]) for row in rows} == {("h=1", "n=NULL")}
    if way is SCRAM:
        place = {"topic": f"{topic}-copy", "checkpoint": str(tmp_path / "checkpoint")}
        assert spark("forward", options=options, **place)
        rows = spark("read", options=options | {"subscribe": f"{topic}-copy"})
        assert sorted([row[0], *row[2:]] for row in rows) == sorted(expected)


@cell("security: errors without permission")
def test_topic_without_permission_fails_the_query(spark: Spark, secured: Secured) -> None:
    options = login(secured, SCRAM)
    with pytest.raises(AssertionError, match="TopicAuthorizationException"):
        spark("write", topic="secret", first=0, count=1, partitions=1, options=options)
    with pytest.raises(AssertionError, match="Authorization"):
        spark("read", options=options | {"subscribe": "secret"})


@cell("security: refused logins and certificates")
@pytest.mark.parametrize(
    ("way", "text"),
    [
        (WRONG_PASSWORD, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        (UNKNOWN_AUTHORITY, "unable to find valid certification path"),
        (OTHER_HOST, "No subject alternative names matching IP address 127.0.0.1"),
    ],
    ids=["password", "authority", "host"],
)
def test_refused_query_says_why(spark: Spark, secured: Secured, way: Way, text: str) -> None:
    with pytest.raises(AssertionError) as failed:
        spark("read", options=login(secured, way) | {"subscribe": "secret"})
    assert text in str(failed.value)
