"""Delegation tokens in the coordination store, on both stores."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable

import pytest

from kwire.errors import ErrorCode
from server.coordination import change_queue
from server.coordination.commit import commit
from server.coordination.paths import MalformedNode
from server.coordination.store import Create, Store
from server.coordination.tokens import CHANGES, TokenStore, decode_token, encode_token, token_path
from server.security.delegation_tokens import DelegationTokens, TokenInfo, TokenTimes
from tests.support.clock import ManualClock

from .conftest import StoreMaker
from .test_contract import Run

INFO = TokenInfo("id", "User:alice", "User:x y", ("User:bob", "User:ü*"), 1, 3, 2)
#: Apache Kafka 3.9.2's data for a token.
BY_KAFKA = (
    b'{"issueTimestamp":1795410083532,"renewers":["User%3Abob","User%3Ax%20y"],'
    b'"tokenRequester":"User%3Aalice","tokenId":"cOxvBBIsTwG5inC9bLnFqw","owner":"User%3Aalice",'
    b'"expiryTimestamp":1795496483532,"maxTimestamp":1796014883532,"version":3}'
)
NODE = (
    b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Ax%20y",'
    b'"renewers":["User%3Abob","User%3A%C3%BC%2A"],"issueTimestamp":1,"maxTimestamp":3,'
    b'"expiryTimestamp":2,"tokenId":"id"}'
)


class Broker:
    """One broker's tokens, kept up to date by a task."""

    def __init__(self, store: Store, clock: ManualClock, name: str) -> None:
        ids = map(f"{name}-{{}}".format, itertools.count())
        self.clock = clock
        self.tokens = TokenStore(
            store, DelegationTokens("secret", TokenTimes()), clock, ids.__next__
        )
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> Broker:
        await self.tokens.load()
        self.task = asyncio.create_task(self.tokens.follow())
        return self

    @property
    def infos(self) -> set[TokenInfo]:
        return set(self.tokens.tokens)

    async def sees(self, *infos: TokenInfo) -> None:
        """Wait until the broker has exactly these."""
        async with asyncio.timeout(60):
            while self.infos != set(infos):
                await asyncio.sleep(0.005)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


async def start(maker: StoreMaker, clock: ManualClock | None = None, name: str = "one") -> Broker:
    return await Broker(await maker.session(), clock or ManualClock(), name).start()


def test_token_is_written_and_read_as_by_apache_kafka() -> None:
    by_kafka = decode_token(BY_KAFKA, token_path("cOxvBBIsTwG5inC9bLnFqw"))
    assert by_kafka.renewers == ("User:bob", "User:x y")
    assert by_kafka.max_ms - by_kafka.issue_ms == 7 * (by_kafka.expiry_ms - by_kafka.issue_ms)
    assert json.loads(encode_token(by_kafka)) == json.loads(BY_KAFKA)
    assert encode_token(INFO) == NODE
    assert decode_token(NODE, token_path("id")) == INFO


def test_token_of_an_older_version_was_requested_by_its_owner() -> None:
    old = NODE.replace(b'"version":3', b'"version":1').replace(
        b'"tokenRequester":"User%3Ax%20y",', b""
    )
    assert decode_token(old, token_path("id")) == INFO._replace(requester="User:alice")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":3', b'"version":4'),
        (b'"owner":"User%3Aalice",', b""),
        (b"User%3Aalice", b"alice"),
        (b'"issueTimestamp":1', b'"issueTimestamp":"x"'),
        (b'"tokenId":"id"', b'"tokenId":"other"'),
        (b'["User%3Abob","User%3A%C3%BC%2A"]', b"7"),
        (NODE, b""),
        (NODE, b"[]"),
    ],
)
def test_node_that_is_no_token_is_refused(old: bytes, new: bytes) -> None:
    with pytest.raises(MalformedNode, match="/delegation_token/tokens/id"):
        decode_token(NODE.replace(old, new), token_path("id"))


def test_changes_reach_every_broker_and_one_that_starts_later(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, other = await start(maker), await start(maker)
        info = await one.tokens.create("User:alice", "User:alice", ("User:bob",), 1000)
        store = one.tokens.store
        assert (await store.get("/delegation_token/tokens/one-0"))[0] == encode_token(info)
        changes = "/delegation_token/token_changes/token_change_0000000000"
        assert (await store.get(changes))[0] == b"one-0"
        await other.sees(info)
        password = other.tokens.tokens.hmac_of("one-0")
        error, expiry_ms = await other.tokens.renew(password, "User:bob", 10)
        assert error is ErrorCode.NONE
        shorter = info._replace(expiry_ms=expiry_ms)
        await one.sees(shorter)
        late = await start(maker)
        assert late.infos == {shorter}
        now_ms = one.clock.now_ms()
        assert await late.tokens.expire(password, "User:alice", -1) == (ErrorCode.NONE, now_ms)
        for broker in (one, other, late):
            await broker.sees()
            broker.stop()
        assert await store.children("/delegation_token/tokens") == []

    run(body)


def test_refusal_is_returned_and_writes_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        broker = await start(maker)
        await broker.tokens.create("User:alice", "User:alice", (), 1000)
        password = broker.tokens.tokens.hmac_of("one-0")
        for change in (broker.tokens.renew, broker.tokens.expire):
            refused: Callable[..., Awaitable[tuple[ErrorCode, int]]] = change
            assert await refused(b"", "User:alice", 1) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
            assert await refused(password, "User:eve", 1) == (
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                -1,
            )
        assert len(await broker.tokens.store.children("/delegation_token/token_changes")) == 1
        broker.stop()

    run(body)


def test_token_that_another_broker_has_just_removed_is_not_found(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, other = await start(maker), await start(maker)
        other.stop()  # it no longer follows
        info = await one.tokens.create("User:alice", "User:alice", (), 1000)
        other.tokens.tokens.keep(info)
        password = one.tokens.tokens.hmac_of(info.token_id)
        await one.tokens.expire(password, "User:alice", -1)
        found = await other.tokens.renew(password, "User:alice", 10)
        assert found == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
        other.tokens.tokens.keep(info)
        assert (await other.tokens.expire(password, "User:alice", -1))[0] is ErrorCode.NONE
        assert other.infos == set()
        one.stop()

    run(body)


def test_sweep_removes_what_has_expired(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        clock = ManualClock()
        broker = await start(maker, clock)
        await broker.tokens.create("User:alice", "User:alice", (), 1000)
        kept = await broker.tokens.create("User:alice", "User:alice", (), 2000)
        clock.advance(1001)
        await broker.tokens.sweep()
        assert broker.infos == {kept}
        assert await broker.tokens.store.children("/delegation_token/tokens") == ["one-1"]
        broker.stop()

    run(body)


def test_node_that_cannot_be_read_is_logged_and_left_out(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(maker: StoreMaker) -> None:
        one = await start(maker)
        await one.tokens.store.multi([Create("/delegation_token/tokens/bad", b"{}")])
        info = await one.tokens.create("User:alice", "User:alice", (), 1000)
        other = await start(maker)
        assert other.infos == {info}
        assert "/delegation_token/tokens/bad" in caplog.text
        one.stop()
        other.stop()

    run(body)


def test_child_of_the_queue_that_is_no_notification_is_passed_over(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one = await start(maker)
        await commit(one.tokens.store, [Create(f"{CHANGES}/by hand")])
        two = await start(maker, name="two")
        info = await one.tokens.create("User:alice", "User:alice", (), -1)
        await two.sees(info)
        assert (one.infos, two.infos) == ({info}, {info})
        one.stop()
        two.stop()

    run(body)


def test_follower_goes_on_after_an_error_that_nobody_expects(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(change_queue, "RETRY_S", 0)

    async def fail(notifications: object) -> None:
        raise ZeroDivisionError

    async def body(maker: StoreMaker) -> None:
        one, two = await start(maker), await start(maker, name="two")
        monkeypatch.setattr(two.tokens, "read_changed", fail)
        info = await one.tokens.create("User:alice", "User:alice", (), -1)
        await two.sees(info)  # by reading everything
        one.stop()
        two.stop()

    run(body)
    assert "cannot read the delegation tokens, and keeps those it has" in caplog.text
