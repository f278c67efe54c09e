"""The job `status` against a running broker, with checkpoints made by hand and by Spark."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kwire.pipeline.problems import Problem
from kwire.pipeline.status import job

from ..support.broker_process import BrokerProcess, free_port
from .archive_model import create_topic
from .test_status_parts import HOUR, write_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def status(broker: BrokerProcess, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status of the job, and its partitions by name."""
    parser = ArgumentParser()
    job.add_arguments(parser)
    out = folder.parent / "status.json"
    given = ["-b", broker.bootstrap, f"--checkpoint-dir={folder}", f"--json={out}", *words]
    code = job.run(parser.parse_args(given))
    tree = json.loads(out.read_text())
    parts = [part for query in tree["queries"] for part in query["partitions"]]
    return code, {f"{part['topic']}-{part['partition']}": part for part in parts}


def produce_aged(broker: BrokerProcess, topic: str, count: int, age_ms: int) -> None:
    """Records to partition 0; the first is so old, the last a minute."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    now = int(time.time() * 1000)
    for number in range(count):
        aged = age_ms - (age_ms - 60_000) * number // max(count - 1, 1)
        producer.produce(topic, f"{number}", partition=0, timestamp=now - aged)
    producer.flush(60)


def test_retention_about_to_delete_is_told_with_the_time_left(
    broker: BrokerProcess, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soon, kept, lost = topic, f"{topic}-kept", f"{topic}-lost"
    create_topic(broker.bootstrap, soon, retention_ms=str(10 * HOUR))
    create_topic(broker.bootstrap, kept, 2)
    create_topic(broker.bootstrap, lost)
    for name in (soon, kept, lost):
        produce_aged(broker, name, 10, 9 * HOUR + HOUR // 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in admin.delete_records([TopicPartition(lost, 0, 7)]).values():
        answer.result(60)
    offsets = {soon: {"0": 0}, kept: {"0": 4, "1": 0}, lost: {"0": 3}, "gone": {"0": 1}}
    checkpoint = write_checkpoint(tmp_path / "job", [json.dumps(offsets)], 1)

    code, parts = status(broker, checkpoint)
    assert code == 1
    assert (parts[f"{soon}-0"]["fate"], parts[f"{soon}-0"]["warned"]) == ("expiring", True)
    assert HOUR // 2 - 120_000 < parts[f"{soon}-0"]["left_ms"] <= HOUR // 2
    assert parts[f"{soon}-0"]["latest_ms"] > 9 * HOUR
    assert (parts[f"{kept}-0"]["fate"], parts[f"{kept}-0"]["lag"]) == ("safe", 6)
    assert parts[f"{kept}-1"]["fate"] == "caught_up"
    assert (parts[f"{lost}-0"]["fate"], parts[f"{lost}-0"]["lost"]) == ("lost", 4)
    assert parts["gone-0"]["fate"] == "gone"
    shown = capsys.readouterr().out
    assert "! kept for 29 min" in shown or "! kept for 30 min" in shown
    assert "offsets 3 to 6 are deleted already" in shown
    assert "warning: records are lost in 2 partitions, and about to be lost in 1" in shown

    # With all of that read, and less time to be warned of, all is well.
    offsets = {soon: {"0": 1}, kept: {"0": 4}, lost: {"0": 7}}
    later = write_checkpoint(tmp_path / "later", [json.dumps(offsets)], 1)
    code, parts = status(broker, later, "--warn-within=5m")
    assert code == 0
    assert "all is well" in capsys.readouterr().out
    assert parts[f"{soon}-0"]["left_ms"] > HOUR // 2


def test_size_limit_is_seen_in_the_log_sizes(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic, retention_bytes="100")
    produce_aged(broker, topic, 50, HOUR)
    checkpoint = write_checkpoint(tmp_path / "job", [json.dumps({topic: {"0": 0}})], 1)
    code, parts = status(broker, checkpoint)
    assert (code, parts[f"{topic}-0"]["fate"]) == (1, "due")


@pytest.mark.spark
def test_checkpoint_of_a_spark_query_is_read(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic, 2)
    produce_aged(broker, topic, 20, HOUR)
    checkpoint = tmp_path / "checkpoints" / "query"
    source = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    )
    query = (
        source.option("subscribe", topic)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    produce_aged(broker, topic, 5, HOUR)
    code, parts = status(broker, checkpoint.parent)
    assert code == 0
    assert {name: (one["processed"], one["lag"]) for name, one in parts.items()} == {
        f"{topic}-0": (20, 5),
        f"{topic}-1": (0, 0),
    }


def test_absent_broker_is_named(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "job", ['{"t":{"0":0}}'], 1)
    parser = ArgumentParser()
    job.add_arguments(parser)
    where = f"127.0.0.1:{free_port()}"
    options = parser.parse_args(["-b", where, f"--checkpoint-dir={checkpoint}"])
    with pytest.raises(Problem, match=f"no broker answers at {where}"):
        job.run(options)
