"""Let Spark read the same topics from segments and through the broker, in turn. python -m bench.segment_source

Compares `kwire-log` with Spark's `kafka` source: rows/s, and the broker's CPU seconds. Spark runs on local[2], with the broker
on the same machine, and reads keys, values and offsets, or counts records per partition. `--gb 5` selects the long form: 5 GB
of 1 KB records uncompressed, 5 GB with lz4, and 1 GB of 100 B records.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kwire.pipeline import segments
from kwire.pipeline.options import add_spark
from kwire.pipeline.segments.logs import find_logs
from kwire.pipeline.session import start_session
from tests.support.broker_process import BrokerProcess, KwireBroker, cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
SOURCES = ("kwire-log", "kafka")


class Topic(NamedTuple):
    """A topic to be read: size of a value, codec, total size of all values."""

    name: str
    value_bytes: int
    codec: str
    total_bytes: int

    @property
    def records(self) -> int:
        return self.total_bytes // self.value_bytes


class Measured(NamedTuple):
    """One read."""

    rows_per_s: float
    broker_cpu_s: float


def produce(broker: BrokerProcess, topic: Topic, batch_bytes: int) -> None:
    """Fill a topic; half of each value is random, so that it compresses like text."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic.name, PARTITIONS, 1)])[topic.name].result(30)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": topic.codec,
            "batch.size": batch_bytes,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 131072,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    chooser = random.Random(1)
    pool = os.urandom(1 << 20).hex().encode()
    for number in range(topic.records):
        start = chooser.randrange(len(pool) - topic.value_bytes)
        value = pool[start : start + topic.value_bytes]
        while True:
            try:
                producer.produce(
                    topic.name, value, b"key-%012d" % number, partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def wait_for_checkpoint(broker: BrokerProcess, topic: Topic) -> None:
    """Return when the broker has written a checkpoint according to which all records are committed."""
    deadline = time.monotonic() + 60
    while True:
        logs = find_logs([str(broker.log_dir)], lambda name: name == topic.name)
        if sum(log.high_watermark for log in logs.values()) >= topic.records:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the high watermarks of {topic.name} were not written")
        time.sleep(0.2)


def load(spark: SparkSession, source: str, broker: BrokerProcess, topic: str) -> DataFrame:
    """Keys, values and offsets of a topic."""
    if source == "kafka":
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.option("subscribe", topic).load().select("key", "value", "offset")
    return segments.read(
        spark, str(broker.log_dir), columns=("key", "value", "offset"), topics=topic
    )


def read_all(spark: SparkSession, source: str, broker: BrokerProcess, topic: Topic) -> None:
    """Produce every row, without using any."""
    load(spark, source, broker, topic.name).write.format("noop").mode("overwrite").save()


def count(spark: SparkSession, source: str, broker: BrokerProcess, topic: Topic) -> None:
    """Count the records of each partition."""
    if source == "kafka":
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        found = reader.option("subscribe", topic.name).load().groupBy("partition").count()
        total = sum(row["count"] for row in found.collect())
    else:
        counts = segments.counts(spark, str(broker.log_dir), topics=topic.name)
        total = sum(row["records"] for row in counts.collect())
    assert total == topic.records, f"{source} counts {total}, {topic.records} were produced"


Read = Callable[["SparkSession", str, BrokerProcess, Topic], None]
READS: dict[str, Read] = {"key, value, offset": read_all, "counts": count}


def measure(
    spark: SparkSession, broker: BrokerProcess, topic: Topic, rounds: int
) -> dict[tuple[str, str], list[Measured]]:
    """(data, source) -> a figure for each round; sources take turns."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for _ in range(rounds):
        for what, read in READS.items():
            for source in SOURCES:
                cpu = cpu_seconds(broker.pid)
                began = time.perf_counter()
                read(spark, source, broker, topic)
                seconds = time.perf_counter() - began
                cpu = cpu_seconds(broker.pid) - cpu
                found.setdefault((what, source), []).append(Measured(topic.records / seconds, cpu))
    return found


def table(results: dict[str, dict[tuple[str, str], list[Measured]]]) -> str:
    """The medians as a Markdown table."""
    lines = [
        "| topic | read | kwire-log rows/s | kafka rows/s | ratio | broker CPU s, kwire-log | kafka |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, measured in results.items():
        for what in READS:
            speed = {}
            cpu = {}
            for source in SOURCES:
                rounds = measured[what, source]
                speed[source] = statistics.median(one.rows_per_s for one in rounds)
                cpu[source] = statistics.median(one.broker_cpu_s for one in rounds)
            lines.append(
                f"| {name} | {what} | {speed['kwire-log']:,.0f} | {speed['kafka']:,.0f} "
                f"| {speed['kwire-log'] / speed['kafka']:.1f} "
                f"| {cpu['kwire-log']:.1f} | {cpu['kafka']:.1f} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Run; print the table, and with --json the single figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--gb",
        type=float,
        default=0.5,
        help="GB of 1 KB records for each codec; a fifth as many GB of 100 B records",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch-bytes", type=int, default=65536, help="the producer's batch.size")
    parser.add_argument("--data-dir", type=Path, help="folder for the broker's data")
    parser.add_argument("--json", action="store_true")
    add_spark(parser)
    options = parser.parse_args()
    options.master = options.master or "local[2]"
    options.jars = options.jars or str(Path(__file__).parents[1] / "compat/java/target/spark-4.0.0")
    options.conf = [("spark.driver.memory", "3g"), *options.conf]
    large = int(options.gb * (1 << 30))
    small = large // 5
    topics = [
        Topic("1 KB plain", 1024, "none", large),
        Topic("1 KB lz4", 1024, "lz4", large),
        Topic("100 B plain", 100, "none", small),
    ]
    results = {}
    with tempfile.TemporaryDirectory(dir=options.data_dir) as folder:
        spark = start_session(options, "bench")
        warm = Topic("warm", 1024, "none", 32 << 20)
        with KwireBroker(Path(folder)) as broker:
            produce(broker, warm, options.batch_bytes)
            wait_for_checkpoint(broker, warm)
            measure(spark, broker, warm, 1)
        for number, topic in enumerate(topics):
            with KwireBroker(Path(folder) / str(number)) as broker:
                stored = topic._replace(name=topic.name.replace(" ", "-"))
                produce(broker, stored, options.batch_bytes)
                wait_for_checkpoint(broker, stored)
                results[topic.name] = measure(spark, broker, stored, options.rounds)
        spark.stop()
    load_average = os.getloadavg()[1]
    print(table(results))
    print(
        f"{options.master}, {PARTITIONS} partitions, batches of {options.batch_bytes} bytes, medians of "
        f"{options.rounds} rounds, load average {load_average:.1f}"
    )
    if options.json:
        single = {f"{n} {w} {s}": m for n, r in results.items() for (w, s), m in r.items()}
        print(json.dumps(single))
    return 0


if __name__ == "__main__":
    sys.exit(main())
