"""A simulated week: the segments of a log, the times at which files are deleted, and the records of active readers.

The rules are implemented here a second time, from Apache Kafka's LogSegment.shouldRoll and
UnifiedLog.deleteOldSegments, on plain numbers; test_retention_against_kafka.py compares with a real broker.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from server.log.file_layer import FileLayer, FileSlice
from server.log.log import Log, LogSlice
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from .logs import NOW, append, batch, config

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STEP = 10 * MINUTE
DELAY = 25 * MINUTE

SETTINGS = {
    "by-age": config(file_delete_delay_ms=DELAY, segment_ms=6 * HOUR, retention_ms=DAY),
    "by-size": config(
        file_delete_delay_ms=DELAY, segment_bytes=32_000, retention_bytes=200_000, retention_ms=-1
    ),
    "by-index": config(
        file_delete_delay_ms=DELAY,
        segment_index_bytes=96,
        index_interval_bytes=500,
        retention_ms=2 * DAY,
    ),
    "jitter": config(
        file_delete_delay_ms=DELAY,
        segment_ms=4 * HOUR,
        segment_jitter_ms=2 * HOUR,
        retention_ms=12 * HOUR,
    ),
    "everything": config(
        file_delete_delay_ms=DELAY,
        segment_ms=5 * HOUR,
        segment_bytes=20_000,
        segment_index_bytes=400,
        index_interval_bytes=1000,
        retention_bytes=100_000,
        retention_ms=18 * HOUR,
        segment_jitter_ms=HOUR,
    ),
    "by-request": config(file_delete_delay_ms=DELAY, segment_bytes=16_000, retention_ms=-1),
    "falls-asleep": config(file_delete_delay_ms=DELAY, segment_ms=3 * HOUR, retention_ms=8 * HOUR),
    "deleted": config(file_delete_delay_ms=DELAY, segment_bytes=16_000),
}


@dataclass
class ModelSegment:
    base: int
    jitter: int
    size: int = 0
    first: int = -1
    newest: int = -1
    since_entry: int = 0
    entries: int = 0
    time_entries: int = 0
    last_time: int = -1


@dataclass
class ModelLog:
    """The rules applied to one log."""

    config: LogConfig
    segments: list[ModelSegment] = field(default_factory=lambda: [ModelSegment(0, 0)])
    start: int = 0
    end: int = 0
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """(when its files may go, base offset) of segments that were deleted."""

    def must_roll(self, size: int, timestamp: int) -> bool:
        segment, config = self.segments[-1], self.config
        return (
            segment.size > config.segment_bytes - size
            or (segment.size > 0 and timestamp - segment.first > config.segment_ms - segment.jitter)
            or segment.entries >= config.segment_index_bytes // 8
            or segment.time_entries >= config.segment_index_bytes // 12 - 1
        )

    def append(self, size: int, timestamp: int, count: int, jitter: int) -> None:
        if self.must_roll(size, timestamp):
            self.segments.append(ModelSegment(self.end, jitter))
        segment = self.segments[-1]
        if not segment.size:
            segment.first = timestamp
        segment.newest = max(segment.newest, timestamp)
        if segment.since_entry > self.config.index_interval_bytes:
            segment.entries += 1
            if segment.newest > segment.last_time:
                segment.time_entries += 1
                segment.last_time = segment.newest
            segment.since_entry = 0
        segment.since_entry += size
        segment.size += size
        self.end += count

    def retain(self, now: int) -> None:
        self._delete(now, lambda _, end, last: not last and end <= self.start)
        excess = sum(s.size for s in self.segments) - self.config.retention_bytes
        if self.config.retention_bytes >= 0:

            def too_much(segment: ModelSegment, end: int, last: bool) -> bool:
                nonlocal excess
                if excess < segment.size:
                    return False
                excess -= segment.size
                return True

            self._delete(now, too_much)
        if self.config.retention_ms >= 0:
            self._delete(now, lambda s, *_: now - s.newest > self.config.retention_ms)

    def _delete(self, now: int, doomed: object) -> None:
        assert callable(doomed)
        while self.segments:
            segment = self.segments[0]
            last = len(self.segments) == 1
            end = self.end if last else self.segments[1].base
            if (last and not segment.size) or not doomed(segment, end, last):
                break
            del self.segments[0]
            self.waiting.append((now + DELAY, segment.base))
        if not self.segments:
            self.segments.append(ModelSegment(self.end, 0))
        self.start = max(self.start, self.segments[0].base)


class WatchedFiles(FileLayer):
    """Records the order in which files are renamed and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed: list[str] = []
        self.removed: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(".log.deleted"):
            self.renamed.append(target)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        if path.endswith(".log.deleted"):
            self.removed.append(path)


def check(log: Log, model: ModelLog, when: str) -> None:
    assert [(s.base_offset, s.size) for s in log.segments] == [
        (s.base, s.size) for s in model.segments
    ], when
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end), when


def check_files(log: Log, model: ModelLog, when: str) -> None:
    files = os.listdir(log.dir)
    present = {int(name[:20]) for name in files if name.endswith(".log")}
    aside = {int(name[:20]) for name in files if name.endswith(".log.deleted")}
    assert present == {s.base for s in model.segments}, when
    assert aside == {base for _, base in model.waiting}, when


def stored(found: LogSlice) -> bytes:
    return found.data.read() if isinstance(found.data, FileSlice) else found.data


@pytest.mark.parametrize("seed", range(20 if os.environ.get("KWIRE_LONG") else 1))
def test_week_of_retention_gives_the_segments_that_the_rules_say(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    layer = WatchedFiles()
    manager = LogManager([str(tmp_path)], layer)
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: SETTINGS[topic], NOW)
    logs = {
        name: manager.create(TopicPartition(name, 0), None, settings, NOW)
        for name, settings in SETTINGS.items()
    }
    models = {name: ModelLog(settings) for name, settings in SETTINGS.items()}
    for name, log in logs.items():
        models[name].segments[0].jitter = log.active_segment.jitter_ms
    readers: list[tuple[LogSlice, bytes]] = []
    deleted_at = -1
    now = NOW
    for step in range(7 * DAY // STEP):
        now = NOW + step * STEP
        when = f"seed {seed}, day {step * STEP / DAY:.2f}"
        for name, log in logs.items():
            model = models[name]
            if name == "falls-asleep" and not step * STEP % (3 * DAY) < DAY:
                continue  # active for a day, idle for two
            values = [b"v" * chance.randrange(10, 800) for _ in range(chance.randrange(1, 3))]
            timestamp = now - chance.choice([0, 0, 0, 7 * MINUTE])
            records = batch(*values, timestamp=timestamp, key=None)
            size, newest = len(records), timestamp + len(values) - 1
            append(log, records, now_ms=now)
            model.append(size, newest, len(values), log.active_segment.jitter_ms)
            assert 0 <= log.active_segment.jitter_ms <= log.config.segment_jitter_ms
            if chance.random() < 0.05:
                offset = chance.randrange(log.log_start_offset, log.log_end_offset)
                found = log.read(offset, 60_000, log.high_watermark)
                assert isinstance(found, LogSlice)
                readers.append((found, stored(found)))
        if chance.random() < 0.05:
            log, model = logs["by-request"], models["by-request"]
            before = chance.randrange(log.log_start_offset, log.log_end_offset + 1)
            assert log.delete_records_before(before).value == 0
            model.start = before
        layer.renamed.clear()
        layer.removed.clear()
        manager.retention(now)
        for model in models.values():
            model.retain(now)
        assert layer.renamed == sorted(layer.renamed, key=lambda path: order(logs, path)), when
        manager.run_deletes(now)
        assert len(layer.removed) == sum(
            due <= now for m in models.values() for due, _ in m.waiting
        )
        for model in models.values():
            model.waiting = [each for each in model.waiting if each[0] > now]
        if step * STEP == 5 * DAY:
            manager.delete(TopicPartition("deleted", 0), now)
            del logs["deleted"], models["deleted"]
            deleted_at = now
        waiting = bool(list(tmp_path.glob("deleted-0.*-delete")))
        assert waiting == (0 <= now - deleted_at < DELAY and deleted_at > 0), when
        for name, log in logs.items():
            check(log, models[name], f"{when}, {name}")
            if not step % 7:
                check_files(log, models[name], f"{when}, {name}")
    rolled = {name: log.active_segment.base_offset for name, log in logs.items()}
    assert all(rolled.values()), rolled
    assert len(readers) > 100
    for found, expected in readers:
        assert stored(found) == expected
    manager.shutdown(now)


def order(logs: dict[str, Log], path: str) -> tuple[int, str]:
    """Logs in the manager's order, the oldest segment first."""
    folder, _, name = path.rpartition("/")
    return [log.dir for log in logs.values()].index(folder), name


def test_jitter_is_each_partitions_own_and_below_the_setting(tmp_path: Path) -> None:
    settings = config(segment_ms=HOUR, segment_jitter_ms=10 * MINUTE)
    manager = LogManager([str(tmp_path)], FileLayer())
    manager.lock()
    manager.claim(1, "c")
    manager.load(lambda topic: settings, NOW)
    logs = [manager.create(TopicPartition("t", n), None, settings, NOW) for n in range(20)]
    jitters = [log.active_segment.jitter_ms for log in logs]
    assert len(set(jitters)) > 10
    assert all(0 <= jitter < 10 * MINUTE for jitter in jitters)
    manager.unlock()
