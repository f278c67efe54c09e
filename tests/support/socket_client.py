"""A client on this event loop, over a real socket: messages in, messages out."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from kwire.api import response_class
from kwire.codec import decode, encode
from kwire.header import RequestHeader, decode_response_header, encode_request_header
from kwire.schema import schema_of


class SocketClient:
    """One connection; `ask` sends and waits, `send` and `receive` are its halves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0

    @classmethod
    async def open(cls, host: str, port: int) -> SocketClient:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 24))

    async def send(self, request: Any, version: int) -> int:
        """Send a request and return its API key."""
        self._count += 1
        key = schema_of(type(request)).api_key
        assert key is not None
        header = encode_request_header(RequestHeader(int(key), version, self._count, "test"))
        frame = header + encode(request, version)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        await self._writer.drain()
        return int(key)

    async def receive(self, api_key: int, version: int) -> Any:
        """The next answer. Errors: IncompleteReadError or ConnectionError when there is none."""
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        frame = await self._reader.readexactly(size)
        _, body = decode_response_header(frame, api_key, version)
        return decode(response_class(api_key), frame, version, body)

    async def ask(self, request: Any, version: int) -> Any:
        return await self.receive(await self.send(request, version), version)

    async def is_closed(self) -> bool:
        """Wait for the broker to close; whether it did without another byte."""
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
