"""The whole job with `--value-schema` and `--compact`: the results of Spark's tasks, and the tables that follow."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kwire.pipeline.archive import job
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import Archive
from kwire.pipeline.tables.place import DEAD_LETTERS, VALUES

from ...support.broker_process import BrokerProcess
from ..archive_model import EVENING_MS, archived, create_topic, digest
from .table_model import BOTH, in_table, rows_of_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

FIRST = "id INT NOT NULL, name STRING"
#: `name` is omitted, `amount` is new.
SECOND = "id INT NOT NULL, amount DOUBLE"


def options_of(*words: str) -> Namespace:
    parser = ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args([*words, *(f"--table={name}" for name in BOTH)])


def send(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    """Records in turn to both partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        at = EVENING_MS + number
        producer.produce(topic, value, b"k", partition=number % 2, timestamp=at)
    assert producer.flush(60) == 0


def values(path: Path, format: str, topic: str) -> list[tuple[object, ...]]:
    """Partition, offset and the columns of the values."""
    return sorted(
        (row["_partition"], row["_offset"], row["id"], row["name"], row.get("amount"))
        for row in rows_of_table(path, format, topic, VALUES)
    )  # type: ignore[type-var]


def dead_letters(path: Path, format: str, topic: str) -> list[tuple[object, ...]]:
    rows = rows_of_table(path, format, topic, DEAD_LETTERS)
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)  # type: ignore[type-var]


def test_values_of_two_schemas_are_in_tables_that_follow_compaction(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    create_topic(broker.bootstrap, topic, 2)

    def archive(schema: str) -> None:
        words = ["-b", broker.bootstrap, f"--topics={topic}", f"--path={path}", "--once", "--quiet"]
        options = options_of(*words, f"--value-schema={topic}={schema}")
        with Cluster(broker.bootstrap) as cluster:
            assert job.archive_topics(spark, cluster, options) == 0

    send(broker.bootstrap, topic, [b'{"id": 1, "name": "a"}', b"no JSON", b'{"id": 2}', None])
    archive(FIRST)
    send(broker.bootstrap, topic, [b'{"id": 3, "amount": 2.5}', b'{"id": "x"}'])
    archive(SECOND)
    good = [(0, 0, 1, "a", None), (0, 1, 2, None, None), (0, 2, 3, None, 2.5)]
    bad = [(1, 0, b"no JSON"), (1, 1, None), (1, 2, b'{"id": "x"}')]

    def check() -> None:
        for format in BOTH:
            assert values(path, format, topic) == good
            assert dead_letters(path, format, topic) == bad
            assert digest(in_table(path, format, topic)) == digest(archived(path))

    check()
    before = Archive(path).files()
    assert len(before) == 4
    compacting = [f"--path={path}", "--compact", f"--value-schema={topic}={SECOND}"]
    assert job.compact_archive(spark, options_of(*compacting, "--keep-replaced=0s")) == 0
    after = Archive(path).files()
    assert len(after) == 2
    # The old files are deleted, together with the results derived from them.
    assert not any(Path(file).exists() for file in before)
    left = {file.name for file in path.glob(f"{VALUES}/*/*/date=*/**/*.parquet")}
    assert left <= {Path(file).name for file in after}
    check()
