"""All logs of a broker: opening the log directories, creating and deleting logs, checkpoints.

All calls are synchronous; `upkeep.py` makes the periodic ones. A directory whose disk fails goes offline with its logs; the
others continue. Source: LogManager.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TypeVar

from ..metadata.topic_partition import TopicPartition
from .checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT, CorruptCheckpoint
from .checkpoint_writer import CheckpointWrite
from .closing import close_logs
from .delayed_delete import DelayedDeletes
from .file_layer import OUT_OF_DESCRIPTORS, FileLayer
from .loaded_log import LoadedLog
from .log import Log
from .log_config import LogConfig
from .log_directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory, future_name, retired_name
from .meta_properties import MetaProperties, write_topic_id
from .recovery.loader import load_log
from .recovery.opening import LogConfigs, OpenedDirectory, Recover, open_directory

T = TypeVar("T")

logger = logging.getLogger(__name__)


#: One log may remember this fraction (1/n) of the producers that all logs together may remember.
PRODUCER_PARTS = 4
#: The maximum number of partitions without a log whose intended directory is remembered.
MAX_PREFERRED = 100_000


def level(sizes: Iterable[int], room: int) -> int:
    """The size to which the largest have to shrink so that all together fit."""
    left = sorted(sizes)
    count = len(left)
    for size in left:
        if size * count > room:
            return room // count
        room -= size
        count -= 1
    return room


class LogManager:
    """The logs of this broker, by partition."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        layer: FileLayer,
        *,
        on_offline: Callable[[LogDirectory], None] | None = None,
    ) -> None:
        """Does no I/O yet; `on_offline` is called once for each directory that fails."""
        self.layer = layer
        self.directories = [LogDirectory(layer, path) for path in log_dirs]
        for directory in self.directories:
            directory.on_error = partial(self._fail, directory)
        self.deletes = DelayedDeletes(layer)
        self._on_offline = on_offline
        self._loaded = False
        self._opened: list[OpenedDirectory] | None = None
        self._abandoned = False
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        #: Logs that are being copied to another directory, and where they will be.
        self._futures: dict[TopicPartition, Log] = {}
        self._future_directory_of: dict[TopicPartition, LogDirectory] = {}
        #: Logs whose copies have taken their place, until their directories may be removed.
        self._replaced: dict[TopicPartition, tuple[Log, LogDirectory]] = {}
        #: The intended directories of logs that do not exist yet.
        self._preferred: dict[TopicPartition, LogDirectory] = {}

    @property
    def is_open(self) -> bool:
        """Whether all logs have been read, and recovered where that was necessary."""
        return self._opened is not None or self._loaded

    # -- start -------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock all directories, or none. A directory that cannot be used goes offline if there are others.

        Errors: LogDirInUse; OSError if no directory is left.
        """
        try:
            for directory in self.directories:
                self._try(directory, directory.lock)
        except Exception:
            self.unlock()
            raise

    def _try(self, directory: LogDirectory, call: Callable[[], T]) -> T | None:
        # Errors: those of the call; OSError only where it leaves no directory online.
        if directory.offline:
            return None
        try:
            return call()
        except OSError as e:
            self._fail(directory, e)
            if e.errno in OUT_OF_DESCRIPTORS or all(each.offline for each in self.directories):
                raise
            return None

    def unlock(self) -> None:
        """Release all locks."""
        for directory in self.directories:
            directory.unlock()

    def meta_properties(self) -> MetaProperties | None:
        """The properties of the first directory that has any; None if all are new."""
        for directory in self.directories:
            meta = self._try(directory, directory.meta_properties)
            if meta is not None:
                return meta
        return None

    def partitions_on_disk(self) -> list[TopicPartition]:
        """The partitions that have a log in some directory, before the logs are opened."""
        found = [self._try(directory, directory.partitions) for directory in self.directories]
        return sorted({tp for each in found if each is not None for tp in each.logs})

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Check that the directories are this broker's, and mark new ones.

        Errors: InconsistentBrokerId, InconsistentClusterId.
        """
        for directory in self.directories:
            self._try(directory, partial(directory.claim, broker_id, cluster_id))

    def open_logs(self, configs: LogConfigs, now_ms: int, recover: Recover | None = None) -> None:
        """Read the directories before `load`, and recover their logs after an unclean stop.

        Shape: runs in a thread; `configs` need not have the topics' own settings yet. Directories are
        read in parallel. Errors: none; `load` reports disks that have failed.
        """
        online = [directory for directory in self.directories if not directory.offline]

        def open_one(directory: LogDirectory) -> OpenedDirectory:
            return open_directory(
                directory, configs, now_ms, recover=recover, stopping=lambda: self._abandoned
            )

        if len(online) == 1:
            self._opened = [open_one(online[0])]
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max(1, len(online)), "kwire-open") as threads:
            self._opened = list(threads.map(open_one, online))

    def abandon_opening(self) -> None:
        """Have `open_logs` end after the logs it is working on, since the start was aborted."""
        self._abandoned = True

    def load(self, configs: LogConfigs, now_ms: int) -> None:
        """Take over every log; configs gives a topic's settings. A failing disk takes its dir offline.

        Shape: high watermarks are the checkpointed ones, at most the log's end.
        """
        configs = cache(configs)  # computing the settings of a topic costs more than opening a log
        if self._opened is None:
            self.open_logs(configs, now_ms)
        for opened in self._opened or []:
            error = opened.error
            if error is None:
                try:
                    self._take_over(opened, configs, now_ms)
                except OSError as e:
                    error = e
            if error is not None:
                self._fail(opened.directory, error)
        for opened in self._opened or []:
            if opened.error is None:
                self._take_over_futures(opened, configs, now_ms)
        unclean = any(not opened.clean for opened in self._opened or [])
        self._opened = None
        self._loaded = True
        if unclean:
            # A log may end below its recovery point now: later appends there are not flushed.
            self._checkpoint_lowered()

    def _take_over(self, opened: OpenedDirectory, configs: LogConfigs, now_ms: int) -> None:
        directory = opened.directory
        directory.note_clean_shutdown()
        for path in opened.deleted:
            self.deletes.add_directory(path, now_ms)
        for tp, (loaded, topic_id) in opened.logs.items():
            other = self._logs.get(tp)
            if other is not None:
                # A broker was killed while a copy took the place of its log, or a disk that was full has left an
                # empty log where it could not be created. Of the first two, either may have been written to last.
                first = other.log_end_offset >= loaded.log_end_offset
                path = directory.file(str(tp))
                logger.error(
                    "%s is in %s and in %s; the %s. The other one is set aside as a directory that ends in %s",
                    tp,
                    other.dir,
                    path,
                    "first is used" if first else "second has more records and is used",
                    STRAY_SUFFIX,
                )
                if first:
                    stray = retired_name(tp, os.urandom(16).hex(), STRAY_SUFFIX)
                    self.layer.rename(path, directory.file(stray))
                    continue
                self._take_away(other, STRAY_SUFFIX)
            log = self._log(tp, directory, str(tp), configs(tp.topic), loaded, topic_id, now_ms)
            if not opened.clean:
                if log.config.is_compacted:
                    directory.lower_cleaned_to(tp, log.log_end_offset)  # recovery may have cut it
                else:
                    log.close_gap(now_ms)
            known = opened.high_watermarks.get(tp, 0)
            if known > log.log_end_offset:
                logger.warning(
                    "%s ends at offset %d, although records up to %d were stored: files of it are"
                    " missing or damaged",
                    log.dir,
                    log.log_end_offset,
                    known,
                )
            log.high_watermark = max(log.log_start_offset, min(known, log.log_end_offset))
            self._add(log, directory)

    def _take_over_futures(self, opened: OpenedDirectory, configs: LogConfigs, now_ms: int) -> None:
        directory = opened.directory
        for tp, (name, loaded, topic_id) in opened.futures.items():
            current = self._logs.get(tp)
            if (
                current is None
                or self._directory_of[tp] is directory
                or tp in self._futures
                or current.topic_id != topic_id
            ):
                logger.warning(
                    "%s is left alone: it is not a copy of a log in another directory",
                    directory.file(name),
                )
                continue
            log = self._log(tp, directory, name, configs(tp.topic), loaded, topic_id, now_ms)
            try:
                if opened.clean:
                    pass
                elif log.config.is_compacted:
                    # It lacks offsets in any case: those lost in a power cut cannot be distinguished from them.
                    log.truncate_to(max(log.recovery_point, log.log_start_offset), now_ms)
                else:
                    log.close_gap(now_ms)
            except OSError as error:
                self._fail(directory, error)
                return
            self._add_future(log, directory)

    def _log(
        self,
        tp: TopicPartition,
        directory: LogDirectory,
        name: str,
        config: LogConfig,
        loaded: LoadedLog,
        topic_id: bytes | None,
        now_ms: int,
    ) -> Log:
        return Log(
            tp,
            directory.file(name),
            config,
            self.layer,
            loaded,
            self.deletes,
            now_ms=now_ms,
            topic_id=topic_id,
            io_error=directory.on_error,
        )

    def _add_future(self, log: Log, directory: LogDirectory) -> None:
        self._futures[log.tp] = log
        self._future_directory_of[log.tp] = directory
        log.on_truncation = partial(self._before_truncation, log, directory)
        directory.log_count += 1

    def _add(self, log: Log, directory: LogDirectory) -> None:
        self._logs[log.tp] = log
        self._directory_of[log.tp] = directory
        log.on_truncation = partial(self._before_truncation, log, directory)
        directory.log_count += 1

    # -- logs --------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log | None:
        """The log of a partition, None if this broker has none."""
        return self._logs.get(tp)

    def logs(self) -> list[Log]:
        """All logs, also those of offline directories."""
        return list(self._logs.values())

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        """The log directory that holds a partition."""
        return self._directory_of.get(tp)

    def create(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, now_ms: int = 0
    ) -> Log:
        """Return the partition's log; a new one is created in the directory with the fewest logs.

        Errors: OSError, also if no directory is online.
        """
        log = self._logs.get(tp)
        if log is not None:
            if topic_id is not None and log.topic_id is None:
                log.assign_topic_id(topic_id)
            return log
        directory = self._place_for(tp)
        if directory.checkpoints_name(tp):
            # Those of a log of this name that was deleted: after a crash they would be the new one's.
            self.checkpoint(now_ms)
            directory = self._place_for(tp)
        log = self._make(tp, directory, str(tp), config, topic_id, now_ms)
        self._add(log, directory)
        self._preferred.pop(tp, None)
        return log

    def _make(
        self,
        tp: TopicPartition,
        directory: LogDirectory,
        name: str,
        config: LogConfig,
        topic_id: bytes | None,
        now_ms: int,
    ) -> Log:
        """Make the directory of a new log. Errors: OSError."""
        path = directory.file(name)
        try:
            self.layer.make_directory(path)
            if topic_id is not None:
                write_topic_id(self.layer, path, topic_id)
            loaded = load_log(
                self.layer,
                path,
                config,
                clean=True,
                log_start_offset=0,
                recovery_point=0,
                now_ms=now_ms,
            )
        except (FileExistsError, NotADirectoryError):
            raise  # something else has the name; the disk is well
        except OSError as e:
            self._fail(directory, e)
            raise
        return self._log(tp, directory, name, config, loaded, topic_id, now_ms)

    def _place_for(self, tp: TopicPartition) -> LogDirectory:
        preferred = self._preferred.get(tp)
        if preferred is not None and not preferred.offline:
            return preferred
        online = [directory for directory in self.directories if not directory.offline]
        if not online:
            raise OSError("all log directories are offline")
        return min(online, key=lambda directory: directory.log_count)

    def delete(self, tp: TopicPartition, now_ms: int) -> None:
        """Delete a log: its directory is renamed at once and removed later.

        Shape: slices that readers hold stay valid; a new log of the same name starts empty.
        Errors: OSError.
        """
        self._preferred.pop(tp, None)
        self.abandon_future(tp, now_ms)
        if tp in self._replaced:
            self.leave(tp, now_ms)
        log = self._logs.get(tp)
        if log is not None:
            path = self._take_away(log, DELETE_SUFFIX)
            self.deletes.add_directory(path, now_ms + log.config.file_delete_delay_ms)

    # -- moving to another directory ---------------------------------------------------------------

    def named(self, path: str) -> LogDirectory | None:
        """The log directory with this absolute path."""
        return next((each for each in self.directories if each.path == path), None)

    def prefer(self, tp: TopicPartition, directory: LogDirectory) -> None:
        """Make the log of a partition in this directory if it is made later. Source: maybeUpdatePreferredLogDir."""
        if tp in self._logs:
            return
        if tp in self._preferred or len(self._preferred) < MAX_PREFERRED:
            self._preferred[tp] = directory

    def future(self, tp: TopicPartition) -> Log | None:
        """The copy of a partition's log in another directory, which will take its place; None if there is none."""
        return self._futures.get(tp)

    def futures(self) -> list[Log]:
        """All logs that are being copied."""
        return list(self._futures.values())

    def future_directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        """The log directory that a partition is being moved to."""
        return self._future_directory_of.get(tp)

    def create_future(self, tp: TopicPartition, directory: LogDirectory, now_ms: int) -> Log:
        """Make an empty copy of a log in another directory. Errors: KeyError without a log, OSError."""
        current = self._logs[tp]
        if directory.checkpoints_name(tp):
            # Those of the log when it was here before: after a crash they would be the copy's.
            self.checkpoint(now_ms)
        try:
            directory.forget_cleaned_to(tp)
        except OSError as e:
            self._fail(directory, e)
            raise
        name = future_name(tp, os.urandom(16).hex())
        log = self._make(tp, directory, name, current.config, current.topic_id, now_ms)
        self._add_future(log, directory)
        return log

    def abandon_future(self, tp: TopicPartition, now_ms: int) -> None:
        """Delete a copy, if there is one; the log stays where it is. A disk that fails takes its directory offline."""
        future = self._futures.pop(tp, None)
        if future is None:
            return
        directory = self._future_directory_of.pop(tp)
        directory.log_count -= 1
        with suppress(OSError):  # the directory is offline now
            path = self._rename_away(future, directory, DELETE_SUFFIX)
            self.deletes.add_directory(path, now_ms)

    def replace_with_future(self, tp: TopicPartition) -> Log:
        """Let the copy take the place of its log, whose records it has all; returns the copy.

        Shape: after that, `begin_leaving` and `leave` remove the old one. Until `leave`, both directories have the
        partition's name, and the one with more records counts after a crash. Errors: OSError; then nothing has changed.
        """
        old, future = self._logs[tp], self._futures[tp]
        source, target = self._directory_of[tp], self._future_directory_of[tp]
        try:
            future.move_to(target.file(str(tp)))
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else something else has the name
                self._fail(target, e)
            raise
        future.adopt(old)
        del self._futures[tp], self._future_directory_of[tp]
        source.log_count -= 1
        target.log_count -= 1
        self._add(future, target)
        self._replaced[tp] = (old, source)
        old.offline = True
        for segment in old.segments:
            segment.close_files()
        return future

    def begin_leaving(self, tp: TopicPartition) -> list[tuple[LogDirectory, CheckpointWrite]]:
        """Return the writes that the new directory needs before `leave` removes the old one; run them off the loop.

        Shape: how far the log is compacted. The log itself and its name have to be on the device by then.
        """
        _, source = self._replaced[tp]
        target = self._directory_of.get(tp)
        cleaned = source.cleaned_to(tp)
        if target is None or target.offline or cleaned is None:
            return []
        write = target.begin_cleaned_to(tp, cleaned)
        return [] if write is None else [(target, write)]

    def is_leaving(self, tp: TopicPartition, log: Log) -> bool:
        """Whether `leave` has not been called since this log was replaced."""
        return tp in self._replaced and self._replaced[tp][0] is log

    def leave(self, tp: TopicPartition, now_ms: int) -> None:
        """Delete the directory that a log has left, unless the disk that it has moved to has failed since."""
        old, source = self._replaced.pop(tp)
        target = self._directory_of.get(tp)
        if target is not None and target.offline:
            logger.error(
                "%s stays where it is, because %s, to which it was being moved, has failed",
                old.dir,
                target,
            )
        elif not source.offline:
            with suppress(OSError):  # the directory is offline now
                path = self._rename_away(old, source, DELETE_SUFFIX)
                self.deletes.add_directory(path, now_ms + old.config.file_delete_delay_ms)

    def set_aside(self, tp: TopicPartition, now_ms: int) -> str:
        """Set aside a log whose topic is unknown, without deleting it; return its directory's new path.

        Errors: KeyError, OSError.
        """
        self.abandon_future(tp, now_ms)
        return self._take_away(self._logs[tp], STRAY_SUFFIX)

    def _take_away(self, log: Log, suffix: str) -> str:
        del self._logs[log.tp]
        directory = self._directory_of.pop(log.tp)
        directory.log_count -= 1
        return self._rename_away(log, directory, suffix)

    def _rename_away(self, log: Log, directory: LogDirectory, suffix: str) -> str:
        """Give a log's directory a name of no log; returns its path. Errors: OSError."""
        tp = log.tp
        log.offline = True
        for segment in log.segments:
            segment.close_files()
        try:
            target = directory.file(retired_name(tp, os.urandom(16).hex(), suffix))
            try:
                self.layer.rename(log.dir, target)
            except FileNotFoundError:
                if not directory.is_there():
                    raise
                logger.warning("%s is deleted, but its directory had already been removed", log.dir)
            directory.forget_cleaned_to(tp)
        except OSError as e:
            self._fail(directory, e)
            raise
        return target

    # -- periodic work -----------------------------------------------------------------------------

    def checkpoint(self, now_ms: int) -> None:
        """Write recovery points, log start offsets and high watermarks, in this call."""
        self._write(self.begin_checkpoint(RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all directories, in this call."""
        self._write(self.begin_checkpoint(HIGH_WATERMARK))

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets, as DeleteRecords needs before it answers."""
        self._write(self.begin_checkpoint(LOG_START_OFFSET))

    def begin_checkpoint(self, *names: str) -> list[tuple[LogDirectory, CheckpointWrite]]:
        """Collect the current offsets; return the writes of those files that change.

        Shape: run each off the loop; if one raises OSError, call `checkpoint_failed`.
        """
        if not self._loaded:
            return []  # the present state still applies
        writes = []
        for name in names:
            value = CHECKPOINTED[name]
            found = {
                tp: offset for tp, log in self._logs.items() if (offset := value(log)) is not None
            }
            offsets: dict[int, dict[TopicPartition, int]]
            if len(self.directories) == 1:
                offsets = {id(self.directories[0]): found}
            else:
                offsets = {id(directory): {} for directory in self.directories}
                for tp, offset in found.items():
                    offsets[id(self._directory_of[tp])][tp] = offset
                # A copy is in another directory than its log, so each has its own file.
                for tp, log in self._futures.items():
                    if (offset := value(log)) is not None:
                        offsets[id(self._future_directory_of[tp])][tp] = offset
            for directory in self.directories:
                if not directory.offline:
                    write = directory.begin_checkpoint(name, offsets[id(directory)])
                    if write is not None:
                        writes.append((directory, write))
        return writes

    def _before_truncation(
        self, log: Log, directory: LogDirectory, offset: int, *, lowered: bool
    ) -> None:
        # Checkpoints beyond the log's future end are written first, because a crash may happen at any time.
        if lowered:
            self._checkpoint_lowered()
        if not directory.offline:
            try:
                directory.lower_cleaned_to(log.tp, offset)
            except OSError as e:
                self._fail(directory, e)

    def _checkpoint_lowered(self) -> None:
        self._write(self.begin_checkpoint(RECOVERY_POINT, LOG_START_OFFSET))

    def checkpoint_failed(self, directory: LogDirectory, error: OSError) -> None:
        """A write of `begin_checkpoint` failed: its directory goes offline."""
        self._fail(directory, error)

    def _write(self, writes: list[tuple[LogDirectory, CheckpointWrite]]) -> None:
        for directory, write in writes:
            if not directory.offline:
                try:
                    write.run()
                except OSError as e:
                    self._fail(directory, e)

    def flush_due(self, now_ms: int) -> list[Log]:
        """The logs to flush now: those that rolled, or exceed flush.messages or flush.ms.

        Shape: for each, run `prepare_flush()`'s task off the loop, then `complete_flush`.
        """
        due = []
        for log in self._logs.values():
            if log.offline:
                continue
            if log.flush_state.is_due(log.log_end_offset, log.config.flush_ms, now_ms):
                due.append(log)
        return due

    def retention(self, now_ms: int, logs: Iterable[Log] | None = None) -> int:
        """Delete old segments of these logs, or of all; return how many.

        Shape: files go after file.delete.delay.ms, by `run_deletes`.
        """
        count = 0
        for log in list(self._logs.values()) if logs is None else logs:
            if not log.offline:
                try:
                    count += log.delete_old_segments(now_ms)
                except OSError as e:
                    log.on_io_error(e)
        return count

    def run_deletes(self, now_ms: int) -> int:
        """Remove the files and directories that are due, in this call; return how many."""
        return self.remove(self.deletes.take(now_ms))

    def remove(self, due: Iterable[tuple[str, bool]]) -> int:
        """Remove what `deletes.take` returned, on any thread; return how many.

        Shape: paths that cannot be removed are logged, and found again by name at the next start.
        """
        count = 0
        for path, is_directory in due:
            try:
                self.deletes.remove(path, is_directory)
                count += 1
            except OSError as e:
                logger.error("cannot delete %s: %s", path, e)
        return count

    def expire_producers(self, now_ms: int) -> Iterator[None]:
        """Forget producers that have been idle for producer.id.expiration.ms, in steps."""
        for log in self.logs():
            if log.producers.known:
                yield from log.producers.remove_expired(now_ms)

    def limit_producers(self, most: int) -> int:
        """Forget producers if all logs together remember more than `most`; return the number.

        Shape: one log may have a quarter of them. The logs with most producers give up theirs first, until each has no
        more than an equal share of the rest.
        """
        sizes = {log: log.producers.known for log in self._logs.values()}
        share = most // PRODUCER_PARTS
        if sum(sizes.values()) > most:
            share = min(share, level(sizes.values(), most * 7 // 8))
        gone = 0
        for log, size in sizes.items():
            if size > share:
                count = log.producers.forget(size - share)
                gone += count
                logger.warning(
                    "%s remembers %d producers, too many for kwire.producer.ids.max=%d: %d are forgotten, and"
                    " batches that they repeat would not be recognized",
                    log.tp,
                    size,
                    most,
                    count,
                )
        return gone

    def write_down(self, now_ms: int) -> None:
        """Write all in-memory data, as `shutdown` does, and continue: the files can then be copied in the same turn.

        Errors: OSError, also if a directory is offline.
        """
        for log in self._logs.values():
            log.write_down(now_ms)
        self.checkpoint(now_ms)
        for directory in self.directories:
            if directory.offline:
                raise OSError(errno.EIO, "the log directory is offline", directory.path)

    def shutdown(self, now_ms: int, *, broker_epoch: int = -1, threads: int = 1) -> None:
        """Flush and close all logs, write checkpoints and clean-shutdown markers, unlock.

        Shape: before `load` has ended nothing is written: the last stop's marker may be gone. At
        least so many threads force files to the device.
        """
        if not self._loaded:
            self.unlock()
            return
        logs = [(log, self._directory_of[tp]) for tp, log in self._logs.items()]
        logs += [(log, self._future_directory_of[tp]) for tp, log in self._futures.items()]
        failed = close_logs(logs, threads, self._fail)
        self.checkpoint(now_ms)
        for tp in list(self._replaced):
            directory = self._directory_of[tp]
            if directory not in failed and not directory.offline:
                try:
                    self.layer.sync_directory(directory.path)
                except OSError as e:
                    self._fail(directory, e)
                self._write(self.begin_leaving(tp))
                self.leave(tp, now_ms)
        for directory in self.directories:
            if not directory.offline and directory not in failed:
                try:
                    directory.mark_clean_shutdown(broker_epoch)
                except OSError as e:
                    self._fail(directory, e)
        self.unlock()

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        # One line per directory: the first error is the cause, the rest follow from it.
        if directory.offline:
            return
        if error.errno in OUT_OF_DESCRIPTORS:  # no fault of the disk
            logger.error("%s: %s", directory.path, error)
            return
        directory.offline = True
        logger.error("log directory %s is offline: %s", directory.path, error)
        for tp, log in self._logs.items():
            if self._directory_of[tp] is directory:
                log.offline = True
        for tp, target in list(self._future_directory_of.items()):
            if target is directory:
                # The log that it copies stays where it is.
                self._futures.pop(tp).offline = True
                del self._future_directory_of[tp]
        if self._on_offline is not None:
            self._on_offline(directory)


def _start_offset_to_write(log: Log) -> int | None:
    # Also where the first segment's name says so, unlike Apache Kafka: a power cut may bring back
    # the names of segments before it, and records that were deleted with them.
    return log.log_start_offset or None


CHECKPOINTED: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT: lambda log: log.recovery_point,
    LOG_START_OFFSET: _start_offset_to_write,
    HIGH_WATERMARK: lambda log: log.high_watermark,
}

__all__ = ["CorruptCheckpoint", "LogManager"]
