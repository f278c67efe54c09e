"""Copy a topic to Parquet in three ways, in turn. python -m bench.archive

`plain` is what Spark does without kwire: `spark.read.format("kafka")`, the columns of an archive, and a Parquet writer with the
archive's compression. `archive` is `kwire pipeline archive --once`, from an empty folder to its last manifest, and `--from-logs`
is the same without the broker. All run in one session on local[2], with a broker on the same machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.dataset

from kwire.pipeline.archive.job import archive_topics, cluster_of
from kwire.pipeline.main import make_parser
from kwire.pipeline.manifest import COLUMNS, Archive
from kwire.pipeline.options import add_spark
from kwire.pipeline.session import start_session
from tests.support.broker_process import BrokerProcess, KwireBroker, cpu_seconds

from ._processes import cpu_below
from .segment_source import PARTITIONS, Topic, produce, wait_for_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Measured(NamedTuple):
    """One run, in seconds."""

    wall: float
    java_cpu: float
    python_cpu: float
    broker_cpu: float


Run = Callable[["SparkSession", BrokerProcess, str, Path], None]


def plain(spark: SparkSession, broker: BrokerProcess, topic: str, path: Path) -> None:
    """The usual job without kwire."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    writer = frame.select(*COLUMNS).write.option("compression", "zstd")
    writer.parquet(str(path))


def _archive(spark: SparkSession, words: list[str]) -> None:
    options: Namespace = make_parser("archive").parse_args(["archive", *words, "--once", "--quiet"])
    with cluster_of(options) as cluster:
        assert archive_topics(spark, cluster, options) == 0


def archive(spark: SparkSession, broker: BrokerProcess, topic: str, path: Path) -> None:
    """From brokers."""
    _archive(spark, ["-b", broker.bootstrap, f"--topics={topic}", f"--path={path}"])


def from_logs(spark: SparkSession, broker: BrokerProcess, topic: str, path: Path) -> None:
    """From log directories."""
    _archive(spark, [f"--from-logs={broker.log_dir}", f"--topics={topic}", f"--path={path}"])


RUNS: dict[str, Run] = {"plain": plain, "archive": archive, "archive --from-logs": from_logs}


def rows_in(path: Path) -> int:
    """The rows of all Parquet files; in an archive, of the files that count."""
    files = (
        Archive(path).files() if (path / "_archive").exists() else map(str, path.glob("*.parquet"))
    )
    return int(pyarrow.dataset.dataset(list(files)).count_rows())


def measure(
    spark: SparkSession, broker: BrokerProcess, topic: Topic, folder: Path, rounds: int
) -> dict[str, list[Measured]]:
    """A figure for each round; the ways take turns."""
    found: dict[str, list[Measured]] = {}
    for number in range(rounds):
        for name, run in RUNS.items():
            path = folder / f"{topic.name}-{number}-{name.replace(' ', '')}"
            cpu, broker_cpu, began = cpu_below(), cpu_seconds(broker.pid), time.perf_counter()
            run(spark, broker, topic.name, path)
            wall, after = time.perf_counter() - began, cpu_below()
            # The broker's process is also a descendant of this one.
            served = cpu_seconds(broker.pid) - broker_cpu
            python = after["python"] - cpu["python"] - served
            found.setdefault(name, []).append(
                Measured(wall, after["java"] - cpu["java"], python, served)
            )
            rows = rows_in(path)
            assert rows == topic.records, f"{name} wrote {rows} rows of {topic.records}"
            shutil.rmtree(path)
    return found


def table(results: dict[str, list[Measured]], records: int) -> str:
    """The medians as a Markdown table."""
    lines = [
        "| job | s | rows/s | of plain | CPU s: Java | Python workers | broker |",
        "|---|---|---|---|---|---|---|",
    ]
    walls = {name: statistics.median(one.wall for one in runs) for name, runs in results.items()}
    for name, runs in results.items():
        java, python, broker = (
            statistics.median(getattr(one, field) for one in runs)
            for field in ("java_cpu", "python_cpu", "broker_cpu")
        )
        wall = walls[name]
        lines.append(
            f"| {name} | {wall:.1f} | {records / wall:,.0f} | {walls['plain'] / wall:.1f} x | {java:.1f} | {python:.1f}"
            f" | {broker:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, help="folder for the data")
    add_spark(parser)
    options = parser.parse_args()
    options.master = options.master or "local[2]"
    options.jars = options.jars or str(Path(__file__).parents[1] / "compat/java/target/spark-4.0.0")
    options.conf = [("spark.driver.memory", "3g"), *options.conf]
    size = options.value_bytes
    with tempfile.TemporaryDirectory(dir=options.data_dir) as name:
        folder = Path(name)
        with KwireBroker(folder / "broker") as broker:
            spark = start_session(options, "bench")
            warm = Topic("warm", size, "none", 50_000 * size)
            topic = Topic("topic", size, "none", options.records * size)
            for each in (warm, topic):
                produce(broker, each, 65536)
                wait_for_checkpoint(broker, each)
            measure(spark, broker, warm, folder, 2)
            results = measure(spark, broker, topic, folder, options.rounds)
            spark.stop()
    print(table(results, topic.records))
    print(
        f"{options.master}, {topic.records:,} records of {size} bytes in {PARTITIONS} partitions, medians of"
        f" {options.rounds} rounds, load average {os.getloadavg()[1]:.1f}"
    )
    for name, runs in results.items():
        print(name, *(f"{one.wall:.1f}" for one in runs), "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
