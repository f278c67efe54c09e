"""The required claims of a token; pure rules, with the time as a parameter.

Source: BrokerJwtValidator, ClaimValidationUtils (Java) and jose4j's JwtConsumer, which they use;
OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerValidationUtils.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...json_text import parse_json


class ValidToken(NamedTuple):
    """The content of a valid token. Shape: `expires_ms` is its `exp`, in wall-clock milliseconds."""

    subject: str
    expires_ms: int


class InvalidToken(Exception):
    """A token that is not accepted; the text is for the log, and contains no part of the token.

    `status` and `scope` are for the client (RFC 7628, section 3.2.2).
    """

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = "invalid_token" if scope is None else "insufficient_scope"
        self.scope = scope


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The rules for a signed token. Shape: an empty `issuer` allows any."""

    audiences: frozenset[str] = frozenset()
    issuer: str = ""
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    clock_skew_ms: int = 30_000

    def check(self, claims: Mapping[str, Any], now_ms: int) -> ValidToken:
        """The content of the token, if it is accepted. Errors: InvalidToken."""
        expires_ms = time_of(claims, "exp", required=True)
        issued_ms = time_of(claims, "iat", required=True)
        not_before_ms = time_of(claims, "nbf")
        assert expires_ms is not None and issued_ms is not None
        if expires_ms < max(issued_ms, not_before_ms or 0):
            raise InvalidToken(
                "the token expires (exp) before it was issued (iat) or is valid (nbf)"
            )
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired (exp)")
        if not_before_ms is not None and now_ms + self.clock_skew_ms < not_before_ms:
            raise InvalidToken("the token is not valid yet (nbf)")
        self._check_audience(claims.get("aud"))
        if self.issuer and claims.get("iss") != self.issuer:
            raise InvalidToken("the issuer (iss) is not sasl.oauthbearer.expected.issuer")
        check_scopes(claims, self.scope_claim)
        return ValidToken(subject_of(claims, self.subject_claim), expires_ms)

    def _check_audience(self, claim: object) -> None:
        """As in jose4j, refuse a token for another audience even if none is expected."""
        if claim is None and not self.audiences:
            return
        audiences = claim if isinstance(claim, list) else [claim]
        if not any(isinstance(each, str) and each in self.audiences for each in audiences):
            raise InvalidToken(
                "the audience (aud) is not one of sasl.oauthbearer.expected.audience"
                if self.audiences
                else "the token has an audience (aud), and sasl.oauthbearer.expected.audience is not set"
            )


@dataclass(frozen=True, slots=True)
class UnsecuredClaimRules:
    """The rules for an unsigned token."""

    required_scope: tuple[str, ...] = ()
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    clock_skew_ms: int = 0

    def check(self, claims: Mapping[str, Any], now_ms: int) -> ValidToken:
        """The content of the token, if it is accepted. Errors: InvalidToken."""
        subject = subject_of(claims, self.subject_claim)
        issued_ms = time_of(claims, "iat")
        expires_ms = time_of(claims, "exp", required=True)
        assert expires_ms is not None
        if issued_ms is not None and issued_ms > now_ms + self.clock_skew_ms:
            raise InvalidToken("the token was issued in the future (iat)")
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise InvalidToken("the token has expired (exp)")
        if issued_ms is not None and expires_ms <= issued_ms:
            raise InvalidToken("the token expires (exp) before it was issued (iat)")
        scopes = scopes_of(claims, self.scope_claim)
        if not scopes.issuperset(self.required_scope):
            raise InvalidToken(
                "the token lacks a part of unsecuredValidatorRequiredScope",
                scope=" ".join(self.required_scope),
            )
        return ValidToken(subject, expires_ms)


def claims_of(payload: bytes) -> dict[str, Any]:
    """The claims in the payload of a token. Errors: InvalidToken."""
    try:
        claims = parse_json(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidToken("the token's payload is not JSON") from error
    if not isinstance(claims, dict):
        raise InvalidToken("the token's payload is not a JSON object")
    return claims


def time_of(claims: Mapping[str, Any], name: str, *, required: bool = False) -> int | None:
    """A claim with a time, in milliseconds; None if it is missing. Errors: InvalidToken."""
    value = claims.get(name)
    if value is None:
        if required:
            raise InvalidToken(f"the token has no {name}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken(f"{name} is not a time in seconds")
    return int(value * 1000)


def subject_of(claims: Mapping[str, Any], name: str) -> str:
    """The claim with the user's name, without surrounding blanks. Errors: InvalidToken."""
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the token has no {name}, which names the user")
    return subject.strip()


def check_scopes(claims: Mapping[str, Any], name: str) -> None:
    """The scopes of a signed token: a text or a list of distinct texts; others are ignored. Errors: InvalidToken."""
    value = claims.get(name)
    scopes = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    texts = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(texts) != len(scopes) or not all(texts) or len(set(texts)) != len(texts):
        raise InvalidToken(f"{name} has an empty scope, or the same one twice")


def scopes_of(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The scopes of an unsigned token: a list, or a text separated by blanks. Errors: InvalidToken."""
    value = claims.get(name)
    scopes = value.split() if isinstance(value, str) else [] if value is None else value
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise InvalidToken(f"{name} is neither a text nor a list of texts")
    return frozenset(scopes)
