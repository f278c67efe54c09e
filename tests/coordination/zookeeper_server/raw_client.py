"""A blocking ZooKeeper client that sends any request and returns each frame that it receives."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

from server.coordination.zookeeper_server.jute import JuteReader, read_boolean
from server.coordination.zookeeper_server.records import (
    NOTIFICATION_XID,
    REPLIES,
    ConnectRequest,
    ConnectResponse,
    IntReply,
    MultiHeader,
    MultiOp,
    OpCode,
    ReplyHeader,
    RequestHeader,
    WatcherEvent,
    decode,
    encode,
)


def multi_body(ops: list[MultiOp]) -> bytes:
    """The body of a multi."""
    body = b"".join(encode(MultiHeader(op.opcode, False, -1), op.record) for op in ops)
    return body + encode(MultiHeader(-1, True, -1))


def decode_results(reader: JuteReader) -> list[Any]:
    """The results of a multi: (opcode, record or None)."""
    results: list[Any] = []
    while not (header := decode(MultiHeader, reader)).done:
        record = None
        if header.type == OpCode.ERROR:
            record = decode(IntReply, reader)
            assert record.value == header.err
        elif header.type in REPLIES and header.type not in (OpCode.DELETE, OpCode.CHECK):
            record = decode(REPLIES[header.type], reader)
        results.append((header.type, record))
    return results


@dataclass
class Reply:
    """A reply, and the notifications received before it."""

    header: ReplyHeader
    record: Any
    events: list[WatcherEvent] = field(default_factory=list)


class Closed(Exception):
    """The server closed the connection."""


class RawClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid = 0
        self.session = ConnectResponse(0, 0, 0, None)

    def send(self, message: bytes) -> None:
        """Send one frame."""
        self.socket.sendall(len(message).to_bytes(4, "big") + message)

    def receive(self) -> bytes:
        """The next frame. Errors: Closed."""
        size = int.from_bytes(self._take(4), "big", signed=True)
        return self._take(size)

    def _take(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed
            parts += part
        return parts

    def connect(
        self,
        timeout_ms: int = 10_000,
        session_id: int = 0,
        password: bytes = bytes(16),
        *,
        last_zxid: int = 0,
        read_only: bytes = b"\0",
    ) -> ConnectResponse:
        """Begin a session, or resume one."""
        request = ConnectRequest(0, last_zxid, timeout_ms, session_id, password)
        self.send(encode(request) + read_only)
        reader = JuteReader(self.receive())
        self.session = decode(ConnectResponse, reader)
        if read_only:
            assert read_boolean(reader) is False
        assert reader.at_end()
        return self.session

    def request(self, opcode: int, record: Any = b"", xid: int | None = None) -> int:
        """Send a request; `record` may be the bytes of its body."""
        if xid is None:
            self.xid += 1
            xid = self.xid
        body = record if isinstance(record, bytes) else encode(record)
        self.send(encode(RequestHeader(xid, opcode)) + body)
        return xid

    def reply(self, opcode: int, xid: int) -> Reply:
        """The reply to a request, and the notifications received before it."""
        events: list[WatcherEvent] = []
        while True:
            reader = JuteReader(self.receive())
            header = decode(ReplyHeader, reader)
            if header.xid == NOTIFICATION_XID:
                assert (header.zxid, header.err) == (-1, 0)
                events.append(decode(WatcherEvent, reader))
                continue
            assert header.xid == xid
            record = None
            if header.err == 0 and opcode in (OpCode.MULTI, OpCode.MULTI_READ):
                record = decode_results(reader)
            elif header.err == 0 and opcode in REPLIES:
                record = decode(REPLIES[opcode], reader)
            assert reader.at_end(), (opcode, header, reader.data[reader.position :])
            return Reply(header, record, events)

    def call(self, opcode: int, record: Any = b"") -> Reply:
        """Send a request; return its reply."""
        return self.reply(opcode, self.request(opcode, record))

    def events(self) -> list[WatcherEvent]:
        """The notifications received so far."""
        return self.reply(OpCode.PING, self.request(OpCode.PING, xid=-2)).events

    def close(self) -> None:
        """Close the connection; the session continues."""
        self.socket.close()

    def end(self) -> None:
        """End the session."""
        self.call(OpCode.CLOSE_SESSION)
        self.close()
