"""An ASGI application as a route of the HTTP listener: on the broker's loop, without its own server.

Source: ASGI 3.0, HTTP and WebSocket protocol 2.4 (a send after the client has disconnected raises OSError).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from .messages import TEXT, HttpRequest, HttpResponse, Route

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

#: The listener adds these headers.
OWN_HEADERS = (b"content-type", b"content-length", b"transfer-encoding", b"connection")


class Answering:
    """One request that an application answers, in its own task."""

    def __init__(self, application: Application, request: HttpRequest) -> None:
        self._request = request
        self._received = False
        self._gone = False
        #: One message at a time: the application waits until the client reads.
        self._messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(application))

    async def _run(self, application: Application) -> None:
        await application(scope_of(self._request), self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._end.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._gone:
            raise OSError("the client has disconnected")
        await self._messages.put(message)

    async def next(self) -> Message:
        """The application's next message. Errors: those of the application; RuntimeError if it ends without one."""
        waiting = asyncio.ensure_future(self._messages.get())
        await asyncio.wait((waiting, self.task), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if not self._messages.empty():
            return await waiting
        waiting.cancel()
        self.task.result()
        raise RuntimeError("the application ended without a complete response")

    async def pieces(self, first: bytes) -> AsyncIterator[bytes]:
        """The body of an incomplete response, beginning with `first`."""
        try:
            if first:
                yield first
            more = True
            while more:
                message = await self.next()
                more = message.get("more_body", False)
                if message.get("body"):
                    yield message["body"]
        finally:
            self.end()

    def end(self) -> None:
        """Stop the application."""
        self._gone = True
        self._end.set()
        if not self.task.done():
            self.task.cancel()


def asgi_route(application: Application) -> Route:
    """Serve an application below a path."""

    async def route(request: HttpRequest) -> HttpResponse:
        answering = Answering(application, request)
        try:
            start = await answering.next()
            body = await answering.next()
        except BaseException:
            answering.end()
            raise
        content_type = TEXT
        headers = []
        for name, value in start.get("headers", ()):
            if name.lower() == b"content-type":
                content_type = value.decode("latin-1")
            elif name.lower() not in OWN_HEADERS:
                headers.append((name.decode("latin-1"), value.decode("latin-1")))
        first = body.get("body", b"")
        if body.get("more_body", False) and request.method == "HEAD":
            answering.end()  # nobody will read the rest
        elif body.get("more_body", False):
            return HttpResponse(start["status"], answering.pieces(first), content_type, headers)
        else:
            await answering.task
        return HttpResponse(start["status"], first, content_type, headers)

    return route


def scope_of(request: HttpRequest) -> Message:
    """The ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(request.path),
        "raw_path": request.path.encode("latin-1"),
        "query_string": request.query_string.encode("latin-1"),
        "root_path": "",
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.items()
        ],
        "client": (request.client_host, 0) if request.client_host else None,
        "server": None,
    }
