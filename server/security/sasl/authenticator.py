"""The login of one connection: a state machine, without I/O, frames or clock.

    requests  --ApiVersions-->  handshake only  --SaslHandshake-->  tokens  --...-->  done
        \\_____________________SaslHandshake________________________/

With SaslHandshake v1, tokens come in SaslAuthenticate requests; with v0 they come bare, each after its length. All
other data before the end closes the connection. A failure is final. A client whose session ends after a while can log
in again on the same connection (KIP-368): with SaslHandshake, the same mechanism and the same principal.

Source: SaslServerAuthenticator (Java); KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import NamedTuple

from .mechanism import Authenticated, Challenge, LoginFailed, Mechanism, SaslServer


class LoginState(Enum):
    """The message that is expected next."""

    REQUESTS = "SaslHandshake or ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    TOKEN = "a token"
    OTHER_MECHANISM = "nothing"  # at re-authentication; the next request ends the connection
    DONE = "requests"
    FAILED = "nothing at all"


class IllegalState(Exception):
    """The received message is not allowed now; the connection has to be closed without an answer."""


class Failure(NamedTuple):
    """The reason of a failed login. Shape: `user` is the client's value, or empty; `reason` is for the log."""

    mechanism: str
    user: str
    reason: str


class LoggedIn(NamedTuple):
    """The identity after a login. Shape: `lifetime_ms` is None if the session has no end."""

    principal: str
    by_token: bool
    mechanism: str
    lifetime_ms: int | None


class Step(NamedTuple):
    """The answer to the client.

    Shape: `error_message` is None unless the login has failed; `lifetime_ms` is the duration of the session, 0 if it is
    unlimited (or before the end of the login).
    """

    token: bytes
    lifetime_ms: int = 0
    error_message: str | None = None


class Authenticator:
    """One login. Shape: `mechanisms` are those of the listener; `max_reauth_ms` returns the setting of each (0: never).

    `max_reauth_ms` is called only after a successful login, to keep failed logins cheap. `previous` is given if the
    client logs in again.
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
        self.state = LoginState.REQUESTS if previous is None else LoginState.HANDSHAKE
        self.failure: Failure | None = None
        self.logged_in: LoggedIn | None = None
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._previous = previous
        self.mechanism = ""  # as requested by the client
        self._server: SaslServer | None = None

    @property
    def enabled(self) -> list[str]:
        """The names of the listener's mechanisms."""
        return list(self._mechanisms)

    def require(self, *states: LoginState) -> None:
        """Errors: IllegalState unless the login is in one of these states."""
        if self.state not in states:
            raise IllegalState(f"{self.state.value} was expected")

    # -- what arrives

    def versions_told(self) -> None:
        """Note that ApiVersions was answered without an error; it is not answered again."""
        self.require(LoginState.REQUESTS)
        self.state = LoginState.HANDSHAKE

    def handshake(self, mechanism: str, *, bare_tokens: bool) -> bool:
        """Handle SaslHandshake with this mechanism. False if it is not enabled: the login has failed.

        Errors: IllegalState.
        """
        self.require(LoginState.REQUESTS, LoginState.HANDSHAKE)
        chosen = self._mechanisms.get(mechanism)
        if chosen is None:
            self._fail(mechanism, "", "the mechanism is not enabled")
            return False
        self.mechanism = mechanism
        if self._previous is not None and self._previous.mechanism != mechanism:
            # Answered like a success, as in Apache Kafka, which counts the failure later.
            self.state = LoginState.OTHER_MECHANISM
            return True
        self._server = chosen.server()
        self.state = LoginState.TOKEN if bare_tokens else LoginState.AUTHENTICATE
        return True

    def evaluate(self, token: bytes, now_ms: int) -> Step | Awaitable[Challenge | Authenticated]:
        """Handle the client's next token. An awaitable continues with `go_on` (its result) or `give_up` (its error).

        Errors: IllegalState.
        """
        if self.state is LoginState.OTHER_MECHANISM:
            assert self._previous is not None
            reason = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._previous.mechanism}'"
            )
            self._fail(self.mechanism, "", reason)
            raise IllegalState(reason)
        self.require(LoginState.AUTHENTICATE, LoginState.TOKEN)
        assert self._server is not None
        try:
            result = self._server.evaluate(token)
        except LoginFailed as error:
            return self.give_up(error)
        if isinstance(result, Challenge | Authenticated):
            return self.go_on(result, now_ms)
        return result

    def go_on(self, result: Challenge | Authenticated, now_ms: int) -> Step:
        """Continue after a successful step of the mechanism."""
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
        self.state = LoginState.DONE
        self._server = None
        return Step(result.token, lifetime_ms or 0)

    def give_up(self, error: LoginFailed) -> Step:
        """Fail after a failed step of the mechanism."""
        what = "authentication" if self._previous is None else "re-authentication"
        message = str(error) or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism"
            f" {self.mechanism}"
        )
        reason = error.reason or message
        if error.__cause__ is not None:  # for the operator; contains no secrets
            reason = f"{reason}: {error.__cause__}"
        self._fail(self.mechanism, error.user, reason)
        return Step(b"", 0, message)

    def _fail(self, mechanism: str, user: str, reason: str) -> None:
        self.state = LoginState.FAILED
        self.failure = Failure(mechanism, user, reason)
        self._server = None

    def _lifetime_ms(self, expires_ms: int | None, now_ms: int) -> int | None:
        """The duration of the session: until the credential ends, at most `connections.max.reauth.ms`."""
        longest = self._max_reauth_ms(self.mechanism)
        if expires_ms is None:
            return longest if longest > 0 else None
        left = expires_ms - now_ms
        return max(0, min(left, longest) if longest > 0 else left)
