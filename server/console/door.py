"""The limit on concurrent requests, which every request for a page passes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from ..shares import Shares
from .console import MAX_STREAMS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: The maximum number of concurrent requests, including those of live pages: the listener's other connections are for
#: probes. One address may have 20 of these 27.
MAX_REQUESTS = MAX_STREAMS + 16


class Door:
    """An application that answers at most MAX_REQUESTS at a time, and refuses an address that has its share of them."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._inside = Shares()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        client = (scope.get("client") or ("",))[0]
        if self._inside.refuses(client, 1, MAX_REQUESTS):
            refusal = PlainTextResponse("too many requests at the same time; try again\n", 503)
            await refusal(scope, receive, send)
            return
        self._inside.hold(client, 1)
        try:
            await self._application(scope, receive, send)
        finally:
            self._inside.hold(client, -1)
