"""A ZooKeeper server's handling of each frame: connections, sessions, watches; pure.

No function here waits, reads a clock or uses a socket. Each call returns `Effects`: the changes to the tree, and the
frames to send, in order, once the changes are durable. Source: ZooKeeper 3.8, standalone: ZooKeeperServer,
PrepRequestProcessor, FinalRequestProcessor, SessionTrackerImpl, DataTree.

Omitted: SASL (answered like a server without it), quotas (their nodes can be created, but limit nothing), nodes with a
time to live (UNIMPLEMENTED, the default), reconfiguration (refused, the default).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from ..store import StoreError, parent_of
from ..tree import CONTAINER, Applied, NodeTree, StoredSession, delete_ops
from . import requests
from .access import MAX_IDS, AccessRefused, authenticate
from .connection import AwaitedMessage, Effects, Now, Unfinished, ZookeeperConnection
from .jute import JuteError, JuteReader, read_boolean
from .records import (
    REQUESTS,
    AuthPacket,
    Code,
    ConnectRequest,
    ConnectResponse,
    OpCode,
    ReplyHeader,
    RequestHeader,
    TokenRecord,
    decode,
    encode,
)
from .served_tree import ServedTree

#: The interval at which containers without children are deleted. Source: znode.container.checkIntervalMs.
CONTAINER_CHECK_MS = 60_000
#: The maximum number of sessions begun from one address, with or without a connection. A real server has no such limit,
#: and keeps the sessions of clients that connect, leave and connect again until each has timed out.
MAX_SESSIONS = 10_000
#: The number of sessions that a tick looks at; the next tick follows immediately.
SESSIONS_IN_TICK = 500
#: The number of ephemeral nodes of ended sessions that are deleted at once; the next tick follows immediately.
DELETES_IN_TICK = 1000
NO_PASSWORD = bytes(16)


class SessionTimeoutLimits(NamedTuple):
    """The limits within which a session's timeout is negotiated."""

    min_timeout_ms: int = 4_000
    max_timeout_ms: int = 40_000


DEFAULT_LIMITS = SessionTimeoutLimits()


class LiveSession:
    """The part of a session that is known only while the process lives."""

    __slots__ = ("address", "connection", "deadline_ms", "look_ms", "timeout_ms")

    def __init__(self, timeout_ms: int, now: Now, address: str = "") -> None:
        self.timeout_ms = timeout_ms
        self.address = address  # of the client that began it; "" for a stored session
        self.connection: ZookeeperConnection | None = None
        self.deadline_ms = 0
        self.heard(now)
        #: When to look whether it is over; not after its deadline.
        self.look_ms = self.deadline_ms

    def heard(self, now: Now) -> None:
        """Note a sign of life from its client."""
        self.deadline_ms = now.monotonic_ms + self.timeout_ms


class EndedSession(NamedTuple):
    """A session that has ended and still has nodes. Shape: `xid` is that of the client's request, None for a timeout."""

    session_id: int
    connection: ZookeeperConnection | None
    xid: int | None


class Machine:
    """The server: one tree, its sessions and the connections of its clients."""

    def __init__(
        self,
        tree: NodeTree,
        now: Now,
        *,
        new_session_id: Callable[[], int],
        new_password: Callable[[], bytes],
        limits: SessionTimeoutLimits = DEFAULT_LIMITS,
    ) -> None:
        self.tree = tree
        self.limits = limits
        self._new_session_id = new_session_id
        self._new_password = new_password
        self.connections: dict[ZookeeperConnection, None] = {}
        # A stored session gets its full timeout for its client to come back.
        self.sessions = {
            session_id: LiveSession(session.timeout_ms, now)
            for session_id, session in tree.sessions.items()
        }
        # By `look_ms`; an entry that differs from it counts no longer.
        self._looks = [(live.look_ms, session_id) for session_id, live in self.sessions.items()]
        heapify(self._looks)
        self._sessions_from: Counter[str] = Counter()
        self._ended: deque[EndedSession] = deque()
        self.served = ServedTree(tree)
        self._containers_at_ms = now.monotonic_ms + CONTAINER_CHECK_MS

    def prepare(self) -> Effects:
        """Create ZooKeeper's own nodes if they are missing.

        They are not counted: the Stat of a fresh root has a cversion of -1, as in ZooKeeper.
        """
        effects = Effects()
        applied = Applied()
        for path in ("/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
            if path not in self.tree.nodes:
                parent = self.tree.node(parent_of(path))
                self.tree.link(path, requests.own_node(path))
                parent.children = (parent.children or set()) | {path[path.rindex("/") + 1 :]}
                applied.touched.add(path)
        effects.applied.append(applied)
        return effects

    # Connections

    def connected(self, address: str, port: int, now: Now) -> ZookeeperConnection:
        """Handle a new client connection."""
        connection = ZookeeperConnection(address, port, now)
        self.connections[connection] = None
        return connection

    def disconnected(self, connection: ZookeeperConnection) -> None:
        """Handle a lost connection; its session may continue."""
        connection.stage = AwaitedMessage.CLOSED
        self.connections.pop(connection, None)
        connection.unfinished = None
        self.served.leave(connection)
        session = self.sessions.get(connection.session_id)
        if session is not None and session.connection is connection:
            session.connection = None

    def received(self, connection: ZookeeperConnection, message: bytes, now: Now) -> Effects:
        """Handle a complete message."""
        effects = Effects()
        connection.received += 1
        try:
            if connection.stage is AwaitedMessage.NEW:
                self._connect(connection, JuteReader(message), now, effects)
            elif connection.stage is AwaitedMessage.OPEN:
                self._request(connection, JuteReader(message), now, effects)
        except JuteError:  # in a header; there is no xid to answer
            effects.close(connection)
        return effects

    def go_on(self, connection: ZookeeperConnection, now: Now) -> Effects:
        """Handle the next step of the connection's unfinished request."""
        effects = Effects()
        unfinished = connection.unfinished
        if unfinished is not None and connection.stage is AwaitedMessage.OPEN:
            xid, opcode, steps = unfinished
            self._handle(connection, xid, opcode, steps, now, effects)
        return effects

    def observe(self, applied: Applied) -> Effects:
        """Notify watchers of a change to the tree that another writer made."""
        effects = Effects()
        self.served.fire(applied, effects)
        return effects

    # Sessions

    def _connect(
        self, connection: ZookeeperConnection, reader: JuteReader, now: Now, effects: Effects
    ) -> None:
        request = decode(ConnectRequest, reader)
        # Clients before 3.4 do not say whether they accept a read-only server, and their reply has no such field.
        read_only_flag = not reader.at_end()
        if read_only_flag:
            read_boolean(reader)
        if request.last_zxid_seen > self.tree.zxid:
            effects.close(connection)  # it has seen a newer tree than this one
            return
        low, high = self.limits
        timeout_ms = min(max(request.timeout_ms, low), high)
        session_id = request.session_id
        if session_id == 0:
            if self._sessions_from[connection.address] >= MAX_SESSIONS:
                effects.close(connection)
                return
            session_id = self._new_session_id()
            session = StoredSession(timeout_ms, self._new_password())
            begun = LiveSession(timeout_ms, now, connection.address)
            self.sessions[session_id] = begun
            self._sessions_from[connection.address] += 1
            self._look_later(session_id, begun)
            effects.applied.append(self.tree.open_session(session_id, session))
        live = self.sessions.get(session_id)
        stored = self.tree.sessions.get(session_id)
        if live is None or stored is None:
            self._refuse_session(connection, read_only_flag, effects)
            return
        if request.session_id and request.password != stored.password:
            self._refuse_session(connection, read_only_flag, effects)
            return
        if live.connection is not None:
            effects.close(live.connection)  # closed by the client
            self.disconnected(live.connection)
        if timeout_ms != stored.timeout_ms:
            renewed = StoredSession(timeout_ms, stored.password)
            effects.applied.append(self.tree.open_session(session_id, renewed))
        live.timeout_ms = timeout_ms
        live.heard(now)
        if live.deadline_ms < live.look_ms:
            self._look_later(session_id, live)
        live.connection = connection
        connection.session_id = session_id
        connection.stage = AwaitedMessage.OPEN
        response = ConnectResponse(0, timeout_ms, session_id, stored.password)
        effects.send(connection, encode(response) + (b"\0" if read_only_flag else b""))

    def _look_later(self, session_id: int, live: LiveSession) -> None:
        live.look_ms = live.deadline_ms
        heappush(self._looks, (live.look_ms, session_id))

    def _refuse_session(
        self, connection: ZookeeperConnection, read_only_flag: bool, effects: Effects
    ) -> None:
        response = ConnectResponse(0, 0, 0, NO_PASSWORD)
        effects.send(connection, encode(response) + (b"\0" if read_only_flag else b""))
        effects.close(connection)

    def _end_session(
        self, session_id: int, now: Now, effects: Effects, xid: int | None = None
    ) -> int:
        """End a session; return the number of deleted nodes. If there are more, the rest follows in the next ticks.

        Its connection is closed at the end, after the reply to the client's request with this `xid`. A real server deletes them in one transaction. The session is stored until the last one is deleted, so that
        those which remain after a crash end with it.
        """
        live = self.sessions.pop(session_id)
        self._sessions_from[live.address] -= 1
        if self._sessions_from[live.address] <= 0:
            del self._sessions_from[live.address]
        if live.connection is not None:
            live.connection.stage = AwaitedMessage.ENDING
            live.connection.unfinished = None
        return self._go_on_ending(
            EndedSession(session_id, live.connection, xid), DELETES_IN_TICK, now, effects
        )

    def _go_on_ending(self, ended: EndedSession, deletes: int, now: Now, effects: Effects) -> int:
        """Delete so many nodes of an ended session; return their number. The rest follows in the next ticks."""
        session_id, connection, xid = ended
        paths = self.tree.owned_by(session_id, deletes)
        last = len(paths) == len(self.tree.ephemerals.get(session_id, ()))
        if last:
            applied = self.tree.close_session(session_id, now.wall_ms)
        else:
            applied = self.tree.apply(delete_ops(paths), 0, now.wall_ms)
            self._ended.append(ended)
        effects.applied.append(applied)
        self.served.fire(applied, effects)
        if last and connection is not None:
            if xid is not None:
                effects.send(connection, encode(ReplyHeader(xid, self.tree.zxid, 0)))
            effects.close(connection)
        return len(paths)

    def end_owner(self, path: str, now: Now) -> Effects:
        """End the session that owns a node, unless its client is connected."""
        effects = Effects()
        node = self.tree.nodes.get(path)
        session = None if node is None else self.sessions.get(node.owner)
        if node is not None and session is not None and session.connection is None:
            self._end_session(node.owner, now, effects)
        return effects

    def next_tick_ms(self) -> int:
        """The earliest time at which `tick` has work; on the monotonic clock."""
        if self._ended or self.served.untidy:
            return 0
        return min(
            self._looks[0][0] if self._looks else self._containers_at_ms, self._containers_at_ms
        )

    def tick(self, now: Now) -> Effects:
        """End the sessions of silent clients and, at intervals, delete empty containers.

        Also continue what very many nodes of a session, or watches of a connection, have left to do.
        """
        effects = Effects()
        looks = self._looks
        self.served.tidy()
        deletes = DELETES_IN_TICK
        if self._ended:
            deletes -= self._go_on_ending(self._ended.popleft(), deletes, now, effects)
        for _ in range(SESSIONS_IN_TICK):
            if not looks or looks[0][0] > now.monotonic_ms or deletes <= 0:
                break
            look_ms, session_id = heappop(looks)
            session = self.sessions.get(session_id)
            if session is None or session.look_ms != look_ms:
                continue
            if session.deadline_ms > now.monotonic_ms:  # its client was heard since
                self._look_later(session_id, session)
                continue
            deletes -= self._end_session(session_id, now, effects)
        if now.monotonic_ms >= self._containers_at_ms:
            self._containers_at_ms = now.monotonic_ms + CONTAINER_CHECK_MS
            self._delete_containers(now, effects)
        return effects

    def _delete_containers(self, now: Now, effects: Effects) -> None:
        empty = [
            path
            for path, node in self.tree.nodes.items()
            if node.owner == CONTAINER and node.creates and not node.children
        ]
        if empty:
            applied = self.tree.apply(delete_ops(empty), 0, now.wall_ms)
            effects.applied.append(applied)
            self.served.fire(applied, effects)

    # Requests

    def _request(
        self, connection: ZookeeperConnection, reader: JuteReader, now: Now, effects: Effects
    ) -> None:
        xid, opcode = decode(RequestHeader, reader)
        live = self.sessions[connection.session_id]
        live.heard(now)
        connection.last_xid, connection.last_opcode = xid, opcode
        if opcode == OpCode.AUTH:
            self._authenticate(connection, xid, reader, effects)
            return
        if opcode == OpCode.SASL:
            decode(TokenRecord, reader)
            effects.send(connection, encode(ReplyHeader(xid, 0, 0), TokenRecord(None)))
            return
        if opcode == OpCode.CLOSE_SESSION:
            self._end_session(connection.session_id, now, effects, xid)
            return
        if opcode not in requests.HANDLERS:
            effects.send(connection, encode(ReplyHeader(xid, -1, Code.UNIMPLEMENTED)))
            effects.close(connection)
            return
        self._handle(connection, xid, opcode, reader, now, effects)

    def _handle(
        self,
        connection: ZookeeperConnection,
        xid: int,
        opcode: int,
        work: JuteReader | requests.Steps,
        now: Now,
        effects: Effects,
    ) -> None:
        """Begin a request, or handle its next step, and answer it unless there are further steps."""
        connection.unfinished = None
        call = requests.Call(self.served, connection, opcode, now, effects)
        err, body = Code.OK, b""
        try:
            if isinstance(work, JuteReader):
                record: Any = work
                if opcode in REQUESTS:
                    record = decode(REQUESTS[opcode], work)
                handled = requests.HANDLERS[opcode](call, record)
                if isinstance(handled, bytes):
                    body = handled
                else:
                    next(handled)
                    connection.unfinished = Unfinished(xid, opcode, handled)
                    return
            else:
                work.send(call)
                connection.unfinished = Unfinished(xid, opcode, work)
                return
        except StopIteration as done:
            body = done.value
        except JuteError:
            err = Code.MARSHALLING_ERROR
            self.tree.zxid += opcode in requests.WRITES
        except StoreError as error:
            err = requests.code_of(error)
            if err == Code.THROTTLED_OP and opcode in requests.SETTING_WATCHES:
                effects.close(connection)  # else its client would wait for events that never come
                return
        connection.last_zxid = self.tree.zxid
        effects.send(connection, encode(ReplyHeader(xid, self.tree.zxid, err)) + body)

    def _authenticate(
        self, connection: ZookeeperConnection, xid: int, reader: JuteReader, effects: Effects
    ) -> None:
        packet = decode(AuthPacket, reader)
        try:
            id_ = authenticate(packet.scheme, packet.auth, connection.address)
            if id_ not in connection.ids and len(connection.ids) >= MAX_IDS:
                raise AccessRefused(Code.AUTH_FAILED)
        except AccessRefused as refused:
            effects.send(connection, encode(ReplyHeader(xid, 0, refused.code)))
            effects.close(connection)
            return
        connection.ids[id_] = None
        effects.send(connection, encode(ReplyHeader(xid, 0, 0)))
