"""The job `archive` on a shared Spark: contents, late topics, interrupted batches, compaction."""

from __future__ import annotations

import shutil
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline.archive import job
from kwire.pipeline.archive.files import NO_HOUR, read_archive
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.log_cluster import LogCluster
from kwire.pipeline.manifest import Archive
from kwire.pipeline.storage import HadoopStorage

from ..support.broker_process import BrokerProcess
from . import archive_model
from .archive_model import (
    EVENING_MS,
    archived,
    create_topic,
    failing_once,
    produce,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

Archiver = Callable[..., int]


def options_of(*words: str) -> Namespace:
    parser = ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture
def archive(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Archiver:
    """A function that runs the job on the shared Spark until all is archived."""

    def run(*words: str, path: Path = tmp_path / "archive") -> int:
        given = ["-b", broker.bootstrap, f"--path={path}", f"--group={tmp_path.name}", *words]
        options = options_of(*given, "--once")
        with job.cluster_of(options) as cluster:
            return job.archive_topics(spark, cluster, options)

    return run


def parquet_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.glob("topic=*/date=*/**/*.parquet")}


def named_files(path: Path) -> set[str]:
    return {file.path for entry in Archive(path).entries() for file in entry.files}


def test_topics_become_files_by_hour_and_each_record_is_there_once(
    archive: Archiver,
    spark: SparkSession,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "archive"
    create_topic(broker.bootstrap, topic, 2)
    # From 23:58 on, and out of order: the second record is from the hour before.
    wanted = produce(broker.bootstrap, topic, 300, partitions=2)
    produce(broker.bootstrap, topic, 10, partitions=2, transaction=False)
    wanted += produce(
        broker.bootstrap, topic, 20, partitions=2, start_ms=EVENING_MS - 3_600_000, transaction=True
    )
    pattern = f"--topics-pattern={topic}.*"
    assert archive(pattern, "--max-offsets-per-trigger=150") == 0

    said = capsys.readouterr()
    assert "batch 0: " in said.err and f"lag {topic} 0:" in said.err
    assert f"archived 320 rows in {len(parquet_files(path))} files" in said.out
    assert archived(path) == sorted(wanted)
    assert {name.split("/")[1] for name in parquet_files(path)} == {
        "date=2026-01-02",
        "date=2026-01-03",
    }
    assert "hour=22" in str(parquet_files(path)) and "hour=00" in str(parquet_files(path))
    with Cluster(broker.bootstrap) as cluster:
        ends = cluster.ends({topic: 2}, read_committed=True)
        # The archived offsets are committed to the group, including markers at the end.
        committed = {place: own.offset for place, own in cluster.committed(tmp_path.name).items()}
        assert committed == ends == Archive(path).ends()
        assert Archive(path).topic_ids() == cluster.topic_ids([topic]) != {}

    # More records, and a topic that the pattern finds later.
    wanted += produce(broker.bootstrap, topic, 50, partitions=2)
    create_topic(broker.bootstrap, f"{topic}.late")
    wanted += produce(broker.bootstrap, f"{topic}.late", 40)
    before = named_files(path)
    assert archive(pattern, "--quiet") == 0
    assert archived(path) == sorted(wanted)
    assert before < named_files(path) == parquet_files(path)
    # Nothing is new: nothing is written.
    assert archive(pattern, "--quiet") == 0
    assert "archived 0 rows in 0 files" in capsys.readouterr().out

    # Spark reads the files in the manifests, and takes the topic from the folders.
    frame = read_archive(spark, Archive(path))
    assert rows_of(frame) == sorted(wanted)
    late = frame.where(f"topic = '{topic}.late' and date = '2026-01-02' and hour = '23'")
    assert late.count() == 40
    _compacts(spark, path, wanted)


def _compacts(spark: SparkSession, path: Path, wanted: list[archive_model.Record]) -> None:
    """Small files are merged into one for each partition and hour; readers of the old ones still find them."""
    reader = Archive(path)
    old = reader.files()
    stray = path / "topic=a" / "date=2026-01-02" / "stray.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"")
    assert job.compact_archive(spark, options_of(f"--path={path}", "--compact")) == 0
    assert archived(path) == sorted(wanted)
    names = named_files(path)
    assert len(names) == len({name.rsplit("-", 3)[0] for name in names}) < len(old)
    assert all(Path(file).exists() for file in old)
    words = (f"--path={path}", "--compact", "--keep-replaced=0s")
    assert job.compact_archive(spark, options_of(*words)) == 0
    assert parquet_files(path) - {str(stray.relative_to(path))} == named_files(path) == names
    assert archived(path) == sorted(wanted)


def test_scattered_hours_become_files_by_day_and_compaction_keeps_the_days(
    archive: Archiver,
    spark: SparkSession,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "archive"
    create_topic(broker.bootstrap, topic)
    wanted = []
    for _ in range(2):
        for _ in range(2):
            wanted += produce(broker.bootstrap, topic, 100, step_ms=3_600_000)
        assert archive(f"--topics={topic}") == 0
        told = f"{topic}-0: records of more than 64 hours alternate"
        assert capsys.readouterr().err.count(told) == 1
    assert archived(path) == sorted(wanted)
    days = {name.split("/")[1] for name in named_files(path)}
    assert len(days) == 6 and len(named_files(path)) == 12
    assert job.compact_archive(spark, options_of(f"--path={path}", "--compact")) == 0
    assert archived(path) == sorted(wanted)
    assert {name.rpartition("/")[0] for name in named_files(path)} == {
        f"topic={topic}/{day}/{NO_HOUR}" for day in days
    }
    assert len(named_files(path)) == 6
    assert rows_of(read_archive(spark, Archive(path)).where("hour IS NULL")) == sorted(wanted)


@pytest.mark.parametrize("killed_in", ["commit_batch", "_write_snapshot"])
def test_batch_interrupted_before_or_after_its_commit_is_there_once(
    archive: Archiver,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    killed_in: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "archive"
    create_topic(broker.bootstrap, topic)
    wanted = produce(broker.bootstrap, topic, 100)
    assert archive(f"--topics={topic}", "--quiet") == 0
    wanted += produce(broker.bootstrap, topic, 60)
    # A snapshot is written after the commit: here after each.
    monkeypatch.setattr("kwire.pipeline.manifest.SNAPSHOT_EVERY", 1)
    with pytest.raises(Exception, match="killed in"), failing_once(Archive, killed_in):
        archive(f"--topics={topic}", "--quiet")
    more = produce(broker.bootstrap, topic, 30)
    assert archive(f"--topics={topic}", "--quiet") == 0
    assert archived(path) == sorted([*wanted, *more])
    assert parquet_files(path) == named_files(path)
    assert not list(path.glob("_staging/*"))


def test_archive_goes_on_without_its_checkpoint_with_an_old_one_and_elsewhere(
    archive: Archiver, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    create_topic(broker.bootstrap, topic)
    words = (f"--topics={topic}", "--quiet", f"--checkpoint-dir={checkpoint}")
    wanted = produce(broker.bootstrap, topic, 50)
    assert archive(*words) == 0
    shutil.copytree(checkpoint, tmp_path / "old")
    wanted += produce(broker.bootstrap, topic, 50)
    assert archive(*words) == 0
    shutil.rmtree(checkpoint)
    wanted += produce(broker.bootstrap, topic, 50)
    assert archive(*words) == 0
    shutil.rmtree(checkpoint)
    (tmp_path / "old").rename(checkpoint)
    wanted += produce(broker.bootstrap, topic, 50)
    assert archive(*words) == 0
    assert archived(path) == sorted(wanted)
    # With the checkpoint inside, the folder may be moved.
    assert archive(*words[:2]) == 0
    path = path.rename(tmp_path / "moved")
    wanted += produce(broker.bootstrap, topic, 50)
    assert archive(*words[:2], path=path) == 0
    assert archived(path) == sorted(wanted)


def test_log_directories_are_archived_like_topics(
    archive: Archiver, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    create_topic(broker.bootstrap, topic, 2)
    wanted = produce(broker.bootstrap, topic, 100, partitions=2)
    produce(broker.bootstrap, topic, 10, partitions=2, transaction=False)

    def committed() -> None:
        """Wait until the broker has written how far its log may be read."""
        logs = LogCluster([str(broker.log_dir)])
        deadline = time.monotonic() + 60
        with Cluster(broker.bootstrap) as cluster:
            while logs.ends({topic: 2}) != cluster.ends({topic: 2}):
                assert time.monotonic() < deadline
                time.sleep(0.1)

    words = (f"--topics={topic}", "--quiet")
    from_logs = (*words, f"--from-logs={broker.log_dir}")
    committed()
    archive(*from_logs)
    assert archived(path) == sorted(wanted)
    with Cluster(broker.bootstrap) as cluster:
        assert Archive(path).topic_ids() == cluster.topic_ids([topic])
        assert Archive(path).ends() == cluster.ends({topic: 2})
    wanted += produce(broker.bootstrap, topic, 30, partitions=2)
    committed()
    archive(*from_logs)
    assert archived(path) == sorted(wanted)
    # The same archive continues with brokers and the same checkpoint, and with more hours than Spark writes at a time.
    wanted += produce(broker.bootstrap, topic, 150, partitions=2, step_ms=3_600_000)
    wanted += produce(broker.bootstrap, topic, 150, partitions=2, step_ms=3_600_000)
    archive(*words)
    assert archived(path) == sorted(wanted)
    assert parquet_files(path) == named_files(path)


def test_file_system_of_hadoop_keeps_the_same_rules(spark: SparkSession, tmp_path: Path) -> None:
    storage = HadoopStorage(f"file:{tmp_path}")
    assert storage.list("a") == [] and storage.read("a/b") is None
    assert storage.create("a/b", b"first")
    assert not storage.create("a/b", b"second")
    assert storage.read("a/b") == b"first" and storage.read("a/b", last=3) == b"rst"
    storage.replace("a/b", b"third")
    storage.replace("a/c", b"")
    assert [item.name for item in storage.list("a")] == ["b", "c"]
    storage.move("a/b", "d/e/b")
    storage.move("a/c", "d/e/b")
    assert storage.read("d/e/b") == b"" and storage.read("a/b") is None
    storage.delete("d")
    storage.delete("nothing")
    assert [item.name for item in storage.list("")] == ["a"]
    with storage.hold("_locks/a.lock") as held:
        assert held is not None
        held()
    with storage.hold("_locks/a.lock") as held:
        assert held is not None
    storage.delete("_locks")
    archive = Archive(storage)
    with pytest.raises(Exception, match="no archive at file:"):
        archive.entries()
