"""The tree as clients see it: permission to read a node, and notifications of changes; pure."""

from __future__ import annotations

from ..acl import READ
from ..store import EventKind, NoNode
from ..tree import Applied, Node, NodeTree
from .access import Refused, check_acl
from .connection import Connection, Effects
from .jute import STRINGS
from .records import Code, EventType, encode_notification
from .watches import WatchMode, WatchTable, cost_of

#: The memory that the watches of a connection may take, and those of all connections. Beyond the latter, a connection
#: may still have the least, so that one with many watches does not take them from the others. A real server has no
#: such limit, but an error for requests that are not executed because of load.
CONNECTION_WATCH_BYTES = 32 << 20
ALL_WATCH_BYTES = 128 << 20
LEAST_WATCH_BYTES = 1 << 20
#: The memory for lists of children in the form of a reply. Source of the idea: ResponseCache.
KEPT_NAMES_BYTES = 16 << 20
#: Shorter lists are encoded each time.
KEPT_NAMES = 1000

EVENT_TYPES = {
    EventKind.CREATED: EventType.CREATED,
    EventKind.DELETED: EventType.DELETED,
    EventKind.CHANGED: EventType.DATA_CHANGED,
    EventKind.CHILDREN: EventType.CHILDREN_CHANGED,
}


class ServedTree:
    """A tree with the watches that clients have left on it."""

    def __init__(self, tree: NodeTree) -> None:
        self.tree = tree
        self.data_watches: WatchTable[Connection] = WatchTable()
        self.child_watches: WatchTable[Connection] = WatchTable()
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

    def watch(self, table: WatchTable[Connection], path: str, connection: Connection) -> None:
        """Leave a one-time watch. Errors: Refused (THROTTLED_OP)."""
        if connection not in table.by_path.get(path, ()):
            self.expect_room(connection, cost_of(path))
        table.add(path, connection)

    def watch_for_good(self, path: str, connection: Connection, mode: WatchMode) -> None:
        """Leave a persistent watch. Errors: Refused (THROTTLED_OP)."""
        self.expect_room(connection, 2 * cost_of(path))
        for table in (self.data_watches, self.child_watches):
            table.add(path, connection, mode)

    def expect_room(self, connection: Connection, more_bytes: int) -> None:
        """Refuse watches that take more memory than is left for a connection. Errors: Refused (THROTTLED_OP)."""
        tables = (self.data_watches, self.child_watches)
        held = more_bytes + sum(table.held_bytes.get(connection, 0) for table in tables)
        everything = more_bytes + sum(table.total_bytes for table in tables)
        if held > CONNECTION_WATCH_BYTES or (
            everything > ALL_WATCH_BYTES and held > LEAST_WATCH_BYTES
        ):
            raise Refused(Code.THROTTLED_OP)

    def applied(self, applied: Applied, effects: Effects) -> None:
        """Record that a request changed the tree, and notify watchers before the request is answered."""
        effects.applied.append(applied)
        self.fire(applied, effects)

    def fire(self, applied: Applied, effects: Effects) -> None:
        """Notify the watchers of changes."""
        for event, acl in zip(applied.events, applied.event_acls, strict=True):
            type_ = EVENT_TYPES[event.kind]
            told: list[Connection] = []
            if type_ is not EventType.CHILDREN_CHANGED:
                told = self.data_watches.trigger(event.path, type_)
            if type_ in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                told += self.child_watches.trigger(event.path, type_)
            if not told:
                continue
            message = encode_notification(type_, event.path)
            for connection in dict.fromkeys(told):
                try:
                    check_acl(acl, READ, connection.ids)
                except Refused:
                    continue  # no notification without permission to read the node
                effects.send(connection, message)

    def readable(self, connection: Connection, path: str | None, permission: int = READ) -> Node:
        """The node of a read request. Errors: NoNode, Refused."""
        node = self.tree.nodes.get(path or "/") if path is not None else None
        if node is None:
            raise NoNode(path or "", "no node")
        check_acl(node.acl, permission, connection.ids)
        return node
