"""ACLs in the coordination store, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from server.coordination.acls import AclStore, decode_change, decode_entries, encode_change
from server.coordination.paths import MalformedNode
from server.coordination.store import Store
from server.security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from server.security.acl_authorizer import AclAuthorizer
from server.turns import Turns, exhaust
from tests.support.clock import ManualClock

from .conftest import StoreMaker
from .test_contract import Run

TOPIC = ResourcePattern(ResourceType.TOPIC, "a")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a-", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", AclOperation.READ, Permission.ALLOW)
WRITE = AclEntry("User:bob", "10.0.0.1", AclOperation.IDEMPOTENT_WRITE, Permission.DENY)
EVERYTHING = AclFilter()
#: The number of steps of long work in a turn of the loop.
SLICE_STEPS = 100


class Broker:
    """One broker's ACLs, kept up to date by a task."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.authorizer = AclAuthorizer()
        self.acls = AclStore(
            store, self.authorizer, clock, Turns(clock.monotonic_us, slice_steps=SLICE_STEPS)
        )
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> Broker:
        await self.acls.load()
        self.task = asyncio.create_task(self.acls.follow())
        return self

    @property
    def bindings(self) -> set[AclBinding]:
        return set(exhaust(self.acls.matching(EVERYTHING)))

    async def sees(self, *bindings: AclBinding) -> None:
        """Wait until the broker has exactly these."""
        async with asyncio.timeout(60):
            while self.bindings != set(bindings):
                await asyncio.sleep(0.005)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


async def start(maker: StoreMaker, clock: ManualClock | None = None) -> Broker:
    return await Broker(await maker.session(), clock or ManualClock()).start()


def test_nodes_are_those_of_apache_kafka(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        broker = await start(maker)
        await broker.acls.create([AclBinding(TOPIC, READ), AclBinding(PREFIX, WRITE)])
        store = broker.store
        data, _ = await store.get("/kafka-acl/Topic/a")
        assert data == (
            b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
            b'"operation":"Read","host":"*"}]}'
        )
        data, _ = await store.get("/kafka-acl-extended/prefixed/TransactionalId/a-")
        assert data == (
            b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Deny",'
            b'"operation":"IdempotentWrite","host":"10.0.0.1"}]}'
        )
        data, _ = await store.get("/kafka-acl-changes/acl_changes_0000000000")
        assert data == b"TOPIC:a"
        data, _ = await store.get("/kafka-acl-extended-changes/acl_changes_0000000000")
        assert data == (
            b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"a-","patternType":"PREFIXED"}'
        )
        broker.stop()

    run(body)


def test_change_reaches_every_broker_and_one_that_starts_later(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, other = await start(maker), await start(maker)
        both = AclBinding(TOPIC, READ), AclBinding(TOPIC, WRITE)
        await one.acls.create(both)
        assert one.bindings == set(both)  # immediately at the broker that was asked
        await other.sees(*both)
        late = await start(maker)
        assert late.bindings == set(both)
        deleted = await other.acls.delete(
            [AclFilter(principal="User:bob"), AclFilter(host="10.0.0.1"), AclFilter(name="none")]
        )
        assert deleted == [[both[1]], [], []]  # each with the first filter that matches
        for broker in (one, other, late):
            await broker.sees(both[0])
        await one.acls.delete([EVERYTHING])
        assert await one.store.exists("/kafka-acl/Topic/a") is None
        for broker in (one, other, late):
            await broker.sees()
            broker.stop()

    run(body)


def test_many_filters_do_not_hold_up_others(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        broker = await start(maker)
        patterns = [ResourcePattern(ResourceType.TOPIC, f"t{number}") for number in range(3)]
        await broker.acls.create([AclBinding(each, READ) for each in patterns])
        filters = [AclFilter(principal=f"User:{number}") for number in range(3000)]
        deleting = asyncio.ensure_future(broker.acls.delete([*filters, EVERYTHING]))
        turns = 0
        while not deleting.done():
            await asyncio.sleep(0)
            turns += 1
        # Each filter is compared with each pattern, and with its entry.
        assert turns > 2 * 3 * len(filters) / SLICE_STEPS
        assert [len(bindings) for bindings in await deleting] == [0] * 3000 + [3]
        broker.stop()

    run(body)


def test_writers_that_collide_both_succeed(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        brokers = [await start(maker) for _ in range(3)]
        wanted = [
            [AclBinding(TOPIC, READ._replace(principal=f"User:{n}-{m}")) for m in range(5)]
            for n in range(3)
        ]
        await asyncio.gather(
            *(
                broker.acls.create([binding])
                for broker, bindings in zip(brokers, wanted, strict=True)
                for binding in bindings
            )
        )
        everything = {binding for bindings in wanted for binding in bindings}
        for broker in brokers:
            await broker.sees(*everything)
            assert broker.bindings == everything
            broker.stop()

    run(body)


def test_same_acl_again_changes_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        broker = await start(maker)
        await broker.acls.create([AclBinding(TOPIC, READ)])
        await broker.acls.create([AclBinding(TOPIC, READ)])
        assert (await broker.store.get("/kafka-acl/Topic/a"))[1].version == 0
        assert len(await broker.store.children("/kafka-acl-changes")) == 1
        broker.stop()

    run(body)


def test_old_notifications_are_purged(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        clock = ManualClock()
        broker = await start(maker, clock)
        await broker.acls.create([AclBinding(TOPIC, READ)])
        stat = (await broker.store.get("/kafka-acl-changes/acl_changes_0000000000"))[1]
        clock.advance(stat.ctime_ms - clock.now_ms() + 15 * 60_000 + 1)
        await broker.acls.create([AclBinding(TOPIC, WRITE)])
        async with asyncio.timeout(60):
            while "acl_changes_0000000000" in await broker.store.children("/kafka-acl-changes"):
                await asyncio.sleep(0.005)
        assert "acl_changes_0000000000" not in await broker.store.children("/kafka-acl-changes")
        broker.stop()

    run(body)


def test_everything_is_read_again_after_a_lost_session(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, other = await start(maker), await start(maker)
        await maker.expire(other.store)
        other.store.adopt_session()
        await one.acls.create([AclBinding(TOPIC, READ)])
        await other.sees(AclBinding(TOPIC, READ))
        # The watches are also left again.
        await one.acls.create([AclBinding(TOPIC, WRITE)])
        await other.sees(AclBinding(TOPIC, READ), AclBinding(TOPIC, WRITE))
        assert len(other.bindings) == 2
        one.stop()
        other.stop()

    run(body)


def test_closed_broker_without_acls_says_whom_it_serves(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(maker: StoreMaker) -> None:
        first = await start(maker)
        assert "There are no ACLs" in caplog.text
        await first.acls.create([AclBinding(TOPIC, READ)])
        caplog.clear()
        second = await start(maker)
        assert "There are no ACLs" not in caplog.text
        first.stop()
        second.stop()

    run(body)


def test_node_that_cannot_be_read_keeps_a_broker_from_starting(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        broker = await start(maker)
        broker.stop()
        await broker.store.create("/kafka-acl/Topic/a", b'{"version":1,"acls":[{"host":"*"}]}')
        with pytest.raises(MalformedNode, match="/kafka-acl/Topic/a"):
            await start(maker)

    run(body)


@pytest.mark.parametrize("operation", [o for o in AclOperation if o > AclOperation.ANY])
def test_entries_survive_their_node(operation: AclOperation) -> None:
    from server.coordination.acls import encode_entries

    entries = {READ._replace(operation=operation), WRITE._replace(operation=operation)}
    assert decode_entries(encode_entries(entries), "/a") == entries


@pytest.mark.parametrize("pattern", [TOPIC, PREFIX, TOPIC._replace(name="a:b:c")])
def test_notification_names_its_pattern(pattern: ResourcePattern) -> None:
    queue = {
        PatternType.LITERAL: "/kafka-acl-changes",
        PatternType.PREFIXED: "/kafka-acl-extended-changes",
    }[pattern.pattern_type]
    assert decode_change(encode_change(pattern), f"{queue}/acl_changes_0000000001") == pattern


@pytest.mark.parametrize("decode", [decode_entries, decode_change])
@pytest.mark.parametrize("data", [b"[]", b"{}", b"\xff", b'{"acls":[1]}', b'{"acls":1}'])
def test_malformed_node_is_named(decode: Callable[[bytes, str], object], data: bytes) -> None:
    with pytest.raises(MalformedNode, match="/kafka-acl-changes/x"):
        decode(data, "/kafka-acl-changes/x")
