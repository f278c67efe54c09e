"""Hundreds of sockets announce 90 MB each; honest clients are not affected, and memory stays small."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaProducer

from ..support.broker_process import BrokerProcess, resident_bytes
from .conftest import BROKER

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(BROKER != "kwire", reason="Apache Kafka runs out of memory in this test"),
]

SOCKETS = 250
ANNOUNCED = 90_000_000
MAX_RESIDENT_BYTES = 300_000_000


@contextlib.contextmanager
def crowd(host: str, port: int, sent: int) -> Iterator[None]:
    """Keep sockets open, each of which sends `sent` bytes of its frame as fast as possible."""
    stop = threading.Event()
    chunk = bytes(1 << 20)
    left: dict[socket.socket, int] = {}
    selector = selectors.DefaultSelector()
    for _ in range(SOCKETS):
        sock = socket.create_connection((host, port))
        sock.sendall(struct.pack(">i", ANNOUNCED) + bytes(4))
        sock.setblocking(False)
        left[sock] = sent - 4
        if left[sock]:
            selector.register(sock, selectors.EVENT_WRITE)

    def push() -> None:
        while not stop.is_set():
            if not selector.get_map():
                stop.wait(0.1)
            for key, _ in selector.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                try:
                    left[sock] -= sock.send(chunk[: left[sock]])
                except BlockingIOError:
                    continue
                except OSError:
                    left[sock] = 0
                if not left[sock]:
                    selector.unregister(sock)

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        yield
    finally:
        stop.set()
        pusher.join()
        selector.close()
        for sock in left:
            sock.close()


@pytest.mark.parametrize("sent", [4, ANNOUNCED - 1])
def test_honest_sends_go_on_among_frames_that_never_end(
    new_broker: Callable[..., BrokerProcess], name: str, sent: int
) -> None:
    broker = new_broker()
    highest = 0
    with crowd(broker.host, broker.port, sent):
        time.sleep(2)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
        for size, count in ((1000, 500), (900_000, 5)) * 10:
            futures = [producer.send(name, bytes(size)) for _ in range(count)]
            producer.flush()
            for future in futures:
                future.get(30)
            highest = max(highest, resident_bytes(broker.pid))
        producer.close()
    print(f"{SOCKETS} sockets sent {sent} of {ANNOUNCED} bytes: {highest / 1e6:.0f} MB resident")
    assert highest < MAX_RESIDENT_BYTES
