"""The common parts of all pages: navigation, headers, error pages, and events for live parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from . import messages
from .console import FOLDER, MAX_STREAMS, Console, PageRefused

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Pages run only the console's own scripts, cannot be framed, and send nothing to other servers.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
}
STREAM = "text/event-stream"
#: A static file's address changes with the version, so it may be cached.
STATIC_HEADERS = HEADERS | {"Cache-Control": "private, max-age=86400"}

#: (section, name in the navigation, path, key that goes there after `g`)
NAVIGATION = (
    ("cluster", "Cluster", "/console/", "c"),
    ("topics", "Topics", "/console/topics", "t"),
    ("groups", "Groups", "/console/groups", "r"),
    ("transactions", "Transactions", "/console/transactions", "x"),
    ("explain", "Explain", "/console/explain", "e"),
    ("connections", "Connections", "/console/connections", "o"),
    ("tree", "Coordination", "/console/tree", "d"),
    ("log", "Log", "/console/log", "l"),
)

Values = dict[str, Any]
Gather = Callable[[Console, Request], Awaitable[Values]]


class Live(StreamingResponse):
    """A continuing response. Shape: it is counted from its creation, so that concurrent requests cannot exceed the
    limit.
    """

    def __init__(self, console: Console, client: str, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type=STREAM, headers=HEADERS)
        self._console = console
        self._client = client
        console.streams.hold(client, 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._console.streams.hold(self._client, -1)


class Pages:
    """Makes the responses of one console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        #: Whether a request comes from a browser that may change something.
        self.is_unlocked: Callable[[Request], bool] = lambda request: False

    def page(self, section: str, template: str, gather: Gather) -> Callable[..., Any]:
        """The endpoint of a page: the result of `gather`, in a template."""

        async def endpoint(request: Request) -> Response:
            self.console.looked_at()
            try:
                values = await gather(self.console, request)
            except PageRefused as refused:
                return await self.refused(request, section, refused)
            return await self.html(request, section, template, values)

        return endpoint

    def live(self, template: str, gather: Gather, every_s: float = 2.0) -> Callable[..., Any]:
        """The endpoint of the live part of a page, as server-sent events."""

        async def endpoint(request: Request) -> Response:
            console = self.console

            async def render() -> str | None:
                console.looked_at()
                try:
                    return await console.render(template, **await gather(console, request))
                except PageRefused:
                    return None

            return self.stream(request, render, every_s)

        return endpoint

    async def tail(self, request: Request) -> Response:
        """The messages of a topic as they are written; the fetch itself waits for them."""
        return self.stream(request, messages.follow(self.console, request), 0.05, repeated=True)

    def stream(
        self,
        request: Request,
        render: Callable[[], Awaitable[str | None]],
        every_s: float,
        repeated: bool = False,
    ) -> Response:
        """Server-sent events, unless there are too many live pages."""
        console = self.console
        client = "" if request.client is None else request.client.host
        if console.streams.refuses(client, 1, MAX_STREAMS):
            return Response("too many pages are live already", 503)
        return Live(console, client, console.follow(render, every_s, repeated))

    async def html(
        self,
        request: Request,
        section: str,
        template: str,
        values: Values,
        status: int = 200,
    ) -> Response:
        """A page."""
        common = {
            "section": section,
            "navigation": NAVIGATION,
            "unlocked": self.is_unlocked(request),
        }
        text = await self.console.render(template, **common | values)
        return HTMLResponse(text, status, HEADERS)

    async def refused(self, request: Request, section: str, refused: PageRefused) -> Response:
        """A page that gives the reason that another page cannot be shown."""
        values = {"refused": refused}
        return await self.html(request, section, "refused.html", values, refused.status)

    async def not_done(self, request: Request, error: Exception) -> Response:
        """The response to a request that failed before anything was read."""
        assert isinstance(error, PageRefused)
        return await self.refused(request, "", error)

    async def missing(self, request: Request, error: Exception) -> Response:
        """The response for an unknown page."""
        refused = PageRefused(404, "No such page", f"There is nothing at {request.url.path}.")
        return await self.refused(request, "", refused)

    async def static(self, request: Request) -> Response:
        """One of the console's own files."""
        name = request.path_params["name"]
        if name not in STATIC:
            return Response("no such file", 404)
        data = await self.console.broker.executor.in_thread((FOLDER / "static" / name).read_bytes)
        return Response(data, 200, STATIC_HEADERS, STATIC[name])
