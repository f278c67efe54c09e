"""Watches of connections on nodes: one-time, persistent, or persistent for the whole subtree; pure.

There is one table for data and existence, and one for children; a persistent watch is in both. A connection has at most
one watch on a path in a table: leaving another kind replaces it.
Source: ZooKeeper's WatchManager.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum
from typing import Generic, TypeVar

from .records import EventType

W = TypeVar("W")

#: The memory that a watch takes besides the text of its path: its entries in the dictionaries and sets below.
WATCH_BYTES = 450
#: The number of paths for which the watchers to notify are remembered.
REMEMBERED_PATHS = 1000


class WatchMode(Enum):
    """The duration of a watch and its scope."""

    ONCE = "once"
    PERSISTENT = "persistent"
    PERSISTENT_RECURSIVE = "persistent recursive"


def cost_of(path: str) -> int:
    """The memory that a watch on a path takes."""
    return WATCH_BYTES + len(path) * (1 if path.isascii() else 4)


ONCE, RECURSIVE = WatchMode.ONCE, WatchMode.PERSISTENT_RECURSIVE
CHILDREN_CHANGED = EventType.CHILDREN_CHANGED


class WatchTable(Generic[W]):
    """The watchers of paths; any hashable value can be a watcher.

    Shape: one event, or the end of one connection, may remove very many watches. What they leave behind is removed by
    `tidy`, in steps. Until then it counts as memory, `by_watcher` has watches that have fired, and `by_path` has those
    of watchers that have left.
    """

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, WatchMode]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        self._fired: deque[tuple[str, list[W]]] = deque()
        self._left: deque[W] = deque()
        # The watchers to notify of an event that removes no watch, by the path of the watches and the kind of event.
        self._remembered: dict[str, dict[tuple[bool, bool], tuple[W, ...]]] = {}
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
        self._remembered.pop(path, None)
        watchers[watcher] = mode
        self.by_watcher.setdefault(watcher, set()).add(path)

    def remove(self, path: str, watcher: W) -> bool:
        """Remove a watch; False if there was none."""
        watchers = self.by_path.get(path)
        if watchers is None or watcher not in watchers:
            return False
        self._count(path, watchers.pop(watcher), None)
        self._remembered.pop(path, None)
        if not watchers:
            del self.by_path[path]
        self._forget(path, watcher)
        return True

    def _forget(self, path: str, watcher: W) -> None:
        """Count a watch that is no longer in `by_path`; its watcher may have left the same one again."""
        if watcher not in self.by_path.get(path, ()):
            self.by_watcher[watcher].discard(path)
        self._hold(watcher, -cost_of(path))
        if not self.held_bytes[watcher]:
            del self.by_watcher[watcher]
            del self.held_bytes[watcher]

    def remove_watcher(self, watcher: W) -> None:
        """Remove all watches of one watcher, which will not leave any others."""
        if watcher in self.by_watcher:
            self._left.append(watcher)

    @property
    def untidy(self) -> bool:
        """Whether there is something to tidy."""
        return bool(self._fired or self._left)

    def tidy(self, steps: int) -> int:
        """Remove what was left behind, but of no more than `steps` watches; return the number of steps not used."""
        while self._fired and steps:
            path, watchers = self._fired[0]
            while watchers and steps:
                self._forget(path, watchers.pop())
                steps -= 1
            if not watchers:
                self._fired.popleft()
        while self._left and steps:
            watcher = self._left[0]
            paths = self.by_watcher.get(watcher)
            while paths and steps:
                self.remove(paths.pop(), watcher)
                steps -= 1
            if not paths:
                self._left.popleft()
        return steps

    def has(self, path: str, watcher: W) -> bool:
        """Whether a watch covers the path."""
        return any(
            mode is RECURSIVE or at == path
            for at in self._covering(path)
            if (mode := self.by_path.get(at, {}).get(watcher)) is not None
        )

    def trigger(self, path: str, event: EventType) -> tuple[W, ...]:
        """The watchers to notify; one-time watches are removed."""
        told: tuple[W, ...] = ()
        for at in self._covering(path) if self._recursive else (path,):
            watchers = self.by_path.get(at)
            if watchers is None:
                continue
            own, children = at == path, event is CHILDREN_CHANGED
            remembered = self._remembered.get(at)
            found = None if remembered is None else remembered.get((own, children))
            if found is None:
                found = self._find(at, watchers, own, children)
            told = found if not told else joined(told, found)
        return told

    def _find(
        self, at: str, watchers: dict[W, WatchMode], own: bool, children: bool
    ) -> tuple[W, ...]:
        """The watchers at one path to notify of an event there (`own`) or below."""
        modes = list(watchers.values())
        if own and (number := modes.count(ONCE)):
            self._remembered.pop(at, None)
            if number == len(modes):
                del self.by_path[at]
                self._fired.append((at, list(watchers)))
                return tuple(watchers)
            once = [watcher for watcher, mode in watchers.items() if mode is ONCE]
            self._fired.append((at, once))
        else:
            once = []
        found = tuple(
            watcher
            for watcher, mode in watchers.items()
            if (not children if mode is RECURSIVE else own)
        )
        for watcher in once:
            del watchers[watcher]
        if not once:
            if len(self._remembered) >= REMEMBERED_PATHS:
                self._remembered.clear()
            self._remembered.setdefault(at, {})[own, children] = found
        return found

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
        change = (after is RECURSIVE) - (before is RECURSIVE)
        if change:
            self._recursive[len(path)] += change
            if not self._recursive[len(path)]:
                del self._recursive[len(path)]


def joined(first: tuple[W, ...], second: tuple[W, ...]) -> tuple[W, ...]:
    """Both, each watcher once."""
    return first if not second or first == second else tuple(dict.fromkeys(first + second))
