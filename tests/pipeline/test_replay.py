"""`kwire pipeline replay` on Spark: out of archives and segments, rated, renamed, and killed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import main
from kwire.pipeline.manifest import ManifestEntry

from ..support.broker_process import BrokerProcess, free_port
from .faults import check_row
from .replay_data import (
    Record,
    add_to_archive,
    create,
    read_committed,
    some_records,
    without_offsets,
)

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_topics_of_an_archive_go_to_others_and_keep_all_but_offsets(
    spark: SparkSession,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders = [some_records(1500, number) for number in range(3)]
    for number, records in enumerate(orders):
        add_to_archive(tmp_path, "orders", number, records)
    other = some_records(500, 7)
    add_to_archive(tmp_path, "other", 1, other)
    create(broker.bootstrap, f"{topic}-a", 3)
    create(broker.bootstrap, f"{topic}-b", 2)
    words = ["replay", "--bootstrap-server", broker.bootstrap, "--archive", str(tmp_path)]
    words += ["--to", f"orders={topic}-a,other={topic}-b", "--keep-partitions"]
    assert main([*words, "--transaction-records", "400"]) == 0
    out, err = capsys.readouterr()
    assert ": 5,000 records in " in out and "4 partitions of orders, other to" in err
    found = read_committed(broker.bootstrap, f"{topic}-a", 3)
    assert list(map(without_offsets, found)) == list(map(without_offsets, orders))
    assert list(map(without_offsets, read_committed(broker.bootstrap, f"{topic}-b", 2))) == [
        [],
        without_offsets(other),
    ]

    assert main(words) == 0
    assert "everything is there already, 5,000 records" in capsys.readouterr().out
    # The same command replays the records archived since.
    more = [one._replace(offset=one.offset + 10_000) for one in some_records(100, 7)]
    add_to_archive(tmp_path, "other", 1, more)
    assert main(words) == 0
    assert ": 100 records (5,100 including earlier runs)" in capsys.readouterr().out
    _, found_more = read_committed(broker.bootstrap, f"{topic}-b", 2)
    assert without_offsets(found_more) == without_offsets([*other, *more])


def test_committed_records_of_segments_are_replayed_at_a_rate(
    spark: SparkSession, broker: BrokerProcess, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(broker.bootstrap, topic, 2)
    create(broker.bootstrap, f"{topic}-again", 2)
    now = int(time.time() * 1000)
    expected: list[list[Record]] = [[], []]
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": topic,
            "compression.type": "lz4",
        }
    )
    producer.init_transactions(30)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(200):
            record = Record(0, b"k%d" % number, b"v%d" % turn, now + number, [("h", b"%d" % turn)])
            producer.produce(
                topic,
                record.value,
                record.key,
                number % 2,
                timestamp=record.timestamp,
                headers=record.headers,
            )
            if turn % 3:
                expected[number % 2].append(record)
        if turn % 3:
            producer.commit_transaction(30)
        else:
            producer.flush(30)  # else they would never leave the client
            producer.abort_transaction(30)
    wait_for_checkpoint(broker, topic)
    words = ["replay", "--bootstrap-server", broker.bootstrap, "--segments", str(broker.log_dir)]
    words += ["--topics", topic, "--to", f"{topic}-again", "--keep-partitions", "--quiet"]
    began = time.monotonic()
    assert main([*words, "--rate", "200"]) == 0
    # 800 records, the last of them without a wait.
    assert time.monotonic() - began > 3.5
    assert ": 800 records in " in capsys.readouterr().out
    found = read_committed(broker.bootstrap, f"{topic}-again", 2)
    assert list(map(without_offsets, found)) == expected


def wait_for_checkpoint(broker: BrokerProcess, topic: str) -> None:
    """Wait until the broker has written its high watermarks, which it does every few seconds."""
    deadline = time.monotonic() + 60.0
    file = broker.log_dir / "replication-offset-checkpoint"
    wanted = {f"{topic} 0 606", f"{topic} 1 606"}
    while not wanted <= set(file.read_text().splitlines() if file.exists() else ()):
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.1)


def test_what_cannot_be_replayed_is_told_before_spark_starts(
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_to_archive(tmp_path, "orders", 2, some_records(10))
    create(broker.bootstrap, topic, 2)
    archive = ["--archive", str(tmp_path)]
    names = {str(tmp_path): "DIR", broker.bootstrap: "HOST:PORT", topic: "again"}
    same = "the same, until"
    for fault, words, again in (
        ("no archive", ["--archive", f"{tmp_path}/no", "--to", topic], f"{same} it is there"),
        ("no log folder", ["--segments", f"{tmp_path}/no", "--to", topic], f"{same} it is there"),
        ("no target topic", [*archive, "--to", "new"], f"{same} the topic is there"),
        (
            "too few partitions",
            [*archive, "--to", topic, "--keep-partitions"],
            f"{same} the topic has as many",
        ),
        ("no such topic", [*archive, "--to", f"x={topic}"], "the same; name another"),
        (
            "no target given",
            [*archive, "--to", f"x={topic}", "--topics", "orders"],
            "the same; give one with `--to`",
        ),
        (
            "pattern that matches nothing",
            [*archive, "--to", topic, "--topics-pattern", "x.*"],
            f"{same} something matches",
        ),
        (
            "no such partition",
            [*archive, "--to", topic, "--from-offset", '{"orders": {"9": 1}}'],
            "the same; name another",
        ),
    ):
        assert main(["replay", "--bootstrap-server", broker.bootstrap, *words]) == 1
        message = capsys.readouterr().err.strip().replace(f" on {os.uname().nodename}", " on HOST")
        check_row("replay", fault, message.removeprefix("kwire pipeline: "), again, names)
    monkeypatch.setattr("kwire.pipeline.cluster.PATIENCE", 1.0)
    nobody = f"127.0.0.1:{free_port()}"
    assert main(["replay", "--bootstrap-server", nobody, *archive, "--to", topic]) == 1
    message = capsys.readouterr().err.strip().removeprefix("kwire pipeline: ")
    check_row(
        "replay", "no broker", message, "the same, until a broker answers", {nobody: "HOST:PORT"}
    )


def test_topic_is_not_replayed_into_itself_unless_that_is_said(
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = some_records(10)
    archive = add_to_archive(tmp_path, topic, 0, records)
    create(broker.bootstrap, topic, 1)
    where = ["--bootstrap-server", broker.bootstrap, "--to", topic]
    names = {broker.bootstrap: "HOST:PORT", topic: "orders"}

    class Started(BaseException):
        """Raised when Spark would be started, which shows that nothing was refused before."""

    def start(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr("kwire.pipeline.replay.job.start_session", start)

    def replay(*words: str) -> None:
        main(["replay", *where, *words])

    # There is nothing that could be duplicated.
    with pytest.raises(Started):
        replay("--archive", str(tmp_path))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    with Cluster(broker.bootstrap) as cluster:
        own = cluster.topic_ids([topic])[topic]
    again = "the same; give another topic with `--to`, or `--into-source`"
    # A copy of the log, which also has the topic's id, is read to its end.
    shutil.copytree(broker.log_dir / f"{topic}-0", tmp_path / "logs" / f"{topic}-0")
    for words in (["--archive", str(tmp_path)], ["--segments", str(tmp_path / "logs")]):
        replay(*words, "--topics", topic)
        message = capsys.readouterr().err.splitlines()[-1].removeprefix("kwire pipeline: ")
        check_row("replay", "topic replayed into itself", message, again, {**names, own: "ID"})
        with pytest.raises(Started):
            replay(*words, "--topics", topic, "--into-source")
    # The archived topic no longer exists: it is filled again.
    end = records[-1].offset + 1
    archive.commit_batch([ManifestEntry(topic, 0, end, end, 0, ())], 1, {topic: "another id"})
    with pytest.raises(Started):
        replay("--archive", str(tmp_path))


def test_refusal_in_a_task_is_one_line_for_the_user(
    spark: SparkSession,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_to_archive(tmp_path, "orders", 0, some_records(10, now_ms=1_000_000_000_000))
    create(broker.bootstrap, topic, 1, message_timestamp_before_max_ms="3600000")
    words = ["--bootstrap-server", broker.bootstrap, "--archive", str(tmp_path), "--to", topic]
    assert main(["replay", *words, "--quiet"]) == 1
    lines = capsys.readouterr().err.splitlines()
    check_row(
        "replay",
        "timestamp the topic refuses",
        lines[-1].removeprefix("kwire pipeline: "),
        "replays what is missing, once the topic takes it",
        {topic: "again"},
    )
