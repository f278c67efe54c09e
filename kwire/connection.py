"""One connection as the broker sees it, without a socket: requests come out, replies go in.

    bytes -> FrameReader -> next_event() -> RequestReceived ... reply(request, parts) -> take_output()

Replies leave in the order of their requests, whatever order they are given in.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from struct import Struct
from typing import Any

from kwire.errors import BadVersion
from kwire.framing import FrameReader
from kwire.header import RequestHeader, decode_request_header

#: One piece of a reply: bytes, memoryview, or a stored slice that has a length.
Part = Any

_KEY_VERSION_CORRELATION = Struct(">hhi")
_SIZE_AND_CORRELATION = Struct(">ii")
_FLEXIBLE = Struct(">iix")  # with an empty tag section
_FIRST_PART_BYTES = 4096

_METHODS = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"OPTI",
    b"DELE",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
)


class Event(Enum):
    """What next_event() gives besides a request."""

    NEED_DATA = 0
    CLOSED = 1


NEED_DATA = Event.NEED_DATA
CONNECTION_CLOSED = Event.CLOSED


class RequestReceived:
    """A request's header and where its body begins, and the place of its reply.

    Shape: `frame` is a view whose memory is used again after `release()`; the body is
    `frame[body_offset:]`.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "body_offset",
        "client_id",
        "correlation_id",
        "frame",
        "reply",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        frame: memoryview,
        body_offset: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body_offset = body_offset
        self.reply: Sequence[Part] | None = None

    def release(self) -> None:
        """Let go of the frame; the header stays."""
        self.frame.release()

    def __repr__(self) -> str:
        return (
            f"<request key {self.api_key} v{self.api_version}"
            f" #{self.correlation_id} of {self.client_id!r}>"
        )


class ServerConnection:
    """The broker's end of one connection.

    Errors: next_event() raises WireError when the peer broke the protocol; the connection is of no
    use after that.
    """

    __slots__ = ("_closed", "_output", "_slots", "frames")

    def __init__(self, frames: FrameReader) -> None:
        self.frames = frames
        self._slots: list[RequestReceived] = []  # a deque would take 600 bytes of each connection
        self._output: list[Part] = []
        self._closed = False

    def next_event(self) -> RequestReceived | Event:
        """Return the next request, whose reply slot is taken thereby, or why there is none."""
        frame = self.frames.next_frame()
        if frame is None:
            return CONNECTION_CLOSED if self._closed else NEED_DATA
        try:
            header, body_offset = decode_request_header(frame)
        except BadVersion:
            header, body_offset = read_unknown_header(frame), len(frame)
        request = RequestReceived(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            frame,
            body_offset,
        )
        self._slots.append(request)
        return request

    def receive_eof(self) -> None:
        """The peer sends no more."""
        self._closed = True

    def reply(self, request: RequestReceived, parts: Sequence[Part] = ()) -> None:
        """Fill a request's slot with a whole response frame, or with nothing."""
        slots = self._slots
        if slots and slots[0] is request:
            del slots[0]
            self._output.extend(parts)
            while slots and (ready := slots[0].reply) is not None:
                del slots[0]
                self._output.extend(ready)
        else:
            request.reply = parts

    def take_output(self) -> list[Part]:
        """Return what can be sent now."""
        output = self._output
        if output:
            self._output = []
        return output

    @property
    def pending(self) -> int:
        """Requests without a reply, or whose reply waits for an earlier one."""
        return len(self._slots)


def read_unknown_header(frame: memoryview) -> RequestHeader:
    """Read the header of a request of an unknown API, as far as all headers have been alike."""
    api_key, api_version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
    size = int.from_bytes(frame[8:10], "big", signed=True)
    client_id = bytes(frame[10 : 10 + size]).decode(errors="replace") if size >= 0 else None
    return RequestHeader(api_key, api_version, correlation_id, client_id)


def response_frame(correlation_id: int, flexible: bool, body: list[Part]) -> list[Part]:
    """Put size and response header before an encoded body, without copying its large parts."""
    size = 4 + flexible
    for part in body:
        size += len(part)
    prefix = (_FLEXIBLE if flexible else _SIZE_AND_CORRELATION).pack(size, correlation_id)
    if not body:
        return [prefix]
    first = body[0]
    if isinstance(first, bytes) and len(first) <= _FIRST_PART_BYTES:
        return [prefix + first, *body[1:]]
    return [prefix, *body]


def looks_like(beginning: bytes) -> str:
    """Say what a stream that is not Kafka's seems to be, from its first bytes; "" if unknown."""
    if beginning[:4] in _METHODS:
        return "HTTP"
    if beginning[:2] == b"\x16\x03":
        return "a TLS handshake"
    if beginning[:4] == b"SSH-":
        return "SSH"
    if beginning[:5] == b"PROXY" or beginning[:4] == b"\r\n\r\n":
        return "the PROXY protocol"
    return ""
