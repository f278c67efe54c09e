"""Commands that read a directory end, whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

from server.cli.dump_log import files_of
from server.explain.directory import LogFiles
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
    assert files.segments(tp) == [segment]
    assert list(files.batches(tp)) == []
