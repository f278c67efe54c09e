"""Compaction in its worker process, as in the broker."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest

from kwire.records.batch import BatchBuilder, rewrite_crc
from server.config import BrokerConfig
from server.executor import Executor
from server.log.cleaner import process
from server.log.cleaner.task import CleanerTask
from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from ...support.clock import ManualClock
from ..logs import append, values

NOW = 1_700_000_000_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.1)
TOPICS = ("first", "lying", "third")


def fill(log: Log) -> None:
    """Append three records with one key, and seal the segment."""
    for number in range(3):
        builder = BatchBuilder()
        builder.append(NOW, b"key", b"%d" % number)
        append(log, memoryview(bytearray(builder.build())))
    log.roll(NOW)
    log.flush(NOW)


def lie(log: Log) -> None:
    """A batch with a valid header and an invalid body."""
    builder = BatchBuilder()
    builder.append(NOW, b"key", b"value")
    batch = bytearray(builder.build())
    batch[65] = 0x7E
    rewrite_crc(batch)
    log.update_config(LogConfig())
    append(log, memoryview(batch))
    log.roll(NOW)
    log.flush(NOW)
    log.update_config(COMPACT)


class Room:
    """A log directory with three compacted logs, the second of which cannot be compacted."""

    def __init__(self, folder: Path) -> None:
        self.manager = LogManager([str(folder)], FileLayer())
        self.manager.lock()
        self.manager.load(lambda topic: COMPACT, NOW)
        self.logs = {
            topic: self.manager.create(TopicPartition(topic, 0), None, COMPACT, NOW)
            for topic in TOPICS
        }
        lie(self.logs["lying"])
        for log in self.logs.values():
            fill(log)
        self.executor = Executor()
        self.task = CleanerTask(
            BrokerConfig({"log.dirs": str(folder)}),
            self.manager,
            self.executor,
            ManualClock(now_ms=NOW),
        )

    def close(self) -> None:
        self.task.close()
        self.manager.shutdown(NOW)


def test_uncleanable_log_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        room = Room(tmp_path)
        try:
            assert await room.task.run_due() == 2
            assert values(room.logs["first"]) == values(room.logs["third"]) == [b"2"]
            assert list(room.task.uncleanable) == [TopicPartition("lying", 0)]
            assert room.logs["lying"].log_end_offset == 4
            assert await room.task.run_due() == 0, "it is not tried again"
            room.manager.delete(TopicPartition("lying", 0), NOW)
            assert room.task.uncleanable == {}
        finally:
            room.close()

    asyncio.run(run())
    assert caplog.text.count("cannot be compacted") == 1
    text = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert sorted(text.splitlines()[2:]) == ["first 0 3", "third 0 3"]


def test_killed_process_is_replaced_in_the_next_run(tmp_path: Path) -> None:
    async def run() -> None:
        room = Room(tmp_path)
        try:
            pid = await room.task._executor.in_process(os.getpid)
            os.kill(pid, signal.SIGKILL)
            while await room.task.run_due() == 0:
                await asyncio.sleep(0)
            assert values(room.logs["first"]) == [b"2"]
            assert await room.task._executor.in_process(os.getpid) != pid
        finally:
            room.close()

    asyncio.run(run())


def test_log_that_costs_the_process_its_life_is_postponed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        room = Room(tmp_path)
        in_process = room.task._executor.in_process

        async def fatal(function: Any, *args: Any) -> Any:
            if function is process.begin and "first" in args[0].directory:
                raise BrokenExecutor("out of memory")
            if function is process.begin and "lying" in args[0].directory:
                raise MemoryError
            return await in_process(function, *args)

        monkeypatch.setattr(room.task._executor, "in_process", fatal)
        try:
            assert await room.task.run_due() == 1
            assert values(room.logs["third"]) == [b"2"]
            monkeypatch.undo()
            assert await room.task.run_due() == 0
            room.task._clock.advance(11 * 60 * 1000)  # type: ignore[attr-defined]
            assert await room.task.run_due() == 1
            assert values(room.logs["first"]) == [b"2"]
            limits = await in_process(resource.getrlimit, resource.RLIMIT_DATA)
            assert limits[0] == (512 + 128) << 20
        finally:
            room.close()

    asyncio.run(run())
    assert "the process died while it compacted first-0: out of memory" in caplog.text
    assert "more memory than kwire.worker.max.bytes allows" in caplog.text
