"""Requests in a readable form, and a dispatcher that returns the received bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kwire.connection import Part, RequestReceived, response_frame
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Later


def request(correlation_id: int, body: bytes = b"", key: int = 3, version: int = 5) -> bytes:
    """A request frame with a v1 header."""
    header = struct.pack(">hhih", key, version, correlation_id, 4) + b"test"
    return struct.pack(">i", len(header) + len(body)) + header + body


class Echo:
    """Answers with the body; `later` makes some answers pending, by correlation id."""

    at_once: Callable[[memoryview, ConnectionInfo], Sequence[Part] | Close | None] | None = None

    def __init__(self, overlap: bool = False) -> None:
        self.overlap = overlap
        self.pending: dict[int, asyncio.Future[bytes]] = {}
        self.later: Callable[[int], bool] = lambda correlation_id: False
        self.seen: list[int] = []
        self.gone: list[int] = []
        self.tells_who_leaves = True
        self.prefix: list[Any] = []
        self.answer: bytes | None = None  # instead of the body

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        number = request.correlation_id
        self.seen.append(number)
        if request.api_key == 99:
            return Close("key 99", "99")
        if request.api_key == 98:
            return []
        if request.api_key == 97:
            raise RuntimeError("a mistake")
        body = bytes(request.frame[request.body_offset :]) if self.answer is None else self.answer
        if not self.later(number):
            return response_frame(number, False, [*self.prefix, body])
        future = self.pending[number] = asyncio.get_running_loop().create_future()
        gone = (lambda: self.gone.append(number)) if self.tells_who_leaves else None
        return Later(number, future, None, gone, self.overlap)  # type: ignore[arg-type]

    def complete(self, later: Later[Any], future: asyncio.Future[bytes]) -> Sequence[Part] | Close:
        return response_frame(later.ctx, False, [future.result()])  # type: ignore[arg-type]
