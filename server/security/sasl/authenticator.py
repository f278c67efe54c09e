"""The login of one connection: a state machine, without I/O, frames or clock.

    requests  --ApiVersions-->  handshake only  --SaslHandshake-->  tokens  --...-->  done
        \\_____________________SaslHandshake________________________/

With SaslHandshake v1, tokens come in SaslAuthenticate requests; with v0 they come bare, each behind its length. Whatever
else arrives before the end closes the connection. A failure is final. A client whose session ends after a while can log
in again on the same connection (KIP-368): with SaslHandshake, the same mechanism and the same principal.

Source: SaslServerAuthenticator (Java); KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import NamedTuple

from .mechanism import Authenticated, Challenge, LoginFailed, Mechanism, SaslServer


class State(Enum):
    """What may come next."""

    REQUESTS = "SaslHandshake or ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    TOKEN = "a token"
    OTHER_MECHANISM = "nothing"  # at re-authentication; the connection ends with the next request
    DONE = "requests"
    FAILED = "nothing at all"


class IllegalState(Exception):
    """What arrived may not arrive now; the connection has to be closed without an answer."""


class Failure(NamedTuple):
    """Why a login has failed. Shape: `user` as the client gave it, or empty; `reason` is for the log."""

    mechanism: str
    user: str
    reason: str


class LoggedIn(NamedTuple):
    """Who has logged in. Shape: `lifetime_ms` is None if the session has no end."""

    principal: str
    by_token: bool
    mechanism: str
    lifetime_ms: int | None


class Step(NamedTuple):
    """What the client is answered.

    Shape: `error_message` is None unless the login has failed; `lifetime_ms` is how long the session lasts, 0 for
    ever (or before the end of the login).
    """

    token: bytes
    lifetime_ms: int = 0
    error_message: str | None = None


class Authenticator:
    """One login. Shape: `mechanisms` are those of the listener, `max_reauth_ms` gives the setting of each (0: never);
    it is asked for when a login has succeeded, so that those that fail do not pay for it.

    `previous` is given if the client logs in again.
    """

    __slots__ = (
        "_max_reauth_ms",
        "_mechanisms",
        "_previous",
        "_server",
        "failure",
        "logged_in",
        "mechanism",
        "state",
    )

    def __init__(
        self,
        mechanisms: Mapping[str, Mechanism],
        max_reauth_ms: Callable[[str], int],
        previous: LoggedIn | None = None,
    ) -> None:
        self.state = State.REQUESTS if previous is None else State.HANDSHAKE
        self.failure: Failure | None = None
        self.logged_in: LoggedIn | None = None
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._previous = previous
        self.mechanism = ""  # that the client has asked for
        self._server: SaslServer | None = None

    @property
    def enabled(self) -> list[str]:
        """The names of the listener's mechanisms."""
        return list(self._mechanisms)

    def require(self, *states: State) -> None:
        """Errors: IllegalState unless the login is in one of these states."""
        if self.state not in states:
            raise IllegalState(f"{self.state.value} was expected")

    # -- what arrives

    def versions_told(self) -> None:
        """ApiVersions has been answered without an error; it is not answered again."""
        self.require(State.REQUESTS)
        self.state = State.HANDSHAKE

    def handshake(self, mechanism: str, *, bare_tokens: bool) -> bool:
        """SaslHandshake: the client wants this mechanism. False if it is not enabled: the login has failed.

        Errors: IllegalState.
        """
        self.require(State.REQUESTS, State.HANDSHAKE)
        chosen = self._mechanisms.get(mechanism)
        if chosen is None:
            self._fail(mechanism, "", "the mechanism is not enabled")
            return False
        self.mechanism = mechanism
        if self._previous is not None and self._previous.mechanism != mechanism:
            # Answered as if all was well, as Apache Kafka does; it counts the failure later.
            self.state = State.OTHER_MECHANISM
            return True
        self._server = chosen.server()
        self.state = State.TOKEN if bare_tokens else State.AUTHENTICATE
        return True

    def evaluate(self, token: bytes, now_ms: int) -> Step | Awaitable[Challenge | Authenticated]:
        """The client's next token. An awaitable goes on with `go_on` (its result) or `give_up` (its error).

        Errors: IllegalState.
        """
        if self.state is State.OTHER_MECHANISM:
            assert self._previous is not None
            reason = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._previous.mechanism}'"
            )
            self._fail(self.mechanism, "", reason)
            raise IllegalState(reason)
        self.require(State.AUTHENTICATE, State.TOKEN)
        assert self._server is not None
        try:
            result = self._server.evaluate(token)
        except LoginFailed as error:
            return self.give_up(error)
        if isinstance(result, Challenge | Authenticated):
            return self.go_on(result, now_ms)
        return result

    def go_on(self, result: Challenge | Authenticated, now_ms: int) -> Step:
        """A step of the mechanism has succeeded."""
        if isinstance(result, Challenge):
            return Step(result.token)
        previous = self._previous
        if previous is not None and previous.principal != result.principal:
            before, after = previous.principal.replace(":", ".", 1), result.principal
            return self.give_up(
                LoginFailed(
                    "Cannot change principals during re-authentication from"
                    f" {before}: {after.replace(':', '.', 1)}",
                    user=after.partition(":")[2],
                )
            )
        lifetime_ms = self._lifetime_ms(result.expires_ms, now_ms)
        self.logged_in = LoggedIn(result.principal, result.by_token, self.mechanism, lifetime_ms)
        self.state = State.DONE
        self._server = None
        return Step(result.token, lifetime_ms or 0)

    def give_up(self, error: LoginFailed) -> Step:
        """A step of the mechanism has failed."""
        what = "authentication" if self._previous is None else "re-authentication"
        message = str(error) or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism"
            f" {self.mechanism}"
        )
        reason = error.reason or message
        if error.__cause__ is not None:  # for the operator; free of secrets
            reason = f"{reason}: {error.__cause__}"
        self._fail(self.mechanism, error.user, reason)
        return Step(b"", 0, message)

    def _fail(self, mechanism: str, user: str, reason: str) -> None:
        self.state = State.FAILED
        self.failure = Failure(mechanism, user, reason)
        self._server = None

    def _lifetime_ms(self, expires_ms: int | None, now_ms: int) -> int | None:
        """How long the session lasts: until the credential ends, at most `connections.max.reauth.ms`."""
        longest = self._max_reauth_ms(self.mechanism)
        if expires_ms is None:
            return longest if longest > 0 else None
        left = expires_ms - now_ms
        return max(0, min(left, longest) if longest > 0 else left)
