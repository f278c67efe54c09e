"""Waiting fetches and produce requests."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.log.validator import AppendError, AppendInfo
from server.replication.append import NOT_YET
from server.replication.partition import Partition
from server.replication.purgatory import LEFT_IN_STEP, CommitWaiter, FetchWaiter, LowWatermarkWaiter
from tests.support.replicas import NOW, Replicas, batch

SIZE = len(batch(b"value"))
#: More partitions than a request leaves in one step.
MANY = 2 * LEFT_IN_STEP + 1


def fetch_waiter(
    partitions: Any,
    *,
    missing: int = 1,
    wait_ms: int = 60_000,
    committed: bool = False,
    in_turns: Any = None,
) -> FetchWaiter:
    return FetchWaiter(
        asyncio.get_running_loop(),
        partitions,
        missing_bytes=missing,
        max_wait_ms=wait_ms,
        read_committed=committed,
        in_turns=in_turns,
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


def test_fetches_of_many_partitions_that_end_together_leave_them_in_steps(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", MANY)
        partitions = [room.partition("a", number) for number in range(MANY)]
        left: list[Generator[None, None, None]] = []
        waiters = [
            fetch_waiter([(each, 0) for each in partitions], in_turns=left.append) for _ in range(3)
        ]
        room.produce("a")
        assert all(waiter.future.done() for waiter in waiters)
        assert all(len(each.waiters.fetches) == 3 for each in partitions)  # nothing in this turn
        room.produce("a", number=1)  # it meets fetches that have ended
        for each in left:
            known = watched(partitions)
            for _ in each:
                assert 0 < known - watched(partitions) <= LEFT_IN_STEP
                known = watched(partitions)
        assert len(left) == 3 and not watched(partitions)

    def watched(partitions: list[Partition]) -> int:
        return sum(len(each.waiters.fetches) for each in partitions)

    asyncio.run(run())


def test_fetch_that_ended_is_not_called_again(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        waiter = fetch_waiter([(partition, 0)])
        waiter.end()
        waiter.end()
        room.produce("a")
        assert waiter.future.done()

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
    """Bytes of an open transaction count when it ends, not when they are appended."""
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


def appended(end_offset: int) -> AppendInfo:
    """The result of an append that ends before an offset."""
    return AppendInfo(end_offset - 1, end_offset - 1, -1, 0, NOW, SIZE)


def commit_waiter(
    *rows: tuple[Partition, int], timeout_ms: int = 60_000, acks: int = -1
) -> CommitWaiter:
    """Wait for partitions to be committed up to an offset."""
    results: list[AppendInfo | AppendError] = [appended(end) for _, end in rows]
    waiter = CommitWaiter(asyncio.get_running_loop(), results, acks, timeout_ms=timeout_ms)
    for row, (partition, _) in enumerate(rows):
        waiter.require(row, partition)
    waiter.start()
    return waiter


def test_produce_with_nothing_to_wait_for_is_done_at_once() -> None:
    async def run() -> None:
        assert commit_waiter().future.result() == []

    asyncio.run(run())


def test_produce_is_done_when_every_partition_is_committed(room: Replicas) -> None:
    async def run() -> None:
        first, second = room.create("a"), room.create("b")
        waiter = commit_waiter((first, 1), (second, 2))
        room.produce("a")
        room.produce("b")
        assert not waiter.future.done()
        room.produce("b")
        assert waiter.future.result() == [appended(1), appended(2)]
        assert not first.waiters.commits and not second.waiters.commits

    asyncio.run(run())


def test_produce_names_the_partitions_that_were_too_late(room: Replicas) -> None:
    async def run() -> None:
        first, second = room.create("a"), room.create("b")
        waiter = commit_waiter((first, 1), (second, 1), timeout_ms=1)
        room.produce("a")
        results = await asyncio.wait_for(waiter.future, 10)
        assert results == [appended(1), AppendError(ErrorCode.REQUEST_TIMED_OUT)]
        assert not second.waiters.commits

    asyncio.run(run())


def test_produce_hears_that_the_leader_moved(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a", replicas=(0, 1), isr=(0, 1))
        waiter = commit_waiter((partition, 1))
        room.create("a", leader=1, epoch=1, replicas=(0, 1), isr=(1,))
        assert waiter.future.result() == [AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    asyncio.run(run())


@pytest.mark.parametrize("acks", [0, 1])
def test_produce_that_asks_for_the_leader_only_does_not_wait(room: Replicas, acks: int) -> None:
    async def run() -> None:
        partition = room.create("a", replicas=(0, 1), isr=(0, 1))
        assert commit_waiter((partition, 1), acks=acks).future.done()
        assert not partition.waiters.commits

    asyncio.run(run())


def test_time_of_a_produce_runs_when_its_last_row_is_appended(room: Replicas) -> None:
    """Source: ReplicaManager.appendRecords, which makes the DelayedProduce after all appends."""

    async def run() -> None:
        first, second = (room.create(name, replicas=(0, 1), isr=(0, 1)) for name in "ab")
        results: list[AppendInfo | AppendError] = [appended(1), NOT_YET]
        loop = asyncio.get_running_loop()
        waiter = CommitWaiter(loop, results, -1, timeout_ms=0, appending=1)
        waiter.require(0, first)
        waiter.start()
        await asyncio.sleep(0.01)
        assert not waiter.future.done()
        waiter.appended(1, second, appended(1))
        late = AppendError(ErrorCode.REQUEST_TIMED_OUT)
        assert await asyncio.wait_for(waiter.future, 10) == [late, late]

    asyncio.run(run())


def test_partition_that_is_lost_while_another_row_waits_is_not_taken_for_committed(
    room: Replicas,
) -> None:
    async def run() -> None:
        first, second = (room.create(name, replicas=(0, 1), isr=(0, 1)) for name in "ab")
        results: list[AppendInfo | AppendError] = [appended(1), NOT_YET]
        loop = asyncio.get_running_loop()
        waiter = CommitWaiter(loop, results, -1, timeout_ms=60_000, appending=1)
        waiter.require(0, first)
        waiter.start()
        room.create("a", leader=1, epoch=1, replicas=(0, 1), isr=(1,))
        first.log.high_watermark = 1  # of the new leader's records
        waiter.appended(1, second, AppendError(ErrorCode.CORRUPT_MESSAGE))
        assert [row.error for row in waiter.future.result()] == [  # type: ignore[union-attr]
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.CORRUPT_MESSAGE,
        ]

    asyncio.run(run())


class CountedCommits(dict[tuple[CommitWaiter, int], int]):
    """The waiters of a partition; counts those that are looked at."""

    looked_at = 0

    def items(self) -> Any:
        for each in super().items():
            self.looked_at += 1
            yield each


def test_effort_of_a_commit_and_of_a_timeout_does_not_grow_with_all_that_wait(
    room: Replicas,
) -> None:
    async def run() -> None:
        partition = room.create("a", replicas=(0, 1), isr=(0, 1))
        waiting = partition.waiters.commits = CountedCommits()
        waiters = [commit_waiter((partition, 1 + number)) for number in range(1_000)]
        for high_watermark in range(1, 11):
            partition.waiters.release_committed(high_watermark, lambda: ErrorCode.NONE)
        assert [waiter.future.done() for waiter in waiters] == [True] * 10 + [False] * 990
        assert waiting.looked_at == 20  # each that is committed, and the one behind it
        for waiter in waiters[10:]:
            waiter._time_out()
        assert waiting.looked_at == 20 and not waiting

    asyncio.run(run())


def test_requests_of_many_rows_that_time_out_together_do_so_in_steps(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", MANY, replicas=(0, 1), isr=(0, 1))
        partitions = [room.partition("a", number) for number in range(MANY)]
        loop = asyncio.get_running_loop()
        steps: list[Generator[None, None, None]] = []
        produce = CommitWaiter(
            loop, [appended(1) for _ in partitions], -1, timeout_ms=0, in_turns=steps.append
        )
        for row, partition in enumerate(partitions):
            produce.require(row, partition)
        produce.start()
        delete = LowWatermarkWaiter(
            loop,
            [(row, each, 1) for row, each in enumerate(partitions)],
            timeout_ms=0,
            in_turns=steps.append,
        )
        while len(steps) < 2:
            await asyncio.sleep(0)
        partitions[0].waiters.fail_commits(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # meanwhile
        for each in steps:
            known = waiting(partitions)
            assert known >= MANY - 1
            for _ in each:
                assert 0 < known - waiting(partitions) <= LEFT_IN_STEP
                known = waiting(partitions)
        late = AppendError(ErrorCode.REQUEST_TIMED_OUT)
        assert produce.future.result()[1:] == [late] * (MANY - 1)
        assert produce.future.result()[0] == AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert {error for error, _ in delete.future.result().values()} == {late.error}
        assert not waiting(partitions)

    def waiting(partitions: list[Partition]) -> int:
        return sum(len(each.waiters.commits) + len(each.waiters.starts) for each in partitions)

    asyncio.run(run())
