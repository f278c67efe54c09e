"""The periodic work on the logs: blocking work runs in threads, at the configured intervals."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config import BrokerConfig
from server.executor import Executor
from server.log.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT, read_offsets
from server.log.file_layer import FileLayer
from server.log.flush_state import FlushTask
from server.log.log import Log
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.log.upkeep import FLUSH_AGAIN_S, LogUpkeep
from server.metadata.topic_partition import TopicPartition

from ..support.clock import ManualClock
from .logs import NOW, append, batch, config

TP = TopicPartition("orders", 0)


class ThreadNoting(FileLayer):
    """Records the threads in which files are flushed to the device and removed; may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.fsyncs: list[int] = []
        self.unlinks: list[int] = []
        self.failing = False

    def fsync(self, fd: int) -> None:
        self.fsyncs.append(threading.get_ident())
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")

    def unlink(self, path: str) -> None:
        self.unlinks.append(threading.get_ident())
        super().unlink(path)


class Room:
    """A log manager with one directory, and its upkeep."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.layer = ThreadNoting()
        self.folder = folder
        self.clock = ManualClock(NOW)
        self.manager = LogManager([str(folder)], self.layer)
        self.manager.lock()
        self.manager.claim(1, "c")
        self.manager.load(lambda topic: LogConfig(), NOW)
        self.executor = Executor()
        config = BrokerConfig({"log.dirs": str(folder), "broker.id": "1", **settings})
        self.upkeep = LogUpkeep(config, self.manager, self.executor, self.clock)

    def off_the_loop(self, threads: list[int]) -> bool:
        """Whether something was recorded, and nothing on this thread."""
        return bool(threads) and threading.get_ident() not in threads


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.executor.close()
    made.manager.unlock()


def test_checkpoints_are_forced_to_the_device_off_the_loop(room: Room) -> None:
    append(room.manager.create(TP, None, LogConfig(), NOW), batch(b"a"))
    room.layer.fsyncs.clear()
    asyncio.run(room.upkeep.checkpoint(RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK))
    assert room.off_the_loop(room.layer.fsyncs)
    assert read_offsets(FileLayer(), f"{room.folder}/{HIGH_WATERMARK}") == {TP: 1}


def test_flush_is_done_off_the_loop_and_moves_the_recovery_point(room: Room) -> None:
    log = room.manager.create(TP, None, config(flush_ms=1000), NOW)
    append(log, batch(b"a"))
    room.layer.fsyncs.clear()
    asyncio.run(room.upkeep.flush_due())
    assert (log.recovery_point, room.layer.fsyncs) == (0, [])
    room.clock.advance(1000)
    asyncio.run(room.upkeep.flush_due())
    assert log.recovery_point == 1
    assert room.off_the_loop(room.layer.fsyncs)


def test_appends_during_a_flush_share_the_next_one(room: Room) -> None:
    log = room.manager.create(TP, None, LogConfig(), NOW)
    append(log, batch(b"a"))

    async def run() -> None:
        first = asyncio.ensure_future(room.upkeep.flush(log))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the thread is working on it now
        append(log, batch(b"b"))
        others = [asyncio.ensure_future(room.upkeep.flush(log)) for _ in range(5)]
        await asyncio.gather(first, *others)

    prepared = []
    prepare = Log.prepare_flush

    def counted(each: Log) -> FlushTask:
        prepared.append(each)
        return prepare(each)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "prepare_flush", counted)
        asyncio.run(run())
    assert log.recovery_point == 2
    assert len(prepared) == 2


@pytest.mark.parametrize("work", ["flush", "checkpoint"])
def test_failing_disk_takes_the_directory_offline(
    room: Room, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = room.manager.create(TP, None, LogConfig(), NOW)
    append(log, batch(b"a"))
    room.layer.failing = True
    if work == "flush":
        asyncio.run(room.upkeep.flush(log))
    else:
        asyncio.run(room.upkeep.checkpoint(HIGH_WATERMARK))
    assert room.manager.directories[0].offline
    assert log.offline
    assert caplog.text.count("is offline") == 1
    assert log.recovery_point == 0


def test_flush_that_lacks_descriptors_waits_and_forces_everything_the_next_time(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = room.manager.create(TP, None, LogConfig(), NOW)
    append(log, batch(b"a"), epoch=3)
    failures = [OSError(errno.EMFILE, "Too many open files") for _ in range(2)]
    forced: list[str] = []
    naps: list[float] = []

    def sync_path(path: str) -> None:
        forced.append(Path(path).name)

    def sync_directory(path: str) -> None:
        if failures:
            forced.clear()
            raise failures.pop()

    async def sleep(delay_s: float) -> None:
        naps.append(delay_s)

    monkeypatch.setattr(room.layer, "sync_path", sync_path)
    monkeypatch.setattr(room.layer, "sync_directory", sync_directory)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(room.upkeep.flush(log))
    assert naps == [FLUSH_AGAIN_S] * 2
    assert "leader-epoch-checkpoint" in forced
    assert (log.recovery_point, log.offline) == (1, False)


def test_deleted_files_are_removed_off_the_loop(room: Room) -> None:
    log = room.manager.create(TP, None, LogConfig(), NOW)
    append(log, batch(b"a"))
    room.manager.delete(TP, NOW)
    room.layer.unlinks.clear()
    asyncio.run(room.upkeep.run_deletes())
    assert list(room.folder.glob("*-delete"))
    room.clock.advance(60_000)
    asyncio.run(room.upkeep.run_deletes())
    assert not list(room.folder.glob("*-delete"))
    assert room.off_the_loop(room.layer.unlinks)


def test_retention_goes_over_many_logs_with_pauses(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.log.upkeep.LOGS_AT_ONCE", 2)
    logs = [room.manager.create(TopicPartition("t", n), None, LogConfig(), NOW) for n in range(5)]
    for log in logs:
        append(log, batch(b"a"))
    room.clock.advance(8 * 24 * 3600 * 1000)
    turns = 0

    async def run() -> None:
        nonlocal turns
        work = asyncio.ensure_future(room.upkeep.retain())
        while not work.done():
            await asyncio.sleep(0)
            turns += 1

    asyncio.run(run())
    assert [log.log_start_offset for log in logs] == [1] * 5
    assert turns >= 3


def test_turn_deletes_old_segments_of_one_log_only(room: Room) -> None:
    logs = [room.manager.create(TopicPartition("t", n), None, LogConfig(), NOW) for n in range(5)]
    for log in logs:
        append(log, batch(b"a"))
    room.clock.advance(8 * 24 * 3600 * 1000)

    async def run() -> None:
        work = asyncio.ensure_future(room.upkeep.retain())
        deleted = 0
        while not work.done():
            await asyncio.sleep(0)
            before, deleted = deleted, sum(log.log_start_offset for log in logs)
            assert deleted - before <= 1
        assert deleted == 5

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "interval_ms"),
    [({}, 1000), ({"log.flush.scheduler.interval.ms": "2500"}, 2500)],
)
def test_flushes_are_looked_for_as_often_as_the_scheduler_is_told(
    tmp_path: Path, settings: dict[str, str], interval_ms: int
) -> None:
    room = Room(tmp_path, **settings)
    assert room.upkeep._flush_interval_ms() == interval_ms
    room.manager.unlock()
