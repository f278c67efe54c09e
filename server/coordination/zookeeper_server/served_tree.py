"""The tree as clients see it: permission to read a node, and notifications of changes; pure."""

from __future__ import annotations

from collections import defaultdict

from ..acl import READ, Acl
from ..store import EventKind, NoNode
from ..tree import Applied, Node, NodeTree
from .access import AccessRefused, check_acl
from .connection import Effects, ZookeeperConnection
from .jute import STRINGS
from .records import Code, EventType, encode_notification
from .watches import WatchMode, WatchTable, cost_of, joined

#: The memory that the watches of a connection may take, and those of all connections. Beyond the latter, a connection
#: may still have the least, so that one with many watches does not take them from the others. A real server has no
#: such limit, but an error for requests that are not executed because of load.
CONNECTION_WATCH_BYTES = 32 << 20
ALL_WATCH_BYTES = 128 << 20
MIN_WATCH_BYTES = 1 << 20
#: The memory for lists of children in the form of a reply. Source of the idea: ResponseCache.
KEPT_NAMES_BYTES = 16 << 20
#: Shorter lists are encoded each time.
KEPT_NAMES = 1000
#: The number of watches that are removed in one step; the next step follows in the next tick.
TIDY_STEPS = 3000

EVENT_TYPES = {
    EventKind.CREATED: EventType.CREATED,
    EventKind.DELETED: EventType.DELETED,
    EventKind.CHANGED: EventType.DATA_CHANGED,
    EventKind.CHILDREN: EventType.CHILDREN_CHANGED,
}
CHILDREN_CHANGED, DELETED = EventType.CHILDREN_CHANGED, EventType.DELETED


class Readers:
    """Which connections may read nodes, for one transaction."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ZookeeperConnection], bool] = {}

    def may_read(self, acl: Acl, connection: ZookeeperConnection) -> bool:
        """Whether a list permits it. Shape: all lists exist until the transaction is over."""
        key = (id(acl), connection)
        known = self._known.get(key)
        if known is None:
            try:
                check_acl(acl, READ, connection.ids)
                known = True
            except AccessRefused:
                known = False
            self._known[key] = known
        return known


class Notices:
    """Notifications in order; those for the same connections are put together."""

    def __init__(self) -> None:
        self._told: tuple[ZookeeperConnection, ...] = ()
        self._frames: list[bytes] = []
        self._all: defaultdict[ZookeeperConnection, list[tuple[bytes, int]]] = defaultdict(list)

    def add(self, told: tuple[ZookeeperConnection, ...], frame: bytes) -> None:
        """Add one for these connections."""
        if told is not self._told and told != self._told:
            self._flush()
            self._told = told
        self._frames.append(frame)

    def _flush(self) -> None:
        frames = (b"".join(self._frames), len(self._frames))
        self._frames.clear()
        for connection in self._told:
            self._all[connection].append(frames)

    def send(self, effects: Effects) -> None:
        """Send all."""
        self._flush()
        for connection, parts in self._all.items():
            frames = b"".join([part for part, _ in parts])
            effects.send_frames(connection, frames, sum(count for _, count in parts))


class ServedTree:
    """A tree with the watches that clients have left on it."""

    def __init__(self, tree: NodeTree) -> None:
        self.tree = tree
        self.data_watches: WatchTable[ZookeeperConnection] = WatchTable()
        self.child_watches: WatchTable[ZookeeperConnection] = WatchTable()
        self._names: dict[
            str, tuple[int, bytes]
        ] = {}  # by path: pzxid of the node, and its encoded list
        self._names_bytes = 0

    def names(self, path: str, node: Node) -> bytes:
        """The names below a node, encoded."""
        names = node.children or ()
        kept = self._names.get(path)
        if kept is not None and kept[0] == node.pzxid:
            return kept[1]
        out = bytearray()
        STRINGS.write(out, names)
        encoded = bytes(out)
        if len(names) >= KEPT_NAMES and len(encoded) <= KEPT_NAMES_BYTES:
            self._forget_names(path)
            self._names[path] = (node.pzxid, encoded)
            self._names_bytes += len(encoded)
            while self._names_bytes > KEPT_NAMES_BYTES:
                self._forget_names(next(iter(self._names)))
        return encoded

    def _forget_names(self, path: str) -> None:
        kept = self._names.pop(path, None)
        if kept is not None:
            self._names_bytes -= len(kept[1])

    # Watches

    def watch(
        self, table: WatchTable[ZookeeperConnection], path: str, connection: ZookeeperConnection
    ) -> None:
        """Leave a one-time watch. Errors: AccessRefused (THROTTLED_OP)."""
        if connection not in table.by_path.get(path, ()):
            self.expect_room(connection, cost_of(path))
        table.add(path, connection)

    def watch_for_good(self, path: str, connection: ZookeeperConnection, mode: WatchMode) -> None:
        """Leave a persistent watch. Errors: AccessRefused (THROTTLED_OP)."""
        self.expect_room(connection, 2 * cost_of(path))
        for table in (self.data_watches, self.child_watches):
            table.add(path, connection, mode)

    def expect_room(self, connection: ZookeeperConnection, more_bytes: int) -> None:
        """Refuse watches that take more memory than is left for a connection. Errors: AccessRefused (THROTTLED_OP)."""
        tables = (self.data_watches, self.child_watches)
        held = more_bytes + sum(table.held_bytes.get(connection, 0) for table in tables)
        everything = more_bytes + sum(table.total_bytes for table in tables)
        if held > CONNECTION_WATCH_BYTES or (
            everything > ALL_WATCH_BYTES and held > MIN_WATCH_BYTES
        ):
            raise AccessRefused(Code.THROTTLED_OP)

    def applied(self, applied: Applied, effects: Effects) -> None:
        """Record that a request changed the tree, and notify watchers before the request is answered."""
        effects.applied.append(applied)
        self.fire(applied, effects)

    def fire(self, applied: Applied, effects: Effects) -> None:
        """Notify the watchers of changes."""
        data, children = self.data_watches, self.child_watches
        if not data.by_path and not children.by_path:
            return
        readers = Readers()
        notices = Notices()
        for (kind, path), acl in zip(applied.events, applied.event_acls, strict=True):
            type_ = EVENT_TYPES[kind]
            if type_ is CHILDREN_CHANGED:
                told = children.trigger(path, type_)
            else:
                told = data.trigger(path, type_)
                if type_ is DELETED:
                    told = joined(told, children.trigger(path, type_))
            if told and acl is not None:
                # no notification without permission to read the node
                told = tuple([each for each in told if readers.may_read(acl, each)])
            if told:
                notices.add(told, encode_notification(type_, path))
        notices.send(effects)
        self.tidy()

    @property
    def untidy(self) -> bool:
        """Whether there is something to tidy."""
        return self.data_watches.untidy or self.child_watches.untidy

    def tidy(self) -> None:
        """Remove a part of what removed watches have left behind."""
        self.child_watches.tidy(self.data_watches.tidy(TIDY_STEPS))

    def leave(self, connection: ZookeeperConnection) -> None:
        """Remove the watches of a connection that is closed."""
        for table in (self.data_watches, self.child_watches):
            table.remove_watcher(connection)
        self.tidy()

    def readable(
        self, connection: ZookeeperConnection, path: str | None, permission: int = READ
    ) -> Node:
        """The node of a read request. Errors: NoNode, AccessRefused."""
        node = self.tree.nodes.get(path or "/") if path is not None else None
        if node is None:
            raise NoNode(path or "", "no node")
        check_acl(node.acl, permission, connection.ids)
        return node
