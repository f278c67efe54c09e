"""The periodic work on the logs: checkpoints, flushes, retention, removal of deleted files.

Offsets are read on the loop; forcing files to the device and removing them runs in threads.
Source: LogManager.startup, which schedules the same work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from ..clock import Clock
from ..config import BrokerConfig
from ..executor import Executor
from .checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from .log_manager import LogManager

if TYPE_CHECKING:
    from .log import Log

#: A flood of producers has this long before the oldest are forgotten.
PRODUCERS_CHECK_MS = 2_000
#: The default interval for flush checks without log.flush.scheduler.interval.ms. Apache Kafka then never checks, and
#: flushes rolled segments in the background immediately.
FLUSH_CHECK_MS = 1000
DELETE_CHECK_MS = 1000
#: The first round of retention follows this soon after the start. Source: log.initial.task.delay.ms.
FIRST_RETENTION_MS = 30_000
MIN_INTERVAL_MS = 100
INT64_MAX = (1 << 63) - 1
#: asyncio's timers end at some decades; nothing that is due later than this is ever due.
MAX_SLEEP_S = 10 * 365 * 86_400.0

#: The number of concurrent fsyncs: the same threads also read uncached data for fetches.
FLUSHES_AT_ONCE = 2
#: The time before a flush that lacked descriptors is tried again.
FLUSH_AGAIN_S = 0.25
#: Logs whose retention is worked out in one turn of the loop.
LOGS_AT_ONCE = 200

logger = logging.getLogger(__name__)


class FlushesAhead(Protocol):
    """A partition whose appends are invisible until they are flushed."""

    @property
    def log(self) -> Log:
        """The log to flush."""
        ...

    def on_flushed(self, now_ms: int) -> None:
        """The log was flushed up to the end that it had when the flush was requested."""
        ...


class LogUpkeep:
    """Runs the periodic work on a broker's logs, as tasks on its loop."""

    def __init__(
        self, config: BrokerConfig, manager: LogManager, executor: Executor, clock: Clock
    ) -> None:
        self._config = config
        self._manager = manager
        self._executor = executor
        self._clock = clock
        self._flushing: dict[Log, asyncio.Task[None]] = {}
        #: How many times a log was flushed, and how long that took in all, with the wait for a thread.
        self.flushes = 0
        self.flush_us = 0
        self._ahead: dict[Log, asyncio.Task[None]] = {}
        self._one_checkpoint = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        #: Called after each round of retention.
        self.on_retained: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the tasks; each waits for its interval first."""
        for interval_ms, work in (
            (
                self._ms("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint(HIGH_WATERMARK),
            ),
            (self._ms("log.flush.offset.checkpoint.interval.ms"), self._checkpoint(RECOVERY_POINT)),
            (
                self._ms("log.flush.start.offset.checkpoint.interval.ms"),
                self._checkpoint(LOG_START_OFFSET),
            ),
            (DELETE_CHECK_MS, self.run_deletes),
            (self._flush_interval_ms(), self.flush_due),
        ):
            self._repeat(interval_ms, work)
        retention_ms = self._ms("log.retention.check.interval.ms")
        self._repeat(retention_ms, self.retain, min(retention_ms, FIRST_RETENTION_MS))
        self._repeat(self._ms("producer.id.expiration.check.interval.ms"), self._expire_producers)
        self._repeat(PRODUCERS_CHECK_MS, self._limit_producers)

    def close(self) -> None:
        """Stop; a flush or write in progress completes by itself."""
        for task in (*self._tasks, *self._ahead.values(), *self._flushing.values()):
            task.cancel()

    def _ms(self, name: str) -> int:
        return self._config.get_int(name)

    def _flush_interval_ms(self) -> int:
        interval_ms = self._ms("log.flush.scheduler.interval.ms")
        return FLUSH_CHECK_MS if interval_ms >= INT64_MAX else interval_ms

    def _repeat(
        self,
        interval_ms: int,
        work: Callable[[], Awaitable[object]],
        first_ms: int | None = None,
    ) -> None:
        async def run() -> None:
            wait_ms = interval_ms if first_ms is None else first_ms
            while True:
                await asyncio.sleep(min(max(wait_ms, MIN_INTERVAL_MS) / 1000, MAX_SLEEP_S))
                wait_ms = interval_ms
                try:
                    await work()
                except Exception:
                    logger.exception("periodic work on the logs failed")

        self._tasks.append(asyncio.create_task(run()))

    # -- checkpoints -------------------------------------------------------------------------------

    def _checkpoint(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self.checkpoint(name)

        return run

    async def checkpoint(self, *names: str) -> None:
        """Write these checkpoint files of all directories, with the current offsets."""
        for name in names:
            # One file after the other, since each takes a look at every log.
            async with self._one_checkpoint:
                for directory, write in self._manager.begin_checkpoint(name):
                    try:
                        await self._executor.in_thread(write.run)
                    except OSError as error:
                        self._manager.checkpoint_failed(directory, error)

    # -- flushes -----------------------------------------------------------------------------------

    async def flush_due(self) -> None:
        """Flush the logs to the device that flush.ms or a roll requires."""
        due = iter(self._manager.flush_due(self._clock.now_ms()))

        async def work_off() -> None:
            for log in due:
                await self.flush(log)

        await asyncio.gather(*(work_off() for _ in range(FLUSHES_AT_ONCE)))

    def flush_ahead(self, partition: FlushesAhead) -> None:
        """Flush a partition's log and notify it, as flush.messages requires before records become visible."""
        log = partition.log
        if log not in self._ahead:
            self._ahead[log] = asyncio.create_task(self._flush_ahead(partition, log))

    async def _flush_ahead(self, partition: FlushesAhead, log: Log) -> None:
        # The partition may have another log afterwards, in another directory.
        try:
            await self.flush(log)
        finally:
            del self._ahead[log]
        partition.on_flushed(self._clock.now_ms())

    async def flush(self, log: Log) -> None:
        """Force everything in the log to the device; a failing disk takes it offline."""
        end_offset = log.log_end_offset
        while not log.offline:
            under_way = self._flushing.get(log)
            if under_way is None:
                under_way = asyncio.create_task(self._flush_once(log))
                self._flushing[log] = under_way
            await asyncio.shield(under_way)
            if log.recovery_point >= min(end_offset, log.log_end_offset):
                break

    async def _flush_once(self, log: Log) -> None:
        began_us = self._clock.monotonic_us()
        try:
            task = log.prepare_flush()
            await self._executor.in_thread(task.run)
            self.flushes += 1
            self.flush_us += self._clock.monotonic_us() - began_us
        except OSError as error:
            log.on_io_error(error)
            if (
                not log.offline
            ):  # only descriptors were lacking: nothing of this flush may count as forced
                log.leader_epoch_cache.doubt()
                log.flush_state.wanted = True
                await asyncio.sleep(FLUSH_AGAIN_S)
        else:
            log.complete_flush(task, self._clock.now_ms())
        finally:
            del self._flushing[log]

    # -- retention and deletion --------------------------------------------------------------------

    async def retain(self) -> None:
        """Delete old segments by retention, with pauses in which clients are served."""
        logs = self._manager.logs()
        for first in range(0, len(logs), LOGS_AT_ONCE):
            for log in logs[first : first + LOGS_AT_ONCE]:
                if self._manager.retention(self._clock.now_ms(), (log,)):
                    await asyncio.sleep(0)  # files were made and renamed, which takes milliseconds
            await asyncio.sleep(0)
        if self.on_retained is not None:
            self.on_retained()

    async def run_deletes(self) -> None:
        """Remove the deleted files and directories that are due."""
        due = self._manager.deletes.take(self._clock.now_ms())
        if due:
            await self._executor.in_thread(self._manager.remove, due)

    async def _limit_producers(self) -> None:
        self._manager.limit_producers(self._config.get_int("kwire.producer.ids.max"))

    async def _expire_producers(self) -> None:
        for _ in self._manager.expire_producers(self._clock.now_ms()):
            await asyncio.sleep(0)
