"""The node tree that both stores provide, in ZooKeeper's terms.

A node has a path, data (or null), versions and children. An ephemeral node lives as long as the session that created it
and has no children; a sequential node gets a ten-digit number, which is never used again under the same parent. A write
is applied completely or not at all, and is durable and visible to every session when the call returns. A read sees
every write that was answered before it.

Reads leave watches, which fire once, on the event loop, after the change is durable. They only say that something
changed: read again after each, and never rely on their content. Losing the connection or the session fires every watch
with `EventKind.SESSION`.

Sessions: after `SessionState.EXPIRED`, every write is refused with `SessionExpired` until the owner of the store has
cleaned up and calls `adopt_session`, so that no decision of the old session can be written in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
#: The file of an embedded store, in the first data directory of its broker.
EMBEDDED_STORE = "coordination.db"


class Stat(NamedTuple):
    """The store's metadata of a node.

    Shape: `czxid`, `mzxid` and `pzxid` number the transactions that created the node, last set its data and last
    changed its children; `version` counts data changes, `cversion` child changes and `aversion` changes of the access
    control list since creation; `ephemeral_owner` is a session id, or 0. Unit: `data_length` is in bytes. Source:
    ZooKeeper's Stat.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    num_children: int
    pzxid: int
    aversion: int = 0
    data_length: int = 0


class StoreError(Exception):
    """A refusal by the store; `path` is the node, `index` the position inside a multi."""

    def __init__(self, path: str = "", message: str = "", index: int = 0) -> None:
        super().__init__(f"{message}: {path}" if message and path else message or path)
        self.path = path
        self.index = index


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """A node to be created already exists."""


class BadVersion(StoreError):
    """The node's data version differs from the expected one."""


class NotEmpty(StoreError):
    """A node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot be a parent."""


class SessionExpired(StoreError):
    """The session of this write has ended; nothing was written."""


class ConnectionLost(StoreError):
    """The connection broke during a write; it is unknown whether the write was applied."""


class StoreClosed(StoreError):
    """The store was closed, or can no longer be used (its file failed)."""


class NotAllowed(StoreError):
    """The ACL of the node does not allow the operation to this session's login."""


class Create(NamedTuple):
    """Create a node, with a number appended to its name if `sequential`; part of a multi."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's data if its version is the expected one; part of a multi."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children if its version is the expected one; part of a multi."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole multi unless the node has this version."""

    path: str
    version: int


Op: TypeAlias = Create | SetData | Delete | Check
#: Per op of a multi: the created path, the Stat after a set, None for a delete or a check.
OpResult: TypeAlias = str | Stat | None


class EventKind(Enum):
    """The reason that a watch fired."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    SESSION = "session"  # connection or session lost; anything may have changed


class WatchEvent(NamedTuple):
    """One firing of a watch on `path`."""

    kind: EventKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class SessionState(Enum):
    """The changes of a session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # not connected; the session may survive
    EXPIRED = "expired"


class Store(Protocol):
    """One session on a tree of nodes; both backends and the simulation implement it."""

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of the nodes that this session creates; changes after expiry."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """How long ephemeral nodes can outlive a killed process."""
        ...

    @property
    def refused_logins(self) -> int:
        """The number of times that the servers have refused this client's login."""
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Call `callback` on every change of the session, on the event loop."""
        ...

    def adopt_session(self) -> None:
        """Accept writes again after an expiry; call it once all work of the old session has ended."""
        ...

    async def connected(self) -> None:
        """Wait until the store can be reached. Errors: StoreClosed."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        """Create a node and return its path, including the number if `sequential`.

        Errors: NodeExists, NoNode (no parent), NoChildrenForEphemerals, SessionExpired, ConnectionLost.
        """
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """Return data and Stat; the watch fires when the node is set or deleted. Errors: NoNode."""
        ...

    async def get_many(
        self, paths: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[bytes | None, Stat] | None]:
        """Return the results of `get` for all paths; None (and no watch) for missing nodes."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat or None; the watch fires when the node is created, set or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below `path`, unordered; the watch fires when one is added or removed.

        Errors: NoNode. The watch also fires when `path` itself is deleted.
        """
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data if the version is the expected one. Errors: NoNode, BadVersion, ..."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. Errors: NoNode, BadVersion, NotEmpty, ..."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply all ops in order as one transaction, or none.

        Errors: that of the first op that fails, with its `index`.
        """
        ...

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes, and free its resources."""
        ...


def parent_of(path: str) -> str:
    """The parent path; "/" for a top-level node."""
    return path[: path.rindex("/")] or "/"


def check_path(path: str) -> None:
    """Refuse a path that the two stores would interpret differently. Errors: ValueError."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"not a node path: {path!r}")
