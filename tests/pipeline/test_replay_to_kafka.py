"""Replay to Apache Kafka 3.9.2: records, positions and a second run are the same as with kwire."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import main

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.kafka import KAFKA_3, kafka_broker
from .replay_data import add_to_archive, create, read_committed, some_records

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.jvm,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("KWIRE_LONG"), reason="KWIRE_LONG=1 compares with Kafka"),
]


def outcome(broker: BrokerProcess, archive: Path) -> object:
    """The result of a replay in two steps: records with their offsets, and positions."""
    create(broker.bootstrap, "again", 2)
    words = ["replay", "--bootstrap-server", broker.bootstrap, "--archive", str(archive)]
    words += ["--to", "again", "--keep-partitions", "--quiet", "--name", "job"]
    # One transaction per partition, whose marker takes an offset; a limit in time would be random.
    assert main([*words, "--transaction-records", "1000000", "--rate", "20000"]) == 0
    assert main(words) == 0
    with Cluster(broker.bootstrap) as cluster:
        groups = [cluster.committed(f"job-orders-{number}") for number in range(2)]
        positions = [{place: own.offset for place, own in group.items()} for group in groups]
    return read_committed(broker.bootstrap, "again", 2), positions


def test_replay_leaves_the_same_in_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    records = [some_records(3000, number) for number in range(2)]
    for number, some in enumerate(records):
        add_to_archive(tmp_path / "archive", "orders", number, some)
    found = []
    for broker in (KwireBroker(tmp_path / "kwire"), kafka_broker(KAFKA_3, tmp_path / "kafka")):
        with broker:
            found.append(outcome(broker, tmp_path / "archive"))
    assert found[0] == found[1]
    read, positions = found[1]  # type: ignore[misc]
    assert [[one[1:] for one in some] for some in read] == [
        [one[1:] for one in some] for some in records
    ]
    assert positions == [{("again", 0): some[-1].offset + 1} for some in records]
