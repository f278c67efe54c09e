"""Runs log compaction from the loop: LogCleaner makes the plans, a worker process does the work."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from ...clock import Clock
from ...config import BrokerConfig
from ...executor import Executor
from ...metadata.topic_partition import TopicPartition
from ..log_manager import LogManager
from .log_cleaner import CleanRound, LogCleaner
from .plan import CleanerSettings, RoundLost, SegmentFile

MIN_BACKOFF_S = 0.05
#: Gives the compaction process a lower priority than the broker.
NICENESS = 10

logger = logging.getLogger(__name__)


class CleanerTask:
    """Cleans the logs that are due, one after another; each group is swapped in when it is complete."""

    def __init__(
        self, config: BrokerConfig, manager: LogManager, executor: Executor, clock: Clock
    ) -> None:
        """The cleaner has a separate process, because it would occupy those of the executor for long."""
        self._config = config
        self._cleaner = LogCleaner(manager)
        self._executor = executor.separate(niceness=NICENESS)
        self._clock = clock

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that cannot be compacted, and why."""
        return self._cleaner.uncleanable

    async def run(self) -> None:
        """Clean logs that are due, repeatedly, with pauses of log.cleaner.backoff.ms."""
        while True:
            await asyncio.sleep(max(MIN_BACKOFF_S, self._backoff_ms() / 1000))
            try:
                await self.run_due()
            except Exception:
                logger.exception("log compaction failed")

    def _backoff_ms(self) -> int:
        return self._config.get_int("log.cleaner.backoff.ms")

    def close(self) -> None:
        """Kill the process, even while it is working; the next start removes its unfinished files."""
        self._executor.close()

    async def run_due(self) -> int:
        """Clean until no log is due; return how many rounds were completed."""
        completed = 0
        self._cleaner.settings = settings = self._settings()
        self._executor.bound_process(
            self._config.get_int("kwire.worker.max.bytes") + settings.dedupe_buffer_size
        )
        while (round_ := self._cleaner.next_round(self._clock.now_ms())) is not None:
            try:
                done = await self._run(round_)
            except Exception as e:  # noqa: BLE001 - one log's failure must not stop the others
                from concurrent.futures import BrokenExecutor

                if isinstance(e, BrokenExecutor | RoundLost):
                    tp = round_.log.tp
                    logger.warning("the process died while it compacted %s: %s", tp, e)
                    self._cleaner.postpone(tp, self._clock.now_ms())  # it may be the reason
                    continue
                self._cleaner.fail(round_, e, self._clock.now_ms())
                continue
            if not done:
                break
            completed += 1
        return completed

    def _settings(self) -> CleanerSettings:
        config = self._config
        return CleanerSettings(
            dedupe_buffer_size=config.get_int("log.cleaner.dedupe.buffer.size"),
            dedupe_buffer_load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_size=config.get_int("log.cleaner.io.buffer.size"),
            io_max_bytes_per_second=config.get_float("log.cleaner.io.max.bytes.per.second"),
        )

    async def _run(self, round_: CleanRound) -> bool:
        # False if the round had to end because the log changed.
        from . import process  # on first use: an idle broker does not need it

        cleaner, in_process = self._cleaner, self._executor.in_process
        plan = round_.plan
        started_ms = self._clock.monotonic_ms()
        keys = await in_process(process.begin, plan, round_.log.layer)
        cleaner.keys_read(round_, keys.end_offset)
        before = after = 0
        for sources in round_.groups:
            if not cleaner.is_current(round_, sources):
                return False
            size = await self._clean_group(round_, sources)
            if size is None:
                return False
            before += sum(source.size for source in sources)
            after += size
        await in_process(process.end)
        await self._executor.in_thread(cleaner.finish(round_, keys.end_offset))
        logger.info(
            "%s: compacted up to offset %d: %d bytes became %d, %d keys, %d ms",
            round_.log.tp,
            keys.end_offset,
            before,
            after,
            keys.keys,
            self._clock.monotonic_ms() - started_ms,
        )
        return True

    async def _clean_group(
        self, round_: CleanRound, sources: tuple[SegmentFile, ...]
    ) -> int | None:
        from . import process

        cleaner = self._cleaner
        group = cleaner.group(round_, sources)
        cleaned = await self._executor.in_process(process.clean, group)
        if not cleaner.swap(round_, sources, cleaned, self._clock.now_ms()):
            return None
        sync = partial(round_.log.layer.sync_directory, round_.log.dir)
        await self._executor.in_thread(sync)
        return cleaned.size
