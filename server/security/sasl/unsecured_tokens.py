"""Unsigned tokens (RFC 7519, section 6): every client that can connect can claim any identity. For tests only.

Apache Kafka accepts them if nothing else is set. kwire requires that they are enabled, by Apache Kafka's name of their
validator.
Source: OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerUnsecuredJws (Java); KIP-255.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...json_text import parse_json
from .claims import InvalidToken, UnsecuredClaimRules, ValidToken

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .sources import LoginServices, MechanismSettings

PREFIX = "unsecuredValidator"


class UnsecuredTokens:
    """Accepts every token whose claims satisfy the rules, regardless of its origin."""

    def __init__(self, rules: UnsecuredClaimRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    @classmethod
    def of(
        cls, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
    ) -> UnsecuredTokens:
        """The validator with the options of a login module; warns about the consequences.

        Errors: what `MechanismSettings.refusal` returns.
        """
        options: Mapping[str, str] = {} if module is None else module.options
        try:
            skew_ms = int(options.get(f"{PREFIX}AllowableClockSkewMs", "").strip() or "0")
        except ValueError:
            skew_ms = -1
        if skew_ms < 0:
            raise settings.refusal(
                "sasl.jaas.config", f"{PREFIX}AllowableClockSkewMs must be a number of milliseconds"
            )
        sources.warn(
            f"{settings.name_in_use('sasl.server.callback.handler.class')} lets OAUTHBEARER accept unsigned"
            " tokens: anyone who can connect can log in as any user. This is for tests only"
        )
        return cls(
            UnsecuredClaimRules(
                tuple(options.get(f"{PREFIX}RequiredScope", "").split()),
                options.get(f"{PREFIX}ScopeClaimName", "").strip() or "scope",
                options.get(f"{PREFIX}PrincipalClaimName", "").strip() or "sub",
                skew_ms,
            ),
            sources.clock.now_ms,
        )

    def validate(self, token: str) -> ValidToken:
        """The content of the token. Errors: InvalidToken."""
        return self._rules.check(unsigned_claims(token), self._now_ms())


def unsigned_claims(token: str) -> dict[str, Any]:
    """The claims of an unsigned token. Errors: InvalidToken, also for a token that has a signature."""
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or signature or _object(header).get("alg") != "none":
        raise InvalidToken(
            "this is not an unsecured token, of the algorithm none and without a signature"
        )
    return _object(payload)


def unsigned_token(claims: Mapping[str, Any]) -> str:
    """A token with these claims and no signature."""
    parts = [{"alg": "none"}, claims]
    return "".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() + "."
        for part in parts
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidToken("the token is malformed") from error
    if not isinstance(value, dict):
        raise InvalidToken("the token is malformed")
    return value
