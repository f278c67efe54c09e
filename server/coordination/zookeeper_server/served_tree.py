"""The tree as clients see it: permission to read a node, and notifications of changes; pure."""

from __future__ import annotations

from ..acl import READ
from ..store import EventKind, NoNode
from ..tree import Applied, Node, NodeTree
from .access import Refused, check_acl
from .connection import Connection, Effects
from .records import NOTIFICATION_XID, SYNC_CONNECTED, EventType, ReplyHeader, WatcherEvent, encode
from .watches import WatchTable

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
            for connection in dict.fromkeys(told):
                try:
                    check_acl(acl, READ, connection.ids)
                except Refused:
                    continue  # no notification without permission to read the node
                self.notify(connection, type_, event.path, effects)

    def notify(self, connection: Connection, type_: EventType, path: str, effects: Effects) -> None:
        """Send one event."""
        header = ReplyHeader(NOTIFICATION_XID, -1, 0)
        effects.send(connection, encode(header, WatcherEvent(type_, SYNC_CONNECTED, path)))

    def readable(self, connection: Connection, path: str | None, permission: int = READ) -> Node:
        """The node of a read request. Errors: NoNode, Refused."""
        node = self.tree.nodes.get(path or "/") if path is not None else None
        if node is None:
            raise NoNode(path or "", "no node")
        check_acl(node.acl, permission, connection.ids)
        return node
