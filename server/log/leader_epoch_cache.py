"""The leader epochs of a log, with the offset at which each began (`leader-epoch-checkpoint`).

    0                     version
    <count>
    <epoch> <start offset>     one line each, both strictly increasing

Batches carry their leader's epoch, so recovery can rebuild entries from them. New entries are
therefore kept in memory until a flush or a clean stop: `unsynced_path` makes sure that the file is
written and forced to the device before a recovery point moves past the batches it describes, after
which compaction may remove those. The file is replaced atomically, at once if entries are removed
while the log is open.
Source: LeaderEpochFileCache, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from bisect import bisect_right

from .checkpoint import CorruptCheckpoint, format_checkpoint, parse_checkpoint
from .file_layer import FileLayer

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """Epochs and their start offsets, in order."""

    __slots__ = (
        "_directory",
        "_doubted",
        "_epochs",
        "_layer",
        "_starts",
        "_synced",
        "_written",
        "latest",
        "read_to",
    )

    def __init__(self, layer: FileLayer, directory: str) -> None:
        self._layer = layer
        self._directory = directory
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._doubted: list[tuple[int, int]] = []
        self._synced = True
        self._written = True
        self.latest = UNDEFINED_EPOCH
        """The newest epoch with an entry, or -1."""
        self.read_to = 0
        """During recovery: the offset after the last batch that was read."""

    def move_to(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory

    def adopt(self, other: LeaderEpochCache) -> None:
        """Adopt the epochs of another copy of the same log, which also has epochs without a batch."""
        self._epochs, self._starts = list(other._epochs), list(other._starts)
        self._changed(write=False)

    @property
    def path(self) -> str:
        """The checkpoint file."""
        return f"{self._directory}/{FILE_NAME}"

    def load(self) -> None:
        """Read the file; a missing or empty one means no entries. Errors: CorruptCheckpoint."""
        try:
            data = self._layer.read_file(self.path)
        except FileNotFoundError:
            return
        if data and not data.endswith(b"\n"):
            raise CorruptCheckpoint(f"{self.path} ends in the middle of a line")
        self._epochs, self._starts = [], []
        for epoch, start in parse_checkpoint(data, 2, self.path):
            self._put(int(epoch), int(start))
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start_offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that epoch began at start_offset, unless that is known.

        Shape: entries that contradict the new one (higher epoch or offset) are removed. The file is
        not written yet: a broker may begin thousands of epochs at once, and after a crash an
        epoch's first batch shows that it began.
        """
        if self._put(epoch, start_offset):
            self.latest = epoch
            self._synced, self._written = False, False

    def _put(self, epoch: int, start_offset: int) -> bool:
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and start_offset >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch at or below the given one, and where it ended (exclusive).

        Shape: (-1, -1) if it is not known; the given epoch and the start of the first later one if
        only later epochs are known. Source: LeaderEpochFileCache.endOffsetFor.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if higher == 0:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which an offset was written; -1 if it is not known."""
        number = bisect_right(self._starts, offset)
        return self._epochs[number - 1] if number else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int, *, write: bool = True) -> None:
        """Remove the epochs that began at or after end_offset.

        Shape: without `write` they stay in the file until it is saved. Whoever opens the log before
        that removes them again, since the log still ends at the same offset.
        """
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self._changed(write=write)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended by start_offset; the one it lies in now begins there."""
        number = bisect_right(self._starts, start_offset)
        if number == 0 or (number == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: number - 1]
        del self._starts[: number - 1]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        """Forget all epochs."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def read_anew(self, start_offset: int) -> None:
        """Set aside the epochs that began at or after start_offset, until batches confirm them.

        Shape: the caller then calls `read_batch_of` for the batches from there on, in order, and
        sets `read_to` after each.
        """
        moved = [entry for entry in self.entries() if entry[1] >= start_offset]
        self._doubted = sorted({*self._doubted, *moved})
        self.read_to = start_offset
        self.truncate_from_end(start_offset, write=False)

    def read_batch_of(self, epoch: int, base_offset: int) -> None:
        """Record that recovery read a batch with an epoch later than the latest.

        An epoch may have begun before its first batch: compaction removes batches, and in some
        epochs nothing was written. Since followers truncate by these offsets, an entry that was set
        aside is restored if it lies between the previous batch and this one.
        """
        for known, start_offset in self._doubted:
            if self.latest < known <= epoch and self.read_to <= start_offset <= base_offset:
                self.assign(known, start_offset)
        if epoch > self.latest:
            self.assign(epoch, base_offset)

    def _changed(self, *, write: bool = True) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self._synced, self._written = False, False
        if write:
            self.save()

    def save(self) -> None:
        """Write the file if it is not up to date. Errors: OSError."""
        if not self._written:
            self._layer.replace_file(self.path, self._format(), sync=False)
            self._written = True

    def _format(self) -> bytes:
        return format_checkpoint(zip(self._epochs, self._starts, strict=True))

    def doubt(self) -> None:
        """Note that the file was read after a crash, so the device may have other content."""
        self._synced = False

    def unsynced_path(self) -> str | None:
        """The file to force to the device before a recovery point moves; None if that was done.

        Shape: the caller must sync the file and its directory, or take the log offline: from now on
        the file counts as synced. Errors: OSError.
        """
        if self._synced:
            return None
        self.save()
        self._synced = True
        return self.path
