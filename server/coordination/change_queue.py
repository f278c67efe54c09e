"""Following what other brokers change in the store, by the notifications that they write.

A queue is a node with sequential children. A broker that changes something also adds one, which says what has
changed; every broker then reads that again. Notifications that all have had time to see are deleted by whoever
comes next. Source: ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from . import paths
from .cluster import CHANGE_EXPIRATION_MS
from .commit import commit
from .store import (
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    Store,
    StoreClosed,
    StoreError,
    WatchEvent,
)

if TYPE_CHECKING:
    from ..clock import Clock

logger = logging.getLogger(__name__)

#: How long to wait before another attempt, when the store could not be read.
RETRY_S = 1.0


def numbered(names: Iterable[str]) -> list[str]:
    """The notifications among the children of a queue, in order; others may have put anything there."""
    return sorted(name for name in names if name[-10:].isdecimal())


class ChangeFollower(ABC):
    """Keeps what a broker has of something equal to the store.

    What is kept is only ever replaced by what was read or written under `lock`, and so never becomes older.
    """

    #: What is followed, for the log.
    what: ClassVar[str]

    def __init__(self, store: Store, clock: Clock, queues: Iterable[str]) -> None:
        self.store = store
        self.clock = clock
        self.lock = asyncio.Lock()
        self._seen = dict.fromkeys(queues, -1)
        self._changed = asyncio.Event()
        self._lost = False

    # -- for the subclass

    @abstractmethod
    def parents(self) -> Iterable[str]:
        """The nodes that have to exist, besides the queues and what is above them."""

    @abstractmethod
    async def read_all(self) -> None:
        """Replace what is kept by what the store has; called under the lock."""

    @abstractmethod
    async def read_changed(self, notifications: Sequence[tuple[str, bytes | None]]) -> None:
        """Read again what notifications (path, data) name; called under the lock. Errors: MalformedNode."""

    # -- reading

    async def load(self) -> None:
        """Create the nodes above everything if they are missing, and read everything. Errors: MalformedNode."""
        async with self.lock:
            for path in paths.with_parents([*self.parents(), *self._seen]):
                if await self.store.exists(path) is None:
                    try:
                        await commit(self.store, [Create(path)])
                    except NodeExists:
                        pass  # another broker starts at the same time
            for parent in self._seen:  # watched before everything is read
                names = numbered(await self.store.children(parent, self._fired))
                self._seen[parent] = max(map(paths.sequence_of, names), default=-1)
            await self.read_all()

    async def follow(self) -> None:
        """Take up changes until cancelled, or until the store is closed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._lost:
                    await self.store.connected()
                    self._lost = False
                    await self.load()
                else:
                    await self._take_changes()
            except StoreClosed:
                return
            except (StoreError, paths.MalformedNode) as error:
                logger.error("cannot read the %s, and keeps those it has: %s", self.what, error)
            except (
                Exception
            ):  # a bug of kwire's must not end it: access that was taken away would go on
                logger.exception("cannot read the %s, and keeps those it has", self.what)
            else:
                continue
            await asyncio.sleep(RETRY_S)
            self._lost = True
            self._changed.set()

    def _fired(self, event: WatchEvent) -> None:
        if event.kind is EventKind.SESSION:
            self._lost = True
        self._changed.set()

    async def _take_changes(self) -> None:
        async with self.lock:
            found: list[tuple[str, bytes | None]] = []
            for parent, seen in self._seen.items():
                names = numbered(await self.store.children(parent, self._fired))
                where = [f"{parent}/{name}" for name in names if paths.sequence_of(name) > seen]
                if not where:
                    continue
                nodes = await self.store.get_many(where)
                found += [
                    (path, node[0])
                    for path, node in zip(where, nodes, strict=True)
                    if node is not None
                ]
                self._seen[parent] = paths.sequence_of(where[-1])
                await self._purge([f"{parent}/{name}" for name in names])
            if found:
                await self.read_changed(found)

    async def _purge(self, notifications: Iterable[str]) -> None:
        """Delete notifications that every broker has had time to see."""
        oldest_ms = self.clock.now_ms() - CHANGE_EXPIRATION_MS
        for path in notifications:
            stat = await self.store.exists(path)
            if stat is not None and stat.ctime_ms >= oldest_ms:
                return
            try:
                await commit(self.store, [Delete(path)])
            except NoNode:
                pass
