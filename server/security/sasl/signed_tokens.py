"""Tokens with a signature, checked with PyJWT against the keys of a JSON Web Key Set.

Only signatures that need a private key are accepted: no `none`, and no HMAC, whose "secret" would be the public key. A
key is used only for algorithms of its own kind.
Source: BrokerJwtValidator, RefreshingHttpsJwksVerificationKeyResolver (Java); RFC 8725 (best current practices).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .claims import ClaimRules, InvalidToken, ValidToken, claims_of
from .documents import FetchFailed, read_url, without_secrets
from .jwks import KeySource, RefreshPolicy, RefreshTimes

if TYPE_CHECKING:
    from .sources import LoginServices, MechanismSettings

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
#: The algorithms of each kind of key, by (kty, crv).
ALGORITHMS: dict[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
#: Smaller RSA keys are refused (RFC 7518, section 3.3).
MIN_RSA_BITS = 2048

CLOCK_SKEW = "sasl.oauthbearer.clock.skew.seconds"


class VerificationKey(NamedTuple):
    """One key of the set. Shape: `key_id` is empty if it has none; `key` is PyJWT's form of the key."""

    key_id: str
    algorithms: tuple[str, ...]
    key: Any


def parse_key_set(data: bytes, shown: str) -> tuple[VerificationKey, ...]:
    """The keys that can verify signatures; others (secrets, keys for encryption, malformed ones) are skipped.

    Errors: FetchFailed if this is not a key set, or has no such key.
    """
    try:
        rows = json.loads(data)["keys"]
        keys = [key for row in rows if isinstance(row, dict) for key in _key_of(row)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FetchFailed(f"{shown} is not a JSON Web Key Set") from error
    if not keys:
        raise FetchFailed(f"{shown} has no key that could verify a signature")
    return tuple(keys)


def _key_of(row: dict[str, Any]) -> list[VerificationKey]:
    algorithms = ALGORITHMS.get((str(row.get("kty", "")), str(row.get("crv", ""))), ())
    if row.get("alg") is not None:
        algorithms = tuple(each for each in algorithms if each == row["alg"])
    if not algorithms or row.get("use", "sig") != "sig":
        return []
    public = {
        name: value for name, value in row.items() if name not in ("d", "p", "q", "dp", "dq", "qi")
    }
    import jwt

    try:
        key = jwt.PyJWK(public, algorithm=algorithms[0]).key
    except jwt.PyJWTError:
        return []
    if row["kty"] == "RSA" and key.key_size < MIN_RSA_BITS:
        return []
    return [VerificationKey(str(row.get("kid") or ""), algorithms, key)]


class SignedTokens:
    """Accepts tokens that one of the keys has signed, and whose claims satisfy the rules."""

    def __init__(
        self,
        rules: ClaimRules,
        source: KeySource[tuple[VerificationKey, ...]],
        now_ms: Callable[[], int],
    ) -> None:
        self._rules = rules
        self._source = source
        self._now_ms = now_ms
        import jwt

        self._jws = jwt.PyJWS()

    @classmethod
    def of(cls, settings: MechanismSettings, sources: LoginServices) -> SignedTokens:
        """The validator according to the settings. Errors: what `MechanismSettings.refusal` returns."""
        clock = sources.clock
        url = settings.get_str("sasl.oauthbearer.jwks.endpoint.url")
        try:
            shown = without_secrets(url)
        except ValueError:
            shown = ""
        if not shown.lower().startswith(("https://", "http://", "file:/")):
            raise settings.refusal(
                "sasl.oauthbearer.jwks.endpoint.url",
                "must be the URL of a key set: https:, http: or file:",
            )

        def fetch() -> tuple[VerificationKey, ...]:
            return parse_key_set(read_url(url, clock.monotonic_ms), shown)

        if url.lower().startswith("file:"):
            try:
                fetch()  # a file that is missing at startup is an error
            except FetchFailed as error:
                raise settings.refusal("sasl.oauthbearer.jwks.endpoint.url", str(error)) from error
        skew_s = settings.get_int(CLOCK_SKEW)
        if skew_s < 0:
            raise settings.refusal(CLOCK_SKEW, "must not be negative")
        times = RefreshTimes(
            settings.get_int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            settings.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            settings.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        rules = ClaimRules(
            frozenset(settings.get_list("sasl.oauthbearer.expected.audience")),
            settings.get_optional_str("sasl.oauthbearer.expected.issuer") or "",
            settings.get_str("sasl.oauthbearer.scope.claim.name"),
            settings.get_str("sasl.oauthbearer.sub.claim.name"),
            skew_s * 1000,
        )
        none: tuple[VerificationKey, ...] = ()
        source = KeySource(fetch, none, RefreshPolicy(times), clock, sources.in_thread)
        return cls(rules, source, clock.now_ms)

    def validate(self, token: str) -> ValidToken | Awaitable[ValidToken]:
        """The content of the token; an awaitable if keys have to be fetched. Errors: InvalidToken, here or there."""
        key_id, algorithm = header_of(token)
        if self._source.is_due():
            return self._after_refresh(token, key_id, algorithm)
        keys = self._keys_for(key_id, algorithm)
        if not keys and self._source.may_look_for(key_id):
            return self._after_refresh(token, key_id, algorithm)
        return self._verify(token, keys, algorithm)

    async def _after_refresh(self, token: str, key_id: str, algorithm: str) -> ValidToken:
        await self._source.refresh()
        return self._verify(token, self._keys_for(key_id, algorithm), algorithm)

    def _keys_for(self, key_id: str, algorithm: str) -> list[VerificationKey]:
        """The keys that may have signed a token; all keys of the kind, if it names none."""
        return [
            key
            for key in self._source.keys
            if algorithm in key.algorithms and (not key_id or key.key_id == key_id)
        ]

    def _verify(self, token: str, keys: list[VerificationKey], algorithm: str) -> ValidToken:
        import jwt

        if not keys:
            raise InvalidToken("no key of the key set may have signed the token")
        for key in keys:
            try:
                payload = self._jws.decode(token, key.key, algorithms=[algorithm])
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise InvalidToken("the token is malformed") from error
            return self._rules.check(claims_of(payload), self._now_ms())
        raise InvalidToken("the signature is not that of the key")


def header_of(token: str) -> tuple[str, str]:
    """The key id (empty if there is none) and algorithm that a token names. Errors: InvalidToken."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise InvalidToken("the token is malformed") from error
    algorithm, key_id = header.get("alg"), header.get("kid") or ""
    if not any(algorithm in allowed for allowed in ALGORITHMS.values()):
        raise InvalidToken("the token is not signed, or with an algorithm that is not accepted")
    if not isinstance(key_id, str):
        raise InvalidToken("the token is malformed")
    return key_id, str(algorithm)
