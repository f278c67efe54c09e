"""Opening the logs of a directory at the start: in a thread, after a kill also in processes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from server.log.file_layer import FileLayer
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.log.recovery.opening import Recovered, RecoveryTask
from server.log.recovery.process import RecoveryProcesses, recover
from server.metadata.topic_partition import TopicPartition

from ..logs import NOW, append, batch, values


def new_manager(folder: Path) -> LogManager:
    manager = LogManager([str(folder)], FileLayer())
    manager.lock()
    manager.claim(1, "c")
    return manager


def killed(folder: Path, partitions: int, *, torn: bool = False) -> None:
    """The state after a kill: logs with some batches, possibly with half a batch at the end."""
    manager = new_manager(folder)
    manager.load(lambda topic: LogConfig(), NOW)
    for number in range(partitions):
        log = manager.create(TopicPartition("t", number), bytes(16), LogConfig(), NOW)
        for n in range(5):
            append(log, batch(b"%d-%d" % (number, n), pid=7, sequence=n))
        if torn:
            with Path(log.active_segment.log.path).open("ab") as file:
                file.write(b"torn" * 10)
    manager.unlock()


def opened(folder: Path, run: object = None) -> LogManager:
    manager = new_manager(folder)
    manager.open_logs(lambda topic: LogConfig(), NOW, run)  # type: ignore[arg-type]
    manager.load(lambda topic: LogConfig(retention_ms=5), NOW)
    return manager


@pytest.fixture
def everything_is_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.log.recovery.opening.WORTH_A_PROCESS_BYTES", 1)
    monkeypatch.setattr("server.log.recovery.opening.WORTH_PROCESSES_BYTES", 1)


def test_logs_that_were_opened_ahead_get_their_topics_settings(tmp_path: Path) -> None:
    killed(tmp_path, 3)
    manager = opened(tmp_path)
    assert [log.config.retention_ms for log in manager.logs()] == [5, 5, 5]
    assert [len(values(log, 0)) for log in manager.logs()] == [0, 0, 0]  # nothing is committed yet
    assert [log.log_end_offset for log in manager.logs()] == [5, 5, 5]
    manager.unlock()


def test_start_that_is_given_up_leaves_the_marker_of_the_clean_stop(tmp_path: Path) -> None:
    killed(tmp_path, 3)
    opened(tmp_path).shutdown(NOW)
    manager = new_manager(tmp_path)
    manager.abandon_opening()
    manager.open_logs(lambda topic: LogConfig(), NOW)
    manager.shutdown(NOW)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.usefixtures("everything_is_much_work")
def test_logs_that_others_mended_are_opened_as_they_left_them(tmp_path: Path) -> None:
    killed(tmp_path, 6, torn=True)
    shutil.copytree(tmp_path, tmp_path.parent / "alone")
    tasks: list[RecoveryTask] = []

    def run(given: Sequence[RecoveryTask]) -> Iterator[Recovered]:
        tasks.extend(given)
        for task in given[:4]:  # the rest is left to the caller, as when a process died
            yield recover(task)

    alone, helped = opened(tmp_path.parent / "alone"), opened(tmp_path, run)
    assert len(tasks) == 6
    for one, other in zip(alone.logs(), helped.logs(), strict=True):
        assert one.tp == other.tp
        assert one.log_end_offset == other.log_end_offset == 5
        assert one.recovery_point == other.recovery_point == 0  # nothing was forced to the device
        assert other.producers.producers[7].last_sequence == 4
        other.high_watermark = 5
        assert values(other) == [b"%d-%d" % (one.tp.partition, n) for n in range(5)]
    alone.unlock()
    helped.unlock()


@pytest.mark.usefixtures("everything_is_much_work")
def test_mended_logs_are_recovered_again_after_another_kill(tmp_path: Path) -> None:
    killed(tmp_path, 2, torn=True)
    manager = opened(tmp_path, lambda tasks: map(recover, tasks))
    for log in manager.logs():
        append(log, batch(b"later"))
    manager.unlock()  # killed again, without a checkpoint
    again = opened(tmp_path)
    assert [log.log_end_offset for log in again.logs()] == [6, 6]
    again.unlock()


@pytest.mark.parametrize("limit", ["WORTH_A_PROCESS_BYTES", "WORTH_PROCESSES_BYTES"])
@pytest.mark.usefixtures("everything_is_much_work")
def test_logs_with_little_to_read_are_not_sent_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"server.log.recovery.opening.{limit}", 1_000_000)
    killed(tmp_path, 3)

    def refuse(given: Sequence[RecoveryTask]) -> Iterator[Recovered]:
        raise AssertionError(given)

    manager = opened(tmp_path, refuse)
    assert [log.log_end_offset for log in manager.logs()] == [5, 5, 5]
    manager.unlock()


def test_quick_recovery_tells_no_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed(tmp_path, 20)
    with caplog.at_level(logging.INFO):
        opened(tmp_path).unlock()
    assert "recovering 20 logs" in caplog.text
    assert "logs recovered" not in caplog.text


def test_progress_is_told_for_many_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.log.recovery.opening.PROGRESS_LOGS", 1)
    killed(tmp_path, 20, torn=True)
    with caplog.at_level(logging.INFO):
        opened(tmp_path).unlock()
    told = [r.getMessage() for r in caplog.records if "logs recovered" in r.getMessage()]
    assert len(told) == 10
    assert told[4].startswith(f"{tmp_path}: 10 of 20 logs recovered")
    assert (
        f"recovery read {20 * 5 * len(batch(b'0-0'))} bytes" not in caplog.text
    )  # including torn ones
    assert f"and truncated {20 * 40}" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("everything_is_much_work")
def test_processes_mend_logs_and_tell_what_they_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed(tmp_path, 6, torn=True)
    with caplog.at_level(logging.WARNING):
        manager = opened(tmp_path, RecoveryProcesses(2).recover)
    assert [log.log_end_offset for log in manager.logs()] == [5] * 6
    assert caplog.text.count("40 bytes after offset 5 are not valid batches") == 6
    manager.unlock()


def test_closed_processes_leave_the_work_to_the_caller(tmp_path: Path) -> None:
    processes = RecoveryProcesses(2)
    processes.close()
    assert list(processes.recover([])) == []


def test_settings_are_worked_out_once_for_each_topic(tmp_path: Path) -> None:
    killed(tmp_path, 5)
    manager = new_manager(tmp_path)
    asked: list[str] = []

    def configs(topic: str) -> LogConfig:
        asked.append(topic)
        return LogConfig()

    manager.load(configs, NOW)
    assert asked == ["t"]
    manager.unlock()
