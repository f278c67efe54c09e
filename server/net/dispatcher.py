"""The interface between the network layer and the code that answers requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.connection import Part, RequestReceived

from .connection_info import ConnectionInfo

R = TypeVar("R")


class Close:
    """Close the connection instead of replying, or after `reply`; `reason` is logged unless it is empty."""

    __slots__ = ("kind", "reason", "reply")

    def __init__(self, reason: str, kind: object = None, reply: Sequence[Part] = ()) -> None:
        self.reason = reason
        self.kind = kind
        self.reply = reply


class Plain(NamedTuple):
    """A response without any error that was written without message objects, see `Handler.plain` in handlers/context.py.

    Shape: `parts` are its body, the first of them bytes, and `rows` is the number of partitions in it. `read`, of a Fetch: what
    observers count of each topic, by its name or its id: the number of rows, and the bytes of records.
    """

    parts: list[Any]
    rows: int
    read: Sequence[tuple[str | bytes, int, int]]


#: `Plain` of a tuple of all its fields, without a call in Python.
plain_answer = partial(tuple.__new__, Plain)


class Later(Generic[R]):
    """A response that is not ready yet; its connection keeps the reply's place in the order.

    Shape: a handler makes it with `ctx.later`, and the dispatcher passes it on to the session.
    `ctx` is the dispatcher's context of the request. The result of `awaitable` is the response; with
    `finish`, it is passed to `finish` on the loop, which returns the response. `overlap` lets the
    connection's next request start meanwhile; `on_disconnect` is called if the connection ends first.
    None of them may keep a view into the request: the frame's memory is reused as soon as the handler
    has returned. Errors: an exception of the awaitable or of `finish` is treated as one of the handler's.
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

    @property
    def at_once(
        self,
    ) -> Callable[[memoryview, ConnectionInfo], Sequence[Part] | Close | None] | None:
        """What answers a plain request from its frame as `dispatch` would, or returns None with nothing done; None if nothing does."""
        ...

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        """Return the response frame in parts (no parts for no reply), or a Later or Close."""
        ...

    def complete(
        self, later: Later[Any], future: asyncio.Future[Any]
    ) -> Sequence[Part] | Later[Any] | Close:
        """Return the reply to a request that had to wait, once its `awaitable` is done.

        Shape: a Later if it has to wait again.
        """
        ...
