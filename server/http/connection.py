"""One HTTP connection: its bytes through h11, one request at a time, and the response at the client's pace."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import h11

from kwire.connection import looks_like

from ..net.transport import SHOWN_BYTES
from .messages import HttpRequest, HttpResponse, Route, text
from .sites import is_of_other_site

if TYPE_CHECKING:
    from ..clock import Clock
    from ..net.log_limit import LineLimiter
    from ..net.transport import Transport
    from .hosts import AllowedHosts

logger = logging.getLogger(__name__)

#: The maximum size of the request line and headers together.
MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
BUFFER_BYTES = 4 * 1024
#: A response waits for the client while this much of it has not been sent.
MAX_UNSENT_BYTES = 256 * 1024

#: The time in which a request has to be complete, from the start of the connection or the end of the previous request.
REQUEST_MS = 10_000
#: How long a connection may be idle; Prometheus usually sends the next request within a minute.
IDLE_MS = 120_000
#: How long a client may pause while it reads a response.
STALL_MS = 10_000

#: Browsers must not guess the type of a response, and must not cache it unless it says so.
HEADERS = [("X-Content-Type-Options", "nosniff")]
NO_STORE = ("Cache-Control", "no-store")
METHODS = ("GET", "HEAD")


class HttpConnection:
    """A receiver of the transport's bytes.

    Shape: `deadline_ms` is the time at which the connection is closed unless something happens, None while a request is
    being answered. `idle` says that no part of a request has arrived since the last answer.
    """

    def __init__(
        self,
        transport: Transport,
        peer: tuple[str, int],
        routes: dict[str, Route],
        hosts: AllowedHosts,
        clock: Clock,
        on_closed: Callable[[HttpConnection], None],
        limiter: LineLimiter,
    ) -> None:
        self.transport = transport
        self.client_host = peer[0]
        self.peer = f"{peer[0]}:{peer[1]}"
        self.closed = False
        self.idle = True
        self.deadline_ms: int | None = clock.monotonic_ms() + REQUEST_MS
        self._routes = routes
        self._hosts = hosts
        self._clock = clock
        self._on_closed = on_closed
        self._limiter = limiter
        #: Of the current request.
        self._beginning = b""
        self._buffer = bytearray(BUFFER_BYTES)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._request: h11.Request | None = None
        self._body = bytearray()
        #: The task that answers the request; None between requests.
        self.task: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None

    # -- Receiver, called by the transport

    def get_buffer(self) -> memoryview | None:
        return None if self.closed or self.task is not None else memoryview(self._buffer)

    def received(self, count: int) -> None:
        if count:
            if self.idle:
                self.idle = False
                self.deadline_ms = self._clock.monotonic_ms() + REQUEST_MS
                self._beginning = bytes(self._buffer[: min(count, 16)])
            self._http.receive_data(bytes(self._buffer[:count]))
        self._process()

    def drained(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def secured(self, principal: str) -> None:
        return

    def lost(self, error: OSError | None) -> None:
        self._end()

    # -- requests

    def _process(self) -> None:
        """Start the next request, if it has arrived completely."""
        try:
            while self.task is None and not self.closed:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        self._refuse(text(417, "send the body without waiting"))
                    return
                if isinstance(event, h11.Request):
                    self._request = event
                    self._body.clear()
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > MAX_BODY_BYTES:
                        self._refuse(text(413, f"the body is longer than {MAX_BODY_BYTES} bytes"))
                elif isinstance(event, h11.EndOfMessage):
                    self._begin(self._answer())
                else:  # h11.PAUSED
                    return
        except h11.RemoteProtocolError as error:
            guess = self._looks_like()
            if guess:
                self._limiter.log(
                    logging.WARNING,
                    (guess, self.client_host),
                    "refused connection of %s: looks like %s, not HTTP (first bytes %r)",
                    *(self.peer, guess, self._beginning[:SHOWN_BYTES]),
                )
            said = f"this port serves HTTP, and this looks like {guess}" if guess else str(error)
            self._refuse(text(error.error_status_hint, said))

    def _looks_like(self) -> str:
        """The other protocol that the peer seems to speak; "" if unknown."""
        first = self._beginning
        if first[:1] == b"\0":
            return "Kafka"
        guess = looks_like(first)
        return "" if guess == "HTTP" else guess

    def _begin(self, answering: Any) -> None:
        self.deadline_ms = None
        self.idle = False
        self.transport.pause_reading()
        self.task = asyncio.get_running_loop().create_task(answering)

    def _refuse(self, response: HttpResponse) -> None:
        """Answer an incomplete or invalid request, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._begin(self._respond(response, last=True))
        else:
            self.close()

    async def _answer(self) -> None:
        event = self._request
        assert event is not None
        try:
            request = HttpRequest.of(
                event.method,
                event.target,
                list(event.headers),
                bytes(self._body),
                self.client_host,
            )
        except ValueError as error:
            await self._respond(text(400, f"the query cannot be read: {error}"))
            return
        try:
            response = await self._route(request)
        except Exception:
            logger.exception("HTTP request %s %s failed", request.method, request.path)
            response = text(500, "internal error; the broker's log says more")
        await self._respond(response)

    async def _route(self, request: HttpRequest) -> HttpResponse:
        host = request.headers.get("host", "")
        if not self._hosts.allows(host):
            return text(
                421,
                f"{host!r} is not a name of this server. If it is, add it to kwire.http.hosts",
            )
        if is_of_other_site(request.headers):
            return text(403, "the request was made by a page of another site")
        route = self._routes.get(request.path)
        if route is None:  # a path with everything below it
            route = self._routes.get(f"/{request.path[1:].partition('/')[0]}/")
            if route is None:
                known = ", ".join(self._routes)
                return text(404, f"there is nothing at {request.path}; try {known}")
        elif request.method not in METHODS:
            return HttpResponse(405, b"", headers=[("Allow", ", ".join(METHODS))])
        response = route(request)
        return await response if inspect.isawaitable(response) else response

    # -- responses

    async def _respond(self, response: HttpResponse, last: bool = False) -> None:
        """Send a response, then start the next request, or close."""
        pieces = response.body
        headers = [("Content-Type", response.content_type), *HEADERS, *response.headers]
        if not any(name.lower() == "cache-control" for name, _ in response.headers):
            headers.append(NO_STORE)
        if isinstance(pieces, bytes):
            headers.append(("Content-Length", str(len(pieces))))
        else:  # of unknown length
            headers.append(("Transfer-Encoding", "chunked"))
        if last:
            headers.append(("Connection", "close"))
        silent = self._request is not None and self._request.method == b"HEAD"
        try:
            self._send(h11.Response(status_code=response.status, headers=headers))
            if isinstance(pieces, bytes):
                if pieces and not silent:
                    self._send(h11.Data(data=pieces))
            elif not silent:
                async for piece in pieces:
                    self._send(h11.Data(data=piece))
                    await self._read_by_client()
                    if self.closed:
                        return
            self._send(h11.EndOfMessage())
        except Exception:  # a bug in kwire; sent data cannot be taken back
            logger.exception("HTTP response to %s failed", self.peer)
            self.close()
            return
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
        self._next()

    def _send(self, event: Any) -> None:
        data = self._http.send(event)
        if data and not self.closed:
            self.transport.send([data])

    async def _read_by_client(self) -> None:
        """Wait until the client has read most of the data sent to it."""
        if self.closed or self.transport.unsent_bytes <= MAX_UNSENT_BYTES:
            return
        self._room = asyncio.get_running_loop().create_future()
        self.deadline_ms = self._clock.monotonic_ms() + STALL_MS
        try:
            await self._room
        finally:
            self._room = None
            self.deadline_ms = None

    def _next(self) -> None:
        """After a response, start the next request of the connection, if one is allowed."""
        self.task = None
        if self.closed:
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._finish()
            return
        self._http.start_next_cycle()
        self.idle = True
        self.deadline_ms = self._clock.monotonic_ms() + IDLE_MS
        self._process()
        if self.get_buffer() is not None:
            self.transport.resume_reading()

    # -- the end

    def _finish(self) -> None:
        """Close when the response has been sent."""
        self.deadline_ms = self._clock.monotonic_ms() + STALL_MS
        self.idle = False
        self.transport.close_when_sent()

    def check(self, now_ms: int) -> None:
        """Close if the time limit has passed."""
        if self.deadline_ms is not None and now_ms >= self.deadline_ms:
            self.close()

    def close(self) -> None:
        """Close immediately, even if data has not been sent."""
        if not self.closed:
            self.transport.close()
            self._end()

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._on_closed(self)
