"""Fetches of partitions whose records are not all in the local log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.log.index.transaction_index import CorruptIndex
from server.log.log import Log, LogSlice
from server.replication import read
from server.replication.fetch_session import FetchContext, FetchedPartition
from server.replication.partition import Partition
from server.replication.read import FetchParams, Reading, WaitingFetch, fetch_records
from tests.handlers.fetches import fetch_request
from tests.support.replicas import NOW, Replicas, batch, turns, values
from tests.support.transactions import abort, transactional

FOUND = "what the slow store has"


class SlowReader:
    """A reader whose records below an offset are elsewhere and arrive at the test's request."""

    def __init__(self, log: Log, local_from: int) -> None:
        self._log = log
        self._local_from = local_from
        self.asked: list[tuple[int, int]] = []
        self.coming: list[asyncio.Future[Any]] = []

    def read(
        self, start_offset: int, max_bytes: int, end_offset: int, min_one_batch: bool = True
    ) -> LogSlice | ErrorCode | Awaitable[LogSlice | ErrorCode]:
        if start_offset >= self._local_from:
            return self._log.read(start_offset, max_bytes, end_offset, min_one_batch)
        self.asked.append((start_offset, max_bytes))
        future = asyncio.get_running_loop().create_future()
        self.coming.append(future)

        async def come() -> LogSlice | ErrorCode:
            found = await future
            if found is not FOUND:
                return found  # type: ignore[no-any-return]
            return self._log.read(start_offset, max_bytes, end_offset, min_one_batch)

        return come()


def slow(partition: Partition, local_from: int = 1 << 60) -> SlowReader:
    partition.reader = reader = SlowReader(partition.log, local_from)
    return reader


PARAMS = FetchParams(
    max_bytes=4 << 20,
    allowed_bytes=4 << 20,
    min_bytes=1,
    max_wait_ms=0,
    read_committed=False,
    leader_only=True,
    always_one_batch=False,
    by_id=False,
)


def begin(room: Replicas, *asked: tuple[str, int, int], **options: Any) -> Reading | WaitingFetch:
    """Fetch (topic, partition, offset) without a session."""
    partitions = {
        (topic.topic, topic.topic_id, row.partition): FetchedPartition(
            topic.topic, topic.topic_id, row
        )
        for topic in fetch_request(*asked).topics
        for row in topic.partitions
    }
    return fetch_records(
        room.replicas,
        room.publisher.current,
        FetchContext(partitions),
        PARAMS._replace(**options),
        room.clock.now_ms(),
    )


def waits(room: Replicas, *asked: tuple[str, int, int], **options: Any) -> WaitingFetch:
    begun = begin(room, *asked, **options)
    assert isinstance(begun, WaitingFetch)
    return begun


def found(reading: Reading) -> list[tuple[ErrorCode, list[bytes | None]]]:
    return [(result.error, values(result.data)) for _, _, _, result in reading.rows]


def play(room: Replicas, test: Callable[[Replicas], Awaitable[None]]) -> None:
    asyncio.run(test(room))  # type: ignore[arg-type]


NONE = ErrorCode.NONE


def test_fetch_waits_for_the_partition_whose_read_comes_later(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.create("b")
        room.produce("a", b"1")
        room.produce("b", b"2")
        fetch = waits(room, ("a", 0, 0), ("b", 0, 0))
        await turns()
        assert not fetch.future.done()
        reader.coming[0].set_result(FOUND)
        await fetch.future
        reading = fetch.read()
        assert found(reading) == [(NONE, [b"1"]), (NONE, [b"2"])]
        assert reading.rows[0][3].next_offset == 1
        assert reading.rows[0][3].high_watermark == 1

    play(room, test)


def test_read_that_comes_later_takes_its_share_of_the_bytes(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.create("b")
        room.produce("a", b"1")
        room.produce("b", b"2")
        size = len(batch(b"1"))
        fetch = waits(room, ("a", 0, 0), ("b", 0, 0), max_bytes=size)
        assert reader.asked == [(0, size)]
        reader.coming[0].set_result(FOUND)
        await fetch.future
        assert found(fetch.read()) == [(NONE, [b"1"]), (NONE, [])]

    play(room, test)


def test_fetch_with_a_later_read_waits_for_no_more_beside(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.produce("a", b"1")
        fetch = waits(room, ("a", 0, 0), min_bytes=2 << 20, max_wait_ms=60_000)
        reader.coming[0].set_result(FOUND)
        await asyncio.wait_for(fetch.future, 10)
        assert found(fetch.read()) == [(NONE, [b"1"])]
        assert not room.partition("a").waiters.fetches

    play(room, test)


def test_read_that_takes_too_long_is_answered_without_records(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "LATER_READ_WAIT_MS", 1)

    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.produce("a", b"1")
        fetch = waits(room, ("a", 0, 0))
        await asyncio.wait_for(fetch.future, 10)
        (result,) = (row[3] for row in fetch.read().rows)
        assert (result.error, result.data, result.high_watermark) == (NONE, b"", 1)
        await turns()
        assert reader.coming[0].cancelled()

    play(room, test)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (OSError(5, "Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_later_read_that_fails_costs_its_own_row_only(
    room: Replicas, came: Any, told: ErrorCode
) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.create("b")
        room.produce("a", b"1")
        room.produce("b", b"2")
        fetch = waits(room, ("a", 0, 0), ("b", 0, 0))
        await turns()
        if isinstance(came, ErrorCode):
            reader.coming[0].set_result(came)
        else:
            reader.coming[0].set_exception(came)
        await fetch.future
        assert found(fetch.read()) == [(told, []), (NONE, [b"2"])]

    play(room, test)


@pytest.mark.parametrize("deleted", [False, True])
def test_read_of_an_earlier_leader_epoch_is_not_answered(room: Replicas, deleted: bool) -> None:
    async def test(room: Replicas) -> None:
        partition = room.create("a")
        reader = slow(partition)
        room.produce("a", b"1")
        fetch = waits(room, ("a", 0, 0))
        await turns()
        if deleted:
            data = partition.log.read(0, 1 << 20, 1)
            room.delete("a")
            reader.coming[0].set_result(data)
        else:
            room.create("a", epoch=1)
            reader.coming[0].set_result(FOUND)
        await fetch.future
        assert found(fetch.read()) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, [])]

    play(room, test)


def test_fetch_that_is_given_up_gives_up_what_would_come(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.produce("a", b"1")
        fetch = waits(room, ("a", 0, 0))
        await turns()
        fetch.end()
        await turns()
        assert fetch.future.cancelled()
        assert reader.coming[0].cancelled()

    play(room, test)


def test_what_is_out_of_reach_when_a_wait_ends_is_asked_for_again(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        partition = room.create("a")
        reader = slow(partition, local_from=0)
        fetch = waits(room, ("a", 0, 0), max_wait_ms=60_000)
        reader._local_from = 1 << 60
        room.produce("a", b"1")
        await fetch.future
        assert found(fetch.read()) == [(NONE, [])]
        await turns()
        again = waits(room, ("a", 0, 0))
        reader.coming[-1].set_result(FOUND)
        await again.future
        assert found(again.read()) == [(NONE, [b"1"])]

    play(room, test)


def break_index(partition: Partition, with_what: type[Exception]) -> None:
    """Spoil the index of aborted transactions in the first segment."""
    partition.log.roll(NOW)  # what is known of the index is forgotten
    path = Path(partition.log.segments[0].transaction_index.path)
    assert path.stat().st_size > 0
    path.unlink()
    if with_what is CorruptIndex:
        path.write_bytes(b"no whole entry")
    else:
        path.mkdir()


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (CorruptIndex, ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
@pytest.mark.parametrize("is_later", [False, True])
def test_bad_transaction_index_costs_its_own_row_only(
    room: Replicas,
    problem: type[Exception],
    told: ErrorCode,
    is_later: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(room: Replicas) -> None:
        broken = room.create("a")
        room.create("b")
        room.append("a", transactional(7, 0, b"1"))
        abort(room, "a", 7)
        room.produce("b", b"2")
        break_index(broken, problem)
        reader = slow(broken) if is_later else None
        for _ in range(2):
            fetch = begin(room, ("a", 0, 0), ("b", 0, 0), read_committed=True)
            if reader is not None:
                assert isinstance(fetch, WaitingFetch)
                await turns()
                reader.coming[-1].set_result(FOUND)
                await turns(10)
                assert fetch.future.done()
                fetch = fetch.read()
            assert isinstance(fetch, Reading)
            assert found(fetch) == [(told, []), (NONE, [b"2"])]
        assert not broken.log.offline

    play(room, test)
    assert sum("records of a-0 could not be read" in line for line in caplog.messages) == 1


def test_reader_of_committed_is_told_what_was_aborted_in_a_later_read(room: Replicas) -> None:
    async def test(room: Replicas) -> None:
        reader = slow(room.create("a"))
        room.append("a", transactional(7, 0, b"one"))
        abort(room, "a", 7)
        fetch = waits(room, ("a", 0, 0), read_committed=True)
        reader.coming[0].set_result(FOUND)
        await fetch.future
        assert fetch.read().rows[0][3].aborted == [(7, 0)]

    play(room, test)
