"""A connection without a socket: the test's bytes arrive at once, and the broker's are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Dispatcher
from server.net.frame_memory import FrameMemory
from server.net.limits import NetLimits
from server.net.log_limit import LineLimiter
from server.net.output_memory import OutputMemory
from server.net.rotation import Rotation
from server.net.session import Session
from server.net.transport import Receiver
from tests.support.clock import ManualClock


class MemoryTransport:
    """The broker's end of a connection in memory.

    Shape: `sent` is everything that the broker has sent; if `room` is set, only that many bytes are
    accepted, as if the peer did not read. Bytes that the session does not take are in `waiting`.
    """

    def __init__(self, room: int | None = None) -> None:
        self.sent = bytearray()
        self.waiting = bytearray()
        self.room = room
        self.unsent = bytearray()
        self.reading = False
        self.closed = False
        self.taken_bytes = 0
        self._receiver: Receiver | None = None

    @property
    def unsent_bytes(self) -> int:
        return len(self.unsent)

    @property
    def unsent_memory(self) -> int:
        return len(self.unsent)

    def holds_removed_file(self) -> bool:
        return False

    # -- the session's side

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume_reading()

    def send(self, parts: Sequence[Any]) -> None:
        for part in parts:
            if isinstance(part, (bytes, bytearray, memoryview)):
                self.unsent += part
            else:
                self.unsent += part.read()
                part.close()
        self._move()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = not self.closed

    def close(self) -> None:
        self.closed = True
        self.reading = False

    def close_when_sent(self) -> None:
        self.reading = False
        if not self.unsent and self._receiver is not None:
            self.close()
            self._receiver.lost(None)

    # -- the peer's side

    def receive(self, data: bytes) -> None:
        """Receive bytes from the peer."""
        self.waiting += data
        self.pump()

    def pump(self) -> None:
        """Deliver the waiting bytes, as the loop does when the socket is readable."""
        receiver = self._receiver
        assert receiver is not None
        while self.waiting and self.reading:
            shared_block = getattr(receiver, "shared_block", None)  # of an AtOnceReceiver
            block = None if shared_block is None or self.unsent else shared_block()
            if block is not None:
                count = min(len(block.view), len(self.waiting))
                block.view[:count] = self.waiting[:count]
                del self.waiting[:count]
                receiver.received_at_once(block, count)  # type: ignore[attr-defined]
                continue
            buffer = receiver.get_buffer()
            if buffer is None:
                self.pause_reading()
                return
            count = min(len(buffer), len(self.waiting))
            buffer[:count] = self.waiting[:count]
            buffer.release()
            del self.waiting[:count]
            receiver.received(count)

    def take(self, room: int) -> None:
        """Let the peer read more bytes."""
        assert self.room is not None
        self.room += room
        self._move()
        if not self.unsent and self._receiver is not None:
            self._receiver.drained()
            self.pump()

    def hang_up(self) -> None:
        """Let the peer close the connection."""
        assert self._receiver is not None
        self.close()
        self._receiver.lost(None)

    def _move(self) -> None:
        count = len(self.unsent) if self.room is None else min(self.room, len(self.unsent))
        self.sent += self.unsent[:count]
        del self.unsent[:count]
        self.taken_bytes += count
        if self.room is not None:
            self.room -= count

    def frames(self) -> list[bytes]:
        """The response frames sent so far, without their sizes."""
        found, at = [], 0
        while at + 4 <= len(self.sent):
            size = int.from_bytes(self.sent[at : at + 4], "big")
            found.append(bytes(self.sent[at + 4 : at + 4 + size]))
            at += 4 + size
        assert at == len(self.sent), "the last frame is not whole"
        return found


def connect(
    dispatcher: Dispatcher,
    limits: NetLimits | None = None,
    *,
    transport: MemoryTransport | None = None,
    memory: FrameMemory | None = None,
    clock: ManualClock | None = None,
    output: OutputMemory | None = None,
    rotation: Rotation | None = None,
) -> tuple[MemoryTransport, Session]:
    """Open a connection to a dispatcher."""
    import logging

    clock = clock or ManualClock()
    transport = transport or MemoryTransport()
    session = Session(
        transport,
        ConnectionInfo("127.0.0.1:9092-127.0.0.1:50000-1", client_port=50000),
        dispatcher,
        memory or FrameMemory(64 * 1024 * 1024),
        limits or NetLimits(),
        clock,
        LineLimiter(logging.getLogger("server.net"), clock.monotonic_ms),
        lambda session: None,
        output=output or OutputMemory(64 * 1024 * 1024, clock.monotonic_ms),
        rotation=rotation or Rotation(),
    )
    transport.start(session)
    return transport, session
