"""One listener of a broker: accepts and counts its connections, and keeps their sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..clock import Clock
from ..metadata.endpoint import Endpoint
from .connection_info import ConnectionInfo
from .dispatcher import Dispatcher
from .frame_memory import FrameMemory
from .limits import DEFAULT_QUEUED_BYTES, ConnectionQuotas, NetLimits
from .log_limit import LineLimiter
from .logins import Logins
from .output_memory import OutputMemory
from .rotation import Rotation
from .session import Session
from .transport import Transport

if TYPE_CHECKING:
    from .network import Acceptor, Address

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 1.0
#: While connections wait for memory.
SHORT_HOUSEKEEPING_S = 0.1
#: How many connections that come too fast from their address are kept until they are closed; more are closed at
#: once. Those that are kept keep their clients from connecting again.
MAX_REFUSED_KEPT = 100


class Listener:
    """Drives the connections that come to one endpoint until they are closed.

    Shape: `acceptor` is bound to `endpoint`. `memory`, `output`, `rotation` and `quotas` are shared by the
    listeners of a broker. `logins` is None if clients do not log in. `make_session` has the parameters of
    Session.
    """

    def __init__(
        self,
        acceptor: Acceptor,
        endpoint: Endpoint,
        dispatcher: Dispatcher,
        limits: NetLimits,
        clock: Clock,
        *,
        memory: FrameMemory | None = None,
        output: OutputMemory | None = None,
        rotation: Rotation | None = None,
        quotas: ConnectionQuotas | None = None,
        logins: Logins | None = None,
        make_session: Callable[..., Session] = Session,
    ) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.memory = memory or frame_memory(limits, clock)
        self.output = output or output_memory(limits, clock)
        self.rotation = rotation or Rotation()
        self.quotas = quotas or ConnectionQuotas(limits)
        #: In order of arrival.
        self.sessions: dict[Session, None] = {}
        self._acceptor = acceptor
        self._dispatcher = dispatcher
        self._logins = logins
        self._make_session = make_session
        self._clock = clock
        self._limiter = LineLimiter(logger, clock.monotonic_ms)
        self._timer: asyncio.TimerHandle | None = None
        #: Connections accepted so far, without those that were refused.
        self.accepted_count = 0
        self._idle_checked_ms = clock.monotonic_ms()
        self._emptied: asyncio.Future[None] | None = None
        #: A connection that has to wait because too many arrived recently; no other is accepted before it.
        self._held_back: tuple[Transport, asyncio.TimerHandle] | None = None
        self._refused: dict[Transport, asyncio.TimerHandle] = {}

    @property
    def port(self) -> int:
        """The port it is bound to."""
        return self.endpoint.port

    def start(self) -> None:
        """Accept connections; until then they wait."""
        self._acceptor.start(self)
        self._timer = asyncio.get_running_loop().call_later(HOUSEKEEPING_S, self._housekeeping)

    async def close(self, grace_s: float = 1.0) -> None:
        """Stop accepting, allow `grace_s` for sending the replies that are ready, then close everything."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held_back is not None:
            transport, timer = self._held_back
            timer.cancel()
            transport.close()
            self._held_back = None
        for transport, timer in self._refused.items():
            timer.cancel()
            transport.close()
        self._refused.clear()
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
        """Stop accepting and free the address; existing connections continue."""
        self._acceptor.close()

    # -- ConnectionOwner, called by the acceptor

    def may_accept(self) -> bool:
        if self._held_back is not None:
            return False
        if not self.quotas.full:
            return True
        self._limiter.log(
            logging.WARNING,
            "full",
            "%d connections (%s): new ones wait",
            self.quotas.count,
            self.quotas.reason,
        )
        return False

    def cannot_accept(self, error: OSError) -> None:
        self._limiter.log(logging.ERROR, "accept", "cannot accept: %s", error)

    def accepted(self, transport: Transport, local: Address, peer: Address) -> None:
        now_ms = self._clock.monotonic_ms()
        wait_ms = self.quotas.rates.wait_ms(self.endpoint.listener, now_ms)
        if not wait_ms:
            self._admit(transport, local, peer)
            return

        def admit() -> None:
            self._held_back = None
            self._admit(transport, local, peer)
            self._resume_accepting()

        self._held_back = transport, asyncio.get_running_loop().call_later(wait_ms / 1000, admit)
        self._limiter.log(
            logging.WARNING,
            "rate",
            "connections to listener %s arrive too fast (max.connection.creation.rate): they wait",
            self.endpoint.listener,
        )

    def _admit(self, transport: Transport, local: Address, peer: Address) -> None:
        local_host, local_port = local
        client_host, client_port = peer
        now_ms = self._clock.monotonic_ms()
        refused_ms = self.quotas.rates.refused_ms(self.endpoint.listener, client_host, now_ms)
        if refused_ms:
            self._keep_refused(transport, refused_ms)
            self._limiter.log(
                logging.WARNING,
                ("rate", client_host),
                "refused connection of %s:%d: too many from this address (connection_creation_rate)",
                client_host,
                client_port,
            )
            return
        refused = self.quotas.enter(client_host)
        if refused is not None:
            transport.close()
            self._limiter.log(
                logging.WARNING,
                ("refused", client_host),
                "refused connection of %s:%d: %s",
                client_host,
                client_port,
                refused,
            )
            return
        self.accepted_count += 1
        info = ConnectionInfo(
            f"{local_host}:{local_port}-{client_host}:{client_port}-{self.accepted_count}",
            client_host=client_host,
            client_port=client_port,
            local_host=local_host,
            local_port=local_port,
            listener=self.endpoint.listener,
            security_protocol=self.endpoint.security_protocol,
        )
        session = self._make_session(
            transport,
            info,
            self._dispatcher,
            self.memory,
            self.limits,
            self._clock,
            self._limiter,
            self._closed,
            output=self.output,
            rotation=self.rotation,
        )
        self.sessions[session] = None
        if self._logins is not None:
            self._logins.begin(session)
        transport.start(session)

    def _closed(self, session: Session) -> None:
        self.sessions.pop(session, None)
        if self._logins is not None:
            self._logins.gone(session)
        self.quotas.leave(session.info.client_host)
        self._resume_accepting()
        if self._emptied is not None and not self.sessions and not self._emptied.done():
            self._emptied.set_result(None)

    def _keep_refused(self, transport: Transport, refused_ms: int) -> None:
        """Close a connection after a time, so that its client cannot connect at once again."""
        if len(self._refused) >= MAX_REFUSED_KEPT:
            transport.close()
            return

        def close() -> None:
            del self._refused[transport]
            transport.close()

        loop = asyncio.get_running_loop()
        self._refused[transport] = loop.call_later(refused_ms / 1000, close)

    def _resume_accepting(self) -> None:
        if not self.quotas.full and self._held_back is None:
            self._acceptor.resume()

    # -- housekeeping

    def _housekeeping(self) -> None:
        pressed = self.memory.waiting
        try:
            self._keep_house(self._clock.monotonic_ms())
        except Exception:  # a bug of kwire's must not end housekeeping
            logger.exception("housekeeping of listener %s failed", self.endpoint.listener)
        pressed = pressed or self.memory.waiting
        self._timer = asyncio.get_running_loop().call_later(
            SHORT_HOUSEKEEPING_S if pressed else HOUSEKEEPING_S, self._housekeeping
        )

    def _keep_house(self, now_ms: int) -> None:
        self.memory.tick(now_ms)
        self.output.tick()
        if self._logins is not None:
            self._logins.tick(now_ms)
        if now_ms - self._idle_checked_ms >= max(1000, self.limits.idle_ms // 20):
            self._idle_checked_ms = now_ms
            for session in list(self.sessions):
                session.check_idle(now_ms)
        self._resume_accepting()


def frame_memory(limits: NetLimits, clock: Clock) -> FrameMemory:
    """Make the frame memory for these limits."""
    bound = limits.queued_max_request_bytes
    return FrameMemory(
        bound if bound > 0 else DEFAULT_QUEUED_BYTES,
        now_ms=clock.monotonic_ms(),
        stall_ms=limits.stall_ms,
        frame_timeout_ms=limits.frame_timeout_ms,
    )


def output_memory(limits: NetLimits, clock: Clock) -> OutputMemory:
    """Make the memory of unread answers for these limits."""
    return OutputMemory(limits.queued_max_response_bytes, clock.monotonic_ms)
