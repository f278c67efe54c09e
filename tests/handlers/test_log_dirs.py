"""DescribeLogDirs, compared with answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from server.handlers.log_dirs import describe_log_dirs
from tests.support.replicas import Replicas, batch

SIZE = len(batch(b"value"))


def describe(room: Replicas, topics: dict[str, list[int]] | None, version: int = 4) -> Any:
    asked = None
    if topics is not None:
        asked = [
            DescribableLogDirTopic(topic=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    answer = room.call(describe_log_dirs, DescribeLogDirsRequest(topics=asked), version)
    encode(answer, version)
    assert answer.error_code == 0
    return answer.results


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_size
        for topic in result.topics
        for row in topic.partitions
    }


@pytest.fixture
def filled(room: Replicas) -> Replicas:
    room.create("a", 2)
    room.create("b")
    room.produce("a", b"value", number=1)
    return room


@pytest.mark.parametrize("version", range(5))
def test_all_partitions_are_told_with_their_sizes(filled: Replicas, version: int) -> None:
    (result,) = describe(filled, None, version)
    assert (result.error_code, result.log_dir) == (0, str(filled.folder))
    assert sizes(result) == {("a", 0): 0, ("a", 1): SIZE, ("b", 0): 0}
    rows = [row for topic in result.topics for row in topic.partitions]
    assert {(row.offset_lag, row.is_future_key) for row in rows} == {(0, False)}


def test_room_on_the_disk_is_told(filled: Replicas) -> None:
    (result,) = describe(filled, None)
    assert result.total_bytes == shutil.disk_usage(filled.folder).total
    assert 0 < result.usable_bytes <= result.total_bytes


def test_only_what_was_asked_for_is_told(filled: Replicas) -> None:
    (result,) = describe(filled, {"a": [1, 7], "nope": [0]})
    assert sizes(result) == {("a", 1): SIZE}
    (result,) = describe(filled, {})
    assert sizes(result) == {}


def test_directories_answer_for_themselves_and_a_failed_one_says_so(tmp_path: Path) -> None:
    room = Replicas(tmp_path, {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}).start()
    room.create("a", 2)
    one, two = describe(room, None)
    assert sorted([*sizes(one), *sizes(two)]) == [("a", 0), ("a", 1)]
    assert len(sizes(one)) == 1
    room.logs.directories[1].offline = True
    one, two = describe(room, None)
    assert (one.error_code, two.error_code) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert two.topics == [] and two.log_dir == str(tmp_path / "two")
    room.stop()
