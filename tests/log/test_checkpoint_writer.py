"""Checkpoint files are written off the loop, and the newest content wins, regardless of the writer."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from server.log.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, read_offsets
from server.log.checkpoint_writer import CheckpointWrite, CheckpointWriter
from server.log.file_layer import FileLayer
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from .logs import NOW, TP, append, batch

NAME = HIGH_WATERMARK


class CountingLayer(FileLayer):
    """Counts the files that are forced to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = 0

    def fsync(self, fd: int) -> None:
        self.synced += 1


def begin(writer: CheckpointWriter, offset: int) -> CheckpointWrite:
    write = writer.begin(NAME, {TP: offset})
    assert write is not None
    return write


def held(folder: Path, name: str = NAME) -> int:
    """The offset in the file."""
    return read_offsets(FileLayer(), f"{folder}/{name}")[TP]


def test_write_that_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    writer = CheckpointWriter(FileLayer(), str(tmp_path))
    older, newer = begin(writer, 1), begin(writer, 2)
    assert newer.run()
    assert not older.run()
    assert held(tmp_path) == 2


def test_write_that_waits_for_one_under_way_comes_after_it(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(FileLayer):
        def fsync(self, fd: int) -> None:
            if not entered.is_set():
                entered.set()
                assert go_on.wait(10)

    writer = CheckpointWriter(Slow(), str(tmp_path))
    older = begin(writer, 1)
    thread = threading.Thread(target=older.run)
    thread.start()
    assert entered.wait(10)
    newer = begin(writer, 2)
    second = threading.Thread(target=newer.run)
    second.start()
    go_on.set()
    thread.join()
    second.join()
    assert held(tmp_path) == 2


def test_unchanged_offsets_are_not_written_again(tmp_path: Path) -> None:
    layer = CountingLayer()
    writer = CheckpointWriter(layer, str(tmp_path))
    begin(writer, 1).run()
    assert layer.synced
    assert writer.begin(NAME, {TP: 1}) is None
    pending = begin(writer, 2)
    again = writer.begin(NAME, {TP: 1})  # the file still has the old value, but not for long
    assert again is not None
    pending.run()
    again.run()
    assert held(tmp_path) == 1


def test_partition_is_named_as_long_as_a_write_may_name_it(tmp_path: Path) -> None:
    writer = CheckpointWriter(FileLayer(), str(tmp_path))
    write = begin(writer, 1)
    assert writer.names(TP)
    without = writer.begin(NAME, {})
    assert without is not None
    assert without.run()
    assert writer.names(TP)
    assert not write.run()
    assert not writer.names(TP)


def start(folder: Path, layer: FileLayer | None = None) -> LogManager:
    manager = LogManager([str(folder)], layer or FileLayer())
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: LogConfig(), NOW)
    return manager


def test_start_offset_that_somebody_waits_for_wins_over_the_timers_write(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = manager.create(TP, None, LogConfig(), NOW)
    append(log, batch(b"a", b"b", b"c"))
    log.delete_records_before(1)
    ((_, timer),) = manager.begin_checkpoint(LOG_START_OFFSET)
    log.delete_records_before(2)
    manager.checkpoint_log_start_offsets()
    timer.run()
    assert held(tmp_path, LOG_START_OFFSET) == 2
    manager.unlock()


def test_idle_broker_forces_nothing_to_the_device(tmp_path: Path) -> None:
    layer = CountingLayer()
    manager = start(tmp_path, layer)
    append(manager.create(TP, None, LogConfig(), NOW), batch(b"a"))
    manager.checkpoint(NOW)
    before = layer.synced
    manager.checkpoint(NOW)
    manager.checkpoint_high_watermarks()
    assert layer.synced == before
    manager.unlock()


def test_log_made_again_gets_nothing_of_a_write_that_waits(tmp_path: Path) -> None:
    manager = start(tmp_path)
    append(manager.create(TP, bytes(16), LogConfig(), NOW), batch(b"a", b"b"))
    waiting = [write for _, write in manager.begin_checkpoint(HIGH_WATERMARK)]
    manager.delete(TP, NOW)
    manager.create(TP, bytes(16), LogConfig(), NOW)
    for write in waiting:
        write.run()
    assert read_offsets(FileLayer(), f"{tmp_path}/{HIGH_WATERMARK}").get(TP, 0) == 0
    manager.unlock()


def test_failed_write_takes_the_directory_offline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(FileLayer):
        full = False

        def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwrite(fd, data, position)

    layer = Full()
    manager = start(tmp_path, layer)
    log = manager.create(TopicPartition("t", 0), None, LogConfig(), NOW)
    append(log, batch(b"a"))
    ((directory, write),) = manager.begin_checkpoint(HIGH_WATERMARK)
    layer.full = True
    with pytest.raises(OSError) as raised:
        write.run()
    manager.checkpoint_failed(directory, raised.value)
    assert directory.offline
    assert log.offline
    assert "is offline" in caplog.text
    manager.unlock()
