"""An ASGI application answers requests of the HTTP listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from server.http.asgi import Application, asgi_route
from tests.http.client import Server, responses, turns

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def served(
    app: Application, request: bytes, *methods: str
) -> tuple[list[tuple[int, bytes]], bytes]:
    async def main() -> tuple[list[tuple[int, bytes]], bytes]:
        server = Server()
        server.listener.routes["/app/"] = asgi_route(app)
        transport = server.connect()
        transport.receive(request)
        await turns(40)
        return responses(transport, *methods), bytes(transport.sent)

    return asyncio.run(main())


def test_application_gets_the_request_and_its_response_is_sent() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.append((scope, await receive()))
        await send(
            start(201, (b"Content-Type", b"text/html"), (b"content-length", b"5"), (b"X-A", b"b"))
        )
        await send(body(b"hello"))

    request = (
        b"POST /app/a%20b?x=1&y=%C3%A4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"
    )
    answers, sent = served(app, request, "POST")
    assert answers == [(201, b"hello")]
    scope, message = seen[0]
    assert (scope["method"], scope["path"]) == ("POST", "/app/a b")
    assert scope["query_string"] == b"x=1&y=%C3%A4"
    assert (b"host", b"localhost") in scope["headers"]
    assert message == {"type": "http.request", "body": b"hi", "more_body": False}
    assert sent.lower().count(b"content-length") == 1
    assert b"x-a: b" in sent.lower()


def test_body_in_pieces_is_sent_piece_by_piece() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"one ", True))
        await send(body(b"two", True))
        await send(body(b"", False))

    answers, sent = served(app, b"GET /app/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answers == [(200, b"one two")]
    assert b"chunked" in sent


def test_failing_application_is_an_internal_error() -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise ValueError("no")

    answers, _ = served(app, b"GET /app/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answers[0][0] == 500


def test_application_that_streams_ends_when_its_client_has_gone() -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        try:
            while True:
                await send(body(b"x", True))
                await asyncio.sleep(0)
        finally:
            ended.append("yes")

    async def main() -> None:
        server = Server()
        server.listener.routes["/app/"] = asgi_route(app)
        transport = server.connect()
        transport.receive(b"GET /app/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await turns(40)
        (connection,) = server.listener.connections
        connection.lost(None)
        await turns(40)

    asyncio.run(main())
    assert ended == ["yes"]


def test_page_of_another_name_is_refused_before_the_application() -> None:
    """DNS rebinding: a name that a stranger resolves to this machine is not a name of this server."""

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise AssertionError("asked")

    answers, _ = served(app, b"GET /app/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert answers[0][0] == 421


def test_application_that_streams_ends_after_the_head_that_was_asked_for() -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        try:
            while True:
                await send(body(b"x", True))
                await asyncio.sleep(0)
        finally:
            ended.append("yes")

    async def main() -> None:
        server = Server()
        server.listener.routes["/app/"] = asgi_route(app)
        transport = server.connect()
        transport.receive(b"HEAD /app/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await turns(40)
        assert responses(transport, "HEAD") == [(200, b"")]
        assert ended == ["yes"]

    asyncio.run(main())
