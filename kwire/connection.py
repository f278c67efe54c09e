"""The two ends of a connection, without a socket.

    broker  bytes -> frames -> next_request() -> RequestReceived ... reply(request, parts) -> take_output()
    client  request(message, version) -> take_output() ... bytes -> frames -> next_response() -> ResponseReceived

Replies leave the broker in the order of their requests, in whatever order they are produced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from kwire.api import response_class
from kwire.codec import decode, encode_parts
from kwire.errors import BadLength, BadVersion, OtherProtocol, WireError
from kwire.framing import FrameReader, PlainMemory
from kwire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from kwire.schema import schema_of

#: One piece of a reply: bytes, memoryview, or a stored slice that has a length.
Part = Any

_KEY_VERSION_CORRELATION = Struct(">hhi")
_SIZE_AND_CORRELATION = Struct(">ii")
_FLEXIBLE = Struct(">iix")  # with an empty tag section
_FIRST_PART_BYTES = 4096
#: The largest response that a client accepts; Apache Kafka's clients are limited only by memory.
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_MAX_CORRELATION_ID = 0x7FFFFFFF
#: The API key of data without a header.
BARE_TOKEN = -1

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
    b"HTTP",  # a response
)


class RequestReceived:
    """A request's header, where its body begins, and the slot for its reply.

    Shape: `frame` is a view whose memory is reused after `release()`; the body is
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
        """Release the frame; the header stays."""
        self.frame.release()

    def __repr__(self) -> str:
        return (
            f"<request key {self.api_key} v{self.api_version}"
            f" #{self.correlation_id} of {self.client_id!r}>"
        )


class ServerConnection:
    """The broker's end of one connection.

    Errors: next_request() raises WireError when the peer has broken the protocol; after that, the connection cannot be
    used.
    """

    __slots__ = ("_output", "_slots", "frames", "held_up_bytes")

    def __init__(self, frames: FrameReader) -> None:
        self.frames = frames
        #: The size of replies that are ready but wait for an earlier one, without their stored slices.
        self.held_up_bytes = 0
        self._slots: list[RequestReceived] = []  # a deque would take 600 bytes of each connection
        self._output: list[Part] = []

    def next_request(self) -> RequestReceived | None:
        """Return the next request and reserve its reply slot; None until more bytes come."""
        frame = self.frames.next_frame()
        return None if frame is None else self.request_of(frame)

    def request_of(self, frame: memoryview) -> RequestReceived:
        """Decode the header of a request, and reserve the slot for its reply."""
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

    def expect_tokens(self, bare: bool) -> None:
        """Say whether the next frames are bare SASL tokens, which have no header; see TokenConnection."""
        # A change of class, so that the path of every request needs no check.
        self.__class__ = TokenConnection if bare else ServerConnection

    def reply(self, request: RequestReceived, parts: Sequence[Part] = ()) -> None:
        """Fill a request's slot with a whole response frame, or with nothing."""
        slots = self._slots
        if slots and slots[0] is request:
            del slots[0]
            self._output.extend(parts)
            while slots and (ready := slots[0].reply) is not None:
                del slots[0]
                self._output.extend(ready)
                self.held_up_bytes -= _in_memory(ready)
        else:
            request.reply = parts
            self.held_up_bytes += _in_memory(parts)

    def reply_at_once(self, parts: Sequence[Part]) -> None:
        """Answer a request that has no slot, while none is pending."""
        self._output.extend(parts)

    def take_output(self) -> list[Part]:
        """Return what can be sent now."""
        output = self._output
        if output:
            self._output = []
        return output

    @property
    def pending(self) -> int:
        """Number of requests without a reply, or whose reply waits for an earlier one."""
        return len(self._slots)


class TokenConnection(ServerConnection):
    """The broker's end of a connection that receives bare SASL tokens, as after SaslHandshake v0 (KIP-43)."""

    __slots__ = ()

    def request_of(self, frame: memoryview) -> RequestReceived:
        """A token as a request without an API; its frame is the token."""
        request = RequestReceived(BARE_TOKEN, 0, 0, None, frame, 0)
        self._slots.append(request)
        return request


class _Sent(NamedTuple):
    """A request that has not been answered yet."""

    correlation_id: int
    api_key: int
    api_version: int


class ResponseReceived(NamedTuple):
    """A response, and the request that it belongs to.

    Shape: `frame`, which includes the header, is in memory that nothing else uses; the body is
    `frame[body_offset:]`.
    """

    correlation_id: int
    api_key: int
    api_version: int
    frame: memoryview
    body_offset: int

    def message(self) -> Any:
        """Decode the body; its records are views of `frame`. Errors: WireError."""
        return decode(response_class(self.api_key), self.frame, self.api_version, self.body_offset)


class ClientConnection:
    """The client's end of one connection.

    Shape: the owner of the socket sends the result of `take_output()`, receives into `get_buffer()`, calls
    `received()`, and takes responses until there is none.
    Errors: next_response() raises WireError when the broker has broken the protocol: an impossible size, or a response
    that belongs to no request or to another one. After that, the connection cannot be used.
    """

    def __init__(
        self, client_id: str | None, *, max_response_bytes: int = MAX_RESPONSE_BYTES
    ) -> None:
        self.client_id = client_id
        self._frames = FrameReader(PlainMemory(), max_response_bytes)
        self._sent: deque[_Sent] = deque()
        self._output: list[Part] = []
        self._last_id = 0

    def request(self, message: object, version: int, *, answered: bool = True) -> int:
        """Write a request and return its correlation id.

        Shape: `answered` is whether there will be a response (a Produce with acks=0 has none).
        Errors: EncodeError; ValueError for a message that is not a request.
        """
        api_key = schema_of(type(message)).api_key
        if api_key is None:
            raise ValueError(f"{type(message).__name__} is not a request")
        return self.request_of(int(api_key), version, encode_parts(message, version), answered)

    def request_of(
        self, api_key: int, version: int, body: Sequence[Part], answered: bool = True
    ) -> int:
        """Write a request whose body is already encoded, and return its correlation id."""
        correlation_id = self._last_id = self._last_id + 1 & _MAX_CORRELATION_ID
        header = encode_request_header(
            RequestHeader(api_key, version, correlation_id, self.client_id)
        )
        size = len(header) + sum(map(len, body))
        self._output.append(size.to_bytes(4, "big") + header)
        self._output.extend(body)
        if answered:
            self._sent.append(_Sent(correlation_id, api_key, version))
        return correlation_id

    def take_output(self) -> list[Part]:
        """Return the data to be sent now."""
        output, self._output = self._output, []
        return output

    def get_buffer(self) -> memoryview:
        """Return where the next bytes go; release it before calling `received`."""
        buffer = self._frames.get_buffer()
        assert buffer is not None  # PlainMemory has no limit
        return buffer

    def received(self, count: int) -> None:
        """Record that `count` bytes have been received into the buffer."""
        self._frames.advance(count)

    def next_response(self) -> ResponseReceived | None:
        """Return the next response; None until more bytes come."""
        frames = self._frames
        try:
            frame = frames.next_lasting_frame()
        except BadLength:
            guess = looks_like(frames.beginning)
            if guess:
                raise OtherProtocol(guess) from None
            raise
        if frame is None:
            frames.rest()
            return None
        if not self._sent:
            raise WireError("a response without a request")
        sent = self._sent.popleft()
        correlation_id, body = decode_response_header(frame, sent.api_key, sent.api_version)
        if correlation_id != sent.correlation_id:
            raise WireError(f"response {correlation_id} to request {sent.correlation_id}")
        return ResponseReceived(*sent, frame, body)

    def close(self) -> None:
        """Release the memory of an incomplete response; no more bytes can be received."""
        self._frames.close()

    @property
    def pending(self) -> int:
        """Number of requests without a response."""
        return len(self._sent)


def _in_memory(parts: Sequence[Part]) -> int:
    return sum(len(part) for part in parts if isinstance(part, bytes | memoryview))


def read_unknown_header(frame: memoryview) -> RequestHeader:
    """Read the header of a request for an unknown API: the part that all header versions share."""
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
    """Name the other protocol that a stream seems to use, by its first bytes; "" if unknown."""
    if beginning[:4] in _METHODS:
        return "HTTP"
    if beginning[:2] == b"\x16\x03":
        return "a TLS handshake"
    if beginning[:2] == b"\x15\x03":
        return "a TLS alert"
    if beginning[:4] == b"SSH-":
        return "SSH"
    if beginning[:5] == b"PROXY" or beginning[:4] == b"\r\n\r\n":
        return "the PROXY protocol"
    return ""
