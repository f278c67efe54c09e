"""The server's sockets: frames go to the machine, its effects to the file, then its frames to the clients.

Frames from the machine wait until everything that they may report is durable, and are sent in the machine's order
across all connections: no client learns of a write that a crash could undo.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import secrets
import socket
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ...clock import SystemClock, cpu_us
from ..embedded import EmbeddedTree
from .connection import Effects, Now, ZookeeperConnection
from .machine import DEFAULT_LIMITS, Machine, SessionTimeoutLimits
from .rotation import RequestRotation
from .words import WORDS, ProcessFacts, answer, refusal

if TYPE_CHECKING:
    from ...clock import Clock
    from ..embedded import WriteGroup
    from ..store import StoreClosed
    from ..tree import Applied

logger = logging.getLogger(__name__)

#: The largest message; a longer one closes the connection. Source: jute.maxbuffer.
MAX_MESSAGE_BYTES = 0xFFFFF
#: If the clock jumps by more than this, sessions are not ended: the server itself was stopped, and messages from
#: clients are still unread.
LATE_MS = 500
#: How long a new connection may stay silent. Source: NIOServerCnxnFactory.sessionlessCnxnTimeout.
SESSIONLESS_S = 10.0
#: The maximum number of connections of one address. Source: maxClientCnxns.
MAX_CLIENT_CONNECTIONS = 60
#: The size of one client's replies that may wait for a commit before no more of its requests are handled.
MAX_HELD_BYTES = 256 << 10
#: What a waiting reply takes besides its bytes.
FRAME_BYTES = 150
#: The size of what all clients have not read; beyond it, the client that has not read the most is disconnected.
MAX_UNSENT_BYTES = 64 << 20
#: How long the client of a closed connection may go on reading.
CLOSING_S = 10.0


class ServerSettings(NamedTuple):
    """The settings of a server."""

    host: str = "127.0.0.1"
    port: int = 2181
    limits: SessionTimeoutLimits = DEFAULT_LIMITS
    words: frozenset[str] = frozenset(WORDS)
    #: 0 for any number.
    max_client_connections: int = MAX_CLIENT_CONNECTIONS


class Held:
    """Frames that wait for the same commit."""

    __slots__ = ("arrived_ms", "frames", "group")

    def __init__(self, group: WriteGroup, arrived_ms: int) -> None:
        self.group = group
        self.arrived_ms = arrived_ms
        self.frames: list[tuple[ZookeeperConnection, bytes | None]] = []


class Latency:
    """The time that replies took, in ms."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.least_ms = 0
        self.most_ms = 0

    def add(self, took_ms: int, count: int) -> None:
        """Add replies that took this long."""
        self.least_ms = min(self.least_ms, took_ms) if self.count else took_ms
        self.most_ms = max(self.most_ms, took_ms)
        self.count += count
        self.total_ms += took_ms * count

    def summary(self) -> tuple[int, float, int]:
        """Minimum, mean, maximum."""
        mean = self.total_ms / self.count if self.count else 0.0
        return self.least_ms, mean, self.most_ms


class ZooKeeperServer:
    """Serves an embedded tree to ZooKeeper's clients."""

    def __init__(self, tree: EmbeddedTree, clock: Clock, settings: ServerSettings) -> None:
        self._tree = tree
        self.clock = clock
        self.settings = settings
        self._loop = asyncio.get_running_loop()
        self.machine = Machine(
            tree.tree,
            self.now(),
            new_session_id=tree.next_session_id,
            new_password=lambda: secrets.token_bytes(16),
            limits=settings.limits,
        )
        self.rotation = RequestRotation(
            self._loop, cpu_us if isinstance(clock, SystemClock) else clock.monotonic_us
        )
        self.started = self.now()
        self.latency = Latency()
        self.received = 0
        self.sent = 0
        self.protocols: dict[ZookeeperConnection, ClientProtocol] = {}
        self.slow_readers: set[ClientProtocol] = set()
        self._connections_from: Counter[str] = Counter()
        self._held: deque[Held] = deque()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_at_ms = 0
        self._tick_postponed = False
        self._data: Path | None = None
        #: Resolved with the reason when the server cannot continue.
        self.failed: asyncio.Future[StoreClosed] = self._loop.create_future()
        tree.observer = self._observe
        tree.on_failure = self._fail

    @classmethod
    async def open(
        cls,
        path: Path | None,
        clock: Clock,
        settings: ServerSettings = ServerSettings(),  # noqa: B008 - a value
    ) -> ZooKeeperServer:
        """Open the store file and serve it. Errors: StoreClosed, OSError (address in use)."""
        tree = await EmbeddedTree.open(path, clock, keep_sessions=True)
        server = cls(tree, clock, settings)
        server._data = path
        try:
            await server.start()
        except BaseException:
            await server.close()
            raise
        return server

    async def start(self) -> None:
        """Accept connections. Errors: OSError."""
        self._carry_out(self.machine.prepare())
        host, port = self.settings.host, self.settings.port
        # A name may have several addresses, each of which would get another free port.
        family = socket.AF_INET if port == 0 and ":" not in host else socket.AF_UNSPEC
        self._server = await self._loop.create_server(
            lambda: ClientProtocol(self), host or None, port, family=family
        )
        self._plan_tick()

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def now(self) -> Now:
        """The time, from both clocks."""
        return Now(self.clock.now_ms(), self.clock.monotonic_ms())

    def end_owner(self, path: str) -> None:
        """End the session that owns a node, for a caller that knows that the session's client is dead."""
        self._carry_out(self.machine.end_owner(path, self.now()))

    async def close(self) -> None:
        """Close all connections and the file; the sessions remain in the file."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for protocol in list(self.protocols.values()):
            protocol.close()
        self._tree.observer = None
        await self._tree.close()

    # From the clients

    def connection_made(self, protocol: ClientProtocol, port: int) -> ZookeeperConnection | None:
        """Handle a new client; None if its address has too many connections."""
        host, limit = protocol.client_host, self.settings.max_client_connections
        if 0 < limit <= self._connections_from[host]:
            logger.debug("too many connections from %s; the limit is %d", host, limit)
            return None
        self._connections_from[host] += 1
        connection = self.machine.connected(host, port, self.now())
        self.protocols[connection] = protocol
        return connection

    def connection_lost(self, connection: ZookeeperConnection) -> None:
        """Handle a lost client."""
        protocol = self.protocols.pop(connection)
        self.slow_readers.discard(protocol)
        self._connections_from[protocol.client_host] -= 1
        if not self._connections_from[protocol.client_host]:
            del self._connections_from[protocol.client_host]
        self.machine.disconnected(connection)
        self._tick_earlier()

    def message(self, connection: ZookeeperConnection, message: bytes | None) -> None:
        """Handle a message, or the next step of the last one if it is unfinished."""
        try:
            if message is None:
                effects = self.machine.go_on(connection, self.now())
            else:
                self.received += 1
                effects = self.machine.received(connection, message, self.now())
        except Exception:  # a bug in kwire must not end the other sessions
            logger.exception("request %s failed", (message or b"")[:1000].hex())
            self.protocols[connection].transport.abort()
            return
        self._carry_out(effects)

    def word(self, word: str) -> str | None:
        """The answer to a four-letter word; None for anything else."""
        if word not in WORDS:
            return None
        if word not in self.settings.words:
            return refusal(word)
        limits = self.settings.limits
        facts = ProcessFacts(
            program="kwire",
            started=self.started,
            latency=self.latency.summary(),
            received=self.received,
            sent=self.sent,
            outstanding=sum(len(held.frames) for held in self._held),
            settings={
                "clientPort": self.port,
                "dataDir": "" if self._data is None else self._data.parent,
                "minSessionTimeout": limits.min_timeout_ms,
                "maxSessionTimeout": limits.max_timeout_ms,
                "maxClientCnxns": self.settings.max_client_connections,
                "serverId": 0,
            },
            environment={
                "host.name": platform.node(),
                "os.name": platform.system(),
                "os.version": platform.release(),
                "python.version": platform.python_version(),
                "user.dir": str(Path.cwd()),
                "process.id": str(os.getpid()),
            },
        )
        return answer(word, self.machine, facts, self.now())

    # To the clients

    def _observe(self, applied: Applied) -> None:
        self._carry_out(self.machine.observe(applied))

    def _carry_out(self, effects: Effects) -> None:
        for applied in effects.applied:
            self._tree.take(applied)
        if effects.frames:
            group = self._tree.pending
            if group is None:
                self._send(effects.frames)
                self.latency.add(0, 1)
            else:
                self._hold(group, effects.frames)
        self.sent += effects.sent
        self._tick_earlier()

    def _hold(
        self, group: WriteGroup, frames: list[tuple[ZookeeperConnection, bytes | None]]
    ) -> None:
        if not self._held or self._held[-1].group is not group:
            held = Held(group, self.clock.monotonic_ms())
            self._held.append(held)
            group.after.append(self._committed)
        self._held[-1].frames += frames
        for connection, message in frames:
            protocol = self.protocols.get(connection)
            if protocol is not None and message is not None:
                protocol.held_bytes += FRAME_BYTES + len(message)

    def _committed(self, failure: StoreClosed | None) -> None:
        if failure is not None:
            return  # do not report changes that cannot be made durable
        held = self._held.popleft()
        self.latency.add(self.clock.monotonic_ms() - held.arrived_ms, len(held.frames))
        self._send(held.frames)
        released: dict[ClientProtocol, None] = {}
        for connection, message in held.frames:
            protocol = self.protocols.get(connection)
            if protocol is not None and message is not None:
                protocol.held_bytes -= FRAME_BYTES + len(message)
                released[protocol] = None
        for protocol in released:
            protocol.go_on()

    def _send(self, frames: list[tuple[ZookeeperConnection, bytes | None]]) -> None:
        out: dict[ZookeeperConnection, list[bytes]] = {}
        closing: list[ZookeeperConnection] = []
        for connection, message in frames:
            if message is None:
                closing.append(connection)
                continue
            out.setdefault(connection, []).append(message)
        for connection, parts in out.items():
            protocol = self.protocols.get(connection)
            if protocol is not None:
                protocol.transport.write(b"".join(parts))
        self._drop_slowest_reader()
        for connection in closing:
            protocol = self.protocols.get(connection)
            if protocol is not None:
                protocol.close()

    def _drop_slowest_reader(self) -> None:
        """Disconnect the client with the most unread bytes if those of all clients are too many."""
        slow = self.slow_readers
        if slow and sum(protocol.unsent_bytes for protocol in slow) > MAX_UNSENT_BYTES:
            slowest = max(slow, key=lambda protocol: protocol.unsent_bytes)
            unread = slowest.unsent_bytes
            logger.warning(
                "closing a connection of %s with %d unread bytes", slowest.client_host, unread
            )
            slow.discard(slowest)
            slowest.transport.abort()

    def _fail(self, failure: StoreClosed) -> None:
        for protocol in list(self.protocols.values()):
            protocol.transport.abort()
        if not self.failed.done():
            self.failed.set_result(failure)

    # Time

    def _tick_earlier(self) -> None:
        """Plan the next tick again if it is due earlier by now."""
        if self._timer is not None and self.machine.next_tick_ms() < self._tick_at_ms:
            self._plan_tick()

    def _plan_tick(self, at_ms: int | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self.clock.monotonic_ms()
        at_ms = max(self.machine.next_tick_ms() if at_ms is None else at_ms, now_ms)
        self._tick_at_ms = at_ms
        wait_ms = max(at_ms - now_ms, 1)
        self._timer = self._loop.call_later(wait_ms / 1000, self._tick, at_ms)

    def _tick(self, due_ms: int) -> None:
        now = self.now()
        if now.monotonic_ms - due_ms > LATE_MS and not self._tick_postponed:
            self._tick_postponed = True
            self._plan_tick(now.monotonic_ms + LATE_MS)
            return
        self._tick_postponed = False
        self._carry_out(self.machine.tick(now))
        self._plan_tick()


class ClientProtocol(asyncio.Protocol):
    """One client's socket: splits frames, and handles them in turns with those of other clients.

    Nothing is read or handled while the client does not read its replies, or while many of them wait for a commit.
    """

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._begun = False
        self._queued = False
        self.cost_us = 0.0
        self._writing_paused = False
        self._connection: ZookeeperConnection | None = None
        self.client_host = ""
        #: The size of the replies that wait for a commit.
        self.held_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("", 0)
        self.client_host = address[0].removeprefix("::ffff:")
        self._connection = self._server.connection_made(self, address[1])
        if self._connection is None:
            self.transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._sessionless = loop.call_later(SESSIONLESS_S, self._close_without_session)

    def _close_without_session(self) -> None:
        if self._connection is not None and not self._connection.session_id:
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        if self._connection is None:
            return
        self._sessionless.cancel()
        self._server.connection_lost(self._connection)

    def close(self) -> None:
        """Close the connection after everything written so far, which a client may read for a while only."""
        self.transport.close()
        if self.unsent_bytes:
            asyncio.get_running_loop().call_later(CLOSING_S, self.transport.abort)

    @property
    def unsent_bytes(self) -> int:
        """The size of what the client has not read."""
        return self.transport.get_write_buffer_size()

    @property
    def _unfinished(self) -> bool:
        """Whether a request was handled only in part."""
        return self._connection is not None and self._connection.unfinished is not None

    @property
    def _blocked(self) -> bool:
        return self._writing_paused or self.held_bytes > MAX_HELD_BYTES

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._server.slow_readers.add(self)

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._server.slow_readers.discard(self)
        self.go_on()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self.go_on()

    def go_on(self) -> None:
        """Queue the frames that have arrived, unless they are queued already or have to wait."""
        if self.transport.is_closing():
            return
        if self._queued or self._blocked:
            self.transport.pause_reading()
        elif self._unfinished or self._has_frame():
            self._queued = True
            self._server.rotation.add(self)
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def handle_next(self) -> bool:
        """Handle one frame; False if there is no further one that can be handled now."""
        if self._may_handle():
            self._handle()
        if self._may_handle():
            return True
        self._queued = False
        self.go_on()
        return False

    def _may_handle(self) -> bool:
        return (
            not self.transport.is_closing()
            and not self._blocked
            and (self._unfinished or self._has_frame())
        )

    def _has_frame(self) -> bool:
        """Whether something can be handled: a word, a whole frame, or a wrong size."""
        if len(self._buffer) < 4:
            return False
        size = self._size()
        return (
            not self._begun or not 0 <= size <= MAX_MESSAGE_BYTES or len(self._buffer) >= 4 + size
        )

    def _size(self) -> int:
        return int.from_bytes(self._buffer[:4], "big", signed=True)

    def _handle(self) -> None:
        assert self._connection is not None
        if self._unfinished:
            self._server.message(self._connection, None)
            return
        buffer = self._buffer
        if not self._begun:
            self._begun = True
            word = self._server.word(bytes(buffer[:4]).decode("latin-1"))
            if word is not None:
                self.transport.write(word.encode())
                self.close()
            return
        size = self._size()
        if not 0 <= size <= MAX_MESSAGE_BYTES:
            logger.warning("closing a connection that announced a message of %d bytes", size)
            self.close()
            return
        message = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        self._server.message(self._connection, message)
