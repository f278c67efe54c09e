"""A tree of nodes in memory with ZooKeeper's rules: versions, transaction ids, undo; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from .acl import ADMIN, CREATE, DELETE, READ, WRITE, Acl
from .store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
    WatchEvent,
    check_path,
    parent_of,
)

#: The `owner` of a container: a node that is removed after its last child. Source: ZooKeeper's
#: EphemeralType.CONTAINER_EPHEMERAL_OWNER.
CONTAINER = -(1 << 63)


class CreateNode(NamedTuple):
    """Create a node with all attributes; the tree's form of a `Create`.

    Shape: `owner` is the session of an ephemeral node, CONTAINER or 0. The path may end in "/" if
    `sequential`; the guard checks the finished path.
    """

    path: str
    data: bytes | None = None
    owner: int = 0
    sequential: bool = False
    acl: Acl | None = None


class SetAcl(NamedTuple):
    """Replace a node's access control list if its `aversion` is the expected one."""

    path: str
    acl: Acl | None
    version: int = ANY_VERSION


TreeOp: TypeAlias = Op | CreateNode | SetAcl


class StoredSession(NamedTuple):
    """A session that outlives the process; its ephemeral nodes are stored like others."""

    timeout_ms: int
    password: bytes


class Node:
    """One node. `creates` counts all children ever created below it; it is the next sequential number."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime_ms",
        "czxid",
        "data",
        "mtime_ms",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, zxid: int, now_ms: int, owner: int = 0) -> None:
        self.data = data
        self.czxid = zxid
        self.mzxid = zxid
        self.pzxid = zxid
        self.ctime_ms = now_ms
        self.mtime_ms = now_ms
        self.version = 0
        self.creates = 0
        self.owner = owner
        self.children: set[str] | None = None  # None, since most nodes are leaves
        self.acl: Acl | None = None
        self.aversion = 0

    def stat(self) -> Stat:
        """The node's Stat; as in ZooKeeper, creates and deletes both count in `cversion`."""
        count = len(self.children) if self.children else 0
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            self.creates * 2 - count,
            0 if self.owner == CONTAINER else self.owner,
            count,
            self.pzxid,
            self.aversion,
            len(self.data) if self.data else 0,
        )


#: Called before each step with the node, the permission it needs and the path; raises a StoreError
#: to refuse.
Guard: TypeAlias = Callable[[Node, int, str], None]


class Applied:
    """The effects of one transaction.

    Shape: `touched` are the nodes whose stored form changed, including deleted ones; `sessions` are those that were
    opened, changed or closed. `stats` has a row for each result: the Stat directly after a create, a set or a change of
    the access control list. `event_acls` has a row for each event.
    """

    __slots__ = ("event_acls", "events", "results", "sessions", "stats", "touched")

    def __init__(self) -> None:
        self.results: list[OpResult] = []
        self.stats: list[Stat | None] = []
        self.touched: set[str] = set()
        self.sessions: set[int] = set()
        self.events: list[WatchEvent] = []
        self.event_acls: list[Acl | None] = []

    @property
    def stored(self) -> bool:
        """Whether anything has to be written to the file."""
        return bool(self.touched or self.sessions)

    def event(self, kind: EventKind, path: str, node: Node) -> None:
        """Add an event for the watches on a node."""
        self.events.append(WatchEvent(kind, path))
        self.event_acls.append(node.acl)

    def result(self, result: OpResult, stat: Stat | None) -> None:
        """Add the result of one op."""
        self.results.append(result)
        self.stats.append(stat)


class NodeTree:
    """All nodes by path. A transaction is applied completely, or is undone and raises its error."""

    def __init__(self, zxid: int = 0) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self._owned: dict[int, dict[str, None]] = {}  # the ephemeral nodes of each session
        self.zxid = zxid
        self.sessions: dict[int, StoredSession] = {}

    def node(self, path: str) -> Node:
        """Return the node. Errors: NoNode."""
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(path, "no node")
        return found

    def link(self, path: str, node: Node) -> None:
        """Restore a stored node; its parent need not exist yet."""
        self._put(path, node)

    def link_children(self) -> None:
        """Add every node to its parent once all are restored. Errors: NoNode for an orphan."""
        for path in self.nodes:
            if path != "/":
                parent = self.node(parent_of(path))
                if parent.children is None:
                    parent.children = set()
                parent.children.add(path[path.rindex("/") + 1 :])

    def is_stored(self, node: Node) -> bool:
        """Whether the node outlives the process: all nodes do, except those of sessions that do not."""
        return not node.owner or node.owner == CONTAINER or node.owner in self.sessions

    def owned_by(self, owner: int, most: int | None = None) -> list[str]:
        """The ephemeral nodes of a session, or so many of them."""
        return list(islice(self._owned.get(owner, ()), most))

    @property
    def ephemerals(self) -> Mapping[int, Collection[str]]:
        """The ephemeral nodes by session."""
        return self._owned

    def _put(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        if node.owner not in (0, CONTAINER):
            self._owned.setdefault(node.owner, {})[path] = None

    def _take(self, path: str) -> None:
        node = self.nodes.pop(path)
        owned = self._owned.get(node.owner)
        if owned is not None:
            del owned[path]
            if not owned:
                del self._owned[node.owner]

    # Sessions that outlive the process

    def open_session(self, session_id: int, session: StoredSession) -> Applied:
        """Open a session, or change its timeout; only opening is a transaction."""
        applied = Applied()
        if session_id not in self.sessions:
            self.zxid += 1
        self.sessions[session_id] = session
        applied.sessions.add(session_id)
        return applied

    def close_session(self, session_id: int, now_ms: int) -> Applied:
        """End a session and delete its ephemeral nodes, in one transaction."""
        applied = self.apply(delete_ops(self.owned_by(session_id)), 0, now_ms)
        del self.sessions[session_id]
        applied.sessions.add(session_id)
        return applied

    # Transactions

    def apply(
        self, ops: Iterable[TreeOp], owner: int, now_ms: int, guard: Guard | None = None
    ) -> Applied:
        """Run one transaction under the session `owner`.

        Shape: an op is taken from `ops` only after the previous ones are applied. Errors: that of the first op that
        fails, with its index; nothing is changed then.
        """
        applied = Applied()
        undo: list[Callable[[], None]] = []
        self.zxid += 1
        index = 0
        try:
            for index, op in enumerate(ops):  # noqa: B007 - the error carries the index
                if isinstance(op, CreateNode):
                    self._create(op, now_ms, guard, applied, undo)
                elif isinstance(op, Create):
                    check_path(op.path)
                    ephemeral = owner if op.ephemeral else 0
                    made = CreateNode(op.path, op.data, ephemeral, op.sequential)
                    self._create(made, now_ms, guard, applied, undo)
                elif isinstance(op, SetData):
                    self._set(op, now_ms, guard, applied, undo)
                elif isinstance(op, Delete):
                    self._delete(op, guard, applied, undo)
                elif isinstance(op, SetAcl):
                    self._set_acl(op, guard, applied, undo)
                else:
                    self._expect(op, READ, guard)
                    applied.result(None, None)
        except StoreError as error:
            for step in reversed(undo):
                step()
            self.zxid -= 1
            error.index = index
            raise
        return applied

    def _expect(self, op: Check | SetData, permission: int, guard: Guard | None) -> Node:
        node = self.node(op.path)
        if guard is not None:
            guard(node, permission, op.path)
        expect_version(op, node.version)
        return node

    def _create(
        self,
        op: CreateNode,
        now_ms: int,
        guard: Guard | None,
        applied: Applied,
        undo: list[Callable[[], None]],
    ) -> None:
        path = op.path
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise NoNode(path, "no parent")
        if op.sequential:
            path = f"{path}{parent.creates:010d}"
        if guard is not None:
            guard(parent, CREATE, path)
        if path in self.nodes:
            raise NodeExists(path, "node exists")
        if parent.owner and parent.owner != CONTAINER:
            raise NoChildrenForEphemerals(path, "the parent is ephemeral")
        name = path[path.rindex("/") + 1 :]
        before = parent.pzxid
        if parent.children is None:
            parent.children = set()
        parent.children.add(name)
        parent.creates += 1
        parent.pzxid = self.zxid
        node = Node(op.data, self.zxid, now_ms, op.owner)
        node.acl = op.acl
        self._put(path, node)

        def revert() -> None:
            self._take(path)
            assert parent.children is not None
            parent.children.discard(name)
            parent.creates -= 1
            parent.pzxid = before

        undo.append(revert)
        stored = self.is_stored(node)
        if stored:
            applied.touched.add(path)
        if stored or op.sequential:
            # The parent's count of creates outlives even ephemeral children.
            applied.touched.add(parent_path)
        applied.result(path, node.stat())
        applied.event(EventKind.CREATED, path, node)
        applied.event(EventKind.CHILDREN, parent_path, parent)

    def _set(
        self,
        op: SetData,
        now_ms: int,
        guard: Guard | None,
        applied: Applied,
        undo: list[Callable[[], None]],
    ) -> None:
        node = self._expect(op, WRITE, guard)
        before = (node.data, node.version, node.mzxid, node.mtime_ms)
        node.data = op.data
        node.version += 1
        node.mzxid = self.zxid
        node.mtime_ms = now_ms

        def revert() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before

        undo.append(revert)
        if self.is_stored(node):
            applied.touched.add(op.path)
        stat = node.stat()
        applied.result(stat, stat)
        applied.event(EventKind.CHANGED, op.path, node)

    def _set_acl(
        self,
        op: SetAcl,
        guard: Guard | None,
        applied: Applied,
        undo: list[Callable[[], None]],
    ) -> None:
        node = self.node(op.path)
        if guard is not None:
            guard(node, ADMIN, op.path)
        expect_version(op, node.aversion)
        before = (node.acl, node.aversion)
        node.acl = op.acl
        node.aversion += 1

        def revert() -> None:
            node.acl, node.aversion = before

        undo.append(revert)
        if self.is_stored(node):
            applied.touched.add(op.path)
        applied.result(None, node.stat())

    def _delete(
        self,
        op: Delete,
        guard: Guard | None,
        applied: Applied,
        undo: list[Callable[[], None]],
    ) -> None:
        path = op.path
        if path == "/":
            raise NotEmpty(path, "the root stays")
        parent_path = parent_of(path)
        if guard is not None:
            guard(self.node(parent_path), DELETE, path)
        node = self.node(path)
        expect_version(op, node.version)
        if node.children:
            raise NotEmpty(path, "node has children")
        parent = self.node(parent_path)
        name = path[path.rindex("/") + 1 :]
        before = parent.pzxid
        self._take(path)
        assert parent.children is not None
        parent.children.discard(name)
        parent.pzxid = self.zxid

        def revert() -> None:
            self._put(path, node)
            assert parent.children is not None
            parent.children.add(name)
            parent.pzxid = before

        undo.append(revert)
        if self.is_stored(node):
            applied.touched.add(path)
            applied.touched.add(parent_path)
        applied.result(None, None)
        applied.event(EventKind.DELETED, path, node)
        applied.event(EventKind.CHILDREN, parent_path, parent)

    def child_names(self, path: str) -> list[str]:
        """The names below a node. Errors: NoNode."""
        return list(self.node(path).children or ())


def expect_version(op: SetData | Delete | Check | SetAcl, version: int) -> None:
    """Refuse an op that expects another version. Errors: BadVersion."""
    if op.version not in (ANY_VERSION, version):
        raise BadVersion(op.path, f"version is {version}, not {op.version}")


def delete_ops(paths: Sequence[str]) -> list[Delete]:
    """Ops that delete these nodes, deepest first."""
    return [Delete(path) for path in sorted(paths, key=lambda path: (-path.count("/"), path))]
