"""The limit on concurrent requests, which every request for a page passes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from .console import MAX_STREAMS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: The maximum number of concurrent requests, including those of live pages: the listener's other connections are for
#: probes.
MAX_REQUESTS = MAX_STREAMS + 16


class Door:
    """An application that answers at most MAX_REQUESTS at a time and refuses more."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if self._inside >= MAX_REQUESTS:
            refusal = PlainTextResponse("too many requests at the same time; try again\n", 503)
            await refusal(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._inside -= 1
