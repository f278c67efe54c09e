"""Files and directories that no longer belong to a log and are removed after file.delete.delay.ms."""

from __future__ import annotations

import heapq

from .file_layer import FileLayer


class DelayedDeletes:
    """Paths by the time at which they may be removed. After a crash their names (`.deleted`, `-delete`) show them."""

    __slots__ = ("_heap", "_layer")

    def __init__(self, layer: FileLayer) -> None:
        self._layer = layer
        self._heap: list[tuple[int, str, bool]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add_files(self, paths: list[str], due_ms: int) -> None:
        """Remove these files once now_ms reaches due_ms."""
        for path in paths:
            heapq.heappush(self._heap, (due_ms, path, False))

    def add_directory(self, path: str, due_ms: int) -> None:
        """Remove this directory and its content once now_ms reaches due_ms."""
        heapq.heappush(self._heap, (due_ms, path, True))

    @property
    def next_due_ms(self) -> int | None:
        """When the next path is due, None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[tuple[str, bool]]:
        """Take the paths that are due, oldest first: (path, whether it is a directory); the caller removes them."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, path, is_directory = heapq.heappop(self._heap)
            due.append((path, is_directory))
        return due

    def remove(self, path: str, is_directory: bool) -> None:
        """Remove a due file or directory, on any thread.

        Errors: OSError.
        """
        if is_directory:
            self._layer.remove_tree(path)
        else:
            self._layer.unlink(path)

    def run(self, now_ms: int) -> int:
        """Remove everything that is due; return the number.

        Errors: OSError; a failed removal is not retried.
        """
        due = self.take(now_ms)
        for path, is_directory in due:
            self.remove(path, is_directory)
        return len(due)
