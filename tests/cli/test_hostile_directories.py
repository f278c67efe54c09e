"""Commands that read a directory terminate, whatever its content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kwire.records.builder import BatchBuilder
from server.cli.dump_log import files_of
from server.explain.directory import LogFiles, record_facts
from server.log.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, CorruptCheckpoint
from server.log.stored_logs import segment_files
from server.metadata.topic_partition import TopicPartition


def test_directories_that_link_to_each_other_are_read_once(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    segment = log / f"{0:020}.log"
    segment.touch()
    for name in ("a", "b"):
        (log / name).symlink_to(tmp_path)
    assert list(files_of(tmp_path)) == [segment]


def test_pipe_among_segments_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    segment = log / f"{0:020}.log"
    segment.touch()
    os.mkfifo(log / f"{1:020}.log")
    assert list(files_of(tmp_path)) == [segment]
    tp = TopicPartition("t", 0)
    files = LogFiles([str(tmp_path)])
    assert segment_files(log) == [segment]
    assert list(files.batches(tp)) == []


def test_pipe_in_place_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / HIGH_WATERMARK)
    with pytest.raises(CorruptCheckpoint, match=f"{HIGH_WATERMARK} is not a file"):
        LogFiles([str(tmp_path)])


@pytest.mark.parametrize(
    ("high_watermark", "start", "expected"),
    [(2, 1, (1, 2, 3)), (99, 0, (0, 3, 3)), (-5, -7, (0, 0, 3)), (3, 99, (3, 3, 3))],
)
def test_checkpoints_are_believed_within_the_log_only(
    tmp_path: Path, high_watermark: int, start: int, expected: tuple[int, int, int]
) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(0, None, b"value")
    (log / f"{0:020}.log").write_bytes(builder.build())
    (log / "notes.log").touch()
    (tmp_path / HIGH_WATERMARK).write_text(f"0\n1\nt 0 {high_watermark}\n")
    (tmp_path / LOG_START_OFFSET).write_text(f"0\n1\nt 0 {start}\n")
    facts = record_facts(LogFiles([str(tmp_path)]), "t", 0, 1, 0)
    assert (facts.log_start, facts.high_watermark, facts.log_end) == expected
