"""What happens to a log besides append and read: truncation, deletion, flush, close."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from . import retention
from .file_layer import FileLayer, OpenFile
from .producer_state import SNAPSHOT_SUFFIX
from .producer_updates import load_producers
from .reader import floor_index
from .retention import SegmentInfo
from .segment import DELETED_SUFFIX, LogSegment, stem_of

if TYPE_CHECKING:
    from .log import Log

logger = logging.getLogger(__name__)


class FlushTask:
    """Files to force to the device; owns what it needs, so that it may run on another thread."""

    __slots__ = (
        "_directories",
        "_files",
        "_layer",
        "cuts",
        "end_offset",
        "paths",
        "undecided_offset",
    )

    def __init__(
        self,
        layer: FileLayer,
        directories: list[str],
        files: list[OpenFile],
        paths: list[str],
        end_offset: int,
        undecided_offset: int,
        cuts: int,
    ) -> None:
        self._layer = layer
        self._directories = directories
        self._files = files
        self.paths = paths
        self.end_offset = end_offset
        self.undecided_offset = undecided_offset
        """Transactions below it are decided by markers that the flush covers."""
        self.cuts = cuts
        """How often the log had been truncated by then."""

    @property
    def has_work(self) -> bool:
        """Whether there is anything that the device may not have."""
        return bool(self._files or self.paths)

    def run(self) -> None:
        """fsync each file, then the directories. Errors: OSError."""
        if not self.has_work:
            return
        layer = self._layer
        for opened in self._files:
            layer.fsync(opened.fd)
        for path in self.paths:
            layer.sync_path(path)
        for directory in self._directories:
            layer.sync_directory(directory)


def prepare_flush(log: Log) -> FlushTask:
    """Collect what lies above the recovery point: segments, their indexes, epochs, snapshots.

    The active segment's index entries are written first: with them recovery need not read what is
    below the recovery point.
    """
    log.flush_wanted = False
    files: list[OpenFile] = []
    paths: list[str] = []
    if log.recovery_point < log.log_end_offset or log.synced_cuts != log.cuts:
        # From the segment with the last record below it: that may have been sealed since.
        first = max(floor_index(log.segments, log.recovery_point - 1), 0)
        for segment in log.segments[first:]:
            files.append(segment.log.open())
            if segment is log.active_segment:
                paths += segment.save_indexes()
                if log.synced_cuts != log.cuts:
                    paths += segment.index_paths()  # they were written already
            else:
                paths += segment.index_paths()
        paths += [
            stem_of(log.dir, offset) + SNAPSHOT_SUFFIX
            for offset in log.snapshots
            if offset > log.recovery_point
        ]
    epochs = log.leader_epoch_cache.unsynced_path()
    if epochs is not None:
        paths.append(epochs)
    directories = [log.dir]
    if not log.name_synced:  # nor is the directory's own name on the device
        directories.append(os.path.dirname(log.dir))
    return FlushTask(
        log.layer,
        directories,
        files,
        paths,
        log.log_end_offset,
        log.undecided_offset,
        log.cuts,
    )


def close(log: Log, *, flush: bool) -> None:
    """`Log.close`."""
    task = prepare_close(log)
    if flush:
        task.run()
        complete_close(log)


def prepare_close(log: Log) -> FlushTask:
    """Write snapshot and index files, give descriptors back; the task has what is to be forced."""
    log.take_snapshot()
    task = prepare_flush(log)
    written = [path for segment in log.segments for path in segment.close()]
    if written or task.has_work:
        # Of the active segment `close` does not write the last one.
        task.paths += [*written, *log.active_segment.index_paths()[-1:]]
    log.forget_positions()
    return task


def complete_close(log: Log) -> None:
    """The task of `prepare_close` has run without an error: all of the log is on the device."""
    log.recovery_point = log.log_end_offset
    log.synced_cuts = log.cuts
    log.name_synced = True


def aborted_transactions(log: Log, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """`Log.aborted_transactions`. Source: LocalLog.collectAbortedTransactions."""
    found = []
    for segment in log.segments[max(floor_index(log.segments, start_offset), 0) :]:
        entries, complete = segment.transaction_index.collect(start_offset, end_offset)
        found += [(entry.producer_id, entry.first_offset) for entry in entries]
        if complete:
            break
    return found


# -- truncation ------------------------------------------------------------------------------------


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """`Log.truncate_to`."""
    if offset < 0:
        raise ValueError(f"cannot truncate {log.tp} to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epoch_cache.truncate_from_end(log.log_end_offset)
        return
    if log.segments[0].base_offset > offset:
        truncate_fully_and_start_at(log, offset, now_ms)
        return
    _begin_truncation(log, offset, offset)
    keep = floor_index(log.segments, offset) + 1
    _remove(log, log.segments[keep:])
    del log.segments[keep:]
    segment = log.active_segment = log.segments[-1]
    if segment.truncate_to(offset):
        # Now, since a new segment may follow: what was cut off must not come back before it.
        segment.log.sync()
        for path in segment.save_indexes():
            log.layer.sync_path(path)
    log.layer.sync_directory(log.dir)
    end_offset = max(min(segment.next_offset(), offset), segment.base_offset)
    log.log_end_offset = end_offset
    log.recovery_point = min(log.recovery_point, end_offset)
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.leader_epoch_cache.truncate_from_end(end_offset)
    _rebuild_producers(log, now_ms)
    if log.high_watermark > end_offset:
        log.high_watermark = end_offset


def _begin_truncation(log: Log, offset: int, start_offset: int) -> None:
    log.forget_positions()
    log.cuts += 1
    log.flush_wanted = True
    lowered = offset < log.recovery_point or start_offset < log.log_start_offset
    if lowered:
        # What is appended from here on is not flushed, whatever a checkpoint said of its offsets.
        log.recovery_point = min(log.recovery_point, offset)
        log.flushed_stable_offset = min(log.flushed_stable_offset, offset)
        log.log_start_offset = min(log.log_start_offset, start_offset)
    if log.on_truncation is not None:
        log.on_truncation(offset, lowered=lowered)
        if log.offline:
            raise OSError(
                errno.EIO, "the checkpoints cannot be written, so nothing is cut", log.dir
            )
    # Before the segments: no snapshot may outlive what it describes.
    _remove_snapshots(log, [o for o in log.snapshots if o > offset])


def close_gap(log: Log, now_ms: int) -> None:
    """Cut an unflushed log that was opened after a crash where offsets are missing. Errors: OSError.

    Shape: only for logs that are not compacted. A power cut may take the end of a segment just after
    a batch, and leave the next one.
    """
    first = max(floor_index(log.segments, log.recovery_point), 0)
    for segment, later in pairwise(log.segments[first:]):
        end_offset = segment.next_offset()
        if max(end_offset, log.log_start_offset) < later.base_offset:
            logger.warning(
                "%s: offsets %d to %d are missing; the log ends there",
                log.dir,
                end_offset,
                later.base_offset - 1,
            )
            if end_offset < log.log_start_offset:
                truncate_fully_and_start_at(log, log.log_start_offset, now_ms)
            else:
                truncate_to(log, end_offset, now_ms)
            return


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> None:
    """`Log.truncate_fully_and_start_at`."""
    _begin_truncation(log, 0, offset)
    _remove(log, log.segments)
    log.segments.clear()
    segment = LogSegment(log.layer, log.dir, offset, 0, created_ms=now_ms, new=True)
    segment.create_files()
    log.layer.sync_directory(log.dir)
    log.segments.append(segment)
    log.active_segment = segment
    log.log_end_offset = log.log_start_offset = log.recovery_point = offset
    log.leader_epoch_cache.clear()
    log.producers.clear(offset)
    log.high_watermark = offset
    log.update_config(log.config)


def _rebuild_producers(log: Log, now_ms: int) -> None:
    _remove_snapshots(log, [o for o in log.snapshots if o > log.log_end_offset])
    log.producers.clear(log.log_start_offset)
    load_producers(
        log.layer,
        log.dir,
        log.segments,
        log.snapshots,
        log.producers,
        log.log_start_offset,
        log.log_end_offset,
        now_ms,
    )


def _remove(log: Log, segments: list[LogSegment]) -> None:
    # At once: what is truncated was never committed, and its names may be needed again. The newest
    # first: a power cut in between must not leave a gap.
    for segment in reversed(segments):
        for path in segment.mark_deleted():
            log.layer.unlink(path)


def _remove_snapshots(log: Log, offsets: list[int]) -> None:
    gone = set(offsets)
    for offset in gone:
        log.layer.unlink(stem_of(log.dir, offset) + SNAPSHOT_SUFFIX)
    log.snapshots[:] = [offset for offset in log.snapshots if offset not in gone]


# -- retention -------------------------------------------------------------------------------------


def delete_old_segments(log: Log, now_ms: int) -> int:
    """`Log.delete_old_segments`. Source: UnifiedLog.deleteOldSegments."""
    config = log.config
    infos = _infos(log, times=False)
    count = retention.start_offset_breached(infos, log.high_watermark, log.log_start_offset)
    _delete(log, count, now_ms)
    if config.is_deleting:
        number = retention.size_breached(list(_infos(log, times=False)), log.high_watermark, config)
        _delete(log, number, now_ms)
        count += number
        infos = _infos(log, times=True)
        number = retention.time_breached(infos, log.high_watermark, config, now_ms)
        _delete(log, number, now_ms)
        count += number
    return count


def _infos(log: Log, *, times: bool) -> Iterator[SegmentInfo]:
    # One by one: a segment's largest timestamp may have to be read from its index.
    segments = log.segments
    last = len(segments) - 1
    for number, segment in enumerate(segments):
        end = log.log_end_offset if number == last else segments[number + 1].base_offset
        newest = segment.largest_timestamp if times else 0
        yield SegmentInfo(segment.size, end, newest, number == last)


def _delete(log: Log, count: int, now_ms: int) -> None:
    if count == 0:
        return
    if count == len(log.segments):
        log.roll(now_ms)  # there is always one segment
    doomed = log.segments[:count]
    del log.segments[:count]
    log.forget_positions()
    due_ms = now_ms + log.config.file_delete_delay_ms
    for segment in doomed:
        log.deletes.add_files(segment.mark_deleted(), due_ms)
    log.increment_log_start_offset(log.segments[0].base_offset)
    bases = {segment.base_offset for segment in doomed}
    for offset in [o for o in log.snapshots if o in bases]:
        path = stem_of(log.dir, offset) + SNAPSHOT_SUFFIX
        try:
            log.layer.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            continue
        log.deletes.add_files([path + DELETED_SUFFIX], due_ms)
    log.snapshots[:] = [offset for offset in log.snapshots if offset not in bases]
