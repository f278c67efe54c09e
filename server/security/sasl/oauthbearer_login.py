"""Tokens for this broker's own logins at other brokers.

Source: OAuthBearerLoginCallbackHandler, HttpJwtRetriever, FileJwtRetriever, OAuthBearerUnsecuredLoginCallbackHandler,
ExpiringCredentialRefreshingLogin (Java); RFC 6749, section 4.4 (client credentials).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import Request

from .claims import InvalidToken, claims_of, time_of
from .documents import FetchFailed, read_request, read_url, without_secrets
from .mechanism import LoginFailed
from .oauthbearer import OAuthBearerClient
from .unsecured_tokens import unsigned_token

if TYPE_CHECKING:
    from ...clock import Clock
    from ..jaas import LoginModule
    from .sources import MechanismSettings

UNSECURED = "unsecuredLogin"
#: A token that ends sooner than this is fetched again. Source: sasl.login.refresh.buffer.seconds.
MARGIN_MS = 300_000
#: The fraction of a token's life after which it is fetched again. Source: sasl.login.refresh.window.factor.
WINDOW_FACTOR = 0.8


class OAuthBearerLogin:
    """Makes the clients of this broker's logins, with a token that is reused until shortly before its end."""

    def __init__(
        self, fetch: Callable[[], str], extensions: Mapping[str, str], now_ms: Callable[[], int]
    ) -> None:
        self._fetch = fetch
        self._extensions = extensions
        self._now_ms = now_ms
        self._token = ""
        self._fetch_again_ms = 0

    def client(self, host: str = "") -> OAuthBearerClient:
        """A new login. This blocks while a token is fetched, so call it in a thread. Errors: LoginFailed."""
        now_ms = self._now_ms()
        if not self._token or now_ms >= self._fetch_again_ms:
            try:
                self._token = self._fetch()
            except FetchFailed as error:
                raise LoginFailed(f"no token for the login at another broker: {error}") from error
            self._fetch_again_ms = fetch_again_ms(self._token, now_ms)
        try:
            return OAuthBearerClient(self._token, self._extensions)
        except ValueError as error:
            self._token = ""
            raise LoginFailed(f"no token for the login at another broker: {error}") from error


def fetch_again_ms(token: str, now_ms: int) -> int:
    """The time at which a token fetched now has to be fetched again; immediately if it has no end."""
    payload = token.partition(".")[2].partition(".")[0]
    try:
        data = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        expires_ms = time_of(claims_of(data), "exp", required=True)
    except (ValueError, InvalidToken):
        return now_ms
    assert expires_ms is not None
    life_ms = expires_ms - now_ms
    return now_ms + max(
        0, min(int(life_ms * WINDOW_FACTOR), max(life_ms - MARGIN_MS, life_ms // 2))
    )


def login_of(settings: MechanismSettings, module: LoginModule, clock: Clock) -> OAuthBearerLogin:
    """The logins according to the settings. Errors: what `MechanismSettings.refusal` returns."""
    url = settings.get_optional_str("sasl.oauthbearer.token.endpoint.url")
    options = module.options
    if url is None:
        if f"{UNSECURED}StringClaim_sub" not in options:
            raise settings.refusal(
                "sasl.oauthbearer.token.endpoint.url",
                "must say where a broker gets its token for other brokers (https:, http: or file:)",
            )
        try:
            unsecured_token(options, clock.now_ms())
        except ValueError:
            reason = "a claim or lifetime of OAuthBearerLoginModule is not a number"
            raise settings.refusal("sasl.jaas.config", reason) from None
        return OAuthBearerLogin(
            lambda: unsecured_token(options, clock.now_ms()),
            with_prefix(options, f"{UNSECURED}Extension_"),
            clock.now_ms,
        )
    extensions = with_prefix(options, "extension_")
    if url.lower().startswith("file:"):
        return OAuthBearerLogin(
            lambda: read_url(url, clock.monotonic_ms).decode("ascii", "replace").strip(),
            extensions,
            clock.now_ms,
        )
    if not url.lower().startswith(("https://", "http://")):
        raise settings.refusal(
            "sasl.oauthbearer.token.endpoint.url", "must be https:, http: or file:"
        )
    client_id, secret = options.get("clientId", ""), options.get("clientSecret", "")
    if not client_id or not secret:
        raise settings.refusal(
            "sasl.jaas.config", "OAuthBearerLoginModule has no option clientId or no clientSecret"
        )
    request = credentials_request(url, client_id, secret, options.get("scope", ""))
    return OAuthBearerLogin(
        lambda: token_in(read_request(request, clock.monotonic_ms), without_secrets(url)),
        extensions,
        clock.now_ms,
    )


def credentials_request(url: str, client_id: str, secret: str, scope: str) -> Request:
    """The request for a token. Source: ClientCredentialsRequestFormatter."""
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    return Request(
        url,
        urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {credentials}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )


def token_in(response: bytes, shown: str) -> str:
    """The token in the answer to that request. Errors: FetchFailed."""
    try:
        token = json.loads(response)["access_token"]
    except (ValueError, LookupError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token:
        raise FetchFailed(f"{shown} has answered without an access_token")
    return token


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """An unsigned token with the claims in a login module's options."""
    claims: dict[str, Any] = dict(with_prefix(options, f"{UNSECURED}StringClaim_"))
    for name, number in with_prefix(options, f"{UNSECURED}NumberClaim_").items():
        claims[name] = float(number)
    for name, values in with_prefix(options, f"{UNSECURED}ListClaim_").items():
        claims[name] = (
            values[1:].split(values[0]) if values else []
        )  # the first character is the separator
    claims["iat"] = now_ms / 1000
    claims["exp"] = claims["iat"] + int(options.get(f"{UNSECURED}LifetimeSeconds", "3600"))
    return unsigned_token(claims)


def with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options whose names begin with `prefix`, without it."""
    return {
        name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)
    }
