"""PLAIN: the client sends its password. Users are options of the listener's login module.

    listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
        user_alice="..." user_bob="...";

Source: RFC 4616; PlainSaslServer, PlainServerCallbackHandler (Java).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .mechanism import Authenticated, LoginFailed, SaslServer
from .mechanisms import ENABLED, JAAS, own_name

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .sources import LoginServices, MechanismSettings

PLAIN = "PLAIN"
USER_PREFIX = "user_"
INVALID = "Authentication failed: Invalid username or password"
NOT_THE_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainServer:
    """One login. Shape: `passwords` by user name."""

    __slots__ = ("_over", "_passwords")

    def __init__(self, passwords: Mapping[str, bytes]) -> None:
        self._passwords = passwords
        self._over = False

    def evaluate(self, response: bytes) -> Authenticated:
        """See SaslServer. The message is authorization id, NUL, user, NUL, password; the first may be empty."""
        if self._over:
            raise LoginFailed(reason="a message after the end of the exchange")
        self._over = True
        tokens = response.split(b"\0", 3)
        if len(tokens) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        name = user.decode(errors="replace")
        if not user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified", user=name)
        expected = self._passwords.get(name)
        # Digests are compared in constant time, even if there is no such user.
        right = hmac.compare_digest(
            hmac.digest(KEY, password, "sha256"),
            hmac.digest(KEY, b"" if expected is None else expected, "sha256"),
        )
        if expected is None or not right:
            raise LoginFailed(INVALID, user=name)
        if authorization_id and authorization_id != user:
            raise LoginFailed(NOT_THE_USER, user=name)
        return Authenticated(b"", f"User:{name}")


KEY = b"PLAIN"


class PlainMechanism:
    """PLAIN for one listener. Shape: `options` are those of the login module."""

    name = PLAIN

    def __init__(self, options: Mapping[str, str]) -> None:
        self._passwords = {
            option.removeprefix(USER_PREFIX): password.encode()
            for option, password in options.items()
            if option.startswith(USER_PREFIX)
        }

    def server(self) -> SaslServer:
        """See Mechanism."""
        return PlainServer(self._passwords)


def mechanism_of(
    name: str, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> PlainMechanism:
    """The mechanism according to a listener's settings; see Kind."""
    if module is None:
        raise settings.refusal(
            ENABLED,
            f"PLAIN needs its users: set {own_name(settings, JAAS)}"
            "=org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' user_<name>="<password>";',
        )
    return PlainMechanism(module.options)
