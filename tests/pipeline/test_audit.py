"""The job `audit` on a shared Spark: places that agree, and each planted fault is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Message, Producer

from kwire.pipeline.audit import job
from kwire.pipeline.audit.facts import ClaimedRange
from kwire.pipeline.audit.places import archives_at
from kwire.pipeline.audit.report import Report
from kwire.pipeline.manifest import Archive, sealed
from kwire.pipeline.problems import Problem, explain
from kwire.pipeline.session import LISTERS
from server.log.index import transaction_index

from ..golden.recorded import unpack_log_directory
from ..support.broker_process import REPOSITORY, BrokerProcess, end_process
from .archive_model import create_topic, produce
from .audit_logs import NOON_MS, batch, flip, marker, write_archive, write_segments
from .conftest import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def options_of(*words: str) -> Namespace:
    parser = ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args(["--quiet", *words])


def faults(report: Report) -> set[tuple[str, str, str]]:
    """(kind, topic, last part of the place) of everything that is wrong."""
    return {(one.kind, one.topic, Path(one.place).name) for one in report.findings if one.is_wrong}


def produce_same(broker: BrokerProcess, *topics: str, count: int) -> None:
    """Records `k<offset>`, `v<offset>` as `audit_logs.batch` makes them; partition 1 has nulls and headers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for offset in range(count):
        for topic in topics:
            time = NOON_MS + offset * 1000
            producer.produce(topic, f"v{offset}", f"k{offset}", partition=0, timestamp=time)
            producer.produce(
                topic,
                None if offset % 3 else b"",
                b"" if offset % 2 else None,
                partition=1,
                timestamp=time,
                headers=[("a", b"1"), ("b", None)] if offset % 5 else None,
            )
    producer.flush(60)


def produce_transactions(broker: BrokerProcess, topic: str) -> Producer:
    """Three of four transactions committed, the second aborted; return a producer that has one more open."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(topic, f"{number}-{record}")
        producer.flush(60)
        if number == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    last: list[Message] = []
    producer.begin_transaction()
    producer.produce(topic, b"open", timestamp=NOON_MS, on_delivery=lambda _, m: last.append(m))
    producer.flush(60)
    assert last[0].offset() == 24
    return producer


@pytest.mark.e2e
def test_topic_archive_replay_and_log_directory_agree(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    replayed, transactions = f"{topic}-replayed", f"{topic}-tx"
    create_topic(broker.bootstrap, topic, 2)
    create_topic(broker.bootstrap, replayed, 2)
    create_topic(broker.bootstrap, transactions)
    produce_same(broker, topic, replayed, count=300)
    open_producer = produce_transactions(broker, transactions)
    log_dir = tmp_path / "copy"
    for name in (f"{topic}-0", f"{topic}-1", f"{transactions}-0"):
        shutil.copytree(broker.log_dir / name, log_dir / name)
    html, report_json = tmp_path / "audit.html", tmp_path / "audit.json"

    def audited(*words: str) -> Report:
        return job.audit(options_of("-b", broker.bootstrap, *words))

    options = options_of(
        *("-b", broker.bootstrap, f"--topics={topic},{replayed},{transactions}"),
        *(f"--map={topic}={replayed}", f"--log-dir={log_dir}"),
        *(f"--html={html}", f"--json={report_json}"),
        "--open-after=36500d",
    )
    assert job.run(options) == 0
    tree = json.loads(report_json.read_text())
    assert tree["wrong"] is False
    assert len(tree["comparisons"]) == 5
    assert all(one["equal"] and one["rows"][0] == one["rows"][1] for one in tree["comparisons"])
    rows = {(one["place"], one["topic"], one["partition"]): one for one in tree["partitions"]}
    for place in (broker.bootstrap, str(log_dir)):
        assert rows[place, topic, 1]["rows"] == 300
        facts = rows[place, transactions, 0]
        assert (facts["rows"], facts["range"]) == (15, {"start": 0, "end": 24})
        assert facts["explained"] == {"transaction markers": 4, "aborted transactions": 5}
    assert [one["kind"] for one in tree["findings"] if one["topic"] == transactions] == [
        "open-transaction",
        "open-transaction",
    ]
    page = html.read_text()
    assert page.count("<svg") == 4
    assert tree["verdict"] in page
    assert "<script" not in page

    # An archive that begins later, and a replay with a different record.
    write_archive(tmp_path / "archive", topic, [(range(100, 300), range(100, 300))])
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(replayed, b"v300", b"k300", partition=0, timestamp=NOON_MS + 300_000)
    producer.produce(topic, b"other", b"k300", partition=0, timestamp=NOON_MS + 300_000)
    producer.flush(60)
    # Its manifest has the id of another topic.
    manifest = max((tmp_path / "archive" / "_archive").glob("*.json"))
    tree = json.loads(manifest.read_text())
    manifest.write_bytes(sealed({**tree, "topic_ids": {topic: "another-id"}}))
    report = audited(
        *(f"--topics={topic},{replayed}", f"--map={topic}={replayed}", "--strict"),
        f"--archive={tmp_path}/archive",
    )
    assert faults(report) == {
        ("difference", replayed, broker.bootstrap),
        ("coverage", topic, "archive"),
        ("topic-id", topic, "archive"),
    }
    (anew,) = (one for one in report.findings if one.kind == "topic-id")
    assert "the archive is of topic id another-id" in anew.text
    assert {one.text.split(",")[0] for one in report.findings if one.kind == "coverage"} == {
        f"is empty or missing; {topic}-1 in {broker.bootstrap} has [0",
        "begins at offset 100",
        "ends at offset 300",
    }
    (difference,) = (one for one in report.findings if one.kind == "difference")
    assert "record 301 (offset 300 there, 300 here): value" in difference.text
    assert "not equal to the 301 of" in difference.text
    same = {(one.first, one.second): one for one in report.comparisons}
    archived = next(one for pair, one in same.items() if "archive" in pair[1])
    assert (archived.equal, archived.range) == (True, ClaimedRange(100, 300))
    open_producer.abort_transaction(60)


def test_each_planted_fault_is_found(spark: SparkSession, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    whole = [batch(0, 10), batch(10, 10), batch(20, 10)]
    for log_dir in (good, bad):
        for name in ("crc-0", "replica-0", "gap-0", "shorter-0"):
            write_segments(log_dir, name, {0: whole[:2], 20: whole[2:]})
        write_segments(
            log_dir, "late-0", {0: [batch(0, 5), batch(5, 5, start_ms=NOON_MS - 99_000)]}
        )
        own = batch(5, 5, producer_id=4, sequence=0, transactional=True)
        aborted = batch(0, 4, producer_id=3, sequence=0, transactional=True)
        write_segments(log_dir, "open-0", {0: [aborted, marker(4, 3, commit=False), own]})
    # Without the index, the aborted transaction is unknown and readers get its records.
    index = (good / "open-0" / f"{0:020d}.log").with_suffix(".txnindex")
    index.write_bytes(transaction_index.ENTRY.pack(transaction_index.VERSION, 3, 0, 4, 5))
    flip(bad / "crc-0" / f"{0:020d}.log", len(whole[0]) + 90)
    write_segments(bad, "replica-0", {20: [batch(20, 9), batch(29, 1, mark=b"!")]})
    write_segments(bad, "gap-0", {20: [batch(23, 7)]})
    (bad / "shorter-0" / f"{20:020d}.log").unlink()
    archive = tmp_path / "archive"
    write_archive(
        archive,
        "replica",
        [
            (range(0, 10), range(0, 10)),
            (range(10, 20), [*range(10, 18), 17, 18]),  # one twice, one missing
            (range(20, 25), range(20, 25)),
            (range(25, 30), range(25, 30)),
        ],
    )[2].unlink()

    report = job.audit(
        options_of(
            *(f"--log-dir={tmp_path}/[gb]*d", f"--archive={archive}"),
            *("--time-order=1m", "--open-after=0s"),
        )
    )
    assert faults(report) == {
        ("damage", "crc", "bad"),
        ("difference", "crc", "good"),
        ("difference", "replica", "good"),
        ("gap", "gap", "bad"),
        ("difference", "gap", "good"),
        ("time-order", "late", "bad"),
        ("time-order", "late", "good"),
        ("open-transaction", "open", "bad"),
        ("open-transaction", "open", "good"),
        ("count", "open", "bad"),
        ("difference", "open", "good"),
        ("duplicate", "replica", "archive"),
        ("count", "replica", "archive"),
        ("file", "replica", "archive"),
        ("difference", "replica", "archive"),
        *(("coverage", name, "archive") for name in ("crc", "gap", "shorter", "late", "open")),
    }
    text = {(one.kind, one.topic, Path(one.place).name): one.text for one in report.findings}
    assert "offset 29: another value" in text["difference", "replica", "good"]
    assert "offset 10 is missing there" in text["difference", "crc", "good"]
    assert text["gap", "gap", "bad"] == "3 offsets without a batch: 20..22"
    assert "an offset that came before, the first 17" in text["duplicate", "replica", "archive"]
    assert "from offset 20 to 24" in text["file", "replica", "archive"]
    assert ("coverage", "shorter", "good") in text
    by_place = {(Path(one.place).name, one.topic): one for one in report.partitions}
    aborted = by_place["good", "open"]
    assert (aborted.rows, aborted.range) == (0, ClaimedRange(0, 5))
    assert aborted.explained == {"aborted transactions": 4, "transaction markers": 1}


def test_golden_log_directory_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    log_dir = unpack_log_directory(tmp_path)
    report = job.audit(options_of(f"--log-dir={log_dir}"))
    assert [one for one in report.findings if one.is_wrong] == []
    rows = {(one.topic, one.partition): one for one in report.partitions}
    assert rows["compacted", 0].explained == {"compaction": 300}
    assert rows["compacted", 0].rows == 100
    assert {one.kind for one in report.findings if one.topic == "txn_open"} >= {"open-transaction"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --topics, --archive or --log-dir"),
        (["--log-dir=/nowhere/*"], "no log directory is at /nowhere"),
        (["--archive=/nowhere"], "there is no archive at /nowhere"),
        (["--archive=EMPTY"], "the archive EMPTY holds nothing"),
        (["--archive=ARCHIVE", "--map=orders=x"], "--map: no place has a topic x"),
        (["--archive=ARCHIVE", "--map=orders=orders"], "are compared without it"),
        (["--archive=ARCHIVE", "--map=orders="], "--map orders=: TARGET is missing"),
        (["--archive=ARCHIVE", "--json=/nowhere/x.json"], "there is no folder /nowhere to write x"),
        (["--archive=ARCHIVE", "--html=ARCHIVE"], "ARCHIVE cannot be written"),
        (["--archive=ARCHIVE", "--table=delta"], "the archive ARCHIVE has no delta table"),
    ],
)
def test_what_cannot_be_audited_is_named_before_spark_starts(
    tmp_path: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.pipeline.session.start_session", None)
    write_archive(tmp_path / "archive", "orders", [(range(10), range(10))])
    Archive(tmp_path / "empty").create()
    names = {"ARCHIVE": str(tmp_path / "archive"), "EMPTY": str(tmp_path / "empty")}
    for name, path in names.items():
        words = [word.replace(name, path) for word in words]
        said = said.replace(name, path)
    with pytest.raises(Problem, match=said):
        job.audit(options_of(*words))


def test_files_of_an_archive_are_found_and_read_by_few_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's defaults make a task of each file to find it, and one of 32 files to read them, however small they are."""
    files = 300
    write_archive(tmp_path, "many", [(range(n, n + 1), [n]) for n in range(files)])
    context = spark.sparkContext
    context.setJobGroup("many", "")
    try:
        (place,) = archives_at(str(tmp_path), None, options_of(f"--archive={tmp_path}"))
        rows = place.rows(spark)
        assert rows is not None
        (found,) = context.statusTracker().getJobIdsForGroup("many")
        job_info = context.statusTracker().getJobInfo(found)
        assert job_info is not None
        (stage,) = (context.statusTracker().getStageInfo(each) for each in job_info.stageIds)
        assert stage is not None
        assert stage.numTasks <= LISTERS * context.defaultParallelism < files
        assert rows.rdd.getNumPartitions() <= 2 * context.defaultParallelism
        assert rows.count() == files
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


@pytest.mark.e2e
def test_ctrl_c_ends_an_audit_with_one_line(
    connector: Path, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, 5000)
    confs = [f"--conf={key}={value}" for key, value in SMALL.items()]
    words = ["audit", "-b", broker.bootstrap, f"--topics={topic}", *confs]
    log = tmp_path / "log"
    with log.open("wb") as output:
        audit = subprocess.Popen(
            [sys.executable, "-m", "kwire.server", "pipeline", *words],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "KWIRE_SPARK_JARS": str(connector),
                "KWIRE_SPARK_MASTER": "local[1]",
            },
            stdout=output,
            stderr=output,
            # As from a terminal, the signal also reaches the JVM.
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 240.0
        while "audit: reading" not in log.read_text():
            assert audit.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        os.killpg(audit.pid, signal.SIGINT)
        assert audit.wait(120) == 130, log.read_text()
    finally:
        end_process(audit)
    said = log.read_text().partition("offsets\n")[2]
    assert said == "kwire pipeline: audit was interrupted\n"


@pytest.mark.e2e
def test_damage_in_a_topic_is_named_with_its_offset(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(2):
        producer.produce(topic, f"value {number}")
        producer.flush(60)
    segment = broker.log_dir / f"{topic}-0" / f"{0:020d}.log"
    flip(segment, segment.stat().st_size - 3)
    with pytest.raises(Exception) as raised:
        job.audit(options_of("-b", broker.bootstrap, f"--topics={topic}"))
    assert explain(raised.value) == (
        f"{topic} partition 0: the batch at offset 1 is damaged on the broker:"
        " kwire pipeline audit --log-dir shows all damaged batches"
    )
