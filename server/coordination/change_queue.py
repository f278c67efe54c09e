"""Follows the changes of other brokers in the store by means of their notifications.

A queue is a node with sequential children. A broker that changes something also adds a child that names the change;
every broker then reads the changed state again. The next writer deletes notifications that all brokers have had time to
see. Source: ZkNodeChangeNotificationListener.
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

#: The wait before another attempt after the store could not be read.
RETRY_S = 1.0


def numbered(names: Iterable[str]) -> list[str]:
    """The notifications among the children of a queue, in order; the queue may contain other nodes."""
    return sorted(name for name in names if name[-10:].isdecimal())


class ChangeFollower(ABC):
    """Keeps a broker's copy of some state equal to the store.

    The copy is replaced only by values read or written under `lock`, so it never becomes older.
    """

    #: The name of the followed state, for the log.
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
        """The nodes that must exist, besides the queues and their ancestors."""

    @abstractmethod
    async def read_all(self) -> None:
        """Replace the copy with the store's content; called under the lock."""

    @abstractmethod
    async def read_changed(self, notifications: Sequence[tuple[str, bytes | None]]) -> None:
        """Read the state that notifications (path, data) name; called under the lock. Errors: MalformedNode."""

    # -- reading

    async def load(self) -> None:
        """Create missing parent nodes, and read everything. Errors: MalformedNode."""
        async with self.lock:
            for path in paths.with_parents([*self.parents(), *self._seen]):
                if await self.store.exists(path) is None:
                    try:
                        await commit(self.store, [Create(path)])
                    except NodeExists:
                        pass  # another broker is starting at the same time
            for parent in self._seen:  # watch before reading everything
                names = numbered(await self.store.children(parent, self._fired))
                self._seen[parent] = max(map(paths.sequence_of, names), default=-1)
            await self.read_all()

    async def follow(self) -> None:
        """Process changes until cancelled, or until the store is closed."""
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
            except Exception:  # a bug in kwire must not end this: revoked access would remain
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
