"""An HTTP listener whose clients are in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import h11

from server.http.hosts import AllowedHosts
from server.http.listener import HttpListener
from server.http.messages import HttpRequest, HttpResponse, Route, text
from tests.support.clock import ManualClock
from tests.support.transport import MemoryTransport

GET = b"GET /hello HTTP/1.1\r\nHost: localhost:1\r\n\r\n"


class NoAcceptor:
    """No client can connect; the test supplies connections."""

    port = 1

    def start(self, owner: Any) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def hello(request: HttpRequest) -> HttpResponse:
    return text(200, f"hello {request.query.get('name', ['nobody'])[0]}")


class Server:
    """A listener with one route, and its clock."""

    def __init__(self, **routes: Route) -> None:
        self.clock = ManualClock()
        self.listener = HttpListener(NoAcceptor(), AllowedHosts([]), self.clock)
        self.listener.routes |= {"/hello": hello}
        self.listener.routes |= {f"/{name}": route for name, route in routes.items()}

    def connect(self, room: int | None = None, host: str = "127.0.0.1") -> MemoryTransport:
        transport = MemoryTransport(room)
        self.listener.accepted(transport, ("127.0.0.1", 1), (host, 2))
        return transport

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.listener._keep_house()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def responses(transport: MemoryTransport, *methods: str) -> list[tuple[int, bytes]]:
    """The status and body of each response sent so far; `methods` are those of the requests."""
    client = h11.Connection(h11.CLIENT)
    client.receive_data(bytes(transport.sent))
    found: list[tuple[int, bytes]] = []
    for method in methods or ("GET",):
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                found.append((event.status_code, b""))
            elif isinstance(event, h11.Data):
                found[-1] = found[-1][0], found[-1][1] + bytes(event.data)
            else:
                return found
        if client.our_state is h11.DONE and client.their_state is h11.DONE:
            client.start_next_cycle()
    return found
