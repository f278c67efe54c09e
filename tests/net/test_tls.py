"""Listeners with TLS over real sockets: handshakes, identities, bytes in both directions, and failures."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from kwire.testing.certificates import HOSTS, Authority, Issued
from server.clock import SystemClock
from server.config import BrokerConfig, ConfigError
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net import platform, tls, tls_transport
from server.net.limits import NetLimits
from server.net.listener import Listener
from server.net.sockets import SocketNetwork
from server.net.tls import Tls
from server.net.tls_transport import ALL_RECORDS, FEW_RECORDS, TURN_RECORDS, Handshakes, Records
from tests.net.echo import Echo, request
from tests.net.sockets import FileSlice, on_loop, until


def settings_of(authority: Authority, issued: Issued, **others: str) -> dict[str, str]:
    """The settings of a listener with TLS; `_` in names of others stands for a dot."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem,
        "ssl.keystore.certificate.chain": issued.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        **{name.replace("_", "."): text for name, text in others.items()},
    }


class Broker:
    """A listener with TLS, its settings and its network."""

    def __init__(self, config: BrokerConfig, executor: Executor) -> None:
        self.config = config
        self.tls = Tls(config, executor, SystemClock())
        self.network = SocketNetwork(executor, self.tls)
        self.echo = Echo()
        endpoint = config.listeners[0]
        acceptor = self.network.listen(endpoint, NetLimits())
        self.endpoint = endpoint._replace(port=acceptor.port)
        self.listener = Listener(acceptor, self.endpoint, self.echo, NetLimits(), SystemClock())
        self.listener.start()

    @property
    def principals(self) -> list[str]:
        return [session.info.principal for session in self.listener.sessions]


@asynccontextmanager
async def serving(settings: dict[str, str]) -> AsyncIterator[Broker]:
    executor = Executor()
    broker = Broker(BrokerConfig(settings), executor)
    try:
        yield broker
    finally:
        await broker.tls.close()
        await broker.listener.close()
        executor.close()


def client_context(
    authority: Authority, own: Issued | None = None, tmp_path: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if own is not None:
        assert tmp_path is not None
        context.load_cert_chain(own.write(tmp_path / "client.pem"))
    return context


class Client:
    """A client on asyncio's own TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, broker: Broker, context: ssl.SSLContext | None) -> Client:
        port = broker.listener.port
        host = None if context is None else "localhost"
        opening = asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
        return cls(*await opening)

    async def ask(self, number: int, body: bytes) -> bytes:
        self.writer.write(request(number, body))
        return await self.answer(len(body))

    async def answer(self, size: int) -> bytes:
        return (await self.reader.readexactly(8 + size))[8:]

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (OSError, ssl.SSLError):
            pass


async def until_lost(client: Client) -> bytes:
    """Read until the broker has closed the connection."""
    try:
        return await client.reader.read(-1)
    except (OSError, ssl.SSLError):
        return b""


# -- bytes


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_loop
async def test_requests_and_answers_of_any_size_come_through(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        context = client_context(authority)
        context.maximum_version = version
        client = await Client.connect(broker, context)
        for number, size in enumerate((1, 0, 16_000, 16_384, 100, 3_000_000, 1)):
            body = os.urandom(size)
            assert await client.ask(number, body) == body
        assert broker.principals == ["User:ANONYMOUS"]
        await client.close()


@pytest.mark.parametrize("cached", [True, False])
@on_loop
async def test_stored_slices_are_sent_in_order_with_what_is_around_them(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    if not cached:
        monkeypatch.setattr(platform, "read_cached", lambda *_: None)
    path, data = tmp_path / "log", os.urandom(700_000)
    path.write_bytes(data)
    places = [(0, 300_000), (5, 10), (100, 0), (1000, 16_384), (3, 699_990), (7, 40_000)]
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, client_context(authority))
        slices = [FileSlice(path, position, size) for position, size in places]
        broker.echo.prefix = [b"", b"first", slices[0], slices[1], b"then", *slices[2:]]
        client.writer.write(request(1, b"last"))
        expected = [data[position : position + size] for position, size in places]
        body = b"first" + expected[0] + expected[1] + b"then" + b"".join(expected[2:]) + b"last"
        assert await client.answer(len(body)) == body
        assert all(each.closed for each in slices)
        await client.close()


@on_loop
async def test_slice_of_a_file_that_was_cut_ends_the_connection(
    authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(1000))
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, client_context(authority))
        broker.echo.prefix = [FileSlice(path, 0, 200_000)]
        client.writer.write(request(1, b""))
        assert len(await until_lost(client)) < 1100
        await client.close()


@on_loop
async def test_what_openssl_has_decrypted_is_not_forgotten_while_a_request_waits(
    authority: Authority,
) -> None:
    """Several requests in one record: the loop is not notified of those that OpenSSL still holds."""
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        broker.echo.later = lambda number: number == 1
        client = await Client.connect(broker, client_context(authority))
        client.writer.write(b"".join(request(number, bytes([number])) for number in range(1, 60)))
        await until(lambda: 1 in broker.echo.pending)
        broker.echo.pending[1].set_result(b"late")
        assert await client.answer(4) == b"late"
        for number in range(2, 60):
            assert await client.answer(1) == bytes([number])
        await client.close()


@on_loop
async def test_requests_of_a_client_that_waits_for_nothing_before_it_leaves_are_taken_up(
    authority: Authority,
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, client_context(authority))
        client.writer.write(b"".join(request(number, key=98) for number in range(500)))
        client.writer.close()
        await until(lambda: not broker.listener.sessions)
        assert broker.echo.seen == list(range(500))


@pytest.mark.parametrize("politely", [True, False])
@on_loop
async def test_peer_that_leaves_while_its_request_waits_is_noticed(
    authority: Authority, politely: bool
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        broker.echo.later = lambda number: True
        client = await Client.connect(broker, client_context(authority))
        client.writer.write(request(1, b""))
        await until(lambda: bool(broker.echo.pending))
        if politely:
            client.writer.close()
        else:
            client.writer.transport.abort()
        await until(lambda: broker.echo.gone == [1])
        assert not broker.listener.sessions


@on_loop
async def test_broker_that_stops_sends_the_ready_replies_and_says_that_this_is_the_end(
    authority: Authority,
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, client_context(authority))
        body = os.urandom(500_000)
        assert await client.ask(1, body) == body
        await broker.listener.close()
        assert (
            await client.reader.read(1) == b""
        )  # without the alert: a ragged end, which is an error
        await client.close()


# -- who it is


@on_loop
async def test_client_with_a_certificate_has_its_name(authority: Authority, tmp_path: Path) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"), ssl_client_auth="required")
    alice = client_context(authority, authority.issue(r"CN=alice,O=Ex\, Inc"), tmp_path)
    async with serving(settings) as broker:
        client = await Client.connect(broker, alice)
        await client.ask(1, b"x")
        assert broker.principals == [r"User:CN=alice,O=Ex\, Inc"]
        await client.close()
    settings["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+),.*$/$1/U"
    async with serving(settings) as broker:
        client = await Client.connect(broker, alice)
        await client.ask(1, b"x")
        assert broker.principals == ["User:ALICE"]
        await client.close()


@on_loop
async def test_session_that_is_resumed_has_the_same_name(
    authority: Authority, tmp_path: Path
) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"), ssl_client_auth="required")
    context = client_context(authority, authority.issue("CN=alice"), tmp_path)
    async with serving(settings) as broker:

        def twice() -> list[bool]:
            reused, session = [], None
            for number in (1, 2):
                with socket.create_connection(("127.0.0.1", broker.listener.port)) as sock:
                    wrapped = context.wrap_socket(
                        sock, server_hostname="localhost", session=session
                    )
                    wrapped.sendall(request(number, b"x"))
                    assert wrapped.recv(100)[-1:] == b"x"
                    session = wrapped.session
                    reused.append(bool(wrapped.session_reused))
                    names.extend(broker.principals)
                    wrapped.close()
            return reused

        names: list[str] = []
        assert await asyncio.to_thread(twice) == [False, True]
        assert set(names) == {"User:CN=alice"}


# -- what goes wrong


async def refused(broker: Broker, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> str:
    """Try to connect as a client, and return the log about it."""
    caplog.clear()
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        client = await Client.connect(broker, context)
        try:
            await client.ask(1, b"x")
        finally:
            await client.close()
    await until(lambda: bool(caplog.messages) and not broker.listener.sessions)
    return "\n".join(caplog.messages)


@on_loop
async def test_clients_that_are_refused_are_told_and_logged_with_the_reason(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"), ssl_client_auth="required")
    settings["ssl.principal.mapping.rules"] = "RULE:^CN=(a.*)$/$1/"
    stranger = Authority("Stranger")
    async with serving(settings) as broker:

        async def said(own: Issued | None, trusts: Authority = authority) -> str:
            return await refused(broker, client_context(trusts, own, tmp_path), caplog)

        assert "it presented no certificate" in await said(None)
        expired = authority.issue("CN=a", valid_for=timedelta(days=-1))
        assert "its certificate is not accepted: certificate has expired" in await said(expired)
        assert "unable to get local issuer certificate" in await said(stranger.issue("CN=a"))
        assert "no rule of ssl.principal.mapping.rules applies to CN=b" in await said(
            authority.issue("CN=b")
        )
        old = client_context(authority)
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        broker.tls._listeners["SSL"].credentials.server.minimum_version = ssl.TLSVersion.TLSv1_3
        assert "no version of TLS is allowed on both sides" in await refused(broker, old, caplog)


@on_loop
async def test_client_that_does_not_trust_the_broker_is_logged_as_such(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:

        def connect() -> None:  # unlike asyncio, a plain socket sends the alert
            context = client_context(Authority("Stranger"))
            address = ("127.0.0.1", broker.listener.port)
            failing = pytest.raises(ssl.SSLCertVerificationError)
            with socket.create_connection(address) as sock, failing:
                context.wrap_socket(sock, server_hostname="localhost")

        await asyncio.to_thread(connect)
        await until(lambda: not broker.listener.sessions)
        assert "it does not trust the certificate of this broker (unknown authority)" in caplog.text


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (request(1, b""), "looks like Kafka without TLS, not TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP, not TLS"),
        (b"AUTH secret\r\n", "looks like something else, not TLS (first bytes b'AUTH')"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake failed"),
    ],
)
@on_loop
async def test_peer_that_does_not_speak_tls_is_named(
    authority: Authority, caplog: pytest.LogCaptureFixture, sent: bytes, expected: str
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, None)
        client.writer.write(sent)
        await until_lost(client)
        await client.close()
        assert expected in caplog.text
        assert "secret" not in caplog.text


@on_loop
async def test_health_check_that_only_connects_is_not_logged(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        with caplog.at_level(logging.INFO):
            caplog.clear()
            client = await Client.connect(broker, None)
            await until(lambda: bool(broker.listener.sessions))
            await client.close()
            await until(lambda: not broker.listener.sessions)
        assert not caplog.messages


@on_loop
async def test_handshake_that_takes_too_long_is_ended(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, None)
        client.writer.write(b"\x16\x03\x01\x02\x00")
        assert await until_lost(client) == b""
        await client.close()
        assert "made no TLS handshake within 0.05 s" in caplog.text
        assert not broker.listener.sessions


@on_loop
async def test_handshakes_share_a_turn_of_the_loop() -> None:
    """While many clients connect at once, all other work gets its turns."""
    now_s, taken = 0.0, []
    handshakes = Handshakes(lambda: now_s)

    def step(number: int) -> None:
        nonlocal now_s
        now_s += 0.002
        taken.append(number)

    for number in range(10):
        handshakes.enter(functools.partial(step, number))
    assert len(taken) == 2  # the second one began in time
    for _ in range(4):
        before = len(taken)
        await asyncio.sleep(0)
        assert len(taken) == before + 2
    assert taken == list(range(10))
    await asyncio.sleep(0)
    handshakes.enter(functools.partial(step, 10))
    assert taken[-1] == 10  # immediately, since no work waits


# -- short records


@on_loop
async def test_records_of_a_byte_are_decrypted_in_several_turns(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of one byte costs as much as one of a kilobyte, and the kernel may hold 200,000 of them."""
    taken: list[int] = []
    monkeypatch.setattr(tls_transport, "TURN_RECORDS", 16)
    monkeypatch.setattr(Records, "took", lambda _, count: taken.append(count))
    async with serving(settings_of(authority, authority.issue("CN=broker"))) as broker:
        client = await Client.connect(broker, client_context(authority))
        tls_object = client.writer.get_extra_info("ssl_object")
        body = bytes(range(200))
        for byte in request(1, body):
            tls_object.write(bytes([byte]))  # collected, and sent with the next byte
        client.writer.write(request(2, b"end"))
        assert await client.answer(len(body)) == body
        assert await client.answer(3) == b"end"
        await client.close()
    assert max(taken) == 16
    assert sum(taken) > len(body)


@on_loop
async def test_connections_with_many_records_share_a_turn_of_the_loop() -> None:
    records = Records()
    for _ in range(ALL_RECORDS // TURN_RECORDS):
        assert records.allowed == TURN_RECORDS
        records.took(TURN_RECORDS)
    assert records.allowed == FEW_RECORDS
    await asyncio.sleep(0)
    assert records.allowed == TURN_RECORDS


# -- as a client


@on_loop
async def test_broker_connects_to_another_and_checks_who_it_is(authority: Authority) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"), ssl_client_auth="required")
    async with serving(settings) as broker:
        transport = await broker.network.connect(broker.endpoint._replace(host="localhost"))
        ended = Ended()
        transport.start(ended)
        transport.send([request(1, b"from a broker")])
        await until(lambda: len(ended.data) == 8 + 13)
        assert broker.principals == ["User:CN=broker"]
        transport.close()


@on_loop
async def test_broker_with_a_certificate_for_another_host_is_not_connected_to(
    authority: Authority,
) -> None:
    settings = settings_of(authority, authority.issue("CN=broker", hosts=("elsewhere",)))
    async with serving(settings) as broker:
        with pytest.raises(OSError, match=r"(Hostname|IP address) mismatch"):
            await broker.network.connect(broker.endpoint)


class Ended:
    """A receiver of a transport's input."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._buffer = bytearray(100)

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        self.data += self._buffer[:count]

    def drained(self) -> None:
        return

    def secured(self, principal: str) -> None:
        raise AssertionError("nobody asks a client who the server is")

    def lost(self, error: OSError | None) -> None:
        raise AssertionError(error)


# -- new certificates


async def serial_of(broker: Broker, authority: Authority) -> int:
    """The serial number of the certificate that new connections are shown."""
    client = await Client.connect(broker, client_context(authority))
    shown = client.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    await client.close()
    return int(shown, 16)


@on_loop
async def test_new_files_are_taken_up_and_broken_ones_refused(
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "WATCH_S", 0.01)
    first, second = authority.issue("CN=broker"), authority.issue("CN=broker")
    store = first.write(tmp_path / "broker.pem")
    settings = settings_of(authority, first, ssl_keystore_location=str(store))
    del settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    async with serving(settings) as broker:
        broker.tls.start()
        kept = await Client.connect(broker, client_context(authority))
        assert await serial_of(broker, authority) == first.certificate.serial_number
        second.write(store)
        while await serial_of(broker, authority) != second.certificate.serial_number:
            await asyncio.sleep(0.01)
        caplog.clear()
        rubbish = tmp_path / "rubbish"
        rubbish.write_text("rubbish")
        rubbish.replace(store)  # in one step: an empty file would be a separate change
        while not caplog.messages:
            await asyncio.sleep(0.01)
        assert "the new certificates are refused, the listener keeps the old ones" in caplog.text
        assert f"ssl.keystore.location={store}: this is no PEM file" in caplog.text
        await asyncio.sleep(0.05)
        assert len(caplog.messages) == 1  # once for each change
        assert await serial_of(broker, authority) == second.certificate.serial_number
        assert await kept.ask(1, b"still here") == b"still here"
        await kept.close()


@on_loop
async def test_reload_reads_at_once(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.issue("CN=broker"), authority.issue("CN=broker")
    store = first.write(tmp_path / "broker.pem")
    settings = settings_of(authority, first, ssl_keystore_location=str(store))
    del settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    async with serving(settings) as broker:
        broker.tls.start()
        second.write(store)
        broker.tls.reload()
        before, after = first.certificate.serial_number, second.certificate.serial_number
        while (shown := await serial_of(broker, authority)) == before:
            await asyncio.sleep(0)
        assert shown == after


@pytest.mark.parametrize(
    ("days_left", "warnings"),
    [
        (15, []),
        (5, ["listener SSL: the certificate expires in 5 days"]),
        (-1, ["listener SSL: the certificate has expired"]),
    ],
)
def test_certificate_that_ends_soon_is_named_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture, days_left: int, warnings: list[str]
) -> None:
    issued = authority.issue("CN=broker")
    config = BrokerConfig(settings_of(authority, issued))
    listener = tls.TlsListener(config, Endpoint("SSL", "", 0, "SSL"))
    ends_ms = int(issued.certificate.not_valid_after_utc.timestamp()) * 1000
    listener.take(listener.credentials, ends_ms - days_left * 86_400_000)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert said == warnings


@pytest.mark.parametrize(
    ("auth", "truststore", "warns"),
    [
        ("required", False, True),
        ("requested", False, True),
        ("none", False, False),
        ("required", True, False),
    ],
)
def test_client_certificates_of_any_authority_are_warned_of(
    authority: Authority, caplog: pytest.LogCaptureFixture, auth: str, truststore: bool, warns: bool
) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"), ssl_client_auth=auth)
    if not truststore:
        del settings["ssl.truststore.certificates"]
    listener = tls.TlsListener(BrokerConfig(settings), Endpoint("SSL", "", 0, "SSL"))
    listener.take(listener.credentials, 0)
    assert ("any authority that this system trusts" in caplog.text) == warns


@on_loop
async def test_change_at_run_time_is_checked_and_taken_up(
    authority: Authority, tmp_path: Path
) -> None:
    def written(name: str, issued: Issued) -> dict[str, str]:
        store = issued.write(tmp_path / f"{name}.pem")
        return {"listener.name.ssl.ssl.keystore.location": str(store)}

    first = authority.issue("CN=broker")
    store = first.write(tmp_path / "first.pem")
    settings = settings_of(authority, first, ssl_keystore_location=str(store))
    del settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    async with serving(settings) as broker:
        broker.tls.start()
        check = broker.config.check_dynamic
        with pytest.raises(ConfigError, match=r"existing=\{DN=CN=broker\}, new=\{DN=CN=other\}"):
            check(written("other", authority.issue("CN=other")), per_broker=True)
        fewer = authority.issue("CN=broker", hosts=("localhost",))
        with pytest.raises(ConfigError, match=r"SubjectAltNames do not match.* 127\.0\.0\.1"):
            check(written("fewer", fewer), per_broker=True)
        with pytest.raises(ConfigError, match="cannot be read"):
            check({"listener.name.ssl.ssl.keystore.location": "/nothing"}, per_broker=True)
        second = authority.issue("CN=broker", hosts=(*HOSTS, "more"))
        change = written("second", second)
        check(change, per_broker=True)
        broker.config.set_dynamic(broker=change)
        while await serial_of(broker, authority) != second.certificate.serial_number:
            await asyncio.sleep(0)


def test_other_names_are_accepted_where_the_settings_allow_them(
    authority: Authority, tmp_path: Path
) -> None:
    settings = settings_of(authority, authority.issue("CN=broker"))
    settings |= {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    config = BrokerConfig(settings)
    before = tls.TlsListener(config, Endpoint("SSL", "", 0, "SSL")).credentials
    other = BrokerConfig(settings_of(authority, authority.issue("CN=other", hosts=("else",))))
    after = tls.TlsListener(other, Endpoint("SSL", "", 0, "SSL")).credentials
    tls.check_replacement(before, after, config, "SSL")
    with pytest.raises(ConfigError, match="DistinguishedName does not match"):
        tls.check_replacement(before, after, other, "SSL")
