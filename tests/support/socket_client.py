"""A client on this event loop, over a real socket: messages in, messages out."""

from __future__ import annotations

import asyncio
from typing import Any

from kwire.connection import ClientConnection


class SocketClient:
    """One connection; `ask` sends and waits, `send` and `receive` are its halves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = ClientConnection("test")

    @classmethod
    async def open(cls, host: str, port: int) -> SocketClient:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 24))

    async def send(self, request: Any, version: int) -> None:
        """Send a request."""
        self._connection.request(request, version, answered=getattr(request, "acks", None) != 0)
        self._writer.writelines(self._connection.take_output())
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next answer. Errors: ConnectionError if the broker closes first."""
        while (response := self._connection.next_response()) is None:
            buffer = self._connection.get_buffer()
            data = await self._reader.read(len(buffer))
            if not data:
                raise ConnectionError("closed while an answer was due")
            buffer[: len(data)] = data
            self._connection.received(len(data))
        return response.message()

    async def ask(self, request: Any, version: int) -> Any:
        await self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Wait until the broker closes the connection; True if it sent nothing before that."""
        try:
            return await asyncio.wait_for(self._reader.read(1), 10) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass
