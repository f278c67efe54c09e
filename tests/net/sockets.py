"""A listener on loopback, and peers that connect to it over real sockets."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from server.clock import SystemClock
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net.dispatcher import Dispatcher
from server.net.limits import NetLimits
from server.net.listener import Listener
from server.net.sockets import SocketNetwork

#: Ends a test that hangs, and no other, however busy the machine is.
PATIENCE_S = 300.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on its own event loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), PATIENCE_S))

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds."""
    while not condition():
        await asyncio.sleep(0)


class FileSlice:
    """Bytes of a file, as the log returns them."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        self._file = path.open("rb")
        self.position = position
        self.size = size
        self.closed = False

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        return os.pread(self._file.fileno(), self.size, self.position)

    def close(self) -> None:
        self.closed = True
        self._file.close()


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
