"""Delegation tokens in the coordination store, in Apache Kafka's nodes, shared with Apache Kafka's brokers.

The HMAC, from which a token's password is made, is not stored: every broker computes it with the shared secret.
Source: DelegationTokensZNode, DelegationTokenInfoZNode (ZkData.scala), DelegationTokenManagerZk of 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kwire.errors import ErrorCode

from ..security.delegation_tokens import DelegationTokens, TokenInfo, TokenRefused
from ..security.identity import NotAPrincipal
from . import paths
from .change_queue import ChangeFollower
from .commit import commit
from .store import ANY_VERSION, Create, Delete, NoNode, SetData, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..clock import Clock

logger = logging.getLogger(__name__)

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = "token_change_"


def token_path(token_id: str) -> str:
    """The node of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(info: TokenInfo) -> bytes:
    """Version 3; principals are sanitized."""
    return paths.dump(
        {
            "version": 3,
            "owner": paths.sanitize(info.owner),
            "tokenRequester": paths.sanitize(info.requester),
            "renewers": [paths.sanitize(renewer) for renewer in info.renewers],
            "issueTimestamp": info.issue_ms,
            "maxTimestamp": info.max_ms,
            "expiryTimestamp": info.expiry_ms,
            "tokenId": info.token_id,
        }
    )


def decode_token(data: bytes | None, path: str) -> TokenInfo:
    """A token of version 1 to 3; before version 3, the owner is the requester. Errors: MalformedNode."""
    row: dict[str, Any] = paths.load(data, path)
    try:
        version, token_id = paths.integer(row["version"]), str(row["tokenId"])
        if not 1 <= version <= 3 or path != token_path(token_id):
            raise ValueError(f"version {version} of {token_id}")
        owner = principal_of(row["owner"])
        return TokenInfo(
            token_id,
            owner,
            principal_of(row["tokenRequester"]) if version >= 3 else owner,
            tuple(principal_of(renewer) for renewer in row["renewers"]),
            paths.integer(row["issueTimestamp"], 64),
            paths.integer(row["maxTimestamp"], 64),
            paths.integer(row["expiryTimestamp"], 64),
        )
    except (*paths.OTHER_FORM, NotAPrincipal) as error:
        raise paths.MalformedNode(path, f"not a delegation token ({error})") from error


def principal_of(sanitized: str) -> str:
    """A principal in a node; its name may be empty, as in Apache Kafka. Errors: NotAPrincipal."""
    principal = paths.desanitize(sanitized)
    kind, colon, _ = principal.partition(":")
    if not (kind and colon):
        raise NotAPrincipal(f"{principal!r} is not a principal")
    return principal


class TokenStore(ChangeFollower):
    """Keeps a broker's tokens equal to those in the store, and changes them there.

    A node that cannot be read is logged and skipped: its token cannot be used.
    """

    what = "delegation tokens"

    def __init__(
        self, store: Store, tokens: DelegationTokens, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        super().__init__(store, clock, [CHANGES])
        self.tokens = tokens
        self._new_id = new_id

    # -- reading

    def parents(self) -> list[str]:
        """See ChangeFollower."""
        return [TOKENS]

    async def read_all(self) -> None:
        """See ChangeFollower."""
        found = await self._read(await self.store.children(TOKENS))
        self.tokens.replace_all(info for info in found.values() if info is not None)

    async def read_changed(self, notifications: Sequence[tuple[str, bytes | None]]) -> None:
        """See ChangeFollower."""
        changed = dict.fromkeys(
            (data or b"").decode("utf-8", "replace") for _, data in notifications
        )
        named = [token_id for token_id in changed if token_id and "/" not in token_id]
        for token_id, info in (await self._read(named)).items():
            if info is None:
                self.tokens.forget(token_id)
            else:
                self.tokens.keep(info)

    async def _read(self, token_ids: Sequence[str]) -> dict[str, TokenInfo | None]:
        where = [token_path(token_id) for token_id in token_ids]
        found: dict[str, TokenInfo | None] = dict.fromkeys(token_ids)
        for token_id, path, node in zip(
            token_ids, where, await self.store.get_many(where), strict=True
        ):
            if node is None:
                continue
            try:
                found[token_id] = decode_token(node[0], path)
            except paths.MalformedNode as error:
                logger.error("delegation tokens cannot be used to log in: %s", error)
        return found

    # -- changing

    async def create(
        self, owner: str, requester: str, renewers: tuple[str, ...], lifetime_ms: int
    ) -> TokenInfo:
        """Create and store a token."""
        async with self.lock:
            info = self.tokens.created(
                self._new_id(), owner, requester, renewers, lifetime_ms, self.clock.now_ms()
            )
            await commit(
                self.store,
                [Create(token_path(info.token_id), encode_token(info)), notice(info.token_id)],
            )
            self.tokens.keep(info)
            logger.info("created delegation token %s for %s", info.token_id, owner)
            return info

    async def renew(self, hmac: bytes, principal: str, period_ms: int) -> tuple[ErrorCode, int]:
        """Renew a token; returns NONE and its new expiry, or the error and -1."""
        async with self.lock:
            try:
                info = self.tokens.renewed(hmac, principal, period_ms, self.clock.now_ms())
                await self._put(info)
            except TokenRefused as refused:
                return refused.code, -1
            return ErrorCode.NONE, info.expiry_ms

    async def expire(self, hmac: bytes, principal: str, period_ms: int) -> tuple[ErrorCode, int]:
        """Let a token expire after a period, or remove it; returns the same as `renew`."""
        async with self.lock:
            now_ms = self.clock.now_ms()
            try:
                info, at_once = self.tokens.ended(hmac, principal, period_ms, now_ms)
                await (self._remove(info) if at_once else self._put(info))
            except TokenRefused as refused:
                return refused.code, -1
            return ErrorCode.NONE, info.expiry_ms

    async def sweep(self) -> None:
        """Remove the tokens that have expired."""
        async with self.lock:
            for info in self.tokens.expired(self.clock.now_ms()):
                await self._remove(info)

    async def _put(self, info: TokenInfo) -> None:
        """Replace a token; a token that another broker has just removed stays removed. Errors: TokenRefused."""
        data = SetData(token_path(info.token_id), encode_token(info), ANY_VERSION)
        try:
            await commit(self.store, [data, notice(info.token_id)])
        except NoNode:
            self.tokens.forget(info.token_id)
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        self.tokens.keep(info)
        logger.info("delegation token %s of %s has a new expiry", info.token_id, info.owner)

    async def _remove(self, info: TokenInfo) -> None:
        try:
            await commit(self.store, [Delete(token_path(info.token_id)), notice(info.token_id)])
        except NoNode:
            pass
        self.tokens.forget(info.token_id)
        logger.info("removed delegation token %s of %s", info.token_id, info.owner)


def notice(token_id: str) -> Create:
    """The notification that a token has changed."""
    return Create(f"{CHANGES}/{CHANGE_PREFIX}", token_id.encode(), sequential=True)


async def sweep_regularly(
    store: TokenStore, interval_ms: int, is_controller: Callable[[], bool]
) -> None:
    """Remove expired tokens at intervals, until cancelled; only on the controller.

    Source: KafkaController, delete-expired-tokens.
    """
    while True:
        await asyncio.sleep(interval_ms / 1000)
        if is_controller():
            try:
                await store.sweep()
            except Exception:
                logger.exception("expired delegation tokens were not removed")
