"""The requests of archive to a cluster, answered from log directories; without Spark."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from kwire.pipeline.checkpoints import Checkpoint
from kwire.pipeline.log_cluster import LogCluster
from kwire.pipeline.options import say_if_none
from kwire.pipeline.problems import Problem
from kwire.types import uuid_to_str
from server.log.checkpoint import HIGH_WATERMARK, write_offsets
from server.log.file_layer import FileLayer
from server.log.meta_properties import write_topic_id

from ..log.logs import TP, append, batch, config, open_log

PLACE = ("topic", 0)


def options(*topics: str, pattern: str | None = None) -> Namespace:
    return Namespace(topics=list(topics), topics_pattern=pattern)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve records, of which the broker has committed ten; the last transaction is open from offset 8 on."""
    log = open_log(tmp_path, config())
    for _ in range(4):
        append(log, batch(b"a", b"b"))
    for sequence in (0, 2):
        append(log, batch(b"c", b"d", pid=7, epoch=0, sequence=sequence, transactional=True))
    log.close()
    write_offsets(FileLayer(), f"{tmp_path}/{HIGH_WATERMARK}", {TP: 10})
    return tmp_path


def test_directories_answer_as_brokers_do(folder: Path) -> None:
    with LogCluster([str(folder)]) as cluster:
        assert cluster.chosen(options("topic")) == {"topic": 1}
        assert cluster.chosen(options(pattern="t.*")) == {"topic": 1}
        assert cluster.chosen(options(pattern="x.*")) == {}
        assert cluster.starts({"topic": 1}) == {PLACE: 0}
        assert cluster.ends({"topic": 1}) == {PLACE: 10}
        assert cluster.ends({"topic": 1}, read_committed=True) == {PLACE: 8}
        assert cluster.ends({"other": 1}) == {}
        assert cluster.topic_ids(["topic"]) == {}
        write_topic_id(FileLayer(), f"{folder}/{TP}", b"\1" * 16)
        assert cluster.topic_ids(["topic", "other"]) == {"topic": uuid_to_str(b"\1" * 16)}
        cluster.commit("group", {PLACE: 3})


def test_what_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(Problem, match=f"there is no topic x in {folder}"):
        LogCluster([str(folder)]).chosen(options("topic", "x"))
    with pytest.raises(Problem, match="is not a directory on"):
        LogCluster([f"{folder}/absent"]).chosen(options("topic"))


def test_pattern_that_matches_nothing_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say_if_none(options(pattern="x"), [], LogCluster([str(folder)]).where)
    assert capsys.readouterr().err == f"kwire pipeline: no topic in {folder} matches 'x' yet\n"


def test_checkpoint_keeps_where_a_query_of_other_sources_began(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.initial() == {}
    checkpoint.begin({("b", 1): 5, ("a", 0): 3})
    assert checkpoint.initial() == {("a", 0): 3, ("b", 1): 5}
