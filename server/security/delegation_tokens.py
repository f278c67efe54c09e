"""Delegation tokens: credentials that a user gives to programs, which log in with them by SCRAM.

A token's password is the base64 of an HMAC of its id with a secret that all brokers share, so it is not stored
anywhere. Pure: the time and new ids are parameters, and changes are returned for the store.
Source: DelegationTokenManager, DelegationTokenCache, TokenInformation, ScramServerCallbackHandler; KIP-48, KIP-373.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, NamedTuple, TypeAlias

from kwire.errors import ErrorCode

from .sasl.scram import KnownUser, ScramCredential, salted_password
from .sasl.scram_numbers import MIN_ITERATIONS

#: Runs a call in a thread.
InThread: TypeAlias = Callable[..., Awaitable[Any]]

#: The maximum number of existing tokens that one user may have requested; each takes about 1 KB of memory.
MAX_REQUESTED = 10_000
#: The maximum total length of the names of a token's renewers; ZooKeeper's nodes are limited to 1 MiB.
MAX_RENEWERS_CHARACTERS = 100_000


class TokenInfo(NamedTuple):
    """A token without its HMAC. Shape: principals as `User:alice`; times in wall-clock ms."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether the principal is the owner or a renewer."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal is the owner, a renewer, or the requester. Source: TokenInformation.ownerOrRenewer."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    def has_expired(self, now_ms: int) -> bool:
        """Whether its lifetime, or its period since the last renewal, has ended."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms


class TokenRefused(Exception):
    """A request about a token is refused; `code` is its error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """`delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_lifetime_ms: int = 604_800_000
    expiry_ms: int = 86_400_000


class DelegationTokens:
    """The tokens that a broker knows, and the rules for them. Shape: `secret` is delegation.token.secret.key."""

    def __init__(self, secret: str, times: TokenTimes) -> None:
        self._secret = secret.encode()
        self._times = times
        self._tokens: dict[str, TokenInfo] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._requested: Counter[str] = Counter()  # tokens by requester
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._tokens)})"

    # -- what is known

    def hmac_of(self, token_id: str) -> bytes:
        """The 64 bytes that a token's holder knows."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def keep(self, info: TokenInfo) -> None:
        """Add a token, or replace its state."""
        if info.token_id not in self._tokens:
            self._requested[info.requester] += 1
        self._tokens[info.token_id] = info
        self._by_hmac[self.hmac_of(info.token_id)] = info.token_id

    def forget(self, token_id: str) -> None:
        """Remove a token, if it is known."""
        info = self._tokens.pop(token_id, None)
        if info is not None:
            self._requested[info.requester] -= 1
            if not self._requested[info.requester]:
                del self._requested[info.requester]
            del self._by_hmac[self.hmac_of(token_id)]
            for mechanism in [key[0] for key in self._credentials if key[1] == token_id]:
                del self._credentials[mechanism, token_id]

    def replace_all(self, infos: Iterable[TokenInfo]) -> None:
        """Keep these tokens and no others."""
        kept = {info.token_id: info for info in infos}
        for token_id in self._tokens.keys() - kept.keys():
            self.forget(token_id)
        for info in kept.values():
            self.keep(info)

    def __iter__(self) -> Iterator[TokenInfo]:
        return iter(list(self._tokens.values()))

    def has_too_many(self, requester: str) -> bool:
        """Whether a user has requested the maximum number of tokens."""
        return self._requested[requester] >= MAX_REQUESTED

    def expired(self, now_ms: int) -> list[TokenInfo]:
        """The tokens that have to be removed."""
        return [info for info in self._tokens.values() if info.has_expired(now_ms)]

    # -- requests; each returns what the token becomes

    def created(
        self,
        token_id: str,
        owner: str,
        requester: str,
        renewers: tuple[str, ...],
        lifetime_ms: int,
        now_ms: int,
    ) -> TokenInfo:
        """A new token. Shape: `lifetime_ms` is the requested lifetime; 0 or less means the maximum."""
        longest_ms = self._times.max_lifetime_ms
        max_ms = now_ms + (longest_ms if lifetime_ms <= 0 else min(lifetime_ms, longest_ms))
        expiry_ms = min(max_ms, now_ms + self._times.expiry_ms)
        return TokenInfo(token_id, owner, requester, renewers, now_ms, max_ms, expiry_ms)

    def renewed(self, hmac_bytes: bytes, principal: str, period_ms: int, now_ms: int) -> TokenInfo:
        """A token with a later expiry; a negative period means the default. Errors: TokenRefused."""
        info = self._of(hmac_bytes, principal)
        if info.has_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        period_ms = self._times.expiry_ms if period_ms < 0 else period_ms
        return info._replace(expiry_ms=min(info.max_ms, now_ms + period_ms))

    def ended(
        self, hmac_bytes: bytes, principal: str, period_ms: int, now_ms: int
    ) -> tuple[TokenInfo, bool]:
        """A token that expires after a period, and whether it ends immediately (a negative period). Errors:
        TokenRefused.
        """
        info = self._of(hmac_bytes, principal)
        if period_ms < 0:
            return info._replace(expiry_ms=now_ms), True
        if info.has_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return info._replace(expiry_ms=min(info.max_ms, now_ms + period_ms)), False

    def _of(self, hmac_bytes: bytes, principal: str) -> TokenInfo:
        token_id = self._by_hmac.get(hmac_bytes)
        if token_id is None:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        info = self._tokens[token_id]
        if not info.may_be_renewed_by(principal):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return info

    # -- logins

    def user_of(
        self, mechanism: str, token_id: str, now_ms: int, in_thread: InThread
    ) -> KnownUser | Awaitable[KnownUser | None] | None:
        """The user of a SCRAM login with a token; None if there is no valid token.

        Shape: an awaitable at a token's first login, when a thread has to salt its password in thousands of rounds.
        Apache Kafka also accepts a token that has expired and has not been removed yet.
        """
        info = self._tokens.get(token_id)
        if info is None or info.has_expired(now_ms):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            return self._first_user_of(mechanism, token_id, in_thread)
        return KnownUser(info.owner, credential, info.expiry_ms)

    async def _first_user_of(
        self, mechanism: str, token_id: str, in_thread: InThread
    ) -> KnownUser | None:
        credential = await in_thread(credential_of, mechanism, self.hmac_of(token_id))
        info = self._tokens.get(token_id)
        if info is None:  # removed in the meantime
            return None
        self._credentials[mechanism, token_id] = credential
        return KnownUser(info.owner, credential, info.expiry_ms)


def credential_of(mechanism: str, hmac_bytes: bytes) -> ScramCredential:
    """The credential that checks a SCRAM login with a token of this HMAC."""
    password, salt = b64encode(hmac_bytes).decode(), token_hex(16).encode()
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    return ScramCredential.of(mechanism, salt, salted, MIN_ITERATIONS)
