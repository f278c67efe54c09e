"""The HTTP listener: accepts connections on the broker's loop, and limits their number and duration."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from ..net.log_limit import LineLimiter
from .connection import HttpConnection
from .messages import Route

if TYPE_CHECKING:
    from ..clock import Clock
    from ..net.network import Acceptor, Address
    from ..net.transport import Transport
    from .hosts import AllowedHosts

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
HOUSEKEEPING_S = 1.0


class HttpListener:
    """Serves `routes`, by path.

    Shape: a path `/name/` includes everything below it, with all methods. Routes may be added while it serves.
    """

    def __init__(self, acceptor: Acceptor, hosts: AllowedHosts, clock: Clock) -> None:
        self.routes: dict[str, Route] = {}
        #: In order of arrival.
        self.connections: dict[HttpConnection, None] = {}
        self._acceptor = acceptor
        self._hosts = hosts
        self._clock = clock
        self._limiter = LineLimiter(logger, clock.monotonic_ms)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that it is bound to."""
        return self._acceptor.port

    def start(self) -> None:
        """Accept connections."""
        self._acceptor.start(self)

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        self._acceptor.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [each.task for each in self.connections if each.task is not None]
        for connection in list(self.connections):
            connection.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- ConnectionOwner, called by the acceptor

    def may_accept(self) -> bool:
        return True  # silent clients are closed, so that a probe need not wait for them

    def cannot_accept(self, error: OSError) -> None:
        logger.error("cannot accept an HTTP connection: %s", error)

    def accepted(self, transport: Transport, local: Address, peer: Address) -> None:
        if len(self.connections) >= MAX_CONNECTIONS and not self._make_room(peer[0]):
            transport.close()
            return
        connection = HttpConnection(
            transport,
            peer,
            self.routes,
            self._hosts,
            self._clock,
            self._closed,
            self._limiter,
        )
        self.connections[connection] = None
        transport.start(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOUSEKEEPING_S, self._keep_house)

    def _make_room(self, client_host: str) -> bool:
        """Close a connection for a new one, if there is one that may be closed.

        Shape: one of the address that has most connections, the oldest without a request in progress, if there is one.
        A connection with a request, or of another address, is not closed for an address that has no fewer.
        """
        of_host = Counter(each.client_host for each in self.connections)
        idle = [each for each in self.connections if each.deadline_ms is not None]
        worst = max(idle or self.connections, key=lambda each: of_host[each.client_host])
        is_own = worst.client_host == client_host
        if of_host[worst.client_host] <= of_host[client_host] and not (idle and is_own):
            return False
        worst.close()
        return True

    def _closed(self, connection: HttpConnection) -> None:
        self.connections.pop(connection, None)

    def _keep_house(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for connection in list(self.connections):
            connection.check(now_ms)
        if self.connections:
            self._timer = asyncio.get_running_loop().call_later(HOUSEKEEPING_S, self._keep_house)
