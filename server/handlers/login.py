"""Has the clients of a SASL listener log in before they are served.

A new connection gets a `LoginDispatcher`, which lets through only what a login consists of. When the client has logged
in, the session gets the usual dispatcher, so a login costs the requests after it nothing. Only if the session has an end
(`connections.max.reauth.ms`, a token that expires) does the LoginDispatcher stay, to compare the time with it.

Memory of a connection before its login: the frame it is sending, at most `sasl.server.max.receive.size` and part of
`queued.max.request.bytes`, and the state of one login. It is closed if the login takes longer than LOGIN_TIMEOUT_MS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.api import ApiKey
from kwire.connection import BARE_TOKEN, Part, RequestReceived

from ..net.connection_info import ConnectionInfo
from ..net.dispatcher import Close, Dispatcher, Later
from ..security.sasl.authenticator import Authenticator, IllegalState, LoggedIn, LoginState, Step
from ..security.sasl.mechanisms import MECHANISMS, build_mechanisms, changed_mechanisms
from .dispatch import api_name
from .sasl import evaluate, go_on, settled

if TYPE_CHECKING:
    from ..clock import Clock
    from ..net.session import Session
    from ..security.sasl.mechanism import Mechanism
    from ..security.sasl.sources import LoginServices, MechanismSettings

logger = logging.getLogger(__name__)

Reply = Sequence[Part] | Later[Any] | Close

API_VERSIONS = int(ApiKey.API_VERSIONS)
HANDSHAKE = int(ApiKey.SASL_HANDSHAKE)
AUTHENTICATE = int(ApiKey.SASL_AUTHENTICATE)

#: The requests allowed in each state of a login.
EXPECTED: Mapping[LoginState, tuple[int, ...]] = {
    LoginState.REQUESTS: (API_VERSIONS, HANDSHAKE),
    LoginState.HANDSHAKE: (HANDSHAKE,),
    LoginState.AUTHENTICATE: (AUTHENTICATE,),
    LoginState.TOKEN: (BARE_TOKEN,),
    LoginState.OTHER_MECHANISM: (),
    LoginState.FAILED: (),
}

#: Apache Kafka has no such limit except `connections.max.idle.ms`.
LOGIN_TIMEOUT_MS = 60_000
#: A client may not log in again more often than this. Source: KafkaChannel.
MIN_REAUTH_INTERVAL_MS = 1000
#: Longer user names are cut in the log.
MAX_LOGGED_USER = 64


@dataclass(slots=True)
class LoginCounts:
    """The numbers of logins since the broker started."""

    successful: int = 0
    failed: int = 0
    reauthenticated: int = 0
    reauthentication_failed: int = 0
    #: Connections closed because the client went on after its session had ended.
    expired: int = 0


class SaslLogins:
    """The logins of one listener. Shape: `dispatcher` answers the clients that have logged in.

    `mechanisms` are replaced when settings change; logins in progress keep theirs. Errors: ConfigError.
    """

    def __init__(
        self,
        settings: MechanismSettings,
        sources: LoginServices,
        dispatcher: Dispatcher,
        clock: Clock,
    ) -> None:
        self.mechanisms: Mapping[str, Mechanism] = build_mechanisms(settings, sources)
        #: By mechanism; "" for logins that have not reached an enabled one.
        self.counts: dict[str, LoginCounts] = {}
        self.dispatcher = dispatcher
        self.clock = clock
        self._settings = settings
        self._sources = sources
        #: The mechanisms that a thread still has to rebuild, and the task that waits for it.
        self._stale: set[str] = set()
        self._making: asyncio.Task[None] | None = None
        self._deadlines: dict[Session, int] = {}  # in the order in which they were accepted

    def take_up(self, changed: frozenset[str]) -> None:
        """Rebuild the mechanisms whose settings were changed; the others keep their state, such as fetched keys.

        Shape: immediately, unless files may have to be read, which a thread does; until then, logins use the old
        mechanisms.
        """
        stale = changed_mechanisms(self._settings, changed)
        if not stale:
            return
        if self._making is None and not any(
            name in MECHANISMS and MECHANISMS[name].reads_files for name in stale
        ):
            try:
                self.mechanisms = self._make(stale)
            except Exception as error:  # noqa: BLE001 - whatever it is, the mechanisms in use go on
                self._not_taken_up(error)
            return
        self._stale |= stale
        if self._making is None:
            self._making = asyncio.ensure_future(self._make_in_thread())

    def _make(self, stale: Collection[str]) -> Mapping[str, Mechanism]:
        kept = {name: made for name, made in self.mechanisms.items() if name not in stale}
        return build_mechanisms(self._settings, self._sources, kept)

    async def _make_in_thread(self) -> None:
        try:
            while self._stale:
                stale, self._stale = self._stale, set()
                made = await self._sources.in_thread(self._make, stale)
                if self._stale:
                    self._stale |= (
                        stale  # settings have changed again: the new mechanisms may be a mixture
                    )
                else:
                    self.mechanisms = made
        except Exception as error:  # noqa: BLE001 - as above
            self._not_taken_up(error)
        finally:
            self._making = None

    def _not_taken_up(self, error: Exception) -> None:
        logger.error("changed settings for logins are not applied: %s", error)

    def close(self) -> None:
        """Stop applying changes."""
        if self._making is not None:
            self._making.cancel()

    # -- Logins, called by the listener

    def begin(self, session: Session) -> None:
        self._deadlines[session] = self.clock.monotonic_ms() + LOGIN_TIMEOUT_MS
        session.serve(LoginDispatcher(self, session), self.max_receive_bytes)

    def gone(self, session: Session) -> None:
        self._deadlines.pop(session, None)

    def tick(self, now_ms: int) -> None:
        for session, deadline_ms in list(self._deadlines.items()):
            if now_ms < deadline_ms:
                return
            login = session.info.login
            self.count(login.mechanism if login is not None else "").failed += 1
            session.close(f"has not logged in within {LOGIN_TIMEOUT_MS} ms", "login")

    # -- for LoginDispatcher

    def count(self, mechanism: str) -> LoginCounts:
        """The counts of a mechanism."""
        if mechanism not in self.mechanisms:
            mechanism = ""
        counts = self.counts.get(mechanism)
        if counts is None:
            counts = self.counts[mechanism] = LoginCounts()
        return counts

    @property
    def max_receive_bytes(self) -> int:
        """How long a request may be before the login."""
        return self._settings.get_int("sasl.server.max.receive.size")

    @property
    def failure_delay_ms(self) -> int:
        """How long the connection of a failed login is kept open."""
        return self._settings.get_int("connection.failed.authentication.delay.ms")

    def login(self, previous: LoggedIn | None = None) -> Authenticator:
        """A new login."""
        return Authenticator(self.mechanisms, self._max_reauth_ms, previous)

    def _max_reauth_ms(self, mechanism: str) -> int:
        return self._settings.mechanism(mechanism).get_int("connections.max.reauth.ms")


class Ending:
    """The last reply of a failed login, which waits for the delay to pass; the context of a Later."""

    __slots__ = ("reason", "reply")

    def __init__(self, reason: str, reply: Sequence[Part]) -> None:
        self.reason = reason
        self.reply = reply


class LoginDispatcher:
    """Answers the requests of one connection until its client has logged in, and again when it has to."""

    __slots__ = (
        "_began_ms",
        "_expires_ms",
        "_logged_in",
        "_login",
        "_logins",
        "_next",
        "_session",
        "_step",
    )

    #: Before the login, each request is checked.
    at_once = None

    def __init__(self, logins: SaslLogins, session: Session) -> None:
        self._logins = logins
        self._session = session
        self._next = logins.dispatcher
        self._login: Authenticator | None = logins.login()
        self._logged_in: LoggedIn | None = None
        self._expires_ms = 0
        self._began_ms: int | None = None  # the last re-authentication
        self._step: Later[Any] | None = None  # of the login, while it takes time
        session.info.login = self._login

    def dispatch(self, request: RequestReceived, connection: ConnectionInfo) -> Reply:
        """See Dispatcher."""
        login = self._login
        if login is None:
            if self._logged_in is None:  # for the rest of the batch in which the login has ended
                return self._next.dispatch(request, connection)
            refused = self._in_session(request)
            login = self._login
            if refused is not None or login is None:
                return refused or self._next.dispatch(request, connection)
        key = request.api_key
        if key not in EXPECTED[login.state]:
            return self._illegal(login, request)
        if key == BARE_TOKEN:
            return self._token(login, request)
        return self._after(login, self._next.dispatch(request, connection))

    def complete(self, later: Later[Any], future: asyncio.Future[Any]) -> Reply:
        """See Dispatcher."""
        ctx = later.ctx
        if type(ctx) is Ending:
            return Close("") if future.cancelled() else Close(ctx.reason, "login", ctx.reply)
        if type(ctx) is BareStep:
            if future.cancelled():
                return Close("")
            assert self._login is not None
            return self._after(self._login, ctx.finish(future.result()))
        reply = self._next.complete(later, future)
        if (
            self._login is None or later is not self._step
        ):  # else of a request before the re-authentication
            return reply
        return self._after(self._login, reply)

    # -- the login

    def _after(self, login: Authenticator, reply: Reply) -> Reply:
        """Handle the outcome of a login request."""
        self._step = reply if isinstance(reply, Later) else None
        if isinstance(reply, Later | Close):
            return reply
        if login.failure is not None:
            return self._failed(login, reply)
        if login.logged_in is not None:
            self._succeeded(login.logged_in)
        elif login.state is LoginState.REQUESTS:
            if answers_without_error(reply):
                login.versions_told()
        elif login.state is LoginState.TOKEN:
            self._session.expect_tokens(True)
        return reply

    def _token(self, login: Authenticator, request: RequestReceived) -> Reply:
        """A token without a header; its answer has none either."""
        step = evaluate(login, bytes(request.frame), self._logins.clock.now_ms())
        if isinstance(step, Step):
            return self._after(login, bare(step))
        inner = asyncio.ensure_future(step)

        def finish(result: Any) -> Sequence[Part]:
            return bare(go_on(login, result, self._logins.clock.now_ms()))

        return Later(BareStep(finish), settled(inner), None, inner.cancel, overlap=False)

    def _illegal(self, login: Authenticator, request: RequestReceived) -> Reply:
        key = request.api_key
        wanted, reply = login.state.value, None
        name = "a token" if key == BARE_TOKEN else api_name(key)
        try:
            if login.state is LoginState.OTHER_MECHANISM:
                login.evaluate(b"", 0)
            if key == HANDSHAKE:
                self._session.info.login = None  # its handler then answers ILLEGAL_SASL_STATE
                reply = self._next.dispatch(request, self._session.info)
            reason = f"{name} before the client has logged in; {wanted} was expected"
        except IllegalState as error:
            reason = str(error)
        return self._end(login, reason, reply if isinstance(reply, list) else ())

    def _failed(self, login: Authenticator, reply: Sequence[Part]) -> Reply:
        failure = login.failure
        assert failure is not None
        user = f" of {shown(failure.user)}" if failure.user else ""
        mechanism = (
            shown(failure.mechanism)
            if failure.mechanism not in login.enabled
            else failure.mechanism
        )
        return self._end(login, f"login{user} with {mechanism} has failed: {failure.reason}", reply)

    def _end(self, login: Authenticator, reason: str, reply: Sequence[Part]) -> Reply:
        """Close the connection after the delay, in which nothing more is read from it."""
        counts = self._logins.count(login.mechanism)
        if self._logged_in is None:
            counts.failed += 1
        else:
            counts.reauthentication_failed += 1
        self._logins.gone(self._session)  # it is counted, so its deadline no longer matters
        delay_ms = self._logins.failure_delay_ms
        if delay_ms <= 0:
            return Close(reason, "login", reply)
        loop = asyncio.get_running_loop()
        passed: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(delay_ms / 1000, passed.set_result, None)
        return Later(Ending(reason, reply), passed, None, timer.cancel, overlap=False)

    def _succeeded(self, logged_in: LoggedIn) -> None:
        session, logins = self._session, self._logins
        info = session.info
        info.principal, info.by_token, info.login = logged_in.principal, logged_in.by_token, None
        counts = logins.count(logged_in.mechanism)
        if self._logged_in is None:
            counts.successful += 1
        else:
            counts.reauthenticated += 1
        logins.gone(session)
        session.expect_tokens(False)
        self._login = None
        if logged_in.lifetime_ms is None:
            self._logged_in = None
            session.serve(self._next)
        else:
            self._logged_in = logged_in
            self._expires_ms = logins.clock.monotonic_ms() + logged_in.lifetime_ms
            session.serve(self)

    # -- a session that ends

    def _in_session(self, request: RequestReceived) -> Close | None:
        """Begin another login if the client requests it; refuse requests after the end of the session."""
        assert self._logged_in is not None
        now_ms = self._logins.clock.monotonic_ms()
        if request.api_key == HANDSHAKE and (
            self._began_ms is None or now_ms - self._began_ms >= MIN_REAUTH_INTERVAL_MS
        ):
            self._began_ms = now_ms
            self._login = self._session.info.login = self._logins.login(self._logged_in)
            self._session.serve(self, self._logins.max_receive_bytes)
        elif now_ms > self._expires_ms:
            self._logins.count(self._logged_in.mechanism).expired += 1
            return Close("its session has ended, and it has not logged in again", "expired")
        return None


class BareStep:
    """The context of a Later for a token without a header."""

    __slots__ = ("finish",)

    def __init__(self, finish: Callable[[Any], Sequence[Part]]) -> None:
        self.finish = finish


def bare(step: Step) -> Sequence[Part]:
    """The answer to a token without a header; a failure has none."""
    if step.error_message is not None:
        return ()
    return [len(step.token).to_bytes(4, "big") + step.token]


def answers_without_error(reply: Sequence[Part]) -> bool:
    """Whether an encoded ApiVersions response, in any version, has no error: its first field after the header."""
    return bytes(reply[0][8:10]) == b"\0\0"


def shown(text: str) -> str:
    """Data from a client in a form fit for the log: quoted, escaped and truncated."""
    return repr(text if len(text) <= MAX_LOGGED_USER else text[:MAX_LOGGED_USER] + "...")
