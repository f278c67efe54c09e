"""Watches of connections on nodes: one-time, persistent, or persistent for the whole subtree; pure.

There is one table for data and existence, and one for children; a persistent watch is in both. A connection has at most
one watch on a path in a table: leaving another kind replaces it.
Source: ZooKeeper's WatchManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

from ..store import parent_of
from .records import EventType

W = TypeVar("W")


class WatchMode(Enum):
    """The duration of a watch and its scope."""

    ONCE = "once"
    PERSISTENT = "persistent"
    PERSISTENT_RECURSIVE = "persistent recursive"


class WatchTable(Generic[W]):
    """The watchers of paths; any hashable value can be a watcher."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, WatchMode]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: W, mode: WatchMode = WatchMode.ONCE) -> None:
        """Leave a watch."""
        watchers = self.by_path.setdefault(path, {})
        self._count(watchers.get(watcher), mode)
        watchers[watcher] = mode
        self.by_watcher.setdefault(watcher, set()).add(path)

    def remove(self, path: str, watcher: W) -> bool:
        """Remove a watch; False if there was none."""
        watchers = self.by_path.get(path)
        if watchers is None or watcher not in watchers:
            return False
        self._count(watchers.pop(watcher), None)
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        paths.discard(path)
        if not paths:
            del self.by_watcher[watcher]
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

    def _covering(self, path: str) -> Iterable[str]:
        if not self._recursive:
            return (path,)
        paths = [path]
        while path != "/" and "/" in path:  # `has` accepts any string
            path = parent_of(path)
            paths.append(path)
        return paths

    def _count(self, before: WatchMode | None, after: WatchMode | None) -> None:
        self._recursive += (after is WatchMode.PERSISTENT_RECURSIVE) - (
            before is WatchMode.PERSISTENT_RECURSIVE
        )
