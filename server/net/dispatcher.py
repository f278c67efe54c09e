"""What the network layer asks of whoever answers requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kwire.connection import Part, RequestReceived

from .connection_info import ConnectionInfo

R = TypeVar("R")


class Close:
    """Close the connection instead of replying; `reason` is for the log, "" for no line."""

    __slots__ = ("kind", "reason")

    def __init__(self, reason: str, kind: object = None) -> None:
        self.reason = reason
        self.kind = kind


class Later(Generic[R]):
    """A response that is not ready yet; its connection keeps the reply's place in the order.

    Shape: a handler makes it with `ctx.later`, and the dispatcher passes it on to the session.
    `ctx` is what the dispatcher knows of the request. What
    `awaitable` gives is the response, or with `finish` what is handed to `finish` on the loop,
    which returns the response. `overlap` lets the connection's next request start meanwhile;
    `on_disconnect` is called when the connection ends first. No view into the request may live on
    in any of them: the frame's memory is used again as soon as the handler has returned.
    Errors: an exception of the awaitable or of `finish` is treated as one of the handler's.
    """

    __slots__ = ("awaitable", "ctx", "finish", "on_disconnect", "overlap")

    def __init__(
        self,
        ctx: Any,
        awaitable: Awaitable[Any],
        finish: Callable[[Any], Any] | None,
        on_disconnect: Callable[[], object] | None,
        overlap: bool,
    ) -> None:
        self.ctx = ctx
        self.awaitable = awaitable
        self.finish = finish
        self.on_disconnect = on_disconnect
        self.overlap = overlap


class Dispatcher(Protocol):
    """Answers requests; raises nothing but its own bugs."""

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        """Return the whole response frame in parts (none at all for no reply), or what to do."""
        ...

    def complete(self, later: Later[Any], future: asyncio.Future[Any]) -> Sequence[Part] | Close:
        """Return the reply to a request that had to wait, once what it waited for is done."""
        ...
