"""Bugs planted on purpose: each removes one precaution, and some schedule must notice it.

A plant patches `server.log` while it is active. Its fault is the kind of schedule that is run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from server.log import log_manager, producer_updates
from server.log.cleaner import log_cleaner
from server.log.file_layer import FileLayer, LogFile
from server.log.flush_state import FlushState, FlushTask
from server.log.log import Log
from server.log.log_directory import CLEAN_SHUTDOWN, LogDirectory
from server.log.producer_state import SNAPSHOT_SUFFIX
from server.log.recovery import loader, segment_recovery
from server.log.segment import LogSegment, stem_of

from .expected import Violation
from .workload import Schedule, run

TRIES = 1500


class Plant(NamedTuple):
    """A bug, and the fault that must reveal it."""

    name: str
    fault: str
    plant: Callable[[], AbstractContextManager[Any]]
    first: int = 0
    """The schedule to begin with, if hundreds from 0 on do not notice it; a change to kwire may change it."""


def recovery_point_before_fsync() -> AbstractContextManager[Any]:
    prepare = Log.prepare_flush

    def early(log: Any) -> Any:
        task = prepare(log)
        log.flush_state.recovery_point = task.end_offset
        return task

    return patch.object(Log, "prepare_flush", early)


def failed_fsync_ignored() -> AbstractContextManager[Any]:
    force = FlushTask.run

    def careless(task: Any) -> None:
        try:
            force(task)
        except OSError:
            pass

    return patch.object(FlushTask, "run", careless)


def directory_not_synced() -> AbstractContextManager[Any]:
    prepare = Log.prepare_flush

    def without(log: Any) -> Any:
        task = prepare(log)
        task._directories.clear()
        return task

    return patch.object(Log, "prepare_flush", without)


@contextmanager
def torn_tail_kept() -> Iterator[None]:
    recover = loader.recover_segment

    def keep(segment: Any, *rest: Any) -> int:
        with patch.object(LogFile, "truncate", lambda *_: None):
            return recover(segment, *rest)

    with patch.object(loader, "recover_segment", keep):
        yield


def torn_batch_believed() -> AbstractContextManager[Any]:
    return patch.object(segment_recovery, "verify_crc", lambda *_: None)


@contextmanager
def short_write_taken_as_whole() -> Iterator[None]:
    def once(self: LogFile, data: Any, position: int) -> None:
        self._layer.pwrite(self.open().fd, data, position)

    def once_too(self: FileLayer, fd: int, data: Any, position: int) -> None:
        if len(data):
            self.pwrite(fd, data, position)

    with patch.object(LogFile, "write_at", once), patch.object(FileLayer, "write_all", once_too):
        yield


def snapshot_newer_than_the_log() -> AbstractContextManager[Any]:
    recover = loader._recover

    def trust(layer: Any, directory: str, loaded: Any, *rest: Any) -> None:
        newest = max(loaded.snapshots, default=0)
        data = b""
        if newest:
            data = layer.read_file(stem_of(directory, newest) + SNAPSHOT_SUFFIX)
        recover(layer, directory, loaded, *rest)
        if newest > loaded.log_end_offset:
            try:
                loaded.producers.load_snapshot(data, newest, 0)
            except producer_updates.CorruptSnapshot:
                return
            loaded.producers.last_map_offset = loaded.log_end_offset

    return patch.object(loader, "_recover", trust)


def producers_not_replayed() -> AbstractContextManager[Any]:
    return patch.object(producer_updates, "_replay", lambda *_: None)


def index_not_rebuilt() -> AbstractContextManager[Any]:
    recover = loader.recover_segment

    def stale(segment: Any, *rest: Any) -> int:
        before = segment.offset_index.content()
        removed = recover(segment, *rest)
        index = segment.offset_index
        index._data, index._count, index._saved = bytearray(before), len(before) // 8, -1
        return removed

    return patch.object(loader, "recover_segment", stale)


@contextmanager
def clean_marker_removed_in_memory_only() -> Iterator[None]:
    def note(self: LogDirectory) -> None:
        self.clean = self.layer.file_size(self.file(CLEAN_SHUTDOWN)) is not None
        self.layer.unlink(self.file(CLEAN_SHUTDOWN))

    work = Schedule._work

    def little(self: Schedule, count: int) -> None:
        # Before anything else syncs the directory.
        work(self, min(count, 6))

    with (
        patch.object(LogDirectory, "note_clean_shutdown", note),
        patch.object(Schedule, "_work", little),
    ):
        yield


def recovery_point_stays_at_truncation() -> AbstractContextManager[Any]:
    return patch.object(log_manager.LogManager, "_checkpoint_lowered", lambda _: None)


def flush_counts_after_truncation() -> AbstractContextManager[Any]:
    def complete(self: Any, task: Any, end_offset: int, _: int, now_ms: int) -> None:
        self.recovery_point = max(self.recovery_point, min(task.end_offset, end_offset))
        self.last_ms = now_ms

    return patch.object(FlushState, "complete", complete)


def gap_left_open() -> AbstractContextManager[Any]:
    return patch.object(Log, "close_gap", lambda *_: None)


def compaction_before_flush() -> AbstractContextManager[Any]:
    decide = log_cleaner.log_to_clean

    class Hasty:
        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            if name == "flush_state":
                return SimpleNamespace(stable_offset=self._log.log_end_offset)
            return getattr(self._log, "log_end_offset" if name == "recovery_point" else name)

    def hasty(log: Any, *rest: Any) -> Any:
        return dataclasses.replace(decide(Hasty(log), *rest), log=log)  # type: ignore[arg-type]

    return patch.object(log_cleaner, "log_to_clean", hasty)


def sources_removed_before_the_swap() -> AbstractContextManager[Any]:
    from server.log.cleaner import segment_swap

    swap = segment_swap.replace_segments

    def hasty(log: Any, sources: list[LogSegment], size: int, now_ms: int) -> None:
        for source in sources:
            log.deletes.add_files(source.mark_deleted(), now_ms)
        swap(log, sources, size, now_ms)

    return patch.object(log_cleaner, "replace_segments", hasty)


def failed_disk_goes_on() -> AbstractContextManager[Any]:
    return patch.object(log_manager.LogManager, "_fail", lambda *_: None)


PLANTS = (
    Plant("recovery point moved before the fsync", "power cut", recovery_point_before_fsync),
    Plant("failed fsync ignored", "failed fsync", failed_fsync_ignored),
    Plant("directory not synced after a new segment", "power cut", directory_not_synced),
    Plant("torn tail not cut off", "power cut", torn_tail_kept),
    Plant("torn batch accepted without checking its CRC", "power cut", torn_batch_believed),
    Plant("short write treated as complete", "short write", short_write_taken_as_whole),
    Plant("producer snapshot newer than the log trusted", "power cut", snapshot_newer_than_the_log),
    Plant("producers not replayed after the snapshot", "killed", producers_not_replayed),
    Plant("index not rebuilt", "power cut", index_not_rebuilt),
    Plant(
        "marker of a clean stop not removed on the device",
        "power cut",
        clean_marker_removed_in_memory_only,
    ),
    Plant(
        "recovery point not stored at a truncation",
        "power cut",
        recovery_point_stays_at_truncation,
    ),
    Plant(
        "flush counted although it began before a truncation",
        "power cut",
        flush_counts_after_truncation,
    ),
    Plant("segments kept after a gap", "power cut", gap_left_open),
    Plant("compaction ahead of the flush", "power cut", compaction_before_flush),
    Plant(
        "sources removed before the compacted segment is in place",
        "killed",
        sources_removed_before_the_swap,
        first=610,
    ),
    Plant("writes continue on a failed disk", "EIO on write", failed_disk_goes_on),
)


def catch(plant: Plant, first: int = 0) -> tuple[int, Violation] | None:
    """Run TRIES schedules until one notices; (the number of schedules, its message), or None."""
    with plant.plant():
        for seed in range(first, first + TRIES):
            try:
                run(seed, plant.fault)
            except Violation as e:
                caught = e
                break
        else:
            return None
    run(seed, plant.fault)  # and it is the plant that it notices
    return seed - first + 1, caught
