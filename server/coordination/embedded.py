"""The embedded store: the node tree in memory, its persistent part in one file (`node_file.py`).

Transactions are numbered `generation << 32 | count`: a number is never used again, although the transactions of
ephemeral nodes are not stored. The ephemeral nodes of an `EmbeddedStore` are never in the file. Those of the sessions
of `zookeeper_server` are in the file, and a program that opens the tree without these sessions deletes them.

A write is applied to the tree immediately and passed to the file's thread in groups: during one commit, the next writes
are collected. The call returns, and watches fire, when the commit is done. A read returns when all writes that it may
have seen are durable. If the file fails, the tree is ahead of the file, and the store refuses everything from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .node_file import NodeFile, changes_of, tree_of
from .store import (
    ANY_VERSION,
    Create,
    Delete,
    EventKind,
    Op,
    OpResult,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    Watch,
    WatchEvent,
)
from .tree import Applied, NodeTree, delete_ops

if TYPE_CHECKING:
    from ..clock import Clock

#: Called when a commit is done, or with the reason for its failure.
AfterCommit: TypeAlias = Callable[[StoreClosed | None], None]


class WriteGroup:
    """Writes that become durable together."""

    __slots__ = ("after", "fired", "sessions", "touched")

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self.sessions: set[int] = set()
        self.fired: list[tuple[Watch, WatchEvent]] = []
        self.after: list[AfterCommit] = []

    async def done(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when the group is durable. Errors: StoreClosed."""
        waiter = loop.create_future()

        def tell(failure: StoreClosed | None) -> None:
            if waiter.done():
                return
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(StoreClosed(message=str(failure)))

        self.after.append(tell)
        await waiter


class WatchKey(NamedTuple):
    """A watch of one session; leaving the same watch twice counts once."""

    session: EmbeddedStore
    watch: Watch


class EmbeddedTree:
    """The node tree of one process, shared by its sessions; `path` None keeps it in memory only.

    Shape: created by `open` on the event loop on which it is used.
    """

    def __init__(self, tree: NodeTree, clock: Clock, file: NodeFile | None) -> None:
        self.tree = tree
        self.clock = clock
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._thread: ThreadPoolExecutor | None = None
        self._gathering: WriteGroup | None = None
        self._writing: WriteGroup | None = None
        self._data_watches: dict[str, dict[WatchKey, None]] = {}
        self._child_watches: dict[str, dict[WatchKey, None]] = {}
        self._failure: StoreClosed | None = None
        #: Called with the reason when the file has failed; afterwards nothing can be read or written.
        self.on_failure: Callable[[StoreClosed], None] | None = None
        #: Called with the changes of an `EmbeddedStore` before they are durable.
        self.observer: Callable[[Applied], None] | None = None
        self._next_session = (tree.zxid >> 32) << 32

    @classmethod
    async def open(
        cls, path: Path | None, clock: Clock, *, keep_sessions: bool = False
    ) -> EmbeddedTree:
        """Open the store file, and create it if it is missing. Errors: StoreClosed (in use, damaged).

        Stored sessions end, with their ephemeral nodes, unless the caller takes them over.
        """
        if path is None:
            return cls(NodeTree(1 << 32), clock, None)
        file = NodeFile(path)
        thread = ThreadPoolExecutor(1, thread_name_prefix="coordination")
        try:
            stored = await asyncio.get_running_loop().run_in_executor(thread, file.open)
        except StoreClosed:
            thread.shutdown(wait=False)
            raise
        shared = cls(tree_of(stored), clock, file)
        shared._thread = thread
        if not keep_sessions:
            for session_id in list(shared.tree.sessions):
                shared.take(shared.tree.close_session(session_id, clock.now_ms()))
        return shared

    def session(self, timeout_ms: int = 18_000) -> EmbeddedStore:
        """Start another session on the tree."""
        return EmbeddedStore(self, timeout_ms)

    def next_session_id(self) -> int:
        """A session id that has never been used, even before a restart."""
        self._next_session += 1
        return self._next_session

    def check(self) -> None:
        """Raise if the store is closed or its file failed. Errors: StoreClosed."""
        if self._failure is not None:
            # A new object each time, since every raise of the same object would add to its traceback.
            raise StoreClosed(message=str(self._failure))

    # Watches

    def watch_data(self, path: str, key: WatchKey) -> None:
        """Leave a watch on a node's data and existence."""
        self._data_watches.setdefault(path, {})[key] = None

    def watch_children(self, path: str, key: WatchKey) -> None:
        """Leave a watch on a node's children."""
        self._child_watches.setdefault(path, {})[key] = None

    def _pop_watches(self, events: list[WatchEvent]) -> list[tuple[Watch, WatchEvent]]:
        fired: dict[tuple[WatchKey, str], tuple[Watch, WatchEvent]] = {}
        if not self._data_watches and not self._child_watches:
            return []
        for event in events:
            keys: dict[WatchKey, None] = {}
            if event.kind is not EventKind.CHILDREN:
                keys |= self._data_watches.pop(event.path, {})
            if event.kind in (EventKind.CHILDREN, EventKind.DELETED):
                keys |= self._child_watches.pop(event.path, {})
            for key in keys:
                fired.setdefault((key, event.path), (key.watch, event))
        return list(fired.values())

    def drop_watches(self, session: EmbeddedStore) -> list[tuple[Watch, WatchEvent]]:
        """Remove all watches of a session and return them as events of its end."""
        fired: dict[tuple[Watch, str], tuple[Watch, WatchEvent]] = {}
        for table in (self._data_watches, self._child_watches):
            for path in list(table):
                for key in [key for key in table[path] if key.session is session]:
                    del table[path][key]
                    event = WatchEvent(EventKind.SESSION, path)
                    fired.setdefault((key.watch, path), (key.watch, event))
                if not table[path]:
                    del table[path]
        return list(fired.values())

    # Durability

    def take(self, applied: Applied) -> WriteGroup | None:
        """Queue applied changes for writing; their watches fire once they are written.

        Shape: the group with which they become durable; None if there is nothing to wait for.
        """
        fired = self._pop_watches(applied.events)
        if self._file is None or not (applied.stored or self.pending):
            for watch, event in fired:
                self._loop.call_soon(watch, event)
            return None
        if self._gathering is None:
            self._gathering = WriteGroup()
            if self._writing is None:
                # On the next turn of the loop, so that writes of other tasks in this turn join the commit.
                self._loop.call_soon(self._flush)
        group = self._gathering
        group.touched |= applied.touched
        group.sessions |= applied.sessions
        group.fired += fired
        return group

    @property
    def pending(self) -> WriteGroup | None:
        """The group of the latest write that is not yet durable."""
        return self._gathering or self._writing

    async def settle(self, applied: Applied) -> None:
        """Return when the applied changes are durable; their watches fire just before."""
        group = self.take(applied)
        if self.observer is not None:
            self.observer(applied)
        if group is not None:
            await group.done(self._loop)

    async def settled(self) -> None:
        """Return when everything applied so far is durable."""
        group = self.pending
        if group is not None:
            await group.done(self._loop)

    def _flush(self) -> None:
        assert self._writing is None
        assert self._file is not None
        group = self._writing = self._gathering
        assert group is not None
        self._gathering = None
        changes = changes_of(self.tree, group.touched, group.sessions)
        done = self._loop.run_in_executor(self._thread, self._file.commit, changes)
        done.add_done_callback(self._flushed)

    def _flushed(self, done: asyncio.Future[None]) -> None:
        group = self._writing
        assert group is not None
        self._writing = None
        error = done.exception()
        if error is not None:
            assert self._file is not None
            said = f"the store's file failed ({error})"
            self._fail(StoreClosed(str(self._file.path), said), group)
            return
        for watch, event in group.fired:
            self._loop.call_soon(watch, event)
        for tell in group.after:
            tell(None)
        if self._gathering is not None:
            self._flush()

    def _fail(self, failure: StoreClosed, group: WriteGroup) -> None:
        self._failure = failure
        gathering, self._gathering = self._gathering, None
        for tell in group.after + (gathering.after if gathering else []):
            tell(failure)
        if self.on_failure is not None:
            self.on_failure(failure)

    async def close(self) -> None:
        """Commit pending changes and close the file."""
        if self._failure is None:
            await self.settled()
            self._failure = StoreClosed(message="the store is closed")
        if self._thread is not None and self._file is not None:
            await self._loop.run_in_executor(self._thread, self._file.close)
            self._thread.shutdown(wait=False)
            self._thread = None


class EmbeddedStore:
    """One session on an embedded tree. Source of the contract: `store.Store`."""

    def __init__(self, shared: EmbeddedTree, timeout_ms: int = 18_000) -> None:
        self._shared = shared
        self._tree = shared.tree
        self._owns_tree = False
        self._timeout_ms = timeout_ms
        self._session_id = shared.next_session_id()
        self._fenced = False
        self._closed = False
        self._callbacks: list[Callable[[SessionState], None]] = []

    @classmethod
    async def open(cls, path: Path | None, clock: Clock) -> EmbeddedStore:
        """Open a tree and one session on it; closing the session closes the tree.

        Shape: `path` is the SQLite file, None for memory only. Errors: StoreClosed.
        """
        store = (await EmbeddedTree.open(path, clock)).session()
        store._owns_tree = True
        return store

    def on_failure(self, callback: Callable[[StoreClosed], None]) -> None:
        """Call `callback` when the tree's file fails."""
        self._shared.on_failure = callback

    @property
    def tree(self) -> NodeTree:
        """All nodes, including those of other sessions."""
        return self._tree

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def refused_logins(self) -> int:
        """Always 0."""
        return 0

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def adopt_session(self) -> None:
        self._fenced = False

    async def connected(self) -> None:
        self._check_open()

    async def expire(self) -> None:
        """End the session as a server does after a silent timeout; for tests."""
        old = self._session_id
        self._session_id = self._shared.next_session_id()
        self._fenced = True
        for watch, event in self._shared.drop_watches(self):
            watch(event)
        for state in (SessionState.EXPIRED, SessionState.CONNECTED):
            for callback in self._callbacks:
                callback(state)
        await self._delete_owned(old)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        result = (await self.multi([Create(path, data, ephemeral, sequential)]))[0]
        assert isinstance(result, str)
        return result

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        self._check_open()
        node = self._tree.node(path)
        found = (node.data, node.stat())
        if watch is not None:
            self._shared.watch_data(path, WatchKey(self, watch))
        await self._shared.settled()
        return found

    async def get_many(
        self, paths: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[bytes | None, Stat] | None]:
        self._check_open()
        nodes = self._tree.nodes
        found: list[tuple[bytes | None, Stat] | None] = []
        for path in paths:
            node = nodes.get(path)
            found.append(None if node is None else (node.data, node.stat()))
            if watch is not None and node is not None:
                self._shared.watch_data(path, WatchKey(self, watch))
        await self._shared.settled()
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._check_open()
        node = self._tree.nodes.get(path)
        stat = None if node is None else node.stat()
        if watch is not None:
            self._shared.watch_data(path, WatchKey(self, watch))
        await self._shared.settled()
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._check_open()
        names = self._tree.child_names(path)
        if watch is not None:
            self._shared.watch_children(path, WatchKey(self, watch))
        await self._shared.settled()
        return names

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        result = (await self.multi([SetData(path, data, version)]))[0]
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        self._check_writable()
        applied = self._tree.apply(ops, self._session_id, self._shared.clock.now_ms())
        await self._shared.settle(applied)
        return applied.results

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._shared.drop_watches(self)
        if self._owns_tree:
            await self._shared.close()
            return
        try:
            await self._delete_owned(self._session_id)
        except StoreError:
            pass  # the file failed; ephemeral nodes end with the process anyway

    async def _delete_owned(self, session_id: int) -> None:
        owned = self._tree.owned_by(session_id)
        if owned:
            applied = self._tree.apply(delete_ops(owned), 0, self._shared.clock.now_ms())
            await self._shared.settle(applied)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(message="the session is closed")
        self._shared.check()

    def _check_writable(self) -> None:
        self._check_open()
        if self._fenced:
            raise SessionExpired(message="the session expired")
