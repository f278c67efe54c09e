"""SASL OAUTHBEARER (RFC 7628): the client presents a token, which is a JSON Web Token (RFC 7519).

The answer to a token that is not accepted is a JSON object as a challenge; the client confirms it with \\x01, and the
login fails with that object as its text. The reason is only in the log.
Source: OAuthBearerSaslServer, OAuthBearerClientInitialResponse, OAuthBearerSaslClient (Java); KIP-255, KIP-342,
KIP-768.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .claims import InvalidToken, ValidToken
from .mechanism import Authenticated, Challenge, LoginFailed

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .sources import LoginServices, MechanismSettings

NAME = "OAUTHBEARER"
HANDLER = "sasl.server.callback.handler.class"
KEY_SET = "sasl.oauthbearer.jwks.endpoint.url"
CONFIRMATION = b"\x01"

_SASLNAME = r"(?:[\x01-+\x2d-<>-\x7f]|=2C|=3D)+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_MESSAGE = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,\x01(?P<pairs>(?:[A-Za-z]+={_VALUE}\x01)*)\x01"
)
_TOKEN = r"[-_.a-zA-Z0-9]+"
_AUTH = re.compile(rf"(?P<scheme>\w+)[ ]+(?P<token>{_TOKEN})", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(_VALUE)

#: The validators of signed tokens, by their names in 3.9 and in 4.x.
SIGNED_VALIDATORS = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    }
)
#: The validator of unsigned tokens.
UNSECURED_VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)


class Validator(Protocol):
    """Decides whether a token is accepted."""

    def validate(self, token: str) -> ValidToken | Awaitable[ValidToken]:
        """The content of the token; an awaitable if keys have to be fetched. Errors: InvalidToken, here or there."""
        ...


class InitialResponse(NamedTuple):
    """The client's message. Shape: `authorization_id` is empty if it was not given."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return "InitialResponse(token hidden)"


def parse_initial_response(message: bytes) -> InitialResponse:
    """Read the client's message. Errors: LoginFailed."""
    match = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise LoginFailed(reason="not a message of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginFailed(reason="not a message of OAUTHBEARER")
    return InitialResponse(auth["token"], match["authzid"] or "", pairs)


def format_initial_response(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """The client's message. Errors: ValueError for what RFC 7628 or brokers do not allow."""
    if not re.fullmatch(_TOKEN, token):
        raise ValueError("what should be the token is not a token")
    for name, value in (extensions or {}).items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise ValueError(f"Extension name {name} is invalid")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"Extension value for extension {name} is invalid")
    pairs = "".join(f"\x01{name}={value}" for name, value in (extensions or {}).items())
    return f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()


def error_json(error: InvalidToken) -> str:
    """The answer to a token that is not accepted, with Apache Kafka's spacing."""
    scope = "" if error.scope is None else f', "scope":"{error.scope}"'
    return f'{{"status":"{error.status}"{scope}}}'


class OAuthBearerServer:
    """One login, from the broker's side."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refused: LoginFailed | None = None

    def evaluate(
        self, response: bytes
    ) -> Challenge | Authenticated | Awaitable[Challenge | Authenticated]:
        """The answer to the client's message, and then to its confirmation of an error. Errors: LoginFailed."""
        if self._refused is not None:
            raise self._refused
        message = parse_initial_response(response)
        try:
            token = self._validator.validate(message.token)
        except InvalidToken as error:
            return self._refuse(error)
        if isinstance(token, ValidToken):
            return accepted(token, message.authorization_id)
        return self._answer(token, message.authorization_id)

    async def _answer(
        self, validated: Awaitable[ValidToken], authorization_id: str
    ) -> Challenge | Authenticated:
        try:
            return accepted(await validated, authorization_id)
        except InvalidToken as error:
            return self._refuse(error)

    def _refuse(self, error: InvalidToken) -> Challenge:
        text = error_json(error)
        self._refused = LoginFailed(text, reason=str(error))
        return Challenge(text.encode())


def accepted(token: ValidToken, authorization_id: str) -> Authenticated:
    """The end of a login with a valid token. Errors: LoginFailed if it was for another user."""
    if authorization_id not in ("", token.subject):
        raise LoginFailed(
            f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
            f"from the token's principal name ({token.subject})",
            user=token.subject,
            reason="the client requests another identity than that of its token",
        )
    return Authenticated(b"", f"User:{token.subject}", token.expires_ms)


class OAuthBearerClient:
    """One login at another broker."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._message = format_initial_response(token, extensions)
        self._refused = False

    def start(self) -> bytes:
        """The message with the token."""
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        """None for the empty answer that ends a login; an error is confirmed first. Errors: LoginFailed."""
        if self._refused:
            raise LoginFailed("the other broker does not accept the token")
        if not challenge:
            return None
        self._refused = True
        return CONFIRMATION


class OAuthBearerMechanism:
    """OAUTHBEARER on one listener."""

    name = NAME

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    def server(self) -> OAuthBearerServer:
        """A new login."""
        return OAuthBearerServer(self._validator)


def mechanism_of(
    name: str, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> OAuthBearerMechanism:
    """The mechanism according to a listener's settings, with signed tokens unless unsigned ones are enabled.

    Errors: what `MechanismSettings.refusal` returns.
    """
    handler = settings.get_optional_str(HANDLER)
    validator: Validator
    if handler == UNSECURED_VALIDATOR:
        from .unsecured_tokens import UnsecuredTokens

        validator = UnsecuredTokens.of(settings, module, sources)
    elif handler is None or handler in SIGNED_VALIDATORS:
        if settings.get_optional_str(KEY_SET) is None:
            raise settings.refusal(
                KEY_SET,
                "OAUTHBEARER needs the keys that tokens are signed with: the URL of a JSON Web Key Set (https:, http:"
                " or file:). To accept unsigned tokens, which is for tests only, set "
                f"{HANDLER}={UNSECURED_VALIDATOR}",
            )
        from .signed_tokens import SignedTokens

        try:
            import jwt  # noqa: F401
        except ImportError as error:
            raise settings.refusal(
                "sasl.enabled.mechanisms",
                f"OAUTHBEARER needs a package that is not installed ({error}): pip install 'kwire[oauth]'",
            ) from error
        validator = SignedTokens.of(settings, sources)
    else:
        raise settings.refusal(
            HANDLER,
            "kwire cannot load Java classes; for OAUTHBEARER it has its own validator in place of "
            + " and ".join(sorted(SIGNED_VALIDATORS)),
        )
    return OAuthBearerMechanism(validator)
