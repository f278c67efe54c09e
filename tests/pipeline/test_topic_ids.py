"""A topic that was deleted and created again is recognised by its id: the rules, without Spark."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid

from kwire.pipeline import cluster as cluster_module
from kwire.pipeline.aggregate.read_topics import FILE, ReadTopics
from kwire.pipeline.archive.checks import Checks
from kwire.pipeline.checkpoints import Checkpoint
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import SNAPSHOT_EVERY, Archive, Conflict, ManifestEntry
from kwire.pipeline.problems import Problem
from kwire.pipeline.replay.into_source import doubled, ids_in_source
from kwire.pipeline.topic_ids import id_text, made_anew
from kwire.types import uuid_to_str

from ..support.broker_process import BrokerProcess
from .archive_model import create_topic


class FakeCluster:
    """Brokers that only know ids."""

    bootstrap = "b:1"

    def __init__(self, ids: Mapping[str, str]) -> None:
        self.ids = ids

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {name: own for name, own in self.ids.items() if name in topics}


def cluster_of(**ids: str) -> Any:
    return FakeCluster(ids)


def entry(first: int, last: int) -> ManifestEntry:
    return ManifestEntry("orders", 0, first, last, 0, ())


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "archive")
    made.create()
    return made


def test_id_is_written_as_kafkas_tools_write_it() -> None:
    assert id_text(Uuid(-1, -1)) == uuid_to_str(b"\xff" * 16) == "_" * 21 + "w"
    assert id_text(Uuid(0, 0)) is None


def test_topic_is_made_anew_only_if_both_ids_are_known() -> None:
    assert made_anew({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == ["b"]


@pytest.mark.e2e
def test_broker_tells_ids_of_topics_that_are_there(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    text = (broker.log_dir / f"{topic}-0" / "partition.metadata").read_text()
    with Cluster(broker.bootstrap) as cluster:
        assert cluster.topic_ids([topic, f"{topic}-absent"]) == {topic: text.split("topic_id: ")[1]}


class DyingAdmin:
    """A client whose answers are lost, or are these errors, before it has one; without errors left it knows every topic."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[set[str]] = []

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        names = topics.topic_names
        self.asked.append(set(names))
        answers: dict[str, Future[Any]] = {name: Future() for name in names}
        for name, answer in answers.items():
            if name != "quick" and self.errors:
                answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            else:
                answer.set_result(SimpleNamespace(topic_id=Uuid(0, 1)))
        return answers

    def list_offsets(
        self, places: Mapping[TopicPartition, Any], **_: object
    ) -> dict[TopicPartition, Future[Any]]:
        answers: dict[TopicPartition, Future[Any]] = {place: Future() for place in places}
        for answer in answers.values():
            if self.errors:
                answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            else:
                answer.set_result(SimpleNamespace(offset=17))
        return answers

    def list_topics(self, **_: object) -> SimpleNamespace:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return SimpleNamespace(brokers={}, topics={})

    def poll(self, _: float) -> None:
        """Nothing has happened."""


def test_ids_are_asked_for_again_if_the_broker_goes_away_before_it_answers() -> None:
    cluster = Cluster("127.0.0.1:1")
    admin = DyingAdmin(KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    cluster._admin = admin
    assert cluster.topic_ids(["quick", "slow"]).keys() == {"quick", "slow"}
    assert admin.asked == [{"quick", "slow"}, {"slow"}, {"slow"}]
    # No such topic is an answer.
    cluster._admin = DyingAdmin(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert not cluster.topic_ids(["gone"])
    cluster._admin = DyingAdmin(KafkaError._AUTHENTICATION)
    with pytest.raises(Problem, match=r"the id of topic orders: [^;]*$"):
        cluster.topic_ids(["orders"])


def test_cluster_that_has_answered_before_is_asked_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.1)
    monkeypatch.setattr(cluster_module, "GONE_S", 0.0)
    monkeypatch.setattr(cluster_module, "refused", lambda _: None)
    # Less than the time between two requests, so that the second failure is too late.
    away = [KafkaError._TIMED_OUT] * 2
    new = Cluster("127.0.0.1:1")
    new._admin = DyingAdmin(*away)
    with pytest.raises(Problem, match=r"the id of topic orders: .*; nothing is lost: run the same"):
        new.topic_ids(["orders"])
    known = Cluster("127.0.0.1:1")
    known._admin = DyingAdmin()
    known.partitions()
    known._admin = DyingAdmin(*away)
    assert known.topic_ids(["orders"]).keys() == {"orders"}
    # The request whether the topic still exists also fails, which does not mean that it is gone.
    known._admin = DyingAdmin(*away)
    assert known.starts({"orders": 1}) == {("orders", 0): 17}
    known._admin = DyingAdmin(*away * 10)
    with pytest.raises(Problem, match=r"offsets of orders-0: .*; nothing is lost: run the same"):
        known.starts({"orders": 1})


def test_archive_keeps_ids_through_commits_and_snapshots(archive: Archive) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    assert archive.topic_ids() == {}
    archive.commit_batch([entry(10, 19)], 1, {"orders": "id-1"})
    manifests = sorted(Path(archive.path, "_archive").glob("*.json"))
    for number in range(2, SNAPSHOT_EVERY + 1):
        archive.commit_batch([entry(10 * number, 10 * number + 9)], number, {"orders": "id-1"})
    assert "id-1" in manifests[2].read_text()
    assert Archive(archive.path).topic_ids() == archive.topic_ids() == {"orders": "id-1"}
    # Reported once, not with each commit.
    assert sum("id-1" in path.read_text() for path in Path(archive.path).rglob("*.json")) == 2


def test_batch_of_a_topic_with_another_id_is_refused(archive: Archive) -> None:
    other = Archive(archive.path)
    assert other.ends() == {}
    archive.commit_batch([entry(0, 9)], 0, {"orders": "id-1"})
    with pytest.raises(Conflict, match="topic orders now has another id"):
        other.commit_batch([entry(10, 19)], 0, {"orders": "id-2"})


def test_archive_is_compared_with_what_is_there(archive: Archive) -> None:
    options = Namespace(checkpoint_dir=None, group="archive")
    topics = ["orders", "payments"]
    # An archive without ids continues, and so does one whose broker has no ids.
    checks = Checks(cluster_of(orders="id-1"), archive, options)
    before = checks.topic_ids(topics)
    assert checks.topic_ids(topics, before) == before == {"orders": "id-1"}
    archive.commit_batch([entry(0, 9)], 0, before)
    assert Checks(cluster_of(), archive, options).topic_ids(topics) == {}
    said = (
        "topic orders was deleted and created again: the archive is of topic id id-1, b:1 has id-2, which does not"
        " continue it; archive it to another --path"
    )
    with pytest.raises(Problem, match=said):
        Checks(cluster_of(orders="id-2"), archive, options).topic_ids(topics)


def test_topic_made_anew_between_two_looks_is_refused(archive: Archive) -> None:
    checks = Checks(cluster_of(orders="id-2"), archive, Namespace(checkpoint_dir=None, group="g"))
    with pytest.raises(Problem, match="topic orders was deleted and created again"):
        checks.topic_ids(["orders"], {"orders": "id-1"})
    # A topic whose id became known only the second time may have been another one before.
    assert checks.topic_ids(["orders"], {}) == {}


def test_checkpoint_knows_the_topics_it_has_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.claim("aggregate", {})

    def check(go_on: bool = False, **ids: str) -> None:
        ReadTopics(checkpoint, cluster_of(**ids), go_on=go_on).check(["orders", "payments"])

    check()
    check(orders="id-1")
    check(payments="id-2")
    with pytest.raises(
        Problem, match=r"topic orders was deleted .* id-1, b:1 has id-3; start over"
    ):
        check(orders="id-3", payments="id-2")
    assert capsys.readouterr().err == ""
    check(go_on=True, orders="id-3")
    assert "topic orders was deleted and created again" in capsys.readouterr().err
    check(orders="id-3", payments="id-2")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[]", "it is not a JSON object"),
        ('{"orders": 1}', "orders is not a string"),
    ],
)
def test_damaged_file_of_ids_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(Problem, match=rf"checkpoint {tmp_path} is damaged: {FILE}: {why}"):
        ReadTopics(Checkpoint(tmp_path), cluster_of(), go_on=False).check(["orders"])


@pytest.mark.parametrize(
    ("known", "there", "records", "expected"),
    [
        ({"orders": ["1"]}, {"orders": "1"}, {"orders": 5}, ["orders"]),
        ({"orders": ["2", "1"]}, {"orders": "1"}, {"orders": 5}, ["orders"]),
        # Created again to be filled from the archive, or on another cluster.
        ({"orders": ["1"]}, {"orders": "2"}, {"orders": 5}, []),
        # Nothing there that could be duplicated.
        ({"orders": ["1"]}, {"orders": "1"}, {"orders": 0}, []),
        # Nothing is known but the name.
        ({}, {"orders": "1"}, {"orders": 5}, ["orders"]),
        ({"orders": ["1"]}, {}, {"orders": 5}, ["orders"]),
    ],
)
def test_topic_would_be_doubled_if_it_is_the_one_the_records_are_from(
    known: dict[str, list[str]],
    there: dict[str, str],
    records: dict[str, int],
    expected: list[str],
) -> None:
    assert doubled(known, there, records) == expected


def test_ids_of_all_log_directories_that_a_pattern_matches_are_known(tmp_path: Path) -> None:
    ids = [uuid_to_str(bytes([number]) * 16) for number in (1, 2)]
    for number, own in enumerate(ids):
        log = tmp_path / f"disk{number}" / f"orders-{number}"
        log.mkdir(parents=True)
        (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {own}\n")
    given = Namespace(archive=None, segments=f"{tmp_path}/disk?")
    assert ids_in_source(given) == {"orders": set(ids)}
