"""Moves replicas from one log directory of this broker to another (KIP-113).

The other directory gets a copy of the log, named `<topic>-<partition>.<32 hex>-future`. While the log stays in use, a
task copies whole batches to it, a few at a time. When the copy is complete and flushed to the device, it replaces the
log between two turns of the loop; then checkpoints are written, and the old directory is deleted. After a restart,
copying continues where it stopped. Compaction does not touch the log during the move.

Threads read the bytes, and the loop checks and writes them in small steps. Throttle:
`replica.alter.log.dirs.io.max.bytes.per.second`.
Source: ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.records.batch import read_header

from ..cause import Own
from ..log.checkpoint import LOG_START_OFFSET
from ..log.file_layer import FileSlice
from ..log.log import AppendError, Log, LogSlice
from ..log.log_directory import MAX_NAME, LogDirectory, future_name
from .replication_quota import ReplicationQuota

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config import BrokerConfig
    from ..executor import Executor
    from ..log.checkpoint_writer import CheckpointWrite
    from ..log.log_manager import LogManager
    from ..metadata.topic_partition import TopicPartition
    from ..turns import Turns
    from .partition import Partition
    from .replica_manager import ReplicaManager

#: Bytes to copy in one step: a few milliseconds of work if the batches are small.
STEP_BYTES = 64 * 1024
#: Bytes after which a copy is flushed to the device, so that the final flush does not take long.
FLUSH_BYTES = 64 << 20
#: The owner of this work.
MOVES = Own("log directories")
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

logger = logging.getLogger(__name__)


class CannotCopy(Exception):
    """The records of a log cannot be copied unchanged."""


def common_end(log: Log, copy: Log) -> int | None:
    """The offset up to which a copy agrees with its log; None if it has to start over.

    Shape: the same offsets of one leader epoch are the same records. Source: ReplicaAlterLogDirsThread.truncate;
    KIP-101.
    """
    end = copy.log_end_offset
    if end < log.log_start_offset or copy.log_start_offset > log.log_start_offset:
        return None
    epoch = copy.leader_epoch_cache.latest
    if epoch < 0:
        return min(end, log.log_end_offset)
    known, known_end = log.end_offset_for_epoch(epoch)
    if known_end < 0:
        return None
    if known != epoch:
        # The log has no records of this epoch: those in the copy were truncated.
        _, own_end = copy.end_offset_for_epoch(known)
        known_end = min(known_end, own_end) if own_end >= 0 else known_end
    common = min(end, known_end)
    return common if common >= log.log_start_offset else None


def align(log: Log, copy: Log, now_ms: int) -> None:
    """Apply to a copy what happened to its log: truncation, deletion of old records, changed settings.

    Errors: OSError.
    """
    if copy.config is not log.config:
        copy.update_config(log.config)
    common = common_end(log, copy)
    if common is None:
        copy.truncate_fully_and_start_at(log.log_start_offset, now_ms)
        return
    if common < copy.log_end_offset:
        copy.truncate_to(common, now_ms)
    if log.log_start_offset > copy.log_start_offset:
        copy.increment_log_start_offset(log.log_start_offset)


class LogDirMoves:
    """The replicas of this broker that are moving between its log directories."""

    def __init__(
        self,
        config: BrokerConfig,
        manager: LogManager,
        replicas: ReplicaManager,
        executor: Executor,
        clock: Clock,
        turns: Turns,
        is_known: Callable[[TopicPartition], bool],
    ) -> None:
        """`is_known` says whether the cluster has a partition."""
        self._config = config
        self._manager = manager
        self._replicas = replicas
        self._executor = executor
        self._clock = clock
        self._turns = turns
        self._is_known = is_known
        self._quota = ReplicationQuota(
            config.get_int("alter.log.dirs.replication.quota.window.num"),
            1000 * config.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        threads = config["num.replica.alter.log.dirs.threads"]
        self._at_once = asyncio.Semaphore(
            max(1, threads if isinstance(threads, int) else len(manager.directories))
        )
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}

    @property
    def moving(self) -> int:
        """The number of replicas that are moving, or waiting to move."""
        return len(self._tasks)

    # -- requests --------------------------------------------------------------------------------

    def move(self, tp: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a replica to a log directory; a request for its own directory cancels a move in progress.

        Shape: a replica that this broker does not have yet will be created there.
        Errors: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        manager = self._manager
        if len(future_name(tp, "0" * 32)) > MAX_NAME:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        target = manager.named(path)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if target.offline or tp in self._replicas.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._replicas.partitions.get(tp)
        if partition is None:
            manager.prefer(tp, target)
            known = self._is_known(tp)
            return (
                ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        try:
            return self._move(partition, target)
        except OSError as error:
            logger.error("cannot move %s to %s: %s", tp, path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _move(self, partition: Partition, target: LogDirectory) -> ErrorCode:
        manager, tp, now_ms = self._manager, partition.tp, self._clock.now_ms()
        begins = manager.future(tp) is None or manager.future_directory_of(tp) is not target
        if (
            begins
            and manager.directory_of(tp) is not target
            and any(each.offline for each in manager.directories)
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR  # one of them may have a copy already
        if manager.future(tp) is not None and manager.future_directory_of(tp) is not target:
            logger.info("%s is not moved to %s", tp, manager.future_directory_of(tp))
            manager.abandon_future(tp, now_ms)
        if manager.directory_of(tp) is target:
            return ErrorCode.NONE
        if manager.future(tp) is None:
            manager.create_future(tp, target, now_ms)
        self.begin(tp)
        return ErrorCode.NONE

    def begin(self, tp: TopicPartition) -> None:
        """Start copying a replica that has a copy in another directory, unless that is in progress."""
        if tp not in self._tasks:
            self._tasks[tp] = asyncio.get_running_loop().create_task(self._run(tp))

    def close(self) -> None:
        """Stop copying; the next start continues."""
        for task in self._tasks.values():
            task.cancel()

    # -- copying ---------------------------------------------------------------------------------

    async def _run(self, tp: TopicPartition) -> None:
        try:
            async with self._at_once:
                while self._pair(tp) is not None:
                    await self._copy(tp)
        except (CannotCopy, OSError) as error:
            logger.error(
                "%s cannot be moved, and stays where it is until the move is requested again: %s",
                tp,
                error,
            )
        except Exception:
            logger.exception("moving %s failed", tp)
        finally:
            del self._tasks[tp]

    def _pair(self, tp: TopicPartition) -> tuple[Partition, Log] | None:
        """The partition and the copy of its log; None if there is nothing left to do."""
        partition, copy = self._replicas.partitions.get(tp), self._manager.future(tp)
        if partition is None or copy is None or copy.offline or partition.log.offline:
            return None
        return partition, copy

    async def _copy(self, tp: TopicPartition) -> None:
        """Complete one copy and let it replace the log; return early if the copy has been replaced by another."""
        manager, pair = self._manager, self._pair(tp)
        unflushed = 0
        #: The log start offset on the device for the copy since its flush at the end; -1 before that.
        known_start = -1
        while pair is not None and self._pair(tp) == pair:
            partition, copy = pair
            log = partition.log
            align(log, copy, self._clock.now_ms())
            end = log.log_end_offset
            found = log.read(copy.log_end_offset, STEP_BYTES, end)
            if not isinstance(found, LogSlice):
                raise CannotCopy(
                    f"its log cannot be read at offset {copy.log_end_offset}: {found!r}"
                )
            at_end = found.next_offset >= end
            if at_end and known_start == log.log_start_offset:
                # The remaining records were written a moment ago: they are few, and in memory. If they were promised to
                # be durable, they are on the device of the old directory, which stays until the new one has them, too.
                self._append(copy, bytes_of(found))
                await self._take_place(partition)
                return
            if at_end or unflushed >= FLUSH_BYTES:
                start = copy.log_start_offset
                await self._flush(copy)
                if at_end and start:
                    await self._write_checkpoints(manager.begin_checkpoint(LOG_START_OFFSET))
                unflushed, known_start = 0, start if at_end else -1
            if not len(found.data):
                if not at_end:
                    copy.skip_to(end, self._clock.now_ms())
                continue
            await self._wait_for_room()
            cuts = log.flush_state.cuts
            try:
                data = await self._executor.in_thread(bytes_of, found)
            except OSError:
                if log.flush_state.cuts == cuts and not log.offline:
                    raise
                continue
            if self._pair(tp) == pair and partition.log is log and log.flush_state.cuts == cuts:
                unflushed += self._append(copy, data)
            await self._turns.pause(MOVES)

    def _append(self, copy: Log, data: bytes) -> int:
        """Append batches to a copy; returns how many bytes. Errors: CannotCopy."""
        if not data:
            return 0
        now_ms = self._clock.now_ms()
        self._quota.record(len(data), now_ms)
        first = read_header(data).base_offset
        if first < copy.log_end_offset == copy.log_start_offset:
            # The log begins within a batch, of which DeleteRecords has removed the first records.
            copy.truncate_fully_and_start_at(first, now_ms)
        appended = copy.append_as_follower(memoryview(data), now_ms)
        if isinstance(appended, AppendError):
            raise CannotCopy(
                f"offset {copy.log_end_offset}: {appended.message or appended.error!r}"
            )
        return len(data)

    async def _wait_for_room(self) -> None:
        while True:
            self._quota.bytes_per_second = self._config.replication_rate(RATE)
            pause_ms = self._quota.pause_ms(self._clock.now_ms())
            if not pause_ms:
                return
            await asyncio.sleep(pause_ms / 1000)

    async def _flush(self, copy: Log) -> None:
        task = copy.prepare_flush()
        try:
            await self._executor.in_thread(task.run)
        except OSError as error:
            copy.on_io_error(error)
            raise
        copy.complete_flush(task, self._clock.now_ms())

    async def _take_place(self, partition: Partition) -> None:
        manager, tp, old = self._manager, partition.tp, partition.log
        partition.change_log(manager.replace_with_future(tp))
        logger.info("%s is in %s now", tp, partition.log.dir)
        # Even if this task fails now, the log has been moved.
        await asyncio.shield(asyncio.ensure_future(self._leave(tp, old)))

    async def _leave(self, tp: TopicPartition, old: Log) -> None:
        manager, log = self._manager, self._manager.get(tp)
        if log is None or not manager.is_leaving(tp, old):
            return  # it was deleted, or the broker has stopped
        name = partial(manager.layer.sync_directory, str(Path(log.dir).parent))
        try:
            await self._flush(log)
            await self._executor.in_thread(name)
        except OSError as error:
            log.on_io_error(error)
            return  # so the old directory is still needed
        if manager.is_leaving(tp, old):
            await self._write_checkpoints(manager.begin_leaving(tp))
        if manager.is_leaving(tp, old):
            manager.leave(tp, self._clock.now_ms())

    async def _write_checkpoints(self, writes: list[tuple[LogDirectory, CheckpointWrite]]) -> None:
        for directory, write in writes:
            await self._try(directory, write.run)

    async def _try(self, directory: LogDirectory, call: Callable[[], object]) -> None:
        try:
            await self._executor.in_thread(call)
        except OSError as error:
            self._manager.checkpoint_failed(directory, error)


def bytes_of(found: LogSlice) -> bytes:
    """The bytes of a read; may block on the disk."""
    data = found.data
    if isinstance(data, FileSlice):
        try:
            return data.read()
        finally:
            data.close()
    return bytes(data)
