"""A listener on loopback, and peers that connect to it over real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.clock import SystemClock
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net.dispatcher import Dispatcher
from server.net.limits import NetLimits
from server.net.listener import Listener
from server.net.sockets import SocketNetwork


@asynccontextmanager
async def listening(
    dispatcher: Dispatcher, limits: NetLimits | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Listener]:
    executor = Executor()
    listener = bound(dispatcher, limits or NetLimits(), executor, host)
    listener.start()
    try:
        yield listener
    finally:
        await listener.close()
        executor.close()


def bound(
    dispatcher: Dispatcher, limits: NetLimits, executor: Executor, host: str = "127.0.0.1"
) -> Listener:
    """A listener with a port that does not accept connections yet."""
    endpoint = Endpoint("PLAINTEXT", host, 0)
    acceptor = SocketNetwork(executor).listen(endpoint, limits)
    endpoint = endpoint._replace(port=acceptor.port)
    return Listener(acceptor, endpoint, dispatcher, limits, SystemClock())


class Peer:
    """A client's end of a connection, on the loop of the test."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    async def connect(cls, listener: Listener, host: str = "127.0.0.1") -> Peer:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (host, listener.port))
        return cls(sock)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def read(self, size: int) -> bytes:
        """Read this number of bytes, or fewer if the broker closes the connection first."""
        data = bytearray()
        while len(data) < size:
            try:
                part = await asyncio.get_running_loop().sock_recv(self.sock, size - len(data))
            except ConnectionResetError:
                break
            if not part:
                break
            data += part
        return bytes(data)

    async def frame(self) -> bytes:
        head = await self.read(4)
        return await self.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""

    async def ended(self) -> bool:
        """Wait until the broker has closed the connection."""
        return await asyncio.wait_for(self.read(1), 5) == b""

    def close(self) -> None:
        self.sock.close()
