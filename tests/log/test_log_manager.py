"""Log directories: locks, identity, clean stops, several disks, creation and deletion."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.log.file_layer import FileLayer, LogFile
from server.log.log import AppendError, AppendInfo, Log
from server.log.log_config import LogConfig
from server.log.log_directory import (
    InconsistentBrokerId,
    InconsistentClusterId,
    LogDirInUse,
    parse_directory_name,
    retired_name,
    split_names,
)
from server.log.log_manager import LogManager, level
from server.metadata.topic_partition import TopicPartition

from .logs import NOW, append, batch, config, read_bytes, values

TP = TopicPartition("orders", 3)
TOPIC_ID = bytes(range(16))


def start(
    *folders: Path, layer: FileLayer | None = None, settings: LogConfig | None = None
) -> LogManager:
    """A log manager that has loaded its directories, as broker 1 of cluster `c`."""
    manager = LogManager([str(folder) for folder in folders], layer or FileLayer())
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: settings or LogConfig(), NOW)
    return manager


def make_log(manager: LogManager, topic: str = "orders", partition: int = 3) -> Log:
    """A log with one record."""
    log = manager.create(TopicPartition(topic, partition), TOPIC_ID, LogConfig(), NOW)
    append(log, batch(b"%d" % partition))
    return log


def crash(manager: LogManager) -> None:
    """Simulate a killed process: the lock is released and nothing is written."""
    manager.unlock()


def test_clean_stop_and_start_keep_logs_ids_and_offsets(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = make_log(manager)
    append(log, batch(b"b", b"c"))
    assert log.delete_records_before(1).value == 0
    manager.shutdown(NOW)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    for name, offset in (
        ("recovery-point-offset-checkpoint", 3),
        ("replication-offset-checkpoint", 3),
        ("log-start-offset-checkpoint", 1),
    ):
        assert (tmp_path / name).read_text() == f"0\n1\norders 3 {offset}\n"
    again = start(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = again.get(TP) or pytest.fail("the log is gone")
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (1, 3, 3)
    assert log.topic_id == TOPIC_ID
    assert values(log) == [b"b", b"c"]
    crash(again)


def test_killed_broker_recovers_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(tmp_path)
    for partition in range(5):
        make_log(manager, partition=partition)
    crash(manager)
    with caplog.at_level(logging.WARNING):
        again = start(tmp_path)
    assert "was not closed cleanly: recovering 5 logs" in caplog.text
    assert {tp.partition: log.log_end_offset for tp, log in again._logs.items()} == dict.fromkeys(
        range(5), 1
    )
    crash(again)


def test_stop_before_the_logs_were_loaded_leaves_everything_as_it_was(tmp_path: Path) -> None:
    manager = start(tmp_path)
    make_log(manager)
    manager.checkpoint(NOW)
    crash(manager)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    again = LogManager([str(tmp_path)], FileLayer())
    again.lock()
    again.claim(1, "c")
    again.checkpoint(NOW)
    again.shutdown(NOW)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert after == before
    crash(start(tmp_path))  # and the lock is free


def test_high_watermark_comes_from_the_checkpoint_at_most_the_end(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = make_log(manager)
    manager.checkpoint(NOW)
    append(log, batch(b"later"))
    crash(manager)
    again = start(tmp_path)
    log = again.get(TP) or pytest.fail("the log is gone")
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    crash(again)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 3 99\n")
    third = start(tmp_path)
    assert third.logs()[0].high_watermark == 2
    crash(third)


def test_damaged_checkpoints_do_not_stop_the_start(tmp_path: Path) -> None:
    manager = start(tmp_path)
    make_log(manager)
    manager.shutdown(NOW)
    for path in tmp_path.glob("*-checkpoint"):
        path.write_text("0\n7\nnonsense\n")
    again = start(tmp_path)
    assert again.logs()[0].log_end_offset == 1
    crash(again)


def test_directory_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys, fcntl; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        manager = LogManager([str(tmp_path / "b"), str(tmp_path)], FileLayer())
        with pytest.raises(LogDirInUse, match="in use by another broker"):
            manager.lock()
        other.communicate(b"")
    manager.lock()  # the first directory was also released
    manager.unlock()


def test_directory_in_use_in_this_process_is_refused(tmp_path: Path) -> None:
    manager = start(tmp_path)
    with pytest.raises(LogDirInUse):
        LogManager([str(tmp_path)], FileLayer()).lock()
    crash(manager)
    crash(start(tmp_path))


def test_directory_of_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    crash(start(tmp_path))
    assert (tmp_path / "meta.properties").read_bytes() == (
        b"version=0\nbroker.id=1\ncluster.id=c\n"
    )
    manager = LogManager([str(tmp_path)], FileLayer())
    meta = manager.meta_properties()
    assert meta is not None
    assert (meta.broker_id, meta.cluster_id) == (1, "c")
    with pytest.raises(InconsistentBrokerId, match="belongs to broker 1, but this is broker 2"):
        manager.claim(2, "c")
    with pytest.raises(InconsistentClusterId, match="belongs to cluster c, but this is d"):
        manager.claim(1, "d")
    manager.claim(1, "c")


def test_new_log_goes_where_the_fewest_are(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    manager = start(*folders)
    for partition in range(7):
        make_log(manager, partition=partition)
    counts = [len(list(folder.glob("orders-*"))) for folder in folders]
    assert sorted(counts) == [2, 2, 3]
    manager.shutdown(NOW)
    again = start(*folders)
    assert len(again.logs()) == 7
    crash(again)


def test_deleted_log_is_renamed_at_once_removed_later_and_can_be_made_again(
    tmp_path: Path,
) -> None:
    manager = start(tmp_path)
    log = make_log(manager)
    append(log, batch(b"x" * 20_000))
    found = log.read(1, 1 << 20, 2)
    manager.delete(TP, NOW)
    assert manager.get(TP) is None
    (renamed,) = tmp_path.glob("orders-3.*-delete")
    assert isinstance(log.append_as_leader(batch(), 0, NOW), AppendError)
    fresh = make_log(manager)
    assert fresh.log_end_offset == 1
    assert manager.run_deletes(NOW + 59_999) == 0
    assert renamed.exists()
    assert manager.run_deletes(NOW + 60_000) == 1
    assert not renamed.exists()
    assert len(found.data.read()) > 20_000  # type: ignore[union-attr]
    assert read_bytes(fresh, 0)
    crash(manager)


def test_deleted_logs_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    manager = start(tmp_path)
    make_log(manager)
    manager.delete(TP, NOW)
    crash(manager)
    again = start(tmp_path)
    assert again.logs() == []
    again.run_deletes(NOW)
    assert not list(tmp_path.glob("*-delete"))
    crash(again)


class FailingDisk(FileLayer):
    """Its writes below one folder fail at the test's request."""

    failing = ""

    def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if self.failing and path.startswith(self.failing):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().pwrite(fd, data, position)


def test_failed_disk_takes_its_logs_offline_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = FailingDisk()
    folders = [tmp_path / "a", tmp_path / "b"]
    offline = []
    manager = LogManager([str(f) for f in folders], layer, on_offline=offline.append)
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: LogConfig(), NOW)
    logs = [make_log(manager, partition=n) for n in range(4)]
    layer.failing = str(folders[0])
    with caplog.at_level(logging.ERROR):
        answers = [log.append_as_leader(batch(), 0, NOW) for log in logs + logs]
    on_bad = [log.dir.startswith(layer.failing) for log in logs]
    assert on_bad.count(True) == 2
    assert [isinstance(each, AppendError) for each in answers] == on_bad * 2
    assert len(caplog.records) == 1
    assert f"log directory {folders[0]} is offline" in caplog.text
    assert offline == [manager.directories[0]]
    assert make_log(manager, partition=9).dir.startswith(str(folders[1]))
    manager.shutdown(NOW)
    assert not (folders[0] / ".kafka_cleanshutdown").exists()
    assert (folders[1] / ".kafka_cleanshutdown").exists()
    layer.failing = ""
    again = start(*folders)
    assert sorted(log.log_end_offset for log in again.logs()) == [1, 1, 1, 3, 3]
    crash(again)


def test_flush_is_due_after_a_roll_and_after_flush_ms(tmp_path: Path) -> None:
    manager = start(tmp_path)
    settings = config(segment_bytes=200, flush_ms=1000)
    log = manager.create(TP, TOPIC_ID, settings, NOW)
    assert manager.flush_due(NOW + 5000) == []
    append(log, batch())
    assert manager.flush_due(NOW + 999) == []
    assert manager.flush_due(NOW + 1000) == [log]
    log.flush(NOW + 1000)
    assert manager.flush_due(NOW + 9000) == []
    for _ in range(3):
        append(log, batch(b"x" * 50))
    assert manager.flush_due(NOW + 1001) == [log]
    crash(manager)


def test_retention_runs_over_all_logs(tmp_path: Path) -> None:
    manager = start(tmp_path)
    for partition in range(3):
        make_log(manager, partition=partition)
    week = 7 * 24 * 3600 * 1000
    assert manager.retention(NOW + week) == 0
    assert manager.retention(NOW + week + 1) == 3
    assert [log.log_start_offset for log in manager.logs()] == [1, 1, 1]
    manager.shutdown(NOW)


def test_topic_id_is_written_once_it_is_known(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = manager.create(TP, None, LogConfig(), NOW)
    assert log.topic_id is None
    assert manager.create(TP, TOPIC_ID, LogConfig(), NOW) is log
    manager.shutdown(NOW)
    again = start(tmp_path)
    assert again.logs()[0].topic_id == TOPIC_ID
    crash(again)


def test_directory_names_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    hexes = "0123456789abcdef" * 2
    with caplog.at_level(logging.WARNING):
        logs, deleted, futures = split_names(
            [
                "a-0",
                "a-b.c-12",
                "-delete-0",
                f"a-0.{hexes}-delete",
                f"a-0.{hexes}-future",
                f"a-0.{hexes}-stray",
                "lost+found",
                "a-x",
                ".git",
            ],
            "/d",
        )
    assert logs == [("-delete", 0), ("a", 0), ("a-b.c", 12)]
    assert deleted == [f"/d/a-0.{hexes}-delete"]
    assert futures == {TopicPartition("a", 0): f"a-0.{hexes}-future"}
    assert len(caplog.records) == 3
    assert parse_directory_name("-1") is None
    name = retired_name(TopicPartition("t" * 249, 10), hexes)
    assert len(name) == 255
    assert name.endswith(f"-10.{hexes}-delete")


def test_ten_thousand_partitions_cost_no_descriptors(tmp_path: Path) -> None:
    manager = start(tmp_path)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for partition in range(300):
        manager.create(TopicPartition("many", partition), TOPIC_ID, LogConfig(), NOW)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert isinstance(manager.logs()[7].append_as_leader(batch(), 0, NOW), AppendInfo)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    crash(manager)


def test_link_that_leads_to_itself_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "t-0" / "loop").symlink_to("loop")
    layer = FileLayer()
    assert layer.list_subdirectories(str(tmp_path)) == ["t-0"]
    assert layer.list_directory(str(tmp_path / "t-0")) == {}
    assert caplog.text.count("is a link that cannot be followed, and is skipped") == 2


def test_pipe_in_place_of_a_file_does_not_hold_up_the_start(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    os.mkfifo(path)
    program = "import sys; from server.log.file_layer import FileLayer; FileLayer().read_file(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=20
    )
    assert f"Illegal seek: '{path}'" in done.stderr


def test_directory_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=re.escape(f"Is a directory: '{tmp_path}'")):
        FileLayer().read_file(str(tmp_path))


def test_data_directory_that_is_a_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="data is a file, where a data directory should"):
        LogManager([str(path)], FileLayer()).lock()


def test_data_directory_that_is_a_link_to_nowhere_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.symlink_to("data")
    with pytest.raises(NotADirectoryError, match="data is a symbolic link that leads to no direc"):
        LogManager([str(path)], FileLayer()).lock()


def test_lack_of_descriptors_closes_logs_for_every_file_that_is_opened(tmp_path: Path) -> None:
    class Scarce(FileLayer):
        free = 4

        def open_fd(self, path: str, flags: int) -> int:
            if sum(each.opened is not None for each in self._in_use) >= self.free:
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open_fd(path, flags)

    layer = Scarce()
    files = [LogFile(layer, str(tmp_path / f"{number}")) for number in range(4)]
    for each in files:
        each.write_at(b"x", 0)
    layer.write_file(str(tmp_path / "checkpoint"), b"x", sync=True)
    assert sum(each.opened is not None for each in files) == 2
    layer.sync_directory(str(tmp_path))
    assert layer.read_file(str(tmp_path / "checkpoint")) == b"x"


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [([10, 20, 30], 100, 40), ([10, 20, 30], 50, 20), ([90, 1, 1], 30, 28), ([], 5, 5)],
)
def test_largest_shrink_to_one_level(sizes: list[int], room: int, expected: int) -> None:
    found = level(sizes, room)
    assert found == expected or sum(min(size, found) for size in sizes) == sum(sizes)
    assert sum(min(size, found) for size in sizes) <= room


def test_flood_of_producers_is_forgotten_where_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = LogManager([str(tmp_path)], FileLayer())
    manager.lock()
    manager.load(lambda _: config(), NOW)
    logs = [
        manager.create(TopicPartition("t", n), bytes(15) + b"1", config(), NOW) for n in range(3)
    ]
    for log, count in zip(logs, (900, 10, 20), strict=True):
        for number in range(count):
            log.producers.append_data(number, 0, 0, 0, number, NOW, False)
    assert manager.limit_producers(10_000) == 0
    assert manager.limit_producers(1_000) == 900 - 250
    assert [log.producers.known for log in logs] == [250, 10, 20]
    assert list(logs[0].producers.producers)[-1] == 899
    assert "t-0 remembers 900 producers, too many for kwire.producer.ids.max=1000" in caplog.text
    manager.limit_producers(200)
    assert sum(log.producers.known for log in logs) <= 175
    assert [log.producers.known for log in logs[1:]] == [10, 20]
    manager.shutdown(NOW)
