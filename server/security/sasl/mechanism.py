"""The interfaces of a SASL mechanism: the side that checks a login, and the side that logs in at another broker.

A mechanism does not depend on connections, frames or versions of requests. It gets the bytes of each step and returns
how the exchange continues. RFC 4422 calls these steps challenges and responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Challenge(NamedTuple):
    """The exchange continues: the client has to answer this."""

    token: bytes


class Authenticated(NamedTuple):
    """The exchange is complete, and the client's identity is proven."""

    #: The token of the last SaslAuthenticate response.
    token: bytes
    #: For example `User:alice`.
    principal: str
    #: The end of the credential itself, in wall-clock milliseconds, for re-authentication (KIP-368). None: never.
    expires_ms: int | None = None
    #: The client logged in with a delegation token, and may therefore not request tokens (KIP-48).
    by_token: bool = False


class LoginFailed(Exception):
    """The login has failed. The client gets `str(error)`, with SASL_AUTHENTICATION_FAILED.

    Shape: the text must contain no secret, and be the same for an unknown user and for a wrong password. If it is
    empty, the client gets Apache Kafka's most frequent text: that the credentials are invalid. `user` (the client's
    value), `reason` and the `__cause__`, if there is one, are only for the log, and must not contain secrets either.
    """

    def __init__(self, message: str = "", *, user: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.user = user
        self.reason = reason


class SaslServer(Protocol):
    """One login of one connection, from the broker's side."""

    def evaluate(
        self, response: bytes
    ) -> Challenge | Authenticated | Awaitable[Challenge | Authenticated]:
        """The answer to the client's next token.

        A step that has to wait, for a thread or for another server, returns an awaitable, which is cancelled if the
        connection ends in the meantime.

        Raises LoginFailed, here or from the awaitable. Any other error is a bug: it is logged, and the client learns
        only that the login failed.
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
    """One login at another broker, from the client's side."""

    def start(self) -> bytes:
        """The first token, which may be empty."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The answer to the server's next token; None if the exchange is complete.

        Raises LoginFailed if the server has not proven its identity.
        """
        ...
