"""Watches of connections on nodes: one-time, persistent, or persistent for the whole subtree; pure.

There is one table for data and existence, and one for children; a persistent watch is in both. A connection has at most
one watch on a path in a table: leaving another kind replaces it.
Source: ZooKeeper's WatchManager.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Generic, TypeVar

from .records import EventType

W = TypeVar("W")

#: The memory that a watch takes besides its path: its entries in the dictionaries and sets below.
WATCH_BYTES = 400


class WatchMode(Enum):
    """The duration of a watch and its scope."""

    ONCE = "once"
    PERSISTENT = "persistent"
    PERSISTENT_RECURSIVE = "persistent recursive"


def cost_of(path: str) -> int:
    """The memory that a watch on a path takes."""
    return WATCH_BYTES + sys.getsizeof(path)


class WatchTable(Generic[W]):
    """The watchers of paths; any hashable value can be a watcher."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, WatchMode]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        #: The memory that all watches take, and that of each watcher.
        self.total_bytes = 0
        self.held_bytes: dict[W, int] = {}
        # The number of recursive watches by the length of their paths. Only ancestors of such a length are looked up,
        # because looking up every ancestor of a deep path would copy the path once for each level.
        self._recursive: Counter[int] = Counter()

    def add(self, path: str, watcher: W, mode: WatchMode = WatchMode.ONCE) -> None:
        """Leave a watch."""
        watchers = self.by_path.setdefault(path, {})
        before = watchers.get(watcher)
        if before is None:
            self._hold(watcher, cost_of(path))
        self._count(path, before, mode)
        watchers[watcher] = mode
        self.by_watcher.setdefault(watcher, set()).add(path)

    def remove(self, path: str, watcher: W) -> bool:
        """Remove a watch; False if there was none."""
        watchers = self.by_path.get(path)
        if watchers is None or watcher not in watchers:
            return False
        self._count(path, watchers.pop(watcher), None)
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        paths.discard(path)
        self._hold(watcher, -cost_of(path))
        if not paths:
            del self.by_watcher[watcher]
            del self.held_bytes[watcher]
        return True

    def remove_watcher(self, watcher: W) -> None:
        """Remove all watches of one watcher."""
        for path in list(self.by_watcher.get(watcher, ())):
            self.remove(path, watcher)

    def has(self, path: str, watcher: W) -> bool:
        """Whether a watch covers the path."""
        return any(
            mode is WatchMode.PERSISTENT_RECURSIVE or at == path
            for at in self._covering(path)
            if (mode := self.by_path.get(at, {}).get(watcher)) is not None
        )

    def trigger(self, path: str, event: EventType) -> list[W]:
        """The watchers to notify; one-time watches are removed."""
        told: dict[W, None] = {}
        for at in self._covering(path):
            for watcher, mode in list(self.by_path.get(at, {}).items()):
                if mode is WatchMode.PERSISTENT_RECURSIVE:
                    if event is not EventType.CHILDREN_CHANGED:
                        told[watcher] = None
                elif at == path:
                    told[watcher] = None
                    if mode is WatchMode.ONCE:
                        self.remove(path, watcher)
        return list(told)

    def count(self) -> int:
        """The number of watches."""
        return sum(map(len, self.by_path.values()))

    def _covering(self, path: str) -> Iterator[str]:
        """The path, and those of its ancestors that may have a recursive watch."""
        yield path
        for length in list(self._recursive):
            if 0 < length < len(path):  # `has` accepts any string
                if length == 1 and path[0] == "/":
                    yield "/"
                elif path[length] == "/":
                    yield path[:length]

    def _hold(self, watcher: W, more_bytes: int) -> None:
        self.total_bytes += more_bytes
        self.held_bytes[watcher] = self.held_bytes.get(watcher, 0) + more_bytes

    def _count(self, path: str, before: WatchMode | None, after: WatchMode | None) -> None:
        change = (after is WatchMode.PERSISTENT_RECURSIVE) - (
            before is WatchMode.PERSISTENT_RECURSIVE
        )
        if change:
            self._recursive[len(path)] += change
            if not self._recursive[len(path)]:
                del self._recursive[len(path)]
