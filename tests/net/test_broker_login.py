"""A channel to a broker that requires a login."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kwire.codec import decode, encode
from kwire.header import decode_request_header, encode_response_header
from kwire.messages.metadata import MetadataRequest, MetadataResponse
from kwire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net import broker_channel
from server.net.broker_channel import BrokerChannel, ChannelError, LoginRefused
from server.net.sockets import SocketNetwork
from server.security.sasl.clients import PlainClient
from server.security.sasl.mechanism import SaslClient

MESSAGES = {3: MetadataRequest, 17: SaslHandshakeRequest, 36: SaslAuthenticateRequest}


class NotedLogin:
    """Logs in with PLAIN, and records its notifications."""

    mechanism = "PLAIN"

    def __init__(self) -> None:
        self.told: list[str] = []

    async def client(self, host: str) -> SaslClient:
        assert host == "127.0.0.1"
        return PlainClient("broker", "secret")

    def succeeded(self, address: str) -> None:
        self.told.append("succeeded")

    def failed(self, address: str, reason: str) -> None:
        self.told.append(reason)


class Peer:
    """A broker that records requests and answers logins as instructed."""

    def __init__(
        self,
        *,
        mechanisms: tuple[str, ...] = ("PLAIN",),
        refusals: int = 0,
        lifetime_ms: int = 0,
        hang_up: bool = False,
    ) -> None:
        self.keys: list[int] = []
        self.connections = 0
        self._mechanisms = mechanisms
        self._refusals = refusals
        self._lifetime_ms = lifetime_ms
        self._hang_up = hang_up

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, start = decode_request_header(frame)
                self.keys.append(header.api_key)
                request = decode(MESSAGES[header.api_key], frame, header.api_version, start)
                if self._hang_up:
                    return
                response = self.answer(request)
                answer = encode_response_header(
                    header.api_key, header.api_version, header.correlation_id
                ) + encode(response, header.api_version)
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, request: object) -> object:
        if isinstance(request, SaslHandshakeRequest):
            known = request.mechanism in self._mechanisms
            return SaslHandshakeResponse(
                error_code=0 if known else 33, mechanisms=list(self._mechanisms)
            )
        if isinstance(request, SaslAuthenticateRequest):
            assert bytes(request.auth_bytes) == b"\0broker\0secret"
            if self._refusals:
                self._refusals -= 1
                return SaslAuthenticateResponse(
                    error_code=58, error_message="Invalid username or password", auth_bytes=b""
                )
            return SaslAuthenticateResponse(
                error_code=0, auth_bytes=b"", session_lifetime_ms=self._lifetime_ms
            )
        return MetadataResponse(brokers=[], topics=[])


def run(
    peer: Peer, login: NotedLogin, scenario: Callable[[BrokerChannel], Awaitable[None]]
) -> None:
    async def main() -> None:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        channel = BrokerChannel(
            SocketNetwork(Executor()),
            Endpoint("INTERNAL", "127.0.0.1", port),
            client_id="c",
            request_timeout_ms=2000,
            login=login,
        )
        try:
            await asyncio.wait_for(scenario(channel), 20)
        finally:
            channel.close()
            server.close()
            await asyncio.sleep(0)

    asyncio.run(main())


async def ask(channel: BrokerChannel) -> None:
    await channel.send(MetadataRequest(topics=[]), 9)


def test_login_comes_before_the_first_request_and_once_for_all() -> None:
    peer, login = Peer(), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        await asyncio.gather(*(ask(channel) for _ in range(3)))
        await ask(channel)

    run(peer, login, scenario)
    assert peer.keys == [17, 36, 3, 3, 3, 3]
    assert login.told == ["succeeded"]


def test_refused_login_is_an_error_and_is_tried_again_after_a_pause(monkeypatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    peer, login = Peer(refusals=7), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        monkeypatch.setattr(broker_channel.asyncio, "sleep", noted)
        for _ in range(7):
            with pytest.raises(
                LoginRefused, match="cannot log in: Invalid username or password"
            ) as refused:
                await ask(channel)
            assert "secret" not in str(refused.value)
        await ask(channel)
        monkeypatch.undo()

    run(peer, login, scenario)
    assert login.told == ["Invalid username or password"] * 7 + ["succeeded"]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert peer.connections == 8
    assert 3 not in peer.keys[:-1]


def test_mechanism_that_the_other_broker_lacks_is_named_with_those_it_has() -> None:
    peer, login = Peer(mechanisms=("SCRAM-SHA-256", "GSSAPI")), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        with pytest.raises(LoginRefused, match="it has SCRAM-SHA-256, GSSAPI enabled, not PLAIN"):
            await ask(channel)

    run(peer, login, scenario)
    assert peer.keys == [17]


def test_connection_that_ends_during_the_login_is_no_refused_login() -> None:
    peer, login = Peer(hang_up=True), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        with pytest.raises(ChannelError, match="lost the connection") as lost:
            await ask(channel)
        assert not isinstance(lost.value, LoginRefused)

    run(peer, login, scenario)
    assert login.told == []


def test_login_is_repeated_on_the_connection_before_the_session_ends() -> None:
    peer, login = Peer(lifetime_ms=3_600_000), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        await ask(channel)
        connection = channel._connection
        assert connection is not None
        left = connection.login_again_at - asyncio.get_running_loop().time()
        assert 0.84 * 3600 < left < 0.96 * 3600
        connection.login_again_at = 0.0
        await asyncio.gather(ask(channel), ask(channel))
        assert channel._connection is connection

    run(peer, login, scenario)
    assert peer.keys == [17, 36, 3, 17, 36, 3, 3]
    assert peer.connections == 1
    assert login.told == ["succeeded"] * 2


def test_refused_repetition_ends_the_connection() -> None:
    peer, login = Peer(lifetime_ms=3_600_000), NotedLogin()

    async def scenario(channel: BrokerChannel) -> None:
        await ask(channel)
        assert channel._connection is not None
        channel._connection.login_again_at = 0.0
        peer._refusals = 1
        with pytest.raises(LoginRefused):
            await ask(channel)
        assert channel._connection is None
        await ask(channel)

    run(peer, login, scenario)
    assert peer.connections == 2
