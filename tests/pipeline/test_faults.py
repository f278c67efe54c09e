"""Bad input and faults of the job `archive`: one clear message each, and nothing is lost.

The table is docs/pipeline/faults.md (see faults.py).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kwire.pipeline import cluster as cluster_module
from kwire.pipeline.archive import job
from kwire.pipeline.checkpoints import Checkpoint
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import Archive, ManifestEntry
from kwire.pipeline.problems import Problem
from kwire.pipeline.storage import LocalStorage

from ..support.broker_process import BrokerProcess, free_port
from ..support.small_disk import small_disk
from .archive_model import Record, archived, create_topic, produce
from .faults import check_row, message_of, names_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]


@dataclass
class Desk:
    """One topic with its archive, and the records that should be in it."""

    spark: SparkSession
    broker: BrokerProcess
    topic: str
    folder: Path
    wanted: list[Record] = field(default_factory=list)
    #: Other values that differ from run to run -> their placeholders.
    names: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / "archive"

    @property
    def checkpoint(self) -> Path:
        return self.path / "_checkpoints" / "archive"

    def options(self, *words: str) -> Namespace:
        parser = ArgumentParser()
        job.add_arguments(parser)
        given = [f"-b={self.broker.bootstrap}", f"--path={self.path}", f"--topics={self.topic}"]
        return parser.parse_args([*given, "--once", "--quiet", *words])

    def run(self, *words: str) -> None:
        options = self.options(*words)
        with Cluster(options.bootstrap_server) as cluster:
            cluster.chosen(options)
            assert job.archive_topics(self.spark, cluster, options) == 0

    def produce(self, count: int) -> list[Record]:
        """Records in batches of ten, all of which the archive should get."""
        made = produce(self.broker.bootstrap, self.topic, count, batch_records=10)
        self.wanted += made
        return made

    def delete_before(self, offset: int) -> None:
        """Delete records, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.delete_records([TopicPartition(self.topic, 0, offset)])
        with Cluster(self.broker.bootstrap) as cluster:
            while cluster.starts({self.topic: 1}) != {(self.topic, 0): offset}:
                pass

    def delete_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(60)

    def make_anew(self) -> None:
        """Delete the topic, and create another one with the same name."""
        with Cluster(self.broker.bootstrap) as cluster:
            before = cluster.topic_ids([self.topic])[self.topic]
            self.delete_topic()
            create_topic(self.broker.bootstrap, self.topic)
            self.names = {before: "ID", cluster.topic_ids([self.topic])[self.topic]: "OTHER"}

    def fails(self, fault: str, again: str, *words: str) -> str:
        """Run the job, and check that it fails as described on the page; return the message."""
        with pytest.raises(Exception) as failure:
            self.run(*words)
        message = message_of(failure.value)
        self.told(fault, message, again)
        return message

    def told(self, fault: str, message: str, again: str) -> None:
        names = names_of(self.folder, self.broker.bootstrap, self.topic)
        check_row("archive", fault, message, again, {**names, **self.names})

    def is_exact(self) -> bool:
        return archived(self.path) == sorted(self.wanted)


@pytest.fixture
def desk(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> Desk:
    create_topic(broker.bootstrap, topic)
    return Desk(spark, broker, topic, tmp_path)


@contextmanager
def before(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], Any]) -> Iterator[None]:
    """Do something just before the job's next call of one of its functions."""
    original = getattr(job, name)

    def called(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(job, name, original)
        action()
        return original(*arguments, **options)

    monkeypatch.setattr(job, name, called)
    yield
    assert getattr(job, name) is original


def test_wrong_names_and_addresses_are_told_before_spark_starts(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE", 1.0)
    parser = ArgumentParser()
    job.add_arguments(parser)
    nowhere = f"127.0.0.1:{free_port()}"
    for fault, address, again in (
        ("no such topic", broker.bootstrap, "the same, until the topic is there"),
        ("no broker", nowhere, "the same, until a broker answers"),
    ):
        words = [f"-b={address}", f"--topics={topic}", f"--path={tmp_path}"]
        with pytest.raises(Problem) as failure:
            job.run(parser.parse_args(words))
        names = names_of(tmp_path, address, topic)
        check_row("archive", fault, str(failure.value), again, names)
    assert not list(tmp_path.iterdir())


def test_offsets_to_start_at_of_no_partition_are_refused_before_spark_starts(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic)
    parser = ArgumentParser()
    job.add_arguments(parser)
    for named, number, said in (
        (topic + "x", 0, f"names {topic}x-0, which --topics does not have"),
        (topic, 99, f"names {topic}-99, which --topics does not have"),
        (topic, 0, f"names offset 17 of {topic}-0, which ends at 0"),
    ):
        asked = json.dumps({named: {str(number): 17}})
        words = [f"-b={broker.bootstrap}", f"--topics={topic}", f"--path={tmp_path}"]
        with pytest.raises(Problem, match=said):
            job.run(parser.parse_args([*words, f"--starting-offsets={asked}"]))
    assert not list(tmp_path.iterdir())


def test_path_below_a_file_is_told_before_spark_starts(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    create_topic(broker.bootstrap, topic)
    parser = ArgumentParser()
    job.add_arguments(parser)
    words = [f"-b={broker.bootstrap}", f"--topics={topic}", f"--path={file}/archive"]
    with pytest.raises(
        Problem, match="cannot be a folder: there is a file of this name, or of one"
    ):
        job.run(parser.parse_args(words))


def test_wrong_checkpoints_and_folders_are_named(desk: Desk) -> None:
    desk.produce(30)
    desk.run()
    offsets = desk.checkpoint / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*lines[:-1], '{"orders":{"0"']))
    gone_on = "the same; without the checkpoint, it continues where the archive ends"
    desk.fails("damaged checkpoint", gone_on)
    desk.produce(30)
    shutil.rmtree(desk.checkpoint)
    desk.run()
    assert desk.is_exact()

    other = f"{desk.topic}.other"
    create_topic(desk.broker.bootstrap, other)
    chosen = "the same; with its own checkpoint, it continues"
    desk.topic, topic = other, desk.topic
    with pytest.raises(Problem) as failure:
        desk.run()
    desk.topic = topic
    desk.told("checkpoint of another topic", str(failure.value), chosen)
    Checkpoint(desk.folder / "replay").claim("replay", {"to": "copy"})
    words = f"--checkpoint-dir={desk.folder}/replay"
    desk.fails("checkpoint of another job", chosen, words)
    (desk.folder / "strange" / "offsets").mkdir(parents=True)
    words = f"--checkpoint-dir={desk.folder}/strange"
    desk.fails("checkpoint of another program", chosen, words)

    # The archive itself: lost, foreign, of another layout.
    manifest = desk.path / "_archive" / f"{1:020d}.json"
    content = manifest.read_bytes()
    manifest.unlink()
    restored = "the same, until the file is restored"
    desk.fails("manifest missing", restored)
    manifest.write_bytes(content[:100])
    desk.fails("manifest cut", restored)
    manifest.write_bytes(content)
    first = desk.path / "_archive" / f"{0:020d}.json"
    content = first.read_bytes()
    first.write_text('{"format": 2, "columns": ["key", "value"]}')
    desk.fails("archive of another layout", "the same; another folder is needed")
    first.write_bytes(content)
    desk.produce(10)
    desk.run()
    assert desk.is_exact()
    shutil.rmtree(desk.path / "_archive")
    desk.fails("folder with files of others", "the same; another folder is needed")
    shutil.rmtree(desk.path / f"topic={desk.topic}")
    message = desk.fails(
        "archive restored from an older copy",
        "the same; without the checkpoint it archives what is missing",
    )
    assert "remove the checkpoint" in message
    shutil.rmtree(desk.checkpoint)
    desk.run()
    assert desk.is_exact()


def test_deleted_offsets_are_told_and_with_go_on_noted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def noted(fault: str, first: int, last: int) -> None:
        desk.wanted = [r for r in desk.wanted if not first <= r.offset <= last]
        capsys.readouterr()
        desk.run("--on-data-loss=go-on")
        message = capsys.readouterr().err.strip().removeprefix("kwire pipeline: ")
        desk.told(fault, message, "continues; the manifest records the gap")
        assert desk.is_exact()
        assert Archive(desk.path).entries()[-1].lost == ((first, last),)

    desk.produce(50)
    desk.run()
    desk.produce(100)
    same = "the same; `--on-data-loss go-on` archives the rest"
    desk.delete_before(80)
    desk.fails("next offset deleted", same)
    noted("next offset deleted, `go-on`", 50, 79)

    # While a batch reads. Spark meets it first; the message names the existing offsets.
    desk.produce(50)
    with before(monkeypatch, "stage_slices", lambda: desk.delete_before(170)):
        desk.fails("offsets deleted while they are read", same)
    desk.wanted = [r for r in desk.wanted if r.offset < 150]
    desk.run("--on-data-loss=go-on")
    desk.wanted += desk.produce(0) or [r for r in archived(desk.path) if r.offset >= 170]
    assert desk.is_exact() and len(desk.wanted) == 50 + 70 + 30
    desk.produce(50)
    with before(monkeypatch, "stage", lambda: desk.delete_before(220)):
        noted("offsets deleted while they are read, `go-on`", 200, 219)


def test_topic_made_anew_or_deleted_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.produce(50)
    desk.run()
    kept = list(desk.wanted)
    desk.make_anew()
    desk.produce(20)
    another = "the same; what was archived stays"
    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "topic_ids", lambda *_: {})
        desk.fails("topic created again, brokers without topic ids", another)
        desk.fails(
            "topic created again, brokers without topic ids", another, "--on-data-loss=go-on"
        )
    # With as many records as archived, and more: offsets do not reveal it. Spark need not run to report it.
    desk.produce(80)
    monkeypatch.setattr(job, "start_session", None)
    for words in ([], ["--on-data-loss=go-on"]):
        with pytest.raises(Problem) as failure:
            job.run(desk.options(*words))
        desk.told("topic deleted and created again", str(failure.value), another)
    desk.wanted = kept
    assert desk.is_exact()

    # While a batch is read, which then counts for nothing.
    desk.folder = desk.folder / "other"
    desk.wanted = []
    with before(monkeypatch, "stage_slices", lambda: (desk.make_anew(), desk.produce(200))):
        desk.fails("topic deleted and created again", another)
    desk.run()
    assert desk.is_exact()
    with before(monkeypatch, "_counts", desk.delete_topic):
        desk.produce(10)
        desk.fails("topic deleted while the job runs", "the same, until the topic is there")


def test_archive_of_an_earlier_version_takes_the_topic_id_up(desk: Desk) -> None:
    desk.produce(20)
    desk.run()
    for manifest in sorted((desk.path / "_archive").glob("*.json")):
        tree = json.loads(manifest.read_text())
        del tree["sha256"]
        own = "".join(tree.pop("topic_ids", {}).values())
        manifest.write_text(json.dumps(tree))
    desk.produce(20)
    desk.run()
    assert Archive(desk.path).topic_ids() == {desk.topic: own}
    assert desk.is_exact()


def test_two_jobs_at_once_archive_nothing_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.produce(50)
    other = Archive(desk.path)

    def archive_it() -> None:
        other.commit_batch([ManifestEntry(desk.topic, 0, 0, 19, 0, ())], 0)

    with before(monkeypatch, "publish", archive_it):
        desk.fails("two jobs for one topic", "archives what the other did not")
    desk.run()
    desk.wanted = [record for record in desk.wanted if record.offset >= 20]
    assert desk.is_exact()
    files = {str(file) for file in desk.path.glob("topic=*/date=*/**/*.parquet")}
    assert files == set(Archive(desk.path).files())


def test_second_job_of_the_same_group_is_refused_and_sweeps_nothing(desk: Desk) -> None:
    staged = desk.path / "_staging" / "archive.archive.0" / "part"
    staged.parent.mkdir(parents=True)
    staged.touch()
    with LocalStorage(str(desk.path)).hold("_locks/archive.archive.lock") as alone:
        assert alone
        with pytest.raises(
            Problem, match=r"a job with --group archive is already archiving to .*:"
        ):
            desk.run()
    assert staged.exists()


def test_full_disk_loses_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    again = "archives what is missing, once there is room"
    with small_disk(desk.folder / "small", 1) as disk:
        desk.folder = disk.folder
        desk.produce(20)
        desk.run()
        desk.produce(30)
        if disk.mounted:
            ballast = disk.folder / "ballast"
            with pytest.raises(OSError, match="No space left"):
                ballast.write_bytes(os.urandom(1 << 20))
            ballast.write_bytes(bytes(ballast.stat().st_size - (20 << 10)))
            desk.fails("disk full", again)
            ballast.unlink()
        else:
            with monkeypatch.context() as patch:
                patch.setattr(job, "stage_slices", fill)
                desk.fails("disk full", again)
        desk.run()
        assert desk.is_exact()


@pytest.mark.skipif(not LONG, reason="waits for Spark's own patience; KWIRE_LONG=1")
def test_broker_that_stays_away_ends_the_job(
    desk: Desk, new_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.broker = new_broker()
    create_topic(desk.broker.bootstrap, desk.topic)
    desk.produce(50)
    quick = (
        "--client-property=default.api.timeout.ms=4000",
        "--client-property=request.timeout.ms=3000",
    )
    monkeypatch.setattr(cluster_module, "PATIENCE", 1.0)
    parser = ArgumentParser()
    job.add_arguments(parser)
    options = desk.options(*quick)
    options.once, options.interval = False, 1000
    with (
        Cluster(options.bootstrap_server) as cluster,
        before(monkeypatch, "publish", desk.broker.kill),
        pytest.raises(Exception) as failure,
    ):
        job.archive_topics(desk.spark, cluster, options)
    desk.told(
        "broker away for longer than the clients wait",
        message_of(failure.value),
        "archives the rest, once a broker is there",
    )
    desk.broker.start()
    desk.produce(50)
    desk.run()
    assert desk.is_exact()
