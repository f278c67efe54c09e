"""The rules of delegation tokens. Source of the cases: DelegationTokenManagerTest (Apache Kafka)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.security.delegation_tokens import (
    DelegationTokens,
    TokenInfo,
    TokenRefused,
    TokenTimes,
)
from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed
from server.security.sasl.scram import (
    KnownUser,
    ScramServer,
    keyed_hash,
    plain_hash,
    salted_password,
)

NOW = 1_700_000_000_000
DAY = 86_400_000


def tokens(**times: int) -> DelegationTokens:
    return DelegationTokens("secret key", TokenTimes(**times))


def with_token(**times: int) -> tuple[DelegationTokens, TokenInfo, bytes]:
    made = tokens(**times)
    info = made.created("id", "User:alice", "User:alice", ("User:bob",), -1, NOW)
    made.keep(info)
    return made, info, made.hmac_of("id")


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Stands for a thread."""
    return function(*arguments)


async def nothing(*_: object) -> Any:
    raise AssertionError("there is nothing to do for a thread")


def outcome(found: Any) -> Any:
    return asyncio.run(found) if isinstance(found, Coroutine) else found


def user_of(made: DelegationTokens, mechanism: str, now_ms: int) -> Any:
    return outcome(made.user_of(mechanism, "id", now_ms, at_once))


def test_password_is_made_of_the_id_and_the_secret() -> None:
    assert tokens().hmac_of("id") == hmac.new(b"secret key", b"id", hashlib.sha512).digest()
    assert "secret" not in repr(tokens())


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(-1, 7 * DAY, DAY), (0, 7 * DAY, DAY), (8 * DAY, 7 * DAY, DAY), (1000, 1000, 1000)],
)
def test_new_token_lives_as_long_as_asked_within_the_bounds(
    asked_ms: int, max_ms: int, expiry_ms: int
) -> None:
    info = tokens().created("id", "User:a", "User:b", (), asked_ms, NOW)
    assert info == ("id", "User:a", "User:b", (), NOW, NOW + max_ms, NOW + expiry_ms)


@pytest.mark.parametrize(
    ("period_ms", "expiry_ms"), [(-1, NOW + DAY + 5), (7, NOW + 12), (9 * DAY, NOW + 7 * DAY)]
)
@pytest.mark.parametrize("principal", ["User:alice", "User:bob"])
def test_owner_and_renewers_renew_up_to_the_longest_life(
    principal: str, period_ms: int, expiry_ms: int
) -> None:
    made, info, password = with_token()
    renewed = made.renewed(password, principal, period_ms, NOW + 5)
    assert renewed == info._replace(expiry_ms=expiry_ms)


def refusals(
    made: DelegationTokens, password: bytes, principal: str, now_ms: int
) -> list[ErrorCode]:
    """The errors of a renewal and of an end by this principal."""
    codes = []
    for change in (made.renewed, made.ended):
        with pytest.raises(TokenRefused) as error:
            change(password, principal, 1, now_ms)
        codes.append(error.value.code)
    return codes


def test_others_and_wrong_passwords_are_refused() -> None:
    made, _, password = with_token()
    unknown = [ErrorCode.DELEGATION_TOKEN_NOT_FOUND] * 2
    assert refusals(made, b"x" * 64, "User:alice", NOW) == unknown
    assert refusals(made, b"", "User:alice", NOW) == unknown
    others = [ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH] * 2
    assert refusals(made, password, "User:eve", NOW) == others


def test_expired_token_cannot_be_renewed_and_only_be_removed() -> None:
    made, info, password = with_token(expiry_ms=10)
    expired = [ErrorCode.DELEGATION_TOKEN_EXPIRED] * 2
    assert refusals(made, password, "User:alice", NOW + 11) == expired
    assert made.renewed(password, "User:alice", 5, NOW + 10).expiry_ms == NOW + 15
    ended, at_once = made.ended(password, "User:alice", -1, NOW + 11)
    assert (ended, at_once) == (info._replace(expiry_ms=NOW + 11), True)


def test_end_after_a_period_is_a_new_expiry() -> None:
    made, info, password = with_token()
    assert made.ended(password, "User:bob", 3, NOW) == (info._replace(expiry_ms=NOW + 3), False)


def test_tokens_to_be_removed_are_those_that_have_expired() -> None:
    made, info, _ = with_token(expiry_ms=10)
    made.keep(made.created("later", "User:a", "User:a", (), -1, NOW + 5))
    assert made.expired(NOW + 10) == []
    assert made.expired(NOW + 11) == [info]


def test_what_is_read_again_replaces_what_is_kept() -> None:
    made, info, password = with_token()
    assert user_of(made, "SCRAM-SHA-256", NOW) is not None
    made.replace_all([info._replace(token_id="other")])
    assert [each.token_id for each in made] == ["other"]
    assert user_of(made, "SCRAM-SHA-256", NOW) is None
    unknown = [ErrorCode.DELEGATION_TOKEN_NOT_FOUND] * 2
    assert refusals(made, password, "User:alice", NOW) == unknown
    made.forget("unknown")
    assert [each.token_id for each in made] == ["other"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_logs_in_the_owner_until_the_token_expires(mechanism: str) -> None:
    made, info, password = with_token()

    def log_in(secret: str) -> Authenticated:
        server = ScramServer(
            mechanism,
            lambda user: None,
            lambda token: made.user_of(mechanism, token, NOW, at_once),
            lambda user: user_of(made, mechanism, NOW).credential,
            lambda: "server",
        )
        bare = "n=id,r=client,tokenauth=true"
        challenge = outcome(server.evaluate(f"n,,{bare}".encode()))
        assert isinstance(challenge, Challenge)
        first = challenge.token.decode()
        fields = dict(part.split("=", 1) for part in first.split(","))
        salted = salted_password(mechanism, secret, b64decode(fields["s"]), int(fields["i"]))
        key = keyed_hash(mechanism, salted, b"Client Key")
        final = f"c=biws,r={fields['r']}"
        signed = keyed_hash(
            mechanism, plain_hash(mechanism, key), f"{bare},{first},{final}".encode()
        )
        proof = b64encode(bytes(a ^ b for a, b in zip(key, signed, strict=True))).decode()
        answer = server.evaluate(f"{final},p={proof}".encode())
        assert isinstance(answer, Authenticated)
        return answer

    answer = log_in(b64encode(password).decode())
    assert (answer.principal, answer.by_token, answer.expires_ms) == (
        "User:alice",
        True,
        info.expiry_ms,
    )
    with pytest.raises(LoginFailed):
        log_in("wrong")
    assert user_of(made, mechanism, info.expiry_ms) is not None
    assert user_of(made, mechanism, info.expiry_ms + 1) is None


def test_token_is_prepared_for_logins_by_a_thread_and_only_once() -> None:
    made, _, _ = with_token()
    first = user_of(made, "SCRAM-SHA-256", NOW)
    assert isinstance(first, KnownUser)
    assert made.user_of("SCRAM-SHA-256", "id", NOW, nothing) == first
    assert made.user_of("SCRAM-SHA-256", "other", NOW, nothing) is None


def test_token_that_is_removed_while_a_thread_prepares_it_logs_nobody_in() -> None:
    made, _, _ = with_token()

    async def removed(function: Callable[..., Any], *arguments: Any) -> Any:
        made.forget("id")
        return function(*arguments)

    assert outcome(made.user_of("SCRAM-SHA-256", "id", NOW, removed)) is None
    assert made.user_of("SCRAM-SHA-256", "id", NOW, nothing) is None
