"""The APIs of delegation tokens: permissions for each request. Source of the rules: KafkaApis of 3.9."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from kwire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kwire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kwire.messages.renew_delegation_token import RenewDelegationTokenRequest
from server.coordination.embedded import EmbeddedTree
from server.coordination.tokens import TokenStore
from server.handlers.context import ConnectionInfo, Later, RequestContext
from server.handlers.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from server.security.acl import (
    AclEntry,
    AclOperation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from server.security.acl_authorizer import AclAuthorizer
from server.security.delegation_tokens import DelegationTokens, TokenTimes
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.steps import finished

CREATE = CreateDelegationTokenRequest(
    owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
)
EVERYTHING = DescribeDelegationTokenRequest(owners=None)
NOW = ManualClock().now_ms()


class Room:
    """A broker's tokens, and requests of any user."""

    def __init__(self, tokens: TokenStore | None) -> None:
        self.tokens = tokens
        self.authorizer = AclAuthorizer()
        self.protocol = "SASL_PLAINTEXT"
        self.by_token = False

    def allow(self, user: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
        entry = AclEntry(f"User:{user}", "*", operation, Permission.ALLOW)
        self.authorizer.set_entries(ResourcePattern(kind, name), frozenset({entry}))

    async def call(self, user: str, handler: Any, request: Any, version: int | None = None) -> Any:
        """The answer of the newest version, or of this one; as a client reads it."""
        version = handler.max_version if version is None else version
        connection = ConnectionInfo("1", principal=f"User:{user}", security_protocol=self.protocol)
        connection.by_token = self.by_token
        services = services_of(tokens=self.tokens, authorizer=self.authorizer)
        ctx = RequestContext(handler, version, 1, "c", NOW, connection, services)
        answer = finished(handler(ctx, request))
        if isinstance(answer, Later):
            value = await answer.awaitable
            answer = answer.finish(value) if answer.finish else value
        return decode(type(answer), encode(answer, version), version)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Any], None]:
    """Run a test with a room over an embedded store."""

    def runner(body: Any) -> None:
        async def main() -> None:
            clock = ManualClock()
            tree = await EmbeddedTree.open(tmp_path / "store", clock)
            store = tree.session()
            ids = iter(["t0", "t1", "t2"])
            tokens = TokenStore(
                store, DelegationTokens("secret", TokenTimes()), clock, ids.__next__
            )
            await tokens.load()
            try:
                await body(Room(tokens))
            finally:
                await store.close()
                await tree.close()

        asyncio.run(main())

    return runner


def test_client_gets_a_token_of_its_own(run: Any) -> None:
    async def body(room: Room) -> None:
        asked = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[CreatableRenewers(principal_type="User", principal_name="bob")],
            max_lifetime_ms=5000,
        )
        made = await room.call("alice", create_delegation_token, asked)
        assert made.error_code == ErrorCode.NONE
        assert (made.principal_type, made.principal_name) == ("User", "alice")
        assert made.token_requester_principal_name == "alice"
        assert (made.token_id, made.hmac) == ("t0", room.tokens.tokens.hmac_of("t0"))
        assert made.issue_timestamp_ms == NOW
        assert made.max_timestamp_ms == made.expiry_timestamp_ms == NOW + 5000
        (row,) = (await room.call("bob", describe_delegation_token, EVERYTHING)).tokens
        assert (row.token_id, row.principal_name, row.hmac) == ("t0", "alice", made.hmac)
        assert [renewer.principal_name for renewer in row.renewers] == ["bob"]
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=10)
        renewed = await room.call("bob", renew_delegation_token, renewal)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, NOW + 10)
        end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        ended = await room.call("alice", expire_delegation_token, end)
        assert (ended.error_code, ended.expiry_timestamp_ms) == (0, NOW)
        gone = await room.call("alice", renew_delegation_token, renewal)
        assert (gone.error_code, gone.expiry_timestamp_ms) == (
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            -1,
        )

    run(body)


REQUESTS = [
    (create_delegation_token, CREATE),
    (renew_delegation_token, RenewDelegationTokenRequest(hmac=b"", renew_period_ms=1)),
    (expire_delegation_token, ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=1)),
    (describe_delegation_token, EVERYTHING),
]


def test_every_version_can_be_answered(run: Any) -> None:
    async def body(room: Room) -> None:
        for protocol in ("PLAINTEXT", "SASL_SSL"):
            room.protocol = protocol
            for handler, request in REQUESTS:
                room.tokens._new_id = iter(f"{protocol}-{n}" for n in range(9)).__next__
                for version in range(handler.min_version, handler.max_version + 1):
                    answer = await room.call("alice", handler, request, version)
                    assert (answer.error_code == 0) == (
                        protocol == "SASL_SSL"
                        and handler in (create_delegation_token, describe_delegation_token)
                    )
        (*_, last) = (await room.call("alice", describe_delegation_token, EVERYTHING)).tokens
        assert last.token_requester_principal_name == "alice"

    run(body)


@pytest.mark.parametrize(
    ("user", "protocol", "by_token"),
    [
        ("alice", "PLAINTEXT", False),
        ("ANONYMOUS", "SSL", False),
        ("alice", "SASL_PLAINTEXT", True),
        ("alice", "SASL_SSL", True),
    ],
)
def test_who_has_not_proved_its_identity_or_has_used_a_token_may_not_ask(
    run: Any, user: str, protocol: str, by_token: bool
) -> None:
    async def body(room: Room) -> None:
        room.protocol, room.by_token = protocol, by_token
        for handler, request in REQUESTS:
            answer = await room.call(user, handler, request)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert list(room.tokens.tokens) == []

    run(body)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_who_has_proved_its_identity_may_ask(run: Any, protocol: str) -> None:
    async def body(room: Room) -> None:
        room.protocol = protocol
        made = await room.call("alice", create_delegation_token, CREATE)
        assert made.error_code == ErrorCode.NONE

    run(body)


def test_broker_without_a_secret_has_no_tokens() -> None:
    async def body() -> None:
        for handler, request in REQUESTS:
            answer = await Room(None).call("alice", handler, request)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    asyncio.run(body())


def test_token_for_another_user_needs_create_tokens_on_that_user(run: Any) -> None:
    async def body(room: Room) -> None:
        asked = CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="carol",
            renewers=[],
            max_lifetime_ms=-1,
        )
        refused = await room.call("alice", create_delegation_token, asked)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == (
            "carol",
            "alice",
        )
        assert (refused.token_id, refused.hmac, refused.max_timestamp_ms) == ("", b"", -1)
        room.allow("alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:carol")
        made = await room.call("alice", create_delegation_token, asked)
        assert (made.error_code, made.principal_name) == (0, "carol")
        own = await room.call("carol", describe_delegation_token, EVERYTHING)
        assert own.tokens[0].token_requester_principal_name == "alice"
        # The requester also sees it.
        assert (
            await room.call("alice", describe_delegation_token, EVERYTHING)
        ).tokens == own.tokens

    run(body)


def test_renewer_that_is_no_user_is_refused(run: Any) -> None:
    async def body(room: Room) -> None:
        asked = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[CreatableRenewers(principal_type="Group", principal_name="bob")],
            max_lifetime_ms=-1,
        )
        answer = await room.call("alice", create_delegation_token, asked)
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    run(body)


@pytest.mark.parametrize(
    ("length", "error"), [(1, ErrorCode.NONE), (30_000, ErrorCode.INVALID_REQUEST)]
)
def test_renewers_with_too_long_names_are_refused(run: Any, length: int, error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        renewer = CreatableRenewers(principal_type="User", principal_name="b" * length)
        asked = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[renewer] * 4,
            max_lifetime_ms=-1,
        )
        answer = await room.call("alice", create_delegation_token, asked)
        assert answer.error_code == error

    run(body)


def test_user_with_too_many_tokens_gets_no_more_until_some_are_gone(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.security.delegation_tokens.MAX_REQUESTED", 2)

    async def body(room: Room) -> None:
        made = [await room.call("alice", create_delegation_token, CREATE) for _ in range(3)]
        assert [one.error_code for one in made] == [0, 0, ErrorCode.POLICY_VIOLATION]
        end = ExpireDelegationTokenRequest(hmac=made[0].hmac, expiry_time_period_ms=-1)
        assert (await room.call("alice", expire_delegation_token, end)).error_code == 0
        assert (await room.call("alice", create_delegation_token, CREATE)).error_code == 0

    run(body)


def test_token_whose_renewer_has_no_name_is_read_again(run: Any) -> None:
    async def body(room: Room) -> None:
        asked = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[CreatableRenewers(principal_type="User", principal_name="")],
            max_lifetime_ms=-1,
        )
        assert (await room.call("alice", create_delegation_token, asked)).error_code == 0
        assert room.tokens is not None
        await room.tokens.read_all()
        (row,) = (await room.call("alice", describe_delegation_token, EVERYTHING)).tokens
        assert [renewer.principal_name for renewer in row.renewers] == [""]

    run(body)


def test_tokens_of_others_are_seen_with_a_permission_only(run: Any) -> None:
    async def body(room: Room) -> None:
        for user in ("alice", "bob"):
            await room.call(user, create_delegation_token, CREATE)

        async def seen(*owners: str, ask_all: bool = False) -> list[str]:
            rows = [
                DescribeDelegationTokenOwner(principal_type="User", principal_name=o)
                for o in owners
            ]
            asked = DescribeDelegationTokenRequest(owners=None if ask_all else rows)
            answer = await room.call("eve", describe_delegation_token, asked)
            return [row.token_id for row in answer.tokens]

        assert await seen(ask_all=True) == []
        room.allow("eve", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "t0")
        assert await seen(ask_all=True) == ["t0"]
        room.allow("eve", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
        assert await seen(ask_all=True) == ["t0", "t1"]
        assert await seen("bob") == ["t1"]
        assert await seen() == []

    run(body)


def test_who_has_asked_for_a_token_of_another_user_sees_it(run: Any) -> None:
    async def body(room: Room) -> None:
        room.allow("alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        for_bob = CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="bob",
            renewers=[],
            max_lifetime_ms=-1,
        )
        made = await room.call("alice", create_delegation_token, for_bob)
        assert made.error_code == 0
        alice = DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")
        for owners in (None, [alice]):
            asked = DescribeDelegationTokenRequest(owners=owners)
            answer = await room.call("alice", describe_delegation_token, asked)
            assert [row.token_id for row in answer.tokens] == [made.token_id]
        # It may not renew it, though: that is for the owner and the renewers.
        renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1)
        answer = await room.call("alice", renew_delegation_token, renew)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    run(body)
