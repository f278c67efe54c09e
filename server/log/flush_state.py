"""Tracks which part of a log is on the device, what a flush has to write there, and whether a flush is due.

Source: UnifiedLog.flush, LocalLog.recoveryPoint.
"""

from __future__ import annotations

from collections.abc import Iterable

from .file_layer import FileLayer, OpenFile


class FlushTask:
    """Files to flush to the device; owns its data, so that it may run on another thread."""

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

    def add_paths(self, paths: Iterable[str]) -> None:
        """Force these closed files, too."""
        self.paths += paths

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


class FlushState:
    """How far a log is on the device. Offsets below `recovery_point` survive a power cut."""

    __slots__ = (
        "awaited",
        "cuts",
        "last_ms",
        "name_synced",
        "recovery_point",
        "stable_offset",
        "synced_cuts",
        "wanted",
    )

    def __init__(
        self, recovery_point: int, stable_offset: int, now_ms: int, *, doubtful: bool
    ) -> None:
        """With `doubtful`, the log was opened after a crash: the data read may be only in memory."""
        self.recovery_point = recovery_point
        self.stable_offset = 0 if doubtful else stable_offset
        """Offsets below it are decided by markers that are on the device."""
        self.wanted = False
        """Whether a flush is due at once: a segment was sealed, or flush.messages is reached."""
        self.awaited = False
        """Whether flush.messages requires a flush before the newest records may be acknowledged or read."""
        self.name_synced = False
        """Whether the parent of the log's directory, which has its name, was synced."""
        self.cuts = 1 if doubtful else 0
        """How often the log was truncated: a flush begun before says nothing of what came since.
        Recovery counts, too: while `synced_cuts` differs, a flush forces the last segment anyway."""
        self.synced_cuts = 0
        self.last_ms = now_ms

    def is_due(self, end_offset: int, flush_ms: int, now_ms: int) -> bool:
        """Whether the log has to be flushed now, because of a roll, flush.messages or flush.ms."""
        return self.wanted or (
            self.recovery_point < end_offset and now_ms - self.last_ms >= flush_ms
        )

    def has_unflushed(self, end_offset: int) -> bool:
        """Whether segments hold data that may not be on the device."""
        return self.recovery_point < end_offset or self.synced_cuts != self.cuts

    def complete(self, task: FlushTask, end_offset: int, flush_messages: int, now_ms: int) -> None:
        """A task ran without an error: move the recovery point, unless the log was truncated in the meantime."""
        self.name_synced = self.name_synced or task.has_work
        if task.cuts == self.cuts:
            self.synced_cuts = task.cuts
            self.stable_offset = task.undecided_offset
            self.recovery_point = max(self.recovery_point, task.end_offset)
        self.last_ms = now_ms
        self.awaited = end_offset - self.recovery_point >= flush_messages

    def complete_close(self, end_offset: int) -> None:
        """All of the log is on the device, and nothing more will be appended."""
        self.recovery_point = end_offset
        self.synced_cuts = self.cuts
        self.name_synced = True

    def cut(self, offset: int) -> None:
        """The log is truncated at offset: later appends are not flushed yet.

        Shape: this holds even if a checkpoint has a higher offset.
        """
        self.cuts += 1
        self.wanted = True
        self.recovery_point = min(self.recovery_point, offset)
        self.stable_offset = min(self.stable_offset, offset)
