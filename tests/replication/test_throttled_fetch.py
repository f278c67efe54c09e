"""Throttled replicas: data that a leader holds back, and partitions that a follower does not request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.codec import decode, encode
from kwire.messages.fetch import FetchRequest
from server.handlers.context import Later
from server.handlers.fetch import fetch
from server.replication.fetcher_task import FETCH_VERSION
from server.replication.replication_quota import ReplicationQuota
from tests.support.replicas import Replicas, finish

from .test_fetcher import Trio

#: Each batch of the leader is a little larger than what may be copied in a second.
RATE = 200
BATCH = b"v" * 150


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Broker 0 leads "moved", which broker 1 does not have, and "steady", which all have."""
    made = Trio(tmp_path)
    leader = made.lead(0, ("steady",))
    made.lead(0, ("moved",), isr=(0, 2))
    for _ in range(10):
        leader.produce("moved", BATCH)
    made.catch_up(2, rounds=5)
    yield made
    made.close()


def end(trio: Trio, broker: int, topic: str = "moved") -> int:
    return trio.rooms[broker].partition(topic).log.log_end_offset


def throttled_leader(trio: Trio, replicas: str = "0:0") -> ReplicationQuota:
    leader = trio.rooms[0]
    quota = leader.replicas.leader_quota = ReplicationQuota()
    quota.bytes_per_second = RATE
    quota.throttle("moved", replicas, 0)
    return quota


def next_request(trio: Trio, broker: int = 1) -> FetchRequest | None:
    room = trio.rooms[broker]
    return room.fetchers[0].next_request(room.clock.now_ms(), 1)


def test_leader_holds_records_back_until_there_is_room_again(trio: Trio) -> None:
    quota = throttled_leader(trio)
    trio.rooms[1].fetchers[0].limits = trio.rooms[1].fetchers[0].limits._replace(max_bytes=300)
    trio.fetch(1)
    assert end(trio, 1) == 1  # the excess over the rate is deducted later
    trio.catch_up(1, rounds=3)
    assert end(trio, 1) == 1
    clock = trio.rooms[0].clock
    clock.advance(quota.pause_ms(clock.now_ms()))
    clock.advance(quota.pause_ms(clock.now_ms()))
    trio.catch_up(1, rounds=3)
    assert end(trio, 1) == 2


def patient(request: FetchRequest | None) -> FetchRequest:
    """A request that may wait for ten minutes."""
    assert request is not None
    request.max_wait_ms = 600_000
    return decode(FetchRequest, encode(request, FETCH_VERSION), FETCH_VERSION)


@pytest.mark.parametrize("replicas", ["0:1", "1:0", ""])
def test_leader_that_is_not_named_holds_nothing_back(trio: Trio, replicas: str) -> None:
    quota = throttled_leader(trio, replicas)
    quota.record(1 << 20, trio.rooms[0].clock.now_ms())
    trio.catch_up(1, rounds=3)
    assert end(trio, 1) == 10


def test_what_is_held_back_does_not_keep_others_from_their_records(trio: Trio) -> None:
    quota = throttled_leader(trio, "*")
    trio.fetch(1)
    quota.record(1 << 20, trio.rooms[0].clock.now_ms())
    before = end(trio, 1)
    trio.rooms[0].produce("steady", b"1")
    trio.catch_up(1, rounds=2)
    assert end(trio, 1, "steady") == 1
    assert end(trio, 1) == before


def test_replica_in_sync_is_sent_everything_and_its_bytes_count(trio: Trio) -> None:
    quota = throttled_leader(trio)
    quota.record(1 << 20, trio.rooms[0].clock.now_ms())
    trio.rooms[0].produce("moved", BATCH)
    trio.catch_up(2, rounds=2)
    assert end(trio, 2) == 11
    fresh = throttled_leader(trio)
    for _ in range(5):
        trio.rooms[0].produce("moved", BATCH)
    trio.fetch(2)
    assert fresh.pause_ms(trio.rooms[0].clock.now_ms()) > 0


def test_fetch_with_nothing_but_what_is_held_back_waits_for_room(trio: Trio) -> None:
    """An immediate answer would cause an immediate repetition."""
    quota = throttled_leader(trio)
    trio.fetch(1)
    leader = trio.rooms[0]
    quota.record(RATE, leader.clock.now_ms())
    request = patient(next_request(trio))

    async def run() -> None:
        waiting = fetch(leader.context(FETCH_VERSION), request)
        assert isinstance(waiting, Later)
        leader.produce("moved", b"more")  # is also held back
        await asyncio.sleep(0)
        assert not waiting.awaitable.done()  # type: ignore[attr-defined]
        leader.produce("steady", b"1")
        answer = await finish(waiting)
        assert [topic.topic_id[:6] for topic in answer.responses] == [b"steady"]

    asyncio.run(run())


def test_wait_for_room_is_no_longer_than_until_there_is_some(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = throttled_leader(trio)
    trio.fetch(1)
    monkeypatch.setattr(quota.__class__, "pause_ms", lambda *_: 1)
    request = patient(next_request(trio))

    async def run() -> None:
        async with asyncio.timeout(60):
            waiting = fetch(trio.rooms[0].context(FETCH_VERSION), request)
            assert isinstance(waiting, Later)
            answer = await finish(waiting)
            assert answer.error_code == 0

    asyncio.run(run())


def throttled_follower(trio: Trio, replicas: str = "0:1") -> Replicas:
    room = trio.rooms[1]
    room.quota.bytes_per_second = RATE
    room.quota.throttle("moved", replicas, 1)
    room.fetchers[0].limits = room.fetchers[0].limits._replace(max_bytes=300)
    return room


def test_follower_asks_for_no_more_than_its_share(trio: Trio) -> None:
    room = throttled_follower(trio)
    trio.fetch(1)
    assert end(trio, 1) == 1
    request = next_request(trio)
    assert request is not None and not request.topics
    assert [topic.topic_id[:5] for topic in request.forgotten_topics_data] == [b"moved"]
    due_ms = room.fetchers[0].next_due_ms()
    assert due_ms is not None
    assert 0 < due_ms - room.clock.now_ms() <= 1000


def test_follower_copies_at_its_rate_to_the_end(trio: Trio) -> None:
    room = throttled_follower(trio)
    begin_ms = room.clock.now_ms()
    size = len(trio.log(0, "moved"))
    while end(trio, 1) < 10:
        trio.fetch(1)  # the other topic is fetched all the time
        room.clock.advance(20)
        assert room.clock.now_ms() - begin_ms < 60_000
    took_ms = room.clock.now_ms() - begin_ms
    assert abs(took_ms - 1000 * size / RATE) < 2000
    assert trio.log(1, "moved") == trio.log(0, "moved")


def test_follower_with_nothing_else_to_fetch_asks_when_there_is_room(trio: Trio) -> None:
    room = throttled_follower(trio)
    room.fetchers[0].stop(room.partition("steady").tp)
    trio.fetch(1)
    assert next_request(trio) is None
    while (due_ms := room.fetchers[0].next_due_ms()) is not None and due_ms > room.clock.now_ms():
        room.clock.advance(due_ms - room.clock.now_ms())
        request = next_request(trio)
        if request is not None:
            break
    assert request is not None
    assert [topic.topic for topic in request.topics] == ["moved"]


def test_follower_in_sync_asks_for_everything(trio: Trio) -> None:
    room = throttled_follower(trio)
    room.quota.bytes_per_second = 1 << 30
    trio.catch_up(1, rounds=20)
    assert end(trio, 1) == 10
    room.quota.bytes_per_second = 1
    for number in range(5):
        trio.rooms[0].produce("moved", BATCH)
        trio.catch_up(1, 2, rounds=2)
        assert end(trio, 1) == 11 + number
