"""What a SASL mechanism is: the side that checks a login, and the side that logs in at another broker.

A mechanism knows nothing of connections, frames or versions of requests. It is handed the bytes of each
step and returns how the exchange goes on. RFC 4422 calls these steps challenges and responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Challenge(NamedTuple):
    """The exchange goes on: the client has to answer this."""

    token: bytes


class Authenticated(NamedTuple):
    """The exchange is complete, and the client is who it says it is."""

    #: What the last SaslAuthenticate response carries.
    token: bytes
    #: For example `User:alice`.
    principal: str
    #: When the credential itself ends, in wall-clock milliseconds: for re-authentication (KIP-368). None: never.
    expires_ms: int | None = None
    #: The client logged in with a delegation token, and may therefore not ask for tokens (KIP-48).
    by_token: bool = False


class LoginFailed(Exception):
    """The login has failed. `str(error)` is what the client is told, with SASL_AUTHENTICATION_FAILED.

    Shape: the text must hold no secret, and be the same for an unknown user and for a wrong password. If it is
    empty, the client is told what Apache Kafka tells it in most cases: that the credentials are invalid.
    `user` (as the client gave it), `reason` and the `__cause__`, if there is one, are for the log only, and must
    hold no secret either.
    """

    def __init__(self, message: str = "", *, user: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.user = user
        self.reason = reason


class SaslServer(Protocol):
    """One login of one connection, seen from the broker."""

    def evaluate(
        self, response: bytes
    ) -> Challenge | Authenticated | Awaitable[Challenge | Authenticated]:
        """The answer to the client's next token.

        A step that has to wait, for a thread or for another server, returns an awaitable. It is cancelled
        if the connection ends meanwhile.

        Raises LoginFailed, here or from the awaitable. Any other error is a bug: it is logged, and the
        client is told no more than that the login failed.
        """
        ...


class Mechanism(Protocol):
    """One mechanism of one listener, made from the listener's settings."""

    #: As in `sasl.enabled.mechanisms`, for example `SCRAM-SHA-256`.
    name: str

    def server(self) -> SaslServer:
        """A new login."""
        ...


class SaslClient(Protocol):
    """One login at another broker, seen from the client."""

    def start(self) -> bytes:
        """The first token, which may be empty."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The answer to the server's next token; None if the exchange is complete.

        Raises LoginFailed if the server has not proved that it is who it should be.
        """
        ...
