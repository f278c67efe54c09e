"""`kwire-log` in Spark, compared with Apache Kafka's files and with the kafka source on a running broker."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kwire.pipeline import segments
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.problems import explain
from kwire.pipeline.segments.logs import find_logs
from server.log.checkpoint import HIGH_WATERMARK, write_offsets
from server.log.file_layer import FileLayer

from ...golden.recorded import read_json, unpack_log_directory
from ...log.logs import TP, append, batch, config, open_log
from ...support.broker_process import BrokerProcess
from ...support.polling import wait_until
from ..archive_model import create_topic, produce, rows_of
from .follow import until_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark]
ROOT = Path(__file__).parents[3]


def test_directory_of_apache_kafka_is_read_in_both_isolation_levels(
    spark: SparkSession, tmp_path: Path
) -> None:
    unpack_log_directory(tmp_path)
    expected = read_json("logdir/expected.json")["topics"]
    for isolation in ("read_uncommitted", "read_committed"):
        frame = segments.read(
            spark,
            str(tmp_path / "b*"),
            subscribePattern=".*",
            includeHeaders=True,
            isolation=isolation,
            bytesPerPartition=16384,
        )
        found: dict[tuple[str, str], list[Any]] = {}
        for row in frame.collect():
            found.setdefault((row.topic, str(row.partition)), []).append(_as_golden(row))
        for topic, partitions in expected.items():
            for number, facts in partitions.items():
                wanted = [record[:6] for record in facts[isolation]]
                assert sorted(found.pop((topic, number), [])) == wanted, (topic, number, isolation)
        assert not found
    counts = segments.counts(
        spark, str(tmp_path / "b0"), subscribePattern=".*", isolation=isolation
    )
    for row in counts.collect():
        wanted = expected[row.topic][str(row.partition)][isolation]
        assert row.records == len(wanted)
        assert row.firstOffset <= wanted[0][0] and wanted[-1][0] <= row.lastOffset


def _as_golden(row: Any) -> list[Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    headers = [[header.key, text(header.value)] for header in row.headers or []]
    stamp = round(row.timestamp.timestamp() * 1000)
    return [row.offset, stamp, row.timestampType, text(row.key), text(row.value), headers]


@pytest.mark.e2e
def test_broker_at_work_is_read_as_by_the_kafka_source(
    spark: SparkSession, new_broker: Callable[..., BrokerProcess]
) -> None:
    broker = new_broker(
        {
            "replica.high.watermark.checkpoint.interval.ms": "200",
            "log.cleaner.backoff.ms": "200",
            "log.initial.task.delay.ms": "500",
        }
    )
    create_topic(broker.bootstrap, "mixed", 2, segment_bytes="20000")
    create_topic(
        broker.bootstrap,
        "compacted",
        segment_bytes="20000",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
    )
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        _produce_packed(broker, "mixed", codec)
    for transaction in (False, True, False):
        produce(broker.bootstrap, "mixed", 200, partitions=2, transaction=transaction)
    _produce_packed(broker, "compacted", "lz4", 2000)
    ends = _ends(broker)
    wait_until(lambda: _committed(broker) == ends, "the high watermarks to be written")
    wait_until(
        lambda: not (broker.log_dir / "compacted-0" / f"{0:020}.log").stat().st_size > 15000,
        "compaction",
    )
    for isolation in ("read_uncommitted", "read_committed"):
        kafka = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribePattern", "mixed|compacted")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", isolation)
            .load()
        )
        ours = segments.read(spark, str(broker.log_dir), includeHeaders=True, isolation=isolation)
        assert ours.schema == kafka.schema
        wanted = rows_of(kafka)
        assert rows_of(ours) == wanted
        counted = segments.counts(spark, str(broker.log_dir), isolation=isolation)
        assert sum(row.records for row in counted.collect()) == len(wanted) > 2000


def _produce_packed(broker: BrokerProcess, topic: str, codec: str, count: int = 400) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 50,
        }
    )
    for number in range(count):
        producer.produce(
            topic, b"%d" % number * (number % 5), b"key-%d" % (number % 40), partition=0
        )
    assert producer.flush(60) == 0


def _ends(broker: BrokerProcess) -> dict[tuple[str, int], int]:
    cluster = Cluster(broker.bootstrap)
    return cluster.ends(cluster.partitions())


def _committed(broker: BrokerProcess) -> dict[tuple[str, int], int]:
    logs = find_logs([str(broker.log_dir)], lambda topic: not topic.startswith("__"))
    return {place: log.high_watermark for place, log in logs.items()}


def test_stream_that_is_stopped_and_started_reads_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    out = str(tmp_path / "out")
    batches: list[int] = []

    def more(count: int) -> None:
        log = open_log(folder, config(segment_bytes=3000, index_interval_bytes=500))
        for _ in range(count):
            append(log, batch(b"a", b"b" * 40, b"c"))
        end = log.log_end_offset
        log.close()
        write_offsets(FileLayer(), f"{folder}/{HIGH_WATERMARK}", {TP: end})

    def run() -> None:
        frame = segments.read_stream(
            spark,
            str(folder),
            columns=("offset", "value", "partition"),
            topics="topic",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=40,
        )
        writer = frame.writeStream.format("parquet").option("path", out)

        def work(query: StreamingQuery) -> None:
            query.processAllAvailable()
            batches.extend(progress["numInputRows"] for progress in query.recentProgress)

        until_started(writer.option("checkpointLocation", str(tmp_path / "checkpoint")), work)

    more(30)
    run()
    first = [size for size in batches if size]
    assert first == [40, 40, 10]
    more(20)
    # As after a crash between the last batch and its commit: Spark plans it again.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(
        (path for path in commits.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    rows = spark.read.parquet(out).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(150))
    assert max(batches) == 40


def test_stream_whose_next_records_are_gone_says_which(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    log = open_log(folder, config(segment_bytes=1000))
    for _ in range(30):
        append(log, batch(b"a" * 50, b"b" * 50))
    log.close()

    def run(**options: Any) -> None:
        frame = segments.read_stream(spark, str(folder), startingOffsets="earliest", **options)
        writer = frame.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        until_started(writer, lambda query: query.processAllAvailable())

    run(maxOffsetsPerTrigger=10, topics="topic")
    for path in sorted((folder / str(TP)).iterdir()):
        if not path.name.startswith(f"{log.segments[-1].base_offset:020}"):
            path.unlink()
    # The query has only done its first batch when it is started again.
    for kind in ("offsets", "commits"):
        for path in (tmp_path / "checkpoint" / kind).iterdir():
            if path.name.strip(".").removesuffix(".crc") != "0":
                path.unlink()
    with pytest.raises(Exception, match="SegmentError") as refused:
        run()
    message = explain(refused.value)
    assert message is not None and message.startswith("topic topic partition 0")
    assert "was deleted (failOnDataLoss=false" in message


SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.codegen.wholeStage", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate())
frame = spark.read.format("kwire-log").schema("partition int, offset long").load(sys.argv[1])
print([tuple(row) for row in frame.collect()])
import kwire
print(kwire.__file__)
from kwire.pipeline import segments
print([row.value.decode() for row in segments.read(spark, sys.argv[1]).collect()])
spark.stop()
"""


def test_installed_as_a_wheel_the_source_needs_no_registration(
    connector: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    package = site / "kwire"
    package.mkdir(parents=True)
    for path in (ROOT / "kwire").iterdir():
        (package / path.name).symlink_to(path)
    (package / "server").symlink_to(ROOT / "server")
    (package / "pipeline").symlink_to(ROOT / "pipeline")
    (site / "pyspark_kwire").symlink_to(ROOT / "pipeline" / "pyspark_kwire")
    (tmp_path / "data").mkdir()
    log = open_log(tmp_path / "data")
    append(log, batch(b"a", b"b"))
    log.close()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": str(site), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    read = ["[(0, 0), (0, 1)]", str(package / "__init__.py"), "['a', 'b']"]
    assert done.stdout.splitlines() == read, done.stderr
