"""Seeded schedules: random operations on the logs of a broker, a fault, an end, a new start, checks.

A schedule is three or so lives of a process over the same disks. In each the log manager is started
as the broker starts it, works, and ends: cleanly, killed, or with the power. One seed gives one
schedule, which is always the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar
from unittest.mock import patch

from server.log.cleaner.log_cleaner import LogCleaner
from server.log.log_directory import LogDirectory
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from .disk import Disk, DiskFiles, Fault, Stopped
from .expected import Expected, Violation
from .invariants import check_open, check_reopened, require
from .operations import Flush, Operations
from .topics import START_MS, TOPICS

T = TypeVar("T")
R = TypeVar("R")

MOUNTS = ("/disk-a", "/disk-b", "/disk-c")

#: The kinds of faults, by their names in the table.
FAULTS = (
    "killed",
    "power cut",
    "killed in recovery",
    "power cut in recovery",
    "short write",
    "EIO on write",
    "EIO on read",
    "ENOSPC",
    "failed fsync",
)
_KINDS = {
    "short write": "short",
    "EIO on write": "EIO",
    "EIO on read": "read",
    "ENOSPC": "ENOSPC",
    "failed fsync": "fsync",
}


@dataclass
class Outcome:
    """The outcome of a schedule."""

    fault: str
    struck: bool
    operations: int


class OneByOne:
    """Replaces a thread pool, so that a seed always gives the same schedule."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return [call(item) for item in items]


class Schedule(Operations):
    """One seed."""

    def __init__(self, seed: int, fault: str | None = None) -> None:
        self.rng = Random(seed)
        self.fault_name = fault or FAULTS[seed % len(FAULTS)]
        self.disk = Disk(MOUNTS[: self.rng.choice((1, 2, 2, 3))])
        self.mounts = [f"/{name}" for name in self.disk.root.entries]
        self.now_ms = START_MS
        self.partitions: dict[TopicPartition, Expected] = {}
        self.operations = 0
        self.struck = False
        self.values = 0
        self.codecs = (0, 0, 0, 1)
        self.gone: set[TopicPartition] = set()
        """Deleted partitions, which a power cut may bring back."""
        self.failed: set[str] = set()
        """Directories whose disk has failed in this life."""

    def run(self) -> Outcome:
        """Run all lives. Errors: Violation."""
        rng = self.rng
        lives = rng.choice((2, 2, 3, 4))
        in_recovery = self.fault_name.endswith("in recovery")
        for life in range(lives):
            last = life + 1 == lives
            wanted = life == rng.randrange(lives) or last
            self._live(fault=wanted and not in_recovery, in_recovery=wanted and in_recovery)
        # No more faults: read everything, then stop and start cleanly.
        self._start(None)
        self._work(rng.randint(0, 8))
        self._stop(how="clean")
        self._start(None)
        self._stop(how="clean")
        return Outcome(self.fault_name, self.struck, self.operations)

    # -- a life ------------------------------------------------------------------------------------

    def _live(self, *, fault: bool, in_recovery: bool) -> None:
        rng = self.rng
        plan = self._fault(in_recovery=in_recovery) if fault or in_recovery else None
        try:
            self._start(plan if in_recovery or rng.random() < 0.1 else None)
            self.files.fault = plan
            self._work(rng.randint(5, 60))
            how = rng.choice(("clean", "killed", "power cut"))
            if self.fault_name in ("killed", "power cut") and how == "clean" and rng.random() < 0.7:
                how = self.fault_name
            self._stop(how=how)
        except Stopped:
            self.struck = True
            self._stopped(power=self.fault_name.startswith("power"))

    def _fault(self, *, in_recovery: bool) -> Fault:
        rng = self.rng
        kind = _KINDS.get(self.fault_name, "stop")
        most = {"stop": 250, "short": 80, "EIO": 120, "ENOSPC": 100, "fsync": 25, "read": 60}[kind]
        if in_recovery:
            most = 20
        prefix = rng.choice(self.mounts) if kind not in ("stop", "short") else "/"
        return Fault(kind, rng.randint(1, most), prefix=prefix, sticky=rng.random() < 0.7)

    def _start(self, fault: Fault | None) -> None:
        # As in the broker.
        self.files = DiskFiles(self.disk, self.rng, fault)
        self.files.now_ms = self.now_ms
        self.flushes: list[Flush] = []
        self.manager = LogManager(self.mounts, self.files, on_offline=self._on_offline)
        self.cleaner = LogCleaner(self.manager)
        self.manager.lock()
        try:
            self.manager.claim(1, "cluster")
        except OSError:
            self.failed.update(self.mounts)  # the broker does not start
            return
        self.manager.load(lambda topic: TOPICS[topic], self.now_ms)
        self._check_all()

    def _on_offline(self, directory: LogDirectory) -> None:
        fault = self.files.fault
        require(
            fault is not None and fault.struck and directory.path.startswith(fault.prefix),
            f"{directory} goes offline, and nothing is wrong with it",
        )
        self.struck = True
        self.failed.add(directory.path)

    def _check_all(self) -> None:
        for tp, expected in list(self.partitions.items()):
            if expected.directory in self.failed:
                continue
            log = self.manager.get(tp)
            if expected.deleted or log is None:
                require(
                    expected.deleted or self._required(expected) == 0, f"the log of {tp} is gone"
                )
                if log is not None and not self._attempt(expected, partial(self._delete, tp)):
                    continue
                del self.partitions[tp]
                continue
            expected.directory = log.dir.rpartition("/")[0]
            required = self._required(expected)
            check = partial(check_reopened, log, expected, required, self.rng)
            if self._check(log, check):
                expected.unsure = False
        for log in self.manager.logs():
            if log.tp in self.gone and log.tp not in self.partitions and log.log_end_offset:
                expected = Expected(log.dir.rpartition("/")[0], log.tp.topic)
                self._attempt(expected, partial(self._delete, log.tp))
            elif log.tp not in self.partitions:
                expected = Expected(log.dir.rpartition("/")[0], log.tp.topic)
                require(log.log_end_offset == 0, f"{log} was never written to")
                self.partitions[log.tp] = expected

    def _required(self, expected: Expected) -> int:
        return expected.synced if expected.unsure else expected.end

    def _stop(self, *, how: str) -> None:
        if how == "clean":
            for tp, expected in self.partitions.items():
                log = self.manager.get(tp)
                if log is not None and not log.offline and expected.directory not in self.failed:
                    self._check(log, partial(check_open, log, expected, self.rng))
            self._run_flushes()
            self.manager.shutdown(self.now_ms)
            for tp, expected in self.partitions.items():
                if expected.directory not in self.failed and not expected.deleted:
                    log = self.manager.get(tp)
                    if log is not None:
                        expected.confirm(expected.end)
                        expected.safe_start = log.log_start_offset
                        expected.watermark = log.high_watermark
            how = self.rng.choice(("killed", "power cut"))
        self._stopped(power=how == "power cut")

    def _stopped(self, *, power: bool) -> None:
        self.files.close()
        fault = self.files.fault
        self.struck = self.struck or (fault is not None and fault.struck)
        for path, node in self.disk.files():
            if node.dropped:
                for expected in self.partitions.values():
                    if path.startswith(expected.directory + "/"):
                        expected.unsure = True
        if power:
            for expected in self.partitions.values():
                expected.unsure = True
        self.disk.drop_pages()
        if power:
            self.disk.lose_power(self.rng)
        self.failed.clear()


def run(seed: int, fault: str | None = None) -> Outcome:
    """Run one schedule. Errors: Violation, with the seed."""
    told = logging.getLogger("server.log")
    level = told.level
    told.setLevel(logging.CRITICAL)
    schedule = Schedule(seed, fault)
    try:
        with patch("concurrent.futures.ThreadPoolExecutor", OneByOne):
            return schedule.run()
    except Exception as e:
        raise Violation(f"KWIRE_SEED={seed} ({schedule.fault_name}): {e!r}") from e
    finally:
        schedule.files.close()
        told.setLevel(level)
