"""A log truncated at every byte of its last batches and of each other file."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random

from server.log.log import Log
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from .disk import Disk, DiskFiles
from .expected import ABORT, Batch, Expected
from .invariants import check_reopened, require
from .topics import START_MS, TOPICS
from .workload import Schedule

TP = TopicPartition("plain", 0)
LAST_BATCHES = 4


class Original:
    """A log of several segments with transactions, whose process was killed."""

    def __init__(self, codec: int) -> None:
        schedule = Schedule(codec, "killed")
        schedule.codecs = (codec,)
        schedule._start(None)
        log = schedule.manager.create(TP, bytes(range(16)), TOPICS[TP.topic], START_MS)
        self.expected = schedule.partitions[TP] = Expected(schedule.mounts[0], TP.topic)
        self.expected.directory = log.dir.rpartition("/")[0]
        sent = 0
        while len(log.segments) < 3 or log.active_segment.size < 420:
            sent += 1
            self._send(schedule, log, sent)
            if sent == 6:
                schedule._flush(log, self.expected)
                schedule.manager.checkpoint(START_MS)
                self.expected.watermark = log.high_watermark
        schedule.manager.checkpoint_high_watermarks()
        schedule.files.close()
        self.disk = schedule.disk.copy()
        self.log_path = log.active_segment.log.path
        self.size = log.active_segment.size

    def _send(self, schedule: Schedule, log: Log, number: int) -> None:
        schedule.now_ms += 10
        pid = (1, 11, -1, 12, 2)[number % 5]
        if number % 7 == 0 and schedule._has_open(self.expected, 11):
            from server.log.log import AppendOrigin

            from ..logs import marker

            offset = log.log_end_offset
            epoch = self.expected.leader_epoch
            ends = Batch(offset, offset, b"", START_MS, epoch, 11, 0, -1, True, ABORT)
            schedule._append_records(
                log, self.expected, marker(11, commit=False), ends, AppendOrigin.COORDINATOR
            )
            return
        producer = self.expected.reference.producers.get(pid)
        schedule.rng = Random(number)
        self.expected.leader_epoch = number // 4
        schedule._send(log, self.expected, pid, 0, producer.next_sequence if producer else 0)

    def cuts(self) -> Iterator[tuple[str, int]]:
        """Each (file, length to which it is truncated)."""
        active = [b for b in self.expected.batches if b.base >= self._active_base()]
        tail = sum(len(batch.data) for batch in active[-LAST_BATCHES:])
        for path, node in self.disk.files():
            if path.endswith((".lock", "meta.properties", "partition.metadata")):
                continue
            if path.endswith(".log"):
                if path == self.log_path:
                    yield from ((path, size) for size in range(self.size - tail, self.size))
            else:
                yield from ((path, size) for size in range(len(node.data)))

    def _active_base(self) -> int:
        return int(self.log_path.rpartition("/")[2].partition(".")[0])

    def check(self, path: str, size: int, *, clean: bool = False) -> None:
        """Truncate the file, open the log and check it. Errors: Violation."""
        disk: Disk = self.disk.copy()
        node = disk.find(path)
        node.come_back(bytes(node.data[:size]))  # type: ignore[union-attr]
        expected = copy.copy(self.expected)
        expected.ghosts = {}
        required = expected.end
        if path == self.log_path:
            left = size
            required = self._active_base()
            for batch in expected.batches:
                if batch.base >= required:
                    left -= len(batch.data)
                    if left < 0:
                        break
                    required = batch.last + 1
        if "replication-offset" in path:
            expected.watermark = 0
        files = DiskFiles(disk, Random(size))
        try:
            manager = LogManager([path.rpartition("/")[0] for path in _lock_files(disk)], files)
            manager.lock()
            manager.load(lambda topic: TOPICS[topic], START_MS)
            log = manager.get(TP)
            require(log is not None, "the log is gone")
            assert log is not None
            expected.synced = min(expected.synced, required)
            check_reopened(log, expected, required, files.rng)
            require(log.log_end_offset == required, f"{log} ends there, not at {required}")
        finally:
            files.close()


def _lock_files(disk: Disk) -> list[str]:
    return [path for path, _ in disk.files() if path.endswith("/.lock")]


def check_all(codec: int) -> int:
    """Check every truncation of a log with this codec; return their number. Errors: Violation."""
    original = Original(codec)
    count = 0
    for path, size in original.cuts():
        try:
            original.check(path, size)
        except Exception as e:
            raise type(e)(f"codec {codec}, {path} cut to {size} bytes: {e}") from e
        count += 1
    return count
