"""Topics that are deleted while something else is done with their files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from server.clock import SystemClock
from server.config import BrokerConfig
from server.executor import Executor
from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.log_manager import LogManager
from server.log.upkeep import LogUpkeep
from server.metadata.topic_partition import TopicPartition

from ..log.logs import NOW, append, batch, config

TOPIC_ID = bytes(range(16))


def two_logs(folder: Path) -> tuple[LogManager, list[Log]]:
    """Two logs that are due to be flushed."""
    manager = LogManager([str(folder)], FileLayer())
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: config(), NOW)
    logs = [manager.create(TopicPartition(t, 0), TOPIC_ID, config(), NOW) for t in "ab"]
    for log in logs:
        append(log, batch(b"x"))
        log.flush_state.wanted = True
    return manager, logs


def test_log_deleted_while_it_is_flushed_leaves_its_directory_online(tmp_path: Path) -> None:
    manager, (log, other) = two_logs(tmp_path)
    task = log.prepare_flush()
    manager.delete(log.tp, NOW)
    with pytest.raises(FileNotFoundError) as missing:
        task.run()
    log.on_io_error(missing.value)
    assert not manager.directories[0].offline
    append(other, batch(b"y"))
    manager.unlock()


def test_log_deleted_before_its_turn_to_be_flushed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.log.upkeep.FLUSHES_AT_ONCE", 1)
    manager, (log, other) = two_logs(tmp_path)
    executor = Executor()
    config = BrokerConfig({"log.dirs": str(tmp_path), "broker.id": "1"})
    upkeep = LogUpkeep(config, manager, executor, SystemClock())

    async def flush() -> None:
        flushing = asyncio.ensure_future(upkeep.flush_due())
        await asyncio.sleep(0)  # the first is with the thread now
        manager.delete(other.tp, NOW)
        await flushing

    asyncio.run(flush())
    assert log.recovery_point == 1
    assert not manager.directories[0].offline
    assert not (tmp_path / "b-0").exists()
    executor.close()
    manager.unlock()


def test_log_that_somebody_removed_can_be_deleted_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager, (log, other) = two_logs(tmp_path)
    for file in Path(log.dir).iterdir():
        file.unlink()
    Path(log.dir).rmdir()
    with caplog.at_level(logging.WARNING):
        manager.delete(log.tp, NOW)
    assert "a-0 is deleted, but its directory had already been removed" in caplog.text
    assert not manager.directories[0].offline
    append(manager.create(log.tp, TOPIC_ID, config(), NOW), batch(b"z"))
    append(other, batch(b"y"))
    manager.unlock()
