"""A listening socket: accepts, counts and keeps the connections of one listener."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

from ..clock import Clock
from . import platform
from .connection_info import ConnectionInfo
from .dispatcher import Dispatcher
from .frame_memory import FrameMemory
from .limits import DEFAULT_QUEUED_BYTES, ConnectionQuotas, NetLimits
from .log_limit import LineLimiter
from .session import Session
from .transport import SocketTransport, Threads, TransportFactory

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 1.0
#: While connections wait for memory.
SHORT_HOUSEKEEPING_S = 0.1
ACCEPT_AGAIN_S = 0.25
#: accept() fails with these when something is short for all of us, not for this connection.
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """Accepts connections on one address and drives them until closed.

    Shape: `host` "" or a wildcard listens on all interfaces, IPv6 too where there is any; port 0
    takes a free one, which `port` says after `bind()`. `memory` and `quotas` are shared by the
    listeners of a broker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        dispatcher: Dispatcher,
        limits: NetLimits,
        clock: Clock,
        executor: Threads,
        *,
        name: str = "PLAINTEXT",
        memory: FrameMemory | None = None,
        quotas: ConnectionQuotas | None = None,
        transport: TransportFactory = SocketTransport,
    ) -> None:
        self.host = host
        self.port = port
        self.name = name
        self.limits = limits
        self.memory = memory or frame_memory(limits, clock)
        self.quotas = quotas or ConnectionQuotas(limits)
        self.sessions: set[Session] = set()
        self._dispatcher = dispatcher
        self._clock = clock
        self._executor = executor
        self._transport = transport
        self._limiter = LineLimiter(logger, clock.monotonic_ms)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sock: socket.socket | None = None
        self._accepting = False
        self._timer: asyncio.TimerHandle | None = None
        self._accepted = 0
        self._idle_checked_ms = clock.monotonic_ms()

    def bind(self) -> None:
        """Bind and listen, so that `port` is known; connections wait until `start`.

        Errors: OSError when the address cannot be had.
        """
        self._sock = bind(self.host, self.port)
        self._sock.listen(self.limits.backlog)
        self.port = self._sock.getsockname()[1]

    async def start(self) -> None:
        """Accept connections, after `bind` if that was not done. Errors: as bind."""
        self._loop = asyncio.get_running_loop()
        if self._sock is None:
            self.bind()
        self._resume_accepting()
        self._timer = self._loop.call_later(HOUSEKEEPING_S, self._housekeeping)

    async def close(self, grace_s: float = 1.0) -> None:
        """Accept no more, let what is ready be sent for a short time, and close everything."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session in list(self.sessions):
            session.finish()
        if self.sessions:
            emptied = asyncio.get_running_loop().create_future()
            self._emptied = emptied
            try:
                await asyncio.wait_for(emptied, grace_s)
            except TimeoutError:
                pass
        for session in list(self.sessions):
            session.close("", None)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections go on."""
        self._pause_accepting()
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    # -- accepting

    _emptied: asyncio.Future[None] | None = None

    def _resume_accepting(self) -> None:
        if self._sock is not None and not self._accepting and self._loop is not None:
            self._accepting = True
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _pause_accepting(self) -> None:
        if self._accepting and self._sock is not None and self._loop is not None:
            self._accepting = False
            self._loop.remove_reader(self._sock.fileno())

    def _accept(self) -> None:
        for _ in range(self.limits.backlog):
            sock = self._sock
            if sock is None:
                return
            if self.quotas.full:
                self._limiter.log(
                    logging.WARNING,
                    "full",
                    "%d connections (%s): new ones wait",
                    self.quotas.count,
                    self.quotas.reason,
                )
                self._pause_accepting()
                return
            try:
                accepted, peer = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._limiter.log(logging.ERROR, "accept", "cannot accept: %s", error)
                if error.errno in SHORTAGES and self._loop is not None:
                    self._pause_accepting()
                    self._loop.call_later(ACCEPT_AGAIN_S, self._resume_accepting)
                return
            try:
                self._admit(accepted, peer)
            except OSError:  # it went away meanwhile
                accepted.close()

    def _admit(self, sock: socket.socket, peer: Any) -> None:
        assert self._loop is not None
        client_host = plain_host(peer[0])
        refused = self.quotas.enter(client_host)
        if refused is not None:
            sock.close()
            self._limiter.log(
                logging.WARNING,
                ("refused", client_host),
                "refused connection of %s:%d: %s",
                client_host,
                peer[1],
                refused,
            )
            return
        try:
            sock.setblocking(False)
            platform.tune(sock, self.limits.send_buffer_bytes, self.limits.receive_buffer_bytes)
            local = sock.getsockname()
        except OSError:
            self.quotas.leave(client_host)
            raise
        self._accepted += 1
        local_host = plain_host(local[0])
        info = ConnectionInfo(
            f"{local_host}:{local[1]}-{client_host}:{peer[1]}-{self._accepted}",
            client_host=client_host,
            client_port=peer[1],
            local_host=local_host,
            local_port=local[1],
            listener=self.name,
        )
        session = Session(
            self._transport(self._loop, sock, self._executor),
            info,
            self._dispatcher,
            self.memory,
            self.limits,
            self._clock,
            self._limiter,
            self._closed,
        )
        self.sessions.add(session)
        session.transport.start(session)

    def _closed(self, session: Session) -> None:
        self.sessions.discard(session)
        self.quotas.leave(session.info.client_host)
        if not self._accepting and not self.quotas.full:
            self._resume_accepting()
        if self._emptied is not None and not self.sessions and not self._emptied.done():
            self._emptied.set_result(None)

    # -- housekeeping

    def _housekeeping(self) -> None:
        assert self._loop is not None
        pressed = self.memory.waiting
        try:
            self._keep_house(self._clock.monotonic_ms())
        except Exception:  # a mistake of ours must not end housekeeping
            logger.exception("housekeeping of listener %s failed", self.name)
        pressed = pressed or self.memory.waiting
        self._timer = self._loop.call_later(
            SHORT_HOUSEKEEPING_S if pressed else HOUSEKEEPING_S, self._housekeeping
        )

    def _keep_house(self, now_ms: int) -> None:
        self.memory.tick(now_ms)
        if now_ms - self._idle_checked_ms >= max(1000, self.limits.idle_ms // 20):
            self._idle_checked_ms = now_ms
            for session in list(self.sessions):
                session.check_idle(now_ms)
        if not self._accepting and not self.quotas.full:
            self._resume_accepting()


def frame_memory(limits: NetLimits, clock: Clock) -> FrameMemory:
    """Make the frame memory that these limits ask for."""
    bound = limits.queued_max_request_bytes
    return FrameMemory(
        bound if bound > 0 else DEFAULT_QUEUED_BYTES,
        now_ms=clock.monotonic_ms(),
        stall_ms=limits.stall_ms,
        frame_timeout_ms=limits.frame_timeout_ms,
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a bound, non-blocking socket; a wildcard takes IPv4 and IPv6 where both exist."""
    if host in ("", "::", "[::]"):
        if socket.has_dualstack_ipv6():
            return open_socket(socket.AF_INET6, ("::", port), dual=True)
        host = "0.0.0.0"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    # A name that has both ("localhost") is taken at its IPv4 address, as the JVM does.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return open_socket(family, address)


def open_socket(family: int, address: Any, dual: bool = False) -> socket.socket:
    """Create and bind one listening socket. Errors: OSError, with the address in its words."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno, f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
        ) from None
    return sock


def plain_host(host: str) -> str:
    """Return an address as its owner writes it: IPv4 not wrapped in IPv6, no zone."""
    if host.startswith("::ffff:") and "." in host:
        return host[7:]
    return host.partition("%")[0]
