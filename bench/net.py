"""The cost of receiving, dispatching and replying: `python -m bench.net`.

A client process sends frames over loopback, several in flight, to a listener that answers each with a few bytes. CPU is
the server's only, user and system; `recv` is the number of receive calls per request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from kwire.connection import RequestReceived, response_frame
from server.clock import SystemClock
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Later
from server.net.limits import NetLimits
from server.net.listener import Listener
from server.net.session import Session
from server.net.sockets import SocketNetwork

HEADER = struct.Struct(">hhih4s")


class Slice:
    """Bytes of a file, as a fetch returns them."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self.position = 0

    def __len__(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        return os.pread(self._fd, self._size, 0)

    def close(self) -> None:
        return


class Answers:
    """A dispatcher that answers with twenty bytes or with a stored slice."""

    at_once = None

    def __init__(self, stored: Slice | None) -> None:
        self.stored = stored

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Any] | Later[Any] | Close:
        if self.stored is not None:
            return response_frame(request.correlation_id, False, [bytes(60), self.stored, b"\0"])
        return response_frame(request.correlation_id, False, [bytes(20)])


def client(port: int, size: int, count: int, in_flight: int, reply: int, cpu: int) -> None:
    """Send `count` requests and read their replies; runs in a separate process."""
    os.sched_setaffinity(0, {cpu})
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = HEADER.pack(3, 5, 1, 4, b"test")
    frame = struct.pack(">i", len(head) + size) + head + bytes(size)
    free = threading.Semaphore(in_flight)

    def read() -> None:
        buffer = memoryview(bytearray(1024 * 1024))
        got = done = 0
        while done < count:
            got += sock.recv_into(buffer)
            while got >= reply:
                got -= reply
                done += 1
                free.release()

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(count):
        free.acquire()
        sock.sendall(frame)
    reader.join()
    sock.close()


async def measure(
    size: int, count: int, in_flight: int, stored: Slice | None, limits: NetLimits, cpu: int
) -> None:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 0)
    acceptor = SocketNetwork(Executor()).listen(endpoint, limits)
    endpoint = endpoint._replace(port=acceptor.port)
    listener = Listener(acceptor, endpoint, Answers(stored), limits, SystemClock())
    listener.start()
    received = 0
    plain = Session.received

    def counted(self: Session, count: int) -> None:
        nonlocal received
        received += 1
        plain(self, count)

    Session.received = counted  # type: ignore[method-assign]
    reply = 4 + 4 + (20 if stored is None else 61 + len(stored))
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            client(listener.port, size, count, in_flight, reply, cpu)
        finally:
            os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):  # noqa: ASYNC110, ASYNC222 - it does not block
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    Session.received = plain  # type: ignore[method-assign]
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    moved = count * max(size, reply)
    print(
        f"{'fetch' if stored else 'send':5} {max(size, reply):>9,} B x {count:>6,}"
        f" in flight {in_flight:>2}: {count / seconds:>9,.0f}/s"
        f" {moved / seconds / 1e6:>7,.0f} MB/s"
        f" CPU {1e6 * (user + system) / count:>7.1f} us ({1e6 * user / count:.1f} + {1e6 * system / count:.1f})"
        f" {1e9 * (user + system) / moved:>6.2f} s/GB  recv {received / count:.2f}"
        f" faults {(after.ru_minflt - before.ru_minflt) / count:.1f}"
    )
    await listener.close()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--receive-buffer", type=int, default=NetLimits().receive_buffer_bytes)
    arguments.add_argument("--send-buffer", type=int, default=NetLimits().send_buffer_bytes)
    arguments.add_argument("--seconds-of-bytes", type=float, default=1e9)
    chosen = arguments.parse_args()
    limits = NetLimits(
        receive_buffer_bytes=chosen.receive_buffer, send_buffer_bytes=chosen.send_buffer
    )
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0]})
    for size in (100, 16_500, 98_500, 131_500, 786_500, 4_000_000):
        for in_flight in (1, 5):
            count = max(100, min(30_000, int(chosen.seconds_of_bytes / size)))
            asyncio.run(measure(size, count, in_flight, None, limits, cpus[-1]))
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(4_000_000))
        file.flush()
        for size in (4_000, 16_000, 32_000, 64_000, 128_000, 1_000_000):
            count = max(100, min(30_000, int(chosen.seconds_of_bytes / size)))
            stored = Slice(file.fileno(), size)
            asyncio.run(measure(100, count, 2, stored, limits, cpus[-1]))


if __name__ == "__main__":
    main()
