"""The producer snapshots of one log, and their files.

Source: the part of ProducerStateManager that deals with files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .delayed_delete import DelayedDeletes
from .file_layer import FileLayer
from .producer_state import SNAPSHOT_SUFFIX, ProducerStateManager
from .segment import DELETED_SUFFIX, stem_of


class ProducerSnapshots:
    """Snapshots by the offset that they describe the producers at."""

    __slots__ = ("_directory", "_layer", "offsets")

    def __init__(self, layer: FileLayer, directory: str, offsets: list[int]) -> None:
        self._layer = layer
        self._directory = directory
        self.offsets = offsets

    def move_to(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory

    def _path(self, offset: int) -> str:
        return stem_of(self._directory, offset) + SNAPSHOT_SUFFIX

    def take(self, producers: ProducerStateManager) -> None:
        """Write one at the map's end unless there is one. Errors: OSError."""
        if producers.needs_snapshot():
            offset = producers.last_map_offset
            self._layer.write_file(self._path(offset), producers.snapshot())
            producers.last_snapshot_offset = offset
            self.offsets.append(offset)

    def paths_above(self, offset: int) -> list[str]:
        """The snapshot files above an offset."""
        return [self._path(each) for each in self.offsets if each > offset]

    def remove_above(self, offset: int) -> None:
        """Remove the snapshots above an offset, at once. Errors: OSError."""
        self._remove({each for each in self.offsets if each > offset})

    def _remove(self, gone: Collection[int]) -> None:
        for offset in gone:
            self._layer.unlink(self._path(offset))
        self._forget(gone)

    def retire(self, bases: Iterable[int], deletes: DelayedDeletes, due_ms: int) -> None:
        """Delete, later, the snapshots of deleted segments, given by their base offsets. Errors: OSError."""
        gone = set(bases)
        for offset in [each for each in self.offsets if each in gone]:
            path = self._path(offset)
            try:
                self._layer.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            deletes.add_files([path + DELETED_SUFFIX], due_ms)
        self._forget(gone)

    def _forget(self, gone: Collection[int]) -> None:
        self.offsets[:] = [offset for offset in self.offsets if offset not in gone]
