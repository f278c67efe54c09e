"""What every request for a page passes first: it must not be made by a page of somebody else, nor be one too many.

A page of another site, open in the same browser, cannot read what is served here, but it could have many searches made. A
browser says of each request whose page makes it and what for (Source: W3C Fetch Metadata); whoever says nothing is no browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from .console import MAX_STREAMS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: Requests that are answered at the same time, with those for live pages: the listener's other connections are for probes.
MAX_REQUESTS = MAX_STREAMS + 16
OWN_SITES = ("same-origin", "none")


class Door:
    """An application that only the console's own pages, links to them, and what is no browser may use."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if is_of_others(Headers(scope=scope)):
            refusal = PlainTextResponse("the request was made by a page of another site\n", 403)
            await refusal(scope, receive, send)
            return
        if self._inside >= MAX_REQUESTS:
            refusal = PlainTextResponse("too many requests at the same time; try again\n", 503)
            await refusal(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._inside -= 1


def is_of_others(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site makes the request, and it is not that somebody follows a link there."""
    if headers.get("sec-fetch-site", "none") in OWN_SITES:
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate"
    return not (is_link and headers.get("sec-fetch-dest") == "document")
