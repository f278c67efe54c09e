"""Opens the logs of one log directory at the start; after an unclean stop, repairs them first.

Nothing here touches what the broker's loop uses, so it runs on a thread while the loop continues.
Recovery runs Python code for each batch, and threads do not run Python code in parallel. Logs with
much to read are therefore recovered by processes, if the caller passes a `Recover`: they leave the
files as a clean stop would, and opening them afterwards is quick. Source: LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...metadata.topic_partition import TopicPartition
from ..checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from ..delayed_delete import DelayedDeletes
from ..file_layer import FileLayer
from ..loaded_log import LoadedLog
from ..log import Log
from ..log_config import LogConfig
from ..log_directory import LogDirectory
from ..meta_properties import CorruptMetaProperties, read_topic_id
from ..segment import LOG_SUFFIX, offset_of
from .loader import load_log

logger = logging.getLogger(__name__)

LogConfigs = Callable[[str], LogConfig]

#: A log with fewer bytes than this, from the segment of its recovery point on, is cheaper to
#: recover here than in a process.
WORTH_A_PROCESS_BYTES = 4 << 20
#: Reading this much takes about as long as starting processes: half a second per GB with batches of
#: 16 KiB, five times as long with 2 KiB. Threads were measured and made nothing faster.
WORTH_PROCESSES_BYTES = 1 << 30
PROGRESS_PARTS = 10
#: About a second of work: progress is logged once this much was read or this many logs were opened.
PROGRESS_BYTES = 256 << 20
PROGRESS_LOGS = 500


@dataclass(frozen=True, slots=True)
class RecoveryTask:
    """A log to be recovered by another process."""

    tp: TopicPartition
    directory: str
    config: LogConfig
    log_start_offset: int
    recovery_point: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of recovering a log, and what it logged: (level, message)."""

    tp: TopicPartition
    truncated_bytes: int
    recovered_bytes: int
    messages: list[tuple[int, str]]


Recover = Callable[[Sequence[RecoveryTask]], Iterator[Recovered]]
"""Recovers logs, in any order; if it ends early, the rest is recovered here."""


@dataclass(slots=True)
class OpenedDirectory:
    """The content of a log directory; `error` is set if its disk failed in the meantime."""

    directory: LogDirectory
    clean: bool = False
    deleted: list[str] = field(default_factory=list)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    logs: dict[TopicPartition, tuple[LoadedLog, bytes | None]] = field(default_factory=dict)
    futures: dict[TopicPartition, tuple[str, LoadedLog, bytes | None]] = field(default_factory=dict)
    """Logs that were being copied here, each with the name of its directory."""
    error: OSError | None = None


def open_directory(
    directory: LogDirectory,
    configs: LogConfigs,
    now_ms: int,
    *,
    recover: Recover | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> OpenedDirectory:
    """Open every log of a directory, in any thread; stopping() is called between two of them.

    Shape: the marker of a clean stop is kept, so a start that is abandoned causes no recovery.
    """
    opened = OpenedDirectory(directory)
    try:
        _Opening(opened, configs, now_ms, stopping).run(recover)
    except OSError as e:
        opened.error = e
    return opened


class _Opening:
    def __init__(
        self,
        opened: OpenedDirectory,
        configs: LogConfigs,
        now_ms: int,
        stopping: Callable[[], bool],
    ) -> None:
        self.opened = opened
        self.directory = directory = opened.directory
        self.configs = configs
        self.now_ms = now_ms
        self.stopping = stopping
        opened.clean = directory.was_stopped_cleanly()
        self.partitions, opened.deleted, self.futures = directory.partitions()
        self.recovery_points = directory.read_checkpoint(RECOVERY_POINT)
        opened.high_watermarks = directory.read_checkpoint(HIGH_WATERMARK)
        self.start_offsets = directory.read_checkpoint(LOG_START_OFFSET)
        self.cut = self.recovered = self.done = 0
        self.told_logs = self.told_bytes = 0

    def run(self, recover: Recover | None) -> None:
        opened, total = self.opened, len(self.partitions)
        unclean = total and not opened.clean
        if unclean:
            logger.warning(
                "%s was not closed cleanly: recovering %d logs", self.directory.path, total
            )
        mended: set[TopicPartition] = set()
        if unclean and recover is not None:
            mended = self._mend(recover)
        for tp in self.partitions:
            if self.stopping():
                return
            opened.logs[tp] = self._open(tp, str(tp), mended=tp in mended)
            if unclean and tp not in mended:
                self._progress()
        for tp, name in self.futures.items():
            if self.stopping():
                return
            opened.futures[tp] = (name, *self._open(tp, name, mended=False))
        if unclean:
            logger.warning(
                "%s: recovery read %d bytes and truncated %d",
                self.directory.path,
                self.recovered,
                self.cut,
            )

    def _progress(self) -> None:
        total = len(self.partitions)
        before, self.done = self.done, self.done + 1
        part = self.done * PROGRESS_PARTS // total
        if total < PROGRESS_PARTS or part == before * PROGRESS_PARTS // total:
            return
        if (
            self.recovered - self.told_bytes >= PROGRESS_BYTES
            or self.done - self.told_logs >= PROGRESS_LOGS
        ):
            self.told_logs, self.told_bytes = self.done, self.recovered
            logger.info(
                "%s: %d of %d logs recovered, %d MB read",
                self.directory.path,
                self.done,
                total,
                self.recovered // 1_000_000,
            )

    def _open(
        self, tp: TopicPartition, name: str, *, mended: bool
    ) -> tuple[LoadedLog, bytes | None]:
        directory, layer = self.directory, self.directory.layer
        path = directory.file(name)
        recovery_point = self.recovery_points.get(tp, 0)
        loaded = load_log(
            layer,
            path,
            self.configs(tp.topic),
            clean=self.opened.clean or mended,
            log_start_offset=self.start_offsets.get(tp, 0),
            recovery_point=recovery_point,
            now_ms=self.now_ms,
        )
        if mended:  # its files can be trusted, but they may not have reached the device
            loaded.recovery_point = min(recovery_point, loaded.log_end_offset)
            loaded.leader_epoch_cache.doubt()
            loaded.doubtful = True
        self.cut += loaded.truncated_bytes
        self.recovered += loaded.recovered_bytes
        try:
            topic_id = read_topic_id(layer, path)
        except CorruptMetaProperties as e:
            logger.error("%s; the topic id is taken from the cluster", e)
            topic_id = None
        return loaded, topic_id

    def _mend(self, recover: Recover) -> set[TopicPartition]:
        tasks = []
        for tp in self.partitions:
            path = self.directory.file(str(tp))
            point = self.recovery_points.get(tp, 0)
            size = _bytes_from(self.directory.layer.list_directory(path), point)
            if size >= WORTH_A_PROCESS_BYTES:
                task = RecoveryTask(
                    tp,
                    path,
                    self.configs(tp.topic),
                    self.start_offsets.get(tp, 0),
                    point,
                    self.now_ms,
                )
                tasks.append((size, task))
        tasks.sort(key=lambda each: each[0], reverse=True)
        mended: set[TopicPartition] = set()
        if len(tasks) < 2 or sum(size for size, _ in tasks) < WORTH_PROCESSES_BYTES:
            return mended
        for recovered in recover([task for _, task in tasks]):
            for level, message in recovered.messages:
                logger.log(level, "%s", message)
            self.cut += recovered.truncated_bytes
            self.recovered += recovered.recovered_bytes
            mended.add(recovered.tp)
            self._progress()
            if self.stopping():
                break
        return mended


def _bytes_from(files: dict[str, int], recovery_point: int) -> int:
    # The size of the segment that holds the recovery point and of all after it.
    segments = sorted(
        (offset, size)
        for name, size in files.items()
        if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None
    )
    first = 0
    for number, (offset, _) in enumerate(segments):
        if offset <= recovery_point:
            first = number
    return sum(size for _, size in segments[first:])


def recover_log(task: RecoveryTask, layer: FileLayer) -> tuple[int, int]:
    """Repair a log's files, leaving them as a clean stop does; return (bytes cut, bytes read).

    Errors: OSError.
    """
    loaded = load_log(
        layer,
        task.directory,
        task.config,
        clean=False,
        log_start_offset=task.log_start_offset,
        recovery_point=task.recovery_point,
        now_ms=task.now_ms,
    )
    log = Log(
        task.tp,
        task.directory,
        task.config,
        layer,
        loaded,
        DelayedDeletes(layer),
        now_ms=task.now_ms,
    )
    log.close(flush=False)
    return loaded.truncated_bytes, loaded.recovered_bytes
