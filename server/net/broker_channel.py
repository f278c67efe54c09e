"""Requests from this broker to another: one connection, opened when needed, replies in request order.

A reply's frame has its own memory, so that fetched batches are written to the log from where they were received. There
is no retry here, because only the caller knows what a lost reply means.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kwire.connection import ClientConnection
from kwire.schema import schema_of

if TYPE_CHECKING:
    from ..metadata.endpoint import Endpoint
    from ..metadata.image import MetadataImage
    from ..security.sasl.mechanism import SaslClient
    from .network import Network
    from .transport import Transport

CONNECT_TIMEOUT_S = 5.0
#: The delay after a refused login: it doubles from the first to the longest.
LOGIN_PAUSE_S = 0.25
LONGEST_LOGIN_PAUSE_S = 5.0
#: The share of a session's life after which a client logs in again. Source: SaslClientAuthenticator.
LOGIN_AGAIN_AFTER = (0.85, 0.95)


class ChannelError(OSError):
    """The request or its reply was lost; whether the other broker acted on it is unknown."""


class LoginRefused(ChannelError):
    """Raised if the other broker refused this broker's login, or did not prove its identity."""


class Login(Protocol):
    """How a broker logs in at others, with SASL; one for all of its channels."""

    @property
    def mechanism(self) -> str:
        """As in `sasl.enabled.mechanisms`."""
        ...

    async def client(self, host: str) -> SaslClient:
        """The client's half of a new login at a host. Errors: LoginFailed."""
        ...

    def succeeded(self, address: str) -> None:
        """A login at this address was accepted."""
        ...

    def failed(self, address: str, reason: str) -> None:
        """A login at this address was refused: tell the operator, but not each time."""
        ...


class _Waiting(NamedTuple):
    """A request that waits for its reply. Shape: `until` is the loop time at which it times out."""

    request: object
    reply: asyncio.Future[Any]
    until: float


class _Connection:
    """One connection of a channel: turns received bytes into replies."""

    def __init__(
        self,
        transport: Transport,
        client_id: str,
        on_end: Callable[[_Connection, str], None],
    ) -> None:
        self.transport = transport
        self.client = ClientConnection(client_id)
        #: By correlation id, the oldest first.
        self.waiting: dict[int, _Waiting] = {}
        #: One timer for all requests, which are answered, and time out, in order.
        self.timer: asyncio.TimerHandle | None = None
        #: The loop time from which no request may be sent before another login on this connection.
        self.login_again_at = math.inf
        self._on_end = on_end

    def get_buffer(self) -> memoryview:
        return self.client.get_buffer()

    def received(self, count: int) -> None:
        client = self.client
        client.received(count)
        try:
            while (response := client.next_response()) is not None:
                message = response.message()
                waiting = self.waiting.pop(response.correlation_id)
                if not waiting.reply.done():
                    waiting.reply.set_result(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender must not wait for ever
            self._on_end(self, f"sent a malformed reply: {error!r}")

    def drained(self) -> None:
        return

    def secured(self, principal: str) -> None:
        return

    def lost(self, error: OSError | None) -> None:
        self._on_end(self, f"lost the connection: {error or 'closed by the other side'}")


class BrokerChannel:
    """A channel to one broker. Unit: `request_timeout_ms` is the sender's `request.timeout.ms`."""

    def __init__(
        self,
        network: Network,
        endpoint: Endpoint,
        *,
        client_id: str,
        request_timeout_ms: int,
        login: Login | None = None,
    ) -> None:
        """Shape: `login` is None if the other broker's listener requires none."""
        self.endpoint = endpoint
        self._login = login
        self._login_pause_s = 0.0
        self._network = network
        self._client_id = client_id
        self._timeout_s = request_timeout_ms / 1000
        self._connection: _Connection | None = None
        self._connecting: asyncio.Future[_Connection] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"BrokerChannel({self.endpoint.address})"

    async def send(self, request: object, version: int) -> Any:
        """Send a request message and return the response message.

        Shape: several requests may be in flight; they are answered in order. Views in the response
        point into memory that belongs to it alone. Errors: ChannelError.
        """
        loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is None or loop.time() >= connection.login_again_at:
            connection = await self._connect()
        return await self._ask(connection, request, version)

    def _ask(self, connection: _Connection, request: object, version: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        correlation_id = connection.client.request(request, version)
        reply: asyncio.Future[Any] = loop.create_future()
        until = loop.time() + self._timeout_s
        connection.waiting[correlation_id] = _Waiting(request, reply, until)
        if connection.timer is None:
            connection.timer = loop.call_at(until, self._time_out, connection)
        connection.transport.send(connection.client.take_output())
        return reply

    def close(self) -> None:
        """Close the connection; requests in flight fail, and no more can be sent."""
        self._closed = True
        if self._connection is not None:
            self._end(self._connection, "the channel was closed")

    # Below

    def _error(self, reason: str) -> ChannelError:
        return ChannelError(f"broker at {self.endpoint.address}: {reason}")

    async def _connect(self) -> _Connection:
        if self._closed:
            raise self._error("the channel is closed")
        connecting = self._connecting
        if connecting is None:
            connecting = self._connecting = asyncio.ensure_future(self._open())
            # A callback, not code after the await: the first caller may be cancelled in the meantime, and `_connecting`
            # has to be reset nevertheless.
            connecting.add_done_callback(self._connected)
        connection = await asyncio.shield(connecting)
        if connection is not self._connection:
            raise self._error("lost the connection at once")
        return connection

    def _connected(self, connecting: asyncio.Future[_Connection]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # marks it as retrieved, since no caller may be left

    async def _open(self) -> _Connection:
        """Connect and log in; on a connection whose session is about to end, log in again."""
        connection = self._connection
        if connection is None:
            connection = await self._open_connection()
            if self._login is None:
                self._connection = connection
                return connection
        assert self._login is not None
        try:
            await self._log_in(connection, self._login)
        except BaseException as error:
            self._end(connection, str(error) or "the login was aborted")
            raise
        if self._closed:
            self._end(connection, "the channel is closed")
            raise self._error("the channel is closed")
        self._connection = connection
        return connection

    async def _open_connection(self) -> _Connection:
        if self._login_pause_s:
            await asyncio.sleep(self._login_pause_s)
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self._timeout_s)):
                transport = await self._network.connect(self.endpoint)
        except OSError as error:  # TimeoutError is one
            raise self._error(f"cannot connect: {str(error) or 'timed out'}") from error
        if self._closed:
            transport.close()
            raise self._error("the channel is closed")
        connection = _Connection(transport, self._client_id, self._end)
        transport.start(connection)
        return connection

    async def _log_in(self, connection: _Connection, login: Login) -> None:
        """Run the exchange of SASL on a connection. Errors: LoginRefused, ChannelError.

        Source: SaslClientAuthenticator; KIP-43, KIP-152, KIP-368.
        """
        from ..security.sasl.mechanism import LoginFailed

        address = self.endpoint.address
        try:
            lifetime_ms = await self._exchange(connection, login)
        except LoginFailed as error:
            pause_s = self._login_pause_s * 2 or LOGIN_PAUSE_S
            self._login_pause_s = min(pause_s, LONGEST_LOGIN_PAUSE_S)
            login.failed(address, str(error))
            raise LoginRefused(f"broker at {address}: cannot log in: {error}") from error
        self._login_pause_s = 0.0
        login.succeeded(address)
        connection.login_again_at = math.inf
        if lifetime_ms > 0:
            share = random.uniform(*LOGIN_AGAIN_AFTER)
            now = asyncio.get_running_loop().time()
            connection.login_again_at = now + lifetime_ms / 1000 * share

    async def _exchange(self, connection: _Connection, login: Login) -> int:
        """Log in; returns the duration of the session in ms, 0 if unlimited. Errors: LoginFailed, ChannelError."""
        from kwire.messages.sasl_authenticate import SaslAuthenticateRequest
        from kwire.messages.sasl_handshake import SaslHandshakeRequest

        from ..security.sasl.mechanism import LoginFailed

        client = await login.client(self.endpoint.host)
        handshake = await self._ask(connection, SaslHandshakeRequest(mechanism=login.mechanism), 1)
        if handshake.error_code:
            enabled = ", ".join(handshake.mechanisms) or "none"
            raise LoginFailed(f"it has {enabled} enabled, not {login.mechanism}")
        token: bytes | None = client.start()
        while True:
            answer = await self._ask(
                connection, SaslAuthenticateRequest(auth_bytes=token or b""), 2
            )
            if answer.error_code:
                raise LoginFailed(answer.error_message or f"error code {answer.error_code}")
            token = client.evaluate(bytes(answer.auth_bytes))
            if token is None:
                return int(answer.session_lifetime_ms)

    def _time_out(self, connection: _Connection) -> None:
        """Close the connection if its oldest request has timed out, else check again when it will."""
        connection.timer = None
        if not connection.waiting:
            return
        oldest, loop = next(iter(connection.waiting.values())), asyncio.get_running_loop()
        if loop.time() < oldest.until:
            connection.timer = loop.call_at(oldest.until, self._time_out, connection)
            return
        key = schema_of(type(oldest.request)).api_key
        self._end(connection, f"did not answer within {self._timeout_s:g} s (API key {key})")

    def _end(self, connection: _Connection, reason: str) -> None:
        """Close a connection, and fail the requests that have no reply."""
        if connection is self._connection:
            self._connection = None
        connection.transport.close()
        # Receivers of the error may keep the connection alive for long, for example through a traceback.
        connection.client.close()
        if connection.timer is not None:
            connection.timer.cancel()
        waiting, connection.waiting = connection.waiting, {}
        for each in waiting.values():
            if not each.reply.done():
                each.reply.set_exception(self._error(reason))


class BrokerChannels:
    """Channels to other brokers for one purpose, by broker id.

    Shape: `metadata()` returns the image with the brokers' addresses on the named listener. A broker
    whose address has changed gets a new channel.
    """

    def __init__(
        self,
        network: Network,
        metadata: Callable[[], MetadataImage],
        listener: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        login: Login | None = None,
    ) -> None:
        self._network = network
        self._login = login
        self._metadata = metadata
        self._listener = listener
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._channels: dict[int, BrokerChannel] = {}

    async def send(self, broker_id: int, request: object, version: int) -> Any:
        """Send a request to a broker. Errors: ChannelError, also if its address is unknown."""
        return await self.channel(broker_id).send(request, version)

    def channel(self, broker_id: int) -> BrokerChannel:
        """The channel to a broker. Errors: ChannelError if its address is unknown."""
        broker = self._metadata().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        channel = self._channels.get(broker_id)
        if endpoint is None:
            if channel is not None:
                self._channels.pop(broker_id).close()
            raise ChannelError(f"broker {broker_id} has no listener {self._listener} that is known")
        if channel is None or channel.endpoint != endpoint:
            if channel is not None:
                channel.close()
            channel = self._channels[broker_id] = BrokerChannel(
                self._network,
                endpoint,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
                login=self._login,
            )
        return channel

    def close(self) -> None:
        """Close all."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
