"""A client beside a broker on this event loop: its connection blocks threads only."""

from __future__ import annotations

import asyncio
from typing import Any

from server.client.wire import Wire


class SocketClient:
    """One connection; `ask` sends and waits, `send` and `receive` are its halves."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @classmethod
    async def open(cls, host: str, port: int) -> SocketClient:
        return cls(await asyncio.to_thread(Wire.open, (host, port), 30.0, "test"))

    async def send(self, request: Any, version: int) -> None:
        """Send a request."""
        answered = getattr(request, "acks", None) != 0
        await asyncio.to_thread(self._wire.send, request, version, answered=answered)

    async def receive(self) -> Any:
        """The next answer. Errors: ConnectionError if the broker closes first."""
        return await asyncio.to_thread(self._wire.receive)

    async def ask(self, request: Any, version: int) -> Any:
        await self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Wait until the broker closes the connection; True if it sent nothing before that."""
        try:
            return await asyncio.to_thread(self._wire.sock.recv, 1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self._wire.close()
