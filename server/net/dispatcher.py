"""What the network layer asks of whoever answers requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from kwire.connection import Part, RequestReceived

from .connection_info import ConnectionInfo


class Close:
    """Close the connection instead of replying; `reason` is for the log, "" for no line."""

    __slots__ = ("kind", "reason")

    def __init__(self, reason: str, kind: object = None) -> None:
        self.reason = reason
        self.kind = kind


class Pending:
    """The reply is not ready: `finish` makes it of the awaited future.

    Shape: `overlap` lets the connection's next request start meanwhile; `on_disconnect` is called
    when the connection ends first.
    """

    __slots__ = ("awaitable", "finish", "on_disconnect", "overlap")

    def __init__(
        self,
        awaitable: Awaitable[Any],
        finish: Callable[[Any], Sequence[Part] | Close],
        overlap: bool,
        on_disconnect: Callable[[], object] | None,
    ) -> None:
        self.awaitable = awaitable
        self.finish = finish
        self.overlap = overlap
        self.on_disconnect = on_disconnect


class Dispatcher(Protocol):
    """Answers requests; raises nothing but its own bugs."""

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Pending | Close:
        """Return the whole response frame in parts (none at all for no reply), or what to do."""
        ...
