"""Requests of this broker to another: one connection, made when needed, replies in request order.

A reply's frame has memory of its own, so that fetched batches are written to the log from where they
were received. There is no retry here: who sends knows what a lost reply means.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.api import response_class
from kwire.codec import decode, encode_parts
from kwire.errors import WireError
from kwire.header import RequestHeader, decode_response_header, encode_request_header
from kwire.schema import schema_of

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage

HEAD_BYTES = 64 * 1024
MAX_FRAME_BYTES = 256 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0


class ChannelError(OSError):
    """The request or its reply did not get through; whether the other broker acted is unknown."""


class _Sent(NamedTuple):
    """A request that has no reply yet."""

    correlation_id: int
    api_key: int
    version: int
    reply: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class _Connection(asyncio.BufferedProtocol):
    """Cuts the stream into frames; a large one is received where it will be used."""

    transport: asyncio.Transport

    def __init__(self, on_frame: Callable[[memoryview], None]) -> None:
        self._on_frame = on_frame
        self._head = memoryview(bytearray(HEAD_BYTES))
        self._filled = 0
        self._frame: memoryview | None = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._head[self._filled :] if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is not None:
            if self._filled < len(self._frame):
                return
            frame, self._frame, self._filled = self._frame, None, 0
            self._on_frame(frame)
            return
        start, filled, head = 0, self._filled, self._head
        while filled - start >= 4:
            size = int.from_bytes(head[start : start + 4], "big", signed=True)
            if not 0 <= size <= MAX_FRAME_BYTES:
                self._filled = 0
                self._on_frame(head[start : start + 4])  # no reply can be read from that
                return
            end = start + 4 + size
            if end > filled:
                if size > HEAD_BYTES - 4:
                    self._frame = memoryview(bytearray(size))
                    self._filled = filled - start - 4
                    self._frame[: self._filled] = head[start + 4 : filled]
                    return
                break
            self._on_frame(memoryview(bytes(head[start + 4 : end])))
            start = end
        if start:
            rest = bytes(head[start:filled])
            head[: len(rest)] = rest
        self._filled = filled - start


class BrokerChannel:
    """A way to one broker. Unit: the timeout is `request.timeout.ms` of whoever sends."""

    def __init__(self, host: str, port: int, *, client_id: str, request_timeout_ms: int) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._timeout_s = request_timeout_ms / 1000
        self._connection: _Connection | None = None
        self._connecting: asyncio.Future[_Connection] | None = None
        self._sent: deque[_Sent] = deque()
        self._next_id = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"BrokerChannel({self.host}:{self.port})"

    async def send(self, request: object, version: int) -> Any:
        """Send a request message and return the response message.

        Shape: requests may be under way at the same time; they are answered in order. Views in the
        response are of memory that is its own. Errors: ChannelError.
        """
        connection = self._connection
        if connection is None:
            connection = await self._connect()
        transport = connection.transport
        loop = asyncio.get_running_loop()
        self._next_id = self._next_id + 1 & 0x7FFFFFFF
        key = schema_of(type(request)).api_key
        assert key is not None
        api_key = int(key)
        header = encode_request_header(
            RequestHeader(api_key, version, self._next_id, self._client_id)
        )
        parts = encode_parts(request, version)
        size = len(header) + sum(map(len, parts))
        reply: asyncio.Future[Any] = loop.create_future()
        timer = loop.call_later(self._timeout_s, self._time_out, api_key)
        self._sent.append(_Sent(self._next_id, api_key, version, reply, timer))
        transport.writelines([size.to_bytes(4, "big") + header, *parts])
        return await reply

    def close(self) -> None:
        """Close the connection; what waits for a reply fails, and nothing can be sent any more."""
        self._closed = True
        self._drop(ChannelError(f"the channel to {self.host}:{self.port} was closed"))

    # Below

    async def _connect(self) -> _Connection:
        if self._closed:
            raise ChannelError(f"the channel to {self.host}:{self.port} is closed")
        connecting = self._connecting
        if connecting is None:
            connecting = self._connecting = asyncio.ensure_future(self._open())
            # Not where it is awaited: who began it may be cancelled, and what was connected is lost
            # one day.
            connecting.add_done_callback(self._connected)
        connection = await asyncio.shield(connecting)
        if connection is not self._connection:
            raise ChannelError(f"lost the connection to {self.host}:{self.port} at once")
        return connection

    def _connected(self, connecting: asyncio.Future[_Connection]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # nobody may be left to look at it

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self._timeout_s)):
                transport, connection = await loop.create_connection(
                    lambda: _Connection(self._received), self.host, self.port
                )
        except OSError as error:  # TimeoutError is one
            reason = str(error) or "timed out"
            raise ChannelError(f"cannot connect to {self.host}:{self.port}: {reason}") from error
        if self._closed:
            transport.abort()
            raise ChannelError(f"the channel to {self.host}:{self.port} is closed")
        connection.lost.add_done_callback(lambda lost: self._lost(connection, lost))
        self._connection = connection
        return connection

    def _received(self, frame: memoryview) -> None:
        if not self._sent:
            self._drop(ChannelError(f"{self.host}:{self.port} sent a reply nobody asked for"))
            return
        sent = self._sent.popleft()
        sent.timer.cancel()
        try:
            correlation_id, body = decode_response_header(frame, sent.api_key, sent.version)
            if correlation_id != sent.correlation_id:
                raise WireError(f"reply {correlation_id} to request {sent.correlation_id}")
            response: object = decode(response_class(sent.api_key), frame, sent.version, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender must not wait for ever
            failure = ChannelError(f"{self.host}:{self.port} sent a malformed reply: {error!r}")
            if not sent.reply.done():
                sent.reply.set_exception(failure)
            self._drop(failure)
            return
        if not sent.reply.done():
            sent.reply.set_result(response)

    def _time_out(self, api_key: int) -> None:
        self._drop(
            ChannelError(
                f"{self.host}:{self.port} did not answer within {self._timeout_s:g} s"
                f" (API key {api_key})"
            )
        )

    def _lost(self, connection: _Connection, lost: asyncio.Future[Exception | None]) -> None:
        if connection is self._connection:
            reason = lost.result() or "closed by the other side"
            self._drop(ChannelError(f"lost the connection to {self.host}:{self.port}: {reason}"))

    def _drop(self, error: ChannelError) -> None:
        connection, self._connection = self._connection, None
        sent, self._sent = self._sent, deque()
        if connection is not None:
            connection.transport.abort()
        for each in sent:
            each.timer.cancel()
            if not each.reply.done():
                each.reply.set_exception(error)


class BrokerChannels:
    """Channels to other brokers for one purpose, by broker id.

    Shape: `metadata()` gives the image that says where brokers are, on the listener named. A broker
    that has moved gets another channel.
    """

    def __init__(
        self,
        metadata: Callable[[], MetadataImage],
        listener: str,
        *,
        client_id: str,
        request_timeout_ms: int,
    ) -> None:
        self._metadata = metadata
        self._listener = listener
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._channels: dict[int, BrokerChannel] = {}

    async def send(self, broker_id: int, request: object, version: int) -> Any:
        """Send a request to a broker. Errors: ChannelError, also when it is not known where it is."""
        return await self.channel(broker_id).send(request, version)

    def channel(self, broker_id: int) -> BrokerChannel:
        """The channel to a broker. Errors: ChannelError when it is not known where it is."""
        broker = self._metadata().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        channel = self._channels.get(broker_id)
        if endpoint is None:
            if channel is not None:
                self._channels.pop(broker_id).close()
            raise ChannelError(f"broker {broker_id} has no listener {self._listener} that is known")
        if channel is None or (channel.host, channel.port) != (endpoint.host, endpoint.port):
            if channel is not None:
                channel.close()
            channel = self._channels[broker_id] = BrokerChannel(
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
            )
        return channel

    def close(self) -> None:
        """Close all."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
