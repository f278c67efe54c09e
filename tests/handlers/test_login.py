"""Logins on a connection: frames in, frames out, through the session and the usual dispatcher."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from server.config import BrokerConfig
from server.handlers import login as login_module
from server.handlers.api_versions import api_versions
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import Features, RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.login import LOGIN_TIMEOUT_MS, LoginDispatcher, SaslLogins
from server.handlers.registry import HandlerTable, handles
from server.handlers.sasl import sasl_authenticate, sasl_handshake
from server.net.session import Session
from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed, SaslServer
from server.security.sasl.mechanisms import MECHANISMS
from server.security.sasl.sources import LoginServices
from tests.security.tokens import ec_key, key_set, public_jwk
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import MemoryTransport, connect
from tests.support.versions import versions

GOOD, BAD = b"\0alice\0alice-secret", b"\0alice\0wrong-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob-secret";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://:0,SASL_PLAINTEXT://:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "0",
    "sasl.server.max.receive.size": "1000",
}


@handles(HeartbeatRequest, versions="0-4", authorize=None)
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=27)


@dataclass
class Connection:
    """A connection to a SASL listener."""

    transport: MemoryTransport
    session: Session
    logins: SaslLogins
    clock: ManualClock
    answered: int = 0

    def ask(self, *frames: bytes) -> list[bytes]:
        """Send frames in one piece, and return the new answers without their correlation ids."""
        self.transport.receive(b"".join(frames))
        return self.answers()

    def answers(self) -> list[bytes]:
        """The answers since the last call."""
        found = self.transport.frames()[self.answered :]
        self.answered += len(found)
        return found

    async def closed(self) -> None:
        """Wait for the end of the connection."""
        ended = asyncio.get_running_loop().create_future()
        on_closed = self.session._on_closed

        def closed(session: Session) -> None:
            on_closed(session)
            ended.set_result(None)

        self.session._on_closed = closed
        await ended

    @property
    def serves_directly(self) -> bool:
        """Whether later requests cost nothing more after the login."""
        return type(self.session._dispatcher) is RequestDispatcher


def open_connection(beat: Any = heartbeat, **settings: str) -> Connection:
    clock = ManualClock()
    table = HandlerTable([beat, sasl_handshake, api_versions, sasl_authenticate], CEILING_3_9)
    services = services_of(clock=clock, api_ranges=table.ranges, features=Features())
    dispatcher = RequestDispatcher(table, services, clock)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    config = BrokerConfig({**SETTINGS, **named})

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    sources = LoginServices(dict, str, lambda *_: None, clock, lambda _: None, in_thread)
    logins = SaslLogins(config.listener("SASL_PLAINTEXT"), sources, dispatcher, clock)
    transport, session = connect(dispatcher, clock=clock)
    session.info.listener = "SASL_PLAINTEXT"
    logins.begin(session)
    return Connection(transport, session, logins, clock)


def frame(message: Any, key: int, version: int) -> bytes:
    flexible = {12: 4, 18: 3, 36: 2}.get(key, 99) <= version
    header = struct.pack(">hhih", key, version, 1, 2) + b"me" + b"\0" * flexible
    body = encode(message, version)
    return struct.pack(">i", len(header) + len(body)) + header + body


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), 17, version)


def authenticate(token: bytes = GOOD, version: int = 1) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=token), 36, version)


def bare(token: bytes = GOOD) -> bytes:
    return struct.pack(">i", len(token)) + token


VERSIONS = frame(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 18, 3)
BEAT = frame(HeartbeatRequest(), 12, 0)
BEATEN = struct.pack(">ih", 1, 27)


def authenticated(answer: bytes, version: int = 1) -> SaslAuthenticateResponse:
    return decode(SaslAuthenticateResponse, answer[4 + (version == 2) :], version)


@pytest.mark.parametrize("version", versions(sasl_authenticate))
def test_client_logs_in_and_is_served(version: int) -> None:
    connection = open_connection()
    versions, shaken, done = connection.ask(VERSIONS, handshake(), authenticate(GOOD, version))
    assert versions[4:6] == b"\0\0"
    assert decode(SaslHandshakeResponse, shaken[4:], 1).mechanisms == ["PLAIN"]
    assert authenticated(done, version).error_code == 0
    assert connection.session.info.principal == "User:alice"
    assert connection.ask(BEAT) == [BEATEN]
    assert connection.serves_directly and connection.session.info.login is None
    assert connection.logins.count("PLAIN").successful == 1


def test_requests_behind_a_login_in_one_piece_are_served() -> None:
    connection = open_connection()
    assert connection.ask(handshake(), authenticate(), BEAT, BEAT)[2:] == [BEATEN, BEATEN]


def test_bare_tokens_follow_the_first_version_of_the_handshake() -> None:
    for frames in ([handshake(version=0) + bare() + BEAT], [handshake(version=0), bare(), BEAT]):
        connection = open_connection()
        answers = [answer for each in frames for answer in connection.ask(each)]
        assert answers[1:] == [b"", BEATEN]
        assert connection.serves_directly


def test_request_longer_than_the_login_allows_is_served_after_it() -> None:
    connection = open_connection()
    long = frame(HeartbeatRequest(group_id="g" * 2000), 12, 0)
    connection.ask(handshake(), authenticate())
    assert connection.ask(long) == [BEATEN]


@pytest.mark.parametrize(
    "frames",
    [
        [BEAT],
        [VERSIONS, BEAT],
        [VERSIONS, VERSIONS],
        [handshake(), BEAT],
        [handshake(), VERSIONS],
        [authenticate()],
        [VERSIONS, authenticate()],
        [bare()],
        [handshake(version=0), BEAT],
        [handshake(version=0), authenticate()],
        [handshake(version=0), bare(b"")],
        [handshake(), authenticate(version=1)[:-1] + b"\xff" * 9],
        [frame(SaslHandshakeRequest(mechanism="PLAIN"), 17, 1)[:-3]],
        [struct.pack(">i", 1001)],
        [struct.pack(">i", -1)],
        [b"GET / HTTP/1.1\r\n\r\n"],
    ],
)
def test_whatever_else_arrives_before_the_login_ends_the_connection(frames: list[bytes]) -> None:
    connection = open_connection()
    for each in frames:
        if not connection.session.closed:
            connection.ask(each)
    if not connection.session.closed:  # cut off: it continues with the next request
        connection.ask(BEAT)
    assert connection.session.closed
    assert connection.session.info.principal == "User:ANONYMOUS"
    assert BEATEN not in connection.transport.frames()


def test_second_handshake_is_told_that_it_is_out_of_place() -> None:
    connection = open_connection()
    answer = connection.ask(handshake(), handshake())[1]
    assert decode(SaslHandshakeResponse, answer[4:], 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.session.closed


def test_unsupported_version_of_api_versions_does_not_count_as_asked() -> None:
    connection = open_connection()
    asked = frame(ApiVersionsRequest(), 18, 3)  # without a name
    assert len(connection.ask(asked, asked, VERSIONS, handshake(), authenticate())) == 5
    assert connection.serves_directly


def test_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    connection = open_connection()
    (answer,) = connection.ask(handshake("SCRAM-SHA-256"))
    told = decode(SaslHandshakeResponse, answer[4:], 1)
    assert told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert told.mechanisms == ["PLAIN"]
    assert connection.session.closed


def test_failed_login_is_answered_counted_and_logged_without_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = open_connection()
    answer = authenticated(connection.ask(handshake(), authenticate(BAD))[1])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert connection.session.closed
    assert connection.logins.count("PLAIN").failed == 1
    assert "login of 'alice' with PLAIN has failed" in caplog.text
    assert "secret" not in caplog.text


def test_names_in_the_log_are_escaped_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    user = "x\n2026 ERROR all is lost\x1b[0m" + "y" * 500
    open_connection().ask(handshake(), authenticate(f"\0{user}\0p".encode()))
    open_connection().ask(handshake("P\nLAIN"))
    for record in caplog.records:
        assert "\n" not in record.getMessage() and "\x1b" not in record.getMessage()
        assert len(record.getMessage()) < 300
    assert len(caplog.records) == 2


def test_failed_login_is_answered_after_the_delay() -> None:
    async def run() -> None:
        connection = open_connection(connection__failed__authentication__delay__ms="30")
        assert len(connection.ask(handshake(), authenticate(BAD), authenticate())) == 1
        assert not connection.session.closed
        await connection.closed()
        assert len(connection.answers()) == 1
        assert connection.logins.count("PLAIN").failed == 1

    asyncio.run(run())


def test_login_that_has_failed_does_not_also_take_too_long() -> None:
    async def run() -> None:
        connection = open_connection(connection__failed__authentication__delay__ms="30000")
        connection.ask(handshake(), authenticate(BAD))
        connection.clock.advance(LOGIN_TIMEOUT_MS)
        connection.logins.tick(connection.clock.monotonic_ms())
        assert connection.logins.count("PLAIN").failed == 1
        connection.transport.hang_up()

    asyncio.run(run())


def test_connection_that_ends_during_the_delay_leaves_nothing_behind() -> None:
    async def run() -> None:
        connection = open_connection(connection__failed__authentication__delay__ms="30000")
        connection.ask(handshake(), authenticate(BAD))
        connection.transport.hang_up()
        assert not [
            each
            for each in asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
            if not each.cancelled()
        ]

    asyncio.run(run())


def test_login_that_takes_too_long_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    slow, quick = open_connection(), open_connection()
    for connection in (slow, quick):
        connection.ask(VERSIONS, handshake())
    quick.ask(authenticate())
    for connection in (slow, quick):
        connection.clock.advance(LOGIN_TIMEOUT_MS - 1)
        connection.logins.tick(connection.clock.monotonic_ms())
        assert not connection.session.closed
        connection.clock.advance(1)
        connection.logins.tick(connection.clock.monotonic_ms())
    assert slow.session.closed and not quick.session.closed
    assert "has not logged in within 60000 ms" in caplog.text


# -- mechanisms that wait


class Waiting:
    """A mechanism whose steps end at the test's request."""

    name = "WAIT"

    def __init__(self) -> None:
        self.steps: list[asyncio.Future[Any]] = []

    def server(self) -> SaslServer:
        return self

    def evaluate(self, response: bytes) -> Awaitable[Challenge | Authenticated]:
        self.steps.append(asyncio.get_running_loop().create_future())
        return self.steps[-1]


@pytest.fixture
def waiting() -> Generator[Waiting]:
    mechanism = Waiting()
    MECHANISMS["WAIT"] = SimpleNamespace(make=lambda *_: mechanism)  # type: ignore[assignment]
    yield mechanism
    del MECHANISMS["WAIT"]


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", [0, 1])
def test_steps_may_take_time(waiting: Waiting, version: int) -> None:
    async def run() -> None:
        token = bare if version == 0 else authenticate
        connection = open_connection(sasl__enabled__mechanisms="WAIT")
        connection.ask(handshake("WAIT", version), token(b"1"), token(b"2"), BEAT)
        assert len(waiting.steps) == 1
        waiting.steps[0].set_result(Challenge(b"go on"))
        await settle()
        connection.transport.pump()
        assert len(waiting.steps) == 2
        waiting.steps[1].set_result(Authenticated(b"", "User:alice"))
        await settle()
        connection.transport.pump()
        assert connection.answers()[-1] == BEATEN
        assert connection.serves_directly

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("error", [LoginFailed("No"), RuntimeError("a bug with a secret")])
def test_step_that_fails_later_is_answered(
    waiting: Waiting, version: int, error: Exception
) -> None:
    async def run() -> None:
        connection = open_connection(sasl__enabled__mechanisms="WAIT")
        token = bare if version == 0 else authenticate
        connection.ask(handshake("WAIT", version), token(b"1"))
        waiting.steps[0].set_exception(error)
        await settle()
        assert connection.session.closed
        answers = connection.answers()
        if version == 0:
            assert not answers
        else:
            told = authenticated(answers[0])
            assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "secret" not in str(told.error_message)

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1])
def test_step_is_cancelled_if_the_connection_ends(waiting: Waiting, version: int) -> None:
    async def run() -> None:
        connection = open_connection(sasl__enabled__mechanisms="WAIT")
        token = bare if version == 0 else authenticate
        connection.ask(handshake("WAIT", version), token(b"1"))
        connection.transport.hang_up()
        connection.logins.gone(connection.session)
        await settle()
        assert waiting.steps[0].cancelled()

    asyncio.run(run())


# -- sessions that end


def logged_in(beat: Any = heartbeat, **settings: str) -> Connection:
    connection = open_connection(beat, connections__max__reauth__ms="5000", **settings)
    answer = connection.ask(handshake(), authenticate())[1]
    assert authenticated(answer).session_lifetime_ms == 5000
    return connection


def test_client_that_logs_in_again_in_time_goes_on() -> None:
    connection = logged_in()
    for _ in range(3):
        connection.clock.advance(4500)
        assert connection.ask(BEAT) == [BEATEN]
        answer = connection.ask(handshake(), authenticate())[1]
        assert authenticated(answer).session_lifetime_ms == 5000
    assert connection.logins.count("PLAIN").reauthenticated == 3
    assert connection.session.info.principal == "User:alice"


def test_request_after_the_end_of_the_session_closes_the_connection() -> None:
    connection = logged_in()
    connection.clock.advance(5001)
    assert connection.ask(BEAT) == []
    assert connection.session.closed
    assert connection.logins.count("PLAIN").expired == 1


def test_client_may_log_in_again_even_after_the_end_of_its_session() -> None:
    connection = logged_in()
    connection.clock.advance(60_000)
    assert connection.ask(handshake(), authenticate(), BEAT)[2:] == [BEATEN]


@pytest.mark.parametrize("token", [BAD, b"\0bob\0bob-secret"])
def test_failed_login_again_closes_the_connection(token: bytes) -> None:
    connection = logged_in()
    connection.clock.advance(4500)
    answer = authenticated(connection.ask(handshake(), authenticate(token))[1])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.session.closed
    assert connection.logins.count("PLAIN").reauthentication_failed == 1
    assert connection.session.info.principal == "User:alice"


def test_request_that_waits_is_answered_though_the_login_after_it_has_failed() -> None:
    waiting: list[asyncio.Future[HeartbeatResponse]] = []

    @handles(HeartbeatRequest, versions="0-4", authorize=None, overlap=True)
    def slow(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return ctx.later(waiting[0])

    async def run() -> None:
        connection = logged_in(slow, connection__failed__authentication__delay__ms="1")
        connection.clock.advance(4500)
        assert (
            connection.ask(BEAT, handshake(), authenticate(BAD)) == []
        )  # in the order of the requests
        waiting[0].set_result(HeartbeatResponse(error_code=27))
        await connection.closed()
        beaten, _, refused = connection.answers()
        assert beaten == BEATEN
        assert authenticated(refused).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.logins.count("PLAIN").reauthentication_failed == 1

    asyncio.run(run())


def test_nothing_else_is_served_while_a_client_logs_in_again() -> None:
    connection = logged_in()
    connection.clock.advance(4500)
    assert BEATEN not in connection.ask(handshake(), BEAT)
    assert connection.session.closed


def test_logins_in_quick_succession_are_out_of_place() -> None:
    connection = logged_in()
    connection.clock.advance(4000)
    connection.ask(handshake(), authenticate())
    (answer,) = connection.ask(handshake())
    assert decode(SaslHandshakeResponse, answer[4:], 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.ask(BEAT) == [BEATEN]


def test_login_requests_where_there_is_no_login_are_out_of_place() -> None:
    connection = open_connection()
    connection.ask(handshake(), authenticate())
    shaken, done, beaten = connection.ask(handshake(), authenticate(), BEAT)
    assert decode(SaslHandshakeResponse, shaken[4:], 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    told = authenticated(done)
    assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert told.error_message == "SaslAuthenticate request received after successful authentication"
    assert beaten == BEATEN


# -- settings


def test_changed_settings_count_for_new_logins(caplog: pytest.LogCaptureFixture) -> None:
    connection = open_connection(password__encoder__secret="for-the-store")
    config = connection.logins._settings._config  # type: ignore[attr-defined]
    config.subscribe(connection.logins.take_up)
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    new, other = JAAS.replace("alice-secret", "new-secret"), JAAS.replace("Plain", "Scram")
    config.set_dynamic(broker=config.passwords.encode({name: new}, {}))
    connection.logins.begin(connection.session)
    answer = connection.ask(handshake(), authenticate(b"\0alice\0new-secret"))[1]
    assert authenticated(answer).error_code == 0
    before = connection.logins.mechanisms
    config.set_dynamic(broker=config.passwords.encode({name: other}, {}))
    assert connection.logins.mechanisms is before
    assert "not applied" in caplog.text and "secret" not in caplog.text


def test_change_of_one_mechanism_leaves_the_others_as_they_are() -> None:
    both = {"sasl__enabled__mechanisms": "PLAIN,SCRAM-SHA-256"}
    logins = open_connection(**both).logins
    before = dict(logins.mechanisms)
    logins.take_up(frozenset({"listener.name.sasl_plaintext.plain.sasl.jaas.config"}))
    assert logins.mechanisms["PLAIN"] is not before["PLAIN"]
    assert logins.mechanisms["SCRAM-SHA-256"] is before["SCRAM-SHA-256"]
    now = dict(logins.mechanisms)
    logins.take_up(frozenset({"listener.name.other.plain.sasl.jaas.config", "log.retention.ms"}))
    assert logins.mechanisms == now


def test_mechanism_that_may_read_files_is_made_in_a_thread(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(key_set(public_jwk(ec_key(), "k1")))
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    logins = open_connection(
        sasl__enabled__mechanisms="PLAIN,OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url=keys.as_uri(),
    ).logins
    before = dict(logins.mechanisms)

    async def main() -> None:
        logins.take_up(frozenset({name}))
        assert logins.mechanisms == before  # until the thread is done
        # Changes in the meantime also apply.
        logins.take_up(frozenset({"listener.name.sasl_plaintext.plain.sasl.jaas.config"}))
        assert logins._making is not None
        await logins._making

    asyncio.run(main())
    for each in ("PLAIN", "OAUTHBEARER"):
        assert logins.mechanisms[each] is not before[each]
    assert logins._making is None


def test_dispatcher_of_a_login_is_small() -> None:
    """The cost of a connection before its login, besides the frame that it is sending."""
    assert not hasattr(open_connection().session._dispatcher, "__dict__")
    assert type(open_connection().session._dispatcher) is LoginDispatcher
    assert login_module.LOGIN_TIMEOUT_MS == 60_000
