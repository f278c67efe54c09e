"""Waiting fetches and produce requests."""

from __future__ import annotations

import asyncio
from typing import Any

from kwire.errors import ErrorCode
from server.replication.purgatory import CommitWaiter, FetchWaiter
from tests.support.replicas import Replicas, batch, topic_image

SIZE = len(batch(b"value"))


def fetch_waiter(
    partitions: Any, *, missing: int = 1, wait_ms: int = 60_000, committed: bool = False
) -> FetchWaiter:
    return FetchWaiter(
        asyncio.get_running_loop(),
        partitions,
        missing_bytes=missing,
        max_wait_ms=wait_ms,
        read_committed=committed,
    )


def test_fetch_wakes_when_enough_bytes_came_from_any_partition(room: Replicas) -> None:
    async def run() -> None:
        first, second = room.create("a"), room.create("b")
        waiter = fetch_waiter([(first, 0), (second, 0)], missing=2 * SIZE)
        room.produce("a")
        assert not waiter.future.done()
        room.produce("b")
        assert waiter.future.done()
        assert not first.waiters.fetches and not second.waiters.fetches

    asyncio.run(run())


def test_fetch_gives_up_when_its_time_is_over(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        waiter = fetch_waiter([(partition, 0)], wait_ms=1)
        await asyncio.wait_for(waiter.future, 10)
        assert not partition.waiters.fetches

    asyncio.run(run())


def test_fetch_that_ended_is_not_called_again(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        waiter = fetch_waiter([(partition, 0)])
        waiter.end()
        waiter.end()
        room.produce("a")
        assert waiter.future.result() is None

    asyncio.run(run())


def test_fetch_wakes_when_the_topic_is_deleted_or_the_leader_moves(room: Replicas) -> None:
    async def run() -> None:
        deleted = fetch_waiter([(room.create("a"), 0)])
        room.delete("a")
        assert deleted.future.done()
        moved = fetch_waiter([(room.create("b", replicas=(0, 1), isr=(0,)), 0)])
        room.create("b", leader=1, epoch=1, replicas=(0, 1), isr=(1,))
        assert moved.future.done()

    asyncio.run(run())


def test_reader_of_committed_waits_for_the_marker_and_then_has_all_before_it(
    room: Replicas,
) -> None:
    """Bytes that lay there undecided count when the transaction ends, not when they came."""
    from tests.support.transactions import abort, transactional

    async def run() -> None:
        partition = room.create("a")
        waiter = fetch_waiter([(partition, 0)], missing=2 * SIZE, committed=True)
        room.append("a", transactional(7, 0, b"one"))
        room.append("a", transactional(7, 1, b"two"))
        assert not waiter.future.done()
        abort(room, "a", 7)
        assert waiter.future.done()

    asyncio.run(run())


def test_reader_of_committed_counts_what_is_stable_once(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        waiter = fetch_waiter([(partition, 0)], missing=3 * SIZE, committed=True)
        room.produce("a")
        room.produce("a")
        assert waiter.missing_bytes == SIZE
        room.produce("a")
        assert waiter.future.done()

    asyncio.run(run())


def test_produce_with_nothing_to_wait_for_is_done_at_once() -> None:
    async def run() -> None:
        waiter = CommitWaiter(asyncio.get_running_loop(), [], timeout_ms=60_000)
        assert waiter.future.result() == {}

    asyncio.run(run())


def test_produce_is_done_when_every_partition_is_committed(room: Replicas) -> None:
    async def run() -> None:
        first, second = room.create("a"), room.create("b")
        waiter = CommitWaiter(
            asyncio.get_running_loop(), [(0, first, 1), (3, second, 2)], timeout_ms=60_000
        )
        room.produce("a")
        room.produce("b")
        assert not waiter.future.done()
        room.produce("b")
        assert waiter.future.result() == {}
        assert not first.waiters.commits and not second.waiters.commits

    asyncio.run(run())


def test_produce_names_the_partitions_that_were_too_late(room: Replicas) -> None:
    async def run() -> None:
        first, second = room.create("a"), room.create("b")
        waiter = CommitWaiter(
            asyncio.get_running_loop(), [(0, first, 1), (3, second, 1)], timeout_ms=1
        )
        room.produce("a")
        failed = await asyncio.wait_for(waiter.future, 10)
        assert failed == {3: ErrorCode.REQUEST_TIMED_OUT}
        assert not second.waiters.commits

    asyncio.run(run())


def test_produce_hears_that_the_leader_moved(room: Replicas) -> None:
    async def run() -> None:
        room.publisher.publish(room.publisher.image.with_topics([]))
        partition = room.create("a", replicas=(0, 1), isr=(0, 1))
        waiter = CommitWaiter(asyncio.get_running_loop(), [(5, partition, 1)], timeout_ms=60_000)
        image = room.publisher.image
        moved = topic_image("a", leader=1, epoch=1, replicas=(0, 1), isr=(1,))
        room.publisher.publish(image.with_topics([moved]))
        assert waiter.future.result() == {5: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    asyncio.run(run())
