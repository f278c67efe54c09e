"""Data directories that were damaged by hand, or left behind by another life of the broker."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from server.log.file_layer import FileLayer
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from ..log.logs import NOW, append, batch, config, values
from ..support.broker_process import REPOSITORY

TP = TopicPartition("a", 0)
ID = bytes(range(16))


def start(folder: Path) -> LogManager:
    """The logs of a directory, as a broker opens them that was killed."""
    manager = LogManager([str(folder)], FileLayer())
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: config(), NOW)
    return manager


def test_records_of_a_topic_made_anew_survive_the_start_offset_of_the_old_one(
    tmp_path: Path,
) -> None:
    manager = start(tmp_path)
    log = manager.create(TP, ID, config(), NOW)
    append(log, batch(*[b"old"] * 30))
    log.high_watermark = 30
    log.delete_records_before(20)
    manager.checkpoint(NOW)
    manager.delete(TP, NOW)
    log = manager.create(TP, ID[::-1], config(), NOW)
    append(log, batch(*[b"new"] * 10))
    manager.unlock()  # and no more: it was killed
    again = start(tmp_path)
    found = again.get(TP)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 10)
    found.high_watermark = 10
    assert values(found) == [b"new"] * 10
    again.unlock()


def test_files_of_others_beside_segments_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(tmp_path)
    append(manager.create(TP, ID, config(), NOW), batch(b"x"))
    manager.unlock()
    names = ["9" * 20 + ".log", "7.log", "²" * 20 + ".log", "notes.index", "7.snapshot", "x.log"]
    for name in names:
        (tmp_path / "a-0" / name).write_bytes(b"foreign")
    again = start(tmp_path)
    log = again.get(TP)
    assert log is not None and log.log_end_offset == 1
    assert all((tmp_path / "a-0" / name).read_bytes() == b"foreign" for name in names)
    assert "is not a segment and is ignored" in caplog.text
    again.unlock()


def test_file_in_place_of_a_partition_spoils_only_that(tmp_path: Path) -> None:
    manager = start(tmp_path)
    (tmp_path / "a-0").write_bytes(b"")
    with pytest.raises(FileExistsError, match="a-0"):
        manager.create(TP, ID, config(), NOW)
    append(manager.create(TopicPartition("b", 0), ID, config(), NOW), batch(b"x"))
    manager.unlock()


def test_log_shorter_than_it_was_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = start(tmp_path)
    log = manager.create(TP, ID, config(), NOW)
    append(log, batch(b"x", b"y"))
    log.high_watermark = 2
    manager.shutdown(NOW)
    (tmp_path / "a-0" / f"{0:020d}.log").unlink()
    with caplog.at_level(logging.WARNING):
        again = start(tmp_path)
    assert f"{tmp_path}/a-0 ends at offset 0, although records up to 2 were stored" in caplog.text
    again.unlock()


def test_log_of_a_topic_that_the_store_does_not_know_is_kept_under_another_name(
    tmp_path: Path,
) -> None:
    manager = start(tmp_path)
    append(manager.create(TP, ID, config(), NOW), batch(b"precious"))
    aside = manager.set_aside(TP, 0)
    log = manager.create(TP, ID[::-1], config(), NOW)
    assert log.log_end_offset == 0
    assert manager.run_deletes(NOW + (1 << 40)) == 0
    manager.shutdown(NOW)
    again = start(tmp_path)
    again.run_deletes(NOW + (1 << 40))
    assert b"precious" in (Path(aside) / f"{0:020d}.log").read_bytes()
    assert [str(each.tp) for each in again.logs()] == ["a-0"]
    again.unlock()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version=0\nbroker.id=abc\n", "meta.properties: broker.id=abc is not a broker id"),
        (b"version=7\nbroker.id=1\n", "meta.properties: unknown version 7"),
        (b"\xff\x00\x01", "meta.properties: no '=' in line"),
    ],
)
def test_broker_says_in_a_line_what_is_wrong_with_meta_properties(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "server", "serve", "--listen", "127.0.0.1:0"),
            *("--data-dir", str(tmp_path)),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert f"cannot start: {tmp_path}/{said}" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
