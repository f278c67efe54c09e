"""A clean stop flushes remaining data to the device, with several threads."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from server.log import closing
from server.log.file_layer import FileLayer
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from .logs import NOW, append, batch, values


class Watching(FileLayer):
    """Records the threads that force files to the device; fails below a folder."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.failing = ""

    def fsync(self, fd: int) -> None:
        self.threads.append(threading.get_ident())
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if self.failing and path.startswith(f"{self.failing}/t-"):
            raise OSError(errno.EIO, "Input/output error", path)


def start(*folders: Path, layer: FileLayer) -> LogManager:
    manager = LogManager([str(folder) for folder in folders], layer)
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: LogConfig(), NOW)
    return manager


def fill(manager: LogManager, count: int) -> None:
    for number in range(count):
        log = manager.create(TopicPartition("t", number), bytes(16), LogConfig(), NOW)
        append(log, batch(b"%d" % number))


def test_stop_uses_several_threads_and_a_second_one_has_nothing_to_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LOGS_AT_ONCE", 7)
    layer = Watching()
    manager = start(tmp_path, layer=layer)
    fill(manager, 20)
    layer.threads.clear()
    manager.shutdown(NOW)
    assert len(set(layer.threads) - {threading.get_ident()}) > 1
    again = start(tmp_path, layer=layer)
    assert {log.log_end_offset for log in again.logs()} == {1}
    assert {log.recovery_point for log in again.logs()} == {1}
    layer.threads.clear()
    again.shutdown(NOW)
    assert len(layer.threads) <= 2  # only the marker and its name, since no log has changed
    assert [values(log) for log in start(tmp_path, layer=layer).logs()] == [
        [b"%d" % log.tp.partition] for log in again.logs()
    ]


def test_log_that_cannot_be_forced_leaves_its_directory_unmarked_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = Watching()
    bad, good = tmp_path / "bad", tmp_path / "good"
    manager = start(bad, good, layer=layer)
    fill(manager, 12)
    layer.failing = str(bad)
    manager.shutdown(NOW)
    assert caplog.text.count("is offline") == 1
    assert not (bad / ".kafka_cleanshutdown").exists()
    assert (good / ".kafka_cleanshutdown").exists()
    layer.failing = ""
    again = start(bad, good, layer=layer)
    assert sorted(log.log_end_offset for log in again.logs()) == [1] * 12
    again.unlock()
