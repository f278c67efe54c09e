"""Fetch: reading, waiting and old clients, compared with answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, NamedTuple

import pytest

from kwire.codec import encode_parts
from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchResponse, ReplicaState
from kwire.records.batch import iter_batches
from server.cause import caused_by
from server.handlers import old_fetch
from server.handlers.context import Later
from server.handlers.fetch import fetch
from server.handlers.old_fetch import INLINE_BYTES, MAX_CONVERTED_BYTES
from server.log.file_layer import FileSlice
from server.replication.replica_manager import MAX_CONVERTING
from server.workers import TookTooLong
from tests.support.replicas import (
    NOW,
    Replicas,
    batch,
    finish,
    registration,
    topic_id,
    topic_image,
    turns,
    values,
)
from tests.support.steps import finished
from tests.support.transactions import abort, commit, transactional
from tests.support.versions import versions
from tests.support.waiting import InThisProcess

from .fetches import BY_NAME, LATEST, fetch_request, only, partitions_at_once, rows  # noqa: F401 - a fixture

SIZE = len(batch(b"value"))


def ask(room: Replicas, *asked: Any, version: int = BY_NAME, **options: Any) -> FetchResponse:
    """Fetch; must be answered immediately."""
    answer = room.call(fetch, fetch_request(*asked, **options), version)
    assert isinstance(answer, FetchResponse)
    return answer


def waits(room: Replicas, *asked: Any, version: int = BY_NAME, **options: Any) -> Later[Any]:
    """Fetch; must wait."""
    options = {"max_wait_ms": 60_000, **options}
    answer = finished(fetch(room.context(version), fetch_request(*asked, **options)))
    assert isinstance(answer, Later), "it did not wait"
    assert isinstance(answer.awaitable, asyncio.Future) and not answer.awaitable.done()
    return answer


# Reading


@pytest.mark.parametrize("version", versions(fetch, first=4))
def test_every_version_reads_batches_as_they_are_stored(room: Replicas, version: int) -> None:
    room.create("a")
    room.produce("a", b"1", b"2")
    room.produce("a", b"3")
    request = fetch_request(("a", 0, 2))
    if version >= 13:
        request.topics[0].topic, request.topics[0].topic_id = "", topic_id("a")
    answer = room.call(fetch, request, version)
    encode_parts(answer, version)
    row = only(answer)
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 3, 3)
    assert (row.log_start_offset, row.aborted_transactions) == (0, None)
    assert values(row.records) == [b"3"]


def test_batch_that_holds_the_offset_comes_whole(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"1", b"2")
    assert values(only(ask(room, ("a", 0, 1))).records) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("asked", "options", "error"),
    [
        (("nope", 0, 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("a", 7, 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("a", -1, 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("a", 0, 2), {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (("a", 0, -1), {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (("a", 0, 0), {"current_leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        (("a", 0, 0), {"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (("a", 0, 0), {"last_fetched_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (("a", 0, 0), {"replica_id": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (
            ("a", 0, 0),
            {"replica_state": ReplicaState(replica_id=1)},
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
    ],
)
def test_partition_that_cannot_be_read_says_why(
    room: Replicas, asked: Any, options: dict[str, Any], error: ErrorCode
) -> None:
    room.create("a", epoch=3)
    room.produce("a")
    row = only(ask(room, asked, max_wait_ms=60_000, **options))
    assert row.error_code == error
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)
    assert row.records == b""


def test_topic_id_that_nobody_has_is_unknown(room: Replicas) -> None:
    room.create("a")
    request = fetch_request(("", 0, 0))
    request.topics[0].topic_id = b"?" * 16
    answer = room.call(fetch, request, 13)
    assert answer.responses[0].topic_id == b"?" * 16
    assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_diverging_history_is_told_where_it_ends(room: Replicas) -> None:
    room.create("a", epoch=1)
    room.produce("a")
    room.create("a", epoch=5)
    diverging = only(
        ask(room, ("a", 0, 1), last_fetched_epoch=3, max_wait_ms=60_000)
    ).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (1, 1)


def test_committed_reader_gets_aborted_transactions_and_no_open_ones(room: Replicas) -> None:
    room.create("a")
    room.append("a", transactional(7, 0, b"1"))
    abort(room, "a", 7)
    room.append("a", transactional(8, 0, b"2"))
    row = only(ask(room, ("a", 0, 0), isolation_level=1))
    assert (row.high_watermark, row.last_stable_offset) == (3, 2)
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(7, 0)]
    assert values(row.records) == [b"1"]
    assert values(only(ask(room, ("a", 0, 0))).records) == [b"1", b"2"]


def test_large_reads_are_slices_of_the_file_and_small_ones_are_not(room: Replicas) -> None:
    room.create("a", 2)
    room.produce("a", b"v" * 50_000)
    room.produce("a", b"v", number=1)
    answer = ask(room, ("a", 0, 0), ("a", 1, 0))
    large, small = (row.records for row in answer.responses[0].partitions)
    if room.plain:  # decoded from the sent bytes
        assert (len(large) > 50_000, len(small) < 200) == (True, True)
    else:
        assert isinstance(large, FileSlice) and isinstance(small, bytes)
        large.close()


# Limits


def test_first_batch_comes_whole_whatever_the_limits_are(room: Replicas) -> None:
    room.create("a", 2)
    for number in (0, 1):
        room.produce("a", b"1", number=number)
        room.produce("a", b"2", number=number)
    for options in ({"max_bytes": 1}, {"max_bytes": 0}):
        found = rows(ask(room, ("a", 0, 0), ("a", 1, 0), **options))
        assert [values(row.records) for row in found.values()] == [[b"1"], []]
    found = rows(ask(room, ("a", 0, 0, 1), ("a", 1, 0, 1)))
    assert [values(row.records) for row in found.values()] == [[b"1"], []]


def test_partition_and_request_limits_cut_at_batches(room: Replicas) -> None:
    room.create("a", 2)
    for number in (0, 1):
        for _ in range(4):
            room.produce("a", number=number)
    found = rows(ask(room, ("a", 0, 0, 3 * SIZE), ("a", 1, 0), max_bytes=5 * SIZE + 10))
    assert [len(row.records) for row in found.values()] == [3 * SIZE, 2 * SIZE]


def test_broker_has_a_limit_of_its_own(room: Replicas) -> None:
    room.config.values["fetch.max.bytes"] = 2 * SIZE
    room.create("a")
    for _ in range(4):
        room.produce("a")
    assert len(only(ask(room, ("a", 0, 0))).records) == 2 * SIZE


# Waiting


def test_fetch_without_data_waits_for_it(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        answer = waits(room, ("a", 0, 0))
        room.produce("a", b"1")
        assert values(only(await finish(answer)).records) == [b"1"]

    asyncio.run(run())


def test_fetch_gives_up_with_what_there_is(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        room.produce("a", b"1")
        answer = waits(room, ("a", 0, 0), min_bytes=10_000, max_wait_ms=1)
        assert values(only(await finish(answer)).records) == [b"1"]

    asyncio.run(run())


@pytest.mark.parametrize("options", [{"max_wait_ms": 0}, {"min_bytes": 0}, {"max_wait_ms": -1}])
def test_fetch_that_need_not_wait_does_not(room: Replicas, options: dict[str, int]) -> None:
    room.create("a")
    assert only(ask(room, ("a", 0, 0), **{"max_wait_ms": 60_000, **options})).records == b""


def test_bytes_of_a_partition_that_had_some_already_count_too(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", 2)
        room.produce("a")
        answer = waits(room, ("a", 0, 0), ("a", 1, 0), min_bytes=3 * SIZE)
        room.produce("a")
        assert not answer.awaitable.done()
        room.produce("a", number=1)
        found = rows(await finish(answer))
        assert [len(row.records) for row in found.values()] == [2 * SIZE, SIZE]

    asyncio.run(run())


def test_committed_reader_waits_for_as_many_stable_bytes(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        answer = waits(room, ("a", 0, 0), min_bytes=2 * SIZE, isolation_level=1)
        room.append("a", transactional(7, 0, b"value"))
        room.append("a", transactional(7, 1, b"value"))
        room.produce("a")
        assert not answer.awaitable.done()
        commit(room, "a", 7)
        row = only(await finish(answer))
        assert row.last_stable_offset == 4
        assert len(values(row.records)) == 3

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        # A fetch waits for at most max_bytes.
        ({"min_bytes": 1 << 20, "max_bytes": SIZE}, SIZE),
        # A slice ends at a batch: the unused rest of the limit is no reason to wait.
        ({"min_bytes": 3 * SIZE - 1, "max_bytes": 3 * SIZE - 1}, 2 * SIZE),
        ({"min_bytes": 1 << 20}, 0),
    ],
)
def test_limits_do_not_make_a_fetch_wait_for_ever(
    room: Replicas, options: dict[str, int], found: int
) -> None:
    async def run() -> None:
        room.create("a")
        for _ in range(4):
            room.produce("a")
        if found:
            row = only(ask(room, ("a", 0, 0), max_wait_ms=60_000, **options))
            assert len(row.records) == found
        else:
            waits(room, ("a", 0, 0), **options).on_disconnect()  # type: ignore[misc]

    asyncio.run(run())


def test_rest_of_an_older_segment_does_not_wait(room: Replicas) -> None:
    """Source: DelayedFetch, case F."""
    partition = room.create("a")
    room.produce("a", b"1")
    partition.log.roll(NOW)
    room.produce("a", b"2")
    row = only(ask(room, ("a", 0, 0), min_bytes=10_000, max_wait_ms=60_000))
    assert values(row.records) == [b"1"]


def test_error_is_no_reason_to_wait_but_an_unknown_topic_is_none_not_to(room: Replicas) -> None:
    """A consumer of a deleted topic and an idle one would fetch in an endless loop."""

    async def run() -> None:
        room.create("a", 2)
        found = rows(ask(room, ("a", 0, 99), ("a", 1, 0), max_wait_ms=60_000))
        assert found["a", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = waits(room, ("nope", 0, 0), ("a", 0, 0))
        room.produce("a")
        found = rows(await finish(answer))
        assert found["nope", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found["a", 0].error_code == 0
        alone = ask(room, ("nope", 0, 0), max_wait_ms=60_000)
        assert only(alone).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_topic_deleted_meanwhile_is_told_at_once(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        answer = waits(room, ("a", 0, 0))
        room.delete("a")
        row = only(await finish(answer))
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_client_that_goes_away_leaves_nothing_behind(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        answer = waits(room, ("a", 0, 0))
        assert answer.on_disconnect is not None
        answer.on_disconnect()
        assert not partition.waiters.fetches and answer.awaitable.done()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_slices_of_a_fetch_that_waits_are_closed(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        room.produce("a", b"v" * 50_000)
        gc.collect()
        answer = waits(room, ("a", 0, 0), min_bytes=60_000)
        slices = [each for each in gc.get_objects() if isinstance(each, FileSlice)]
        assert not [each for each in slices if each._file is not None]
        assert answer.on_disconnect is not None
        answer.on_disconnect()

    asyncio.run(run())


# Answers to requests sent to the wrong broker


def test_wrong_broker_names_the_right_one_from_version_16_on(room: Replicas) -> None:
    image = room.publisher.image.with_brokers({0: registration(0), 1: registration(1)})
    image = image.with_topics([topic_image("a", leader=1, epoch=4, replicas=(1,))])
    room.publisher.publish(image)
    request = fetch_request(("", 0, 0), max_wait_ms=60_000)
    request.topics[0].topic_id = topic_id("a")
    for version in (15, 16):
        answer = room.call(fetch, request, version)
        row = only(answer)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version == 15:
            assert row.current_leader is None and answer.node_endpoints == []
        else:
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 4)
            assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [
                (1, "broker1", 9093)
            ]


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_storage_errors_are_told_to_who_knows_them(
    room: Replicas, version: int, error: ErrorCode
) -> None:
    room.create("a").log.offline = True
    assert only(ask(room, ("a", 0, 0), version=version)).error_code == error


# Old versions


def old(room: Replicas, *asked: Any, version: int, **options: Any) -> FetchResponse:
    request = fetch_request(*asked, max_bytes=0x7FFFFFFF, **options)
    answer = asyncio.run(room.ask(fetch, request, version))
    assert isinstance(answer, FetchResponse)
    encode_parts(answer, version)
    return answer


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_client_gets_what_it_can_read(
    room: Replicas, version: int, magic: int, codec: int
) -> None:
    room.create("a")
    room.produce("a", b"1", b"2", codec=codec)
    room.produce("a", b"3")
    row = only(old(room, ("a", 0, 0), version=version))
    assert row.error_code == 0
    batches = list(iter_batches(row.records))
    assert {each.header.magic for each in batches} == {magic}
    assert values(row.records) == [b"1", b"2", b"3"]
    assert [record.offset for each in batches for record in each.records()] == [0, 1, 2]


def test_old_client_waits_and_is_converted_what_came(room: Replicas) -> None:
    async def run() -> None:
        partition = room.create("a")
        request = fetch_request(("a", 0, 0), max_wait_ms=60_000)
        asking = asyncio.ensure_future(room.ask(fetch, request, 2))
        await asyncio.sleep(0)
        assert partition.waiters.fetches
        room.produce("a", b"1")
        assert values(only(await asking).records) == [b"1"]

    asyncio.run(run())


def test_much_is_converted_by_the_worker(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"v" * (INLINE_BYTES + 1))
    row = only(old(room, ("a", 0, 0), version=3))
    assert values(row.records) == [b"v" * (INLINE_BYTES + 1)]
    assert room.executor._workers is not None


def test_few_fetches_have_their_records_in_memory_to_be_converted(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        held: list[asyncio.Future[None]] = []

        async def in_worker(client: Any, function: Any, *args: Any) -> Any:
            held.append(asyncio.get_running_loop().create_future())
            await held[-1]
            return function(*args)

        monkeypatch.setattr(room.executor, "in_worker", in_worker)
        room.create("a")
        room.produce("a", b"v" * (INLINE_BYTES + 1))
        request = fetch_request(("a", 0, 0))
        asked = [asyncio.ensure_future(room.ask(fetch, request, 3)) for _ in range(20)]
        done = 0
        while done < len(asked):
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(held) - done <= MAX_CONVERTING
            held[done].set_result(None)
            done += 1
        for each in asked:
            assert values(only(await each).records) == [b"v" * (INLINE_BYTES + 1)]

    asyncio.run(run())


class ImpatientExecutor(InThisProcess):
    """Fails all work with more than one batch, or with a given number of them."""

    def __init__(self, too_costly: bytes = b"?") -> None:
        self.asked: list[int] = []
        self._too_costly = too_costly

    async def in_worker(self, client: Any, function: Any, stored: bytes, *args: Any) -> Any:
        self.asked.append(len(list(iter_batches(stored))))
        if self.asked[-1] > 1 or self._too_costly in stored:
            raise TookTooLong("after 1 s")
        return function(stored, *args)


def test_batch_that_inflates_is_converted_by_a_worker(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.create("a")
    executor = InThisProcess()
    monkeypatch.setattr(room.executor, "in_worker", executor.in_worker)
    room.produce("a", b"v" * (INLINE_BYTES + 1), codec=1)
    row = only(old(room, ("a", 0, 0), version=3))
    assert values(row.records) == [b"v" * (INLINE_BYTES + 1)]
    assert executor.calls == 1


def test_batches_that_cost_too_much_together_are_converted_one_at_a_time(
    room: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room.create("a")
    executor = ImpatientExecutor(b"dear" * 9)
    monkeypatch.setattr(room.executor, "in_worker", executor.in_worker)
    large = bytes(INLINE_BYTES)
    room.append("a", transactional(9, 0, b"0"))
    abort(room, "a", 9)
    for value in (large + b"1", b"2", b"dear" * 9 + large):
        room.produce("a", value)
    found = {}
    for offset in (1, 2, 3, 4):
        row = only(old(room, ("a", 0, offset), version=3))
        found[offset] = (
            row.error_code,
            [(value or b"").strip(b"\0") for value in values(row.records)],
        )
    assert found == {
        1: (0, [b"1"]),  # the marker before it is skipped
        2: (0, [b"1"]),
        3: (0, [b"2"]),
        4: (ErrorCode.UNKNOWN_SERVER_ERROR, []),
    }
    assert executor.asked == [4, 1, 1, 3, 1, 2, 1, 1]
    assert "records at offset 4 of a-0 are not converted for client 'test'" in caplog.text


def test_what_decompresses_beyond_the_limit_is_left_for_the_next_fetch(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.create("a")
    monkeypatch.setattr(room.executor, "in_worker", InThisProcess().in_worker)
    room.produce("a", b"1" * 40_000, codec=1)
    room.produce("a", b"2" * 40_000, codec=1)
    monkeypatch.setattr(old_fetch, "MAX_DECOMPRESSED_BYTES", 60_000)
    monkeypatch.setattr(old_fetch._convert, "__defaults__", (60_000,))
    assert values(only(old(room, ("a", 0, 0), version=3)).records) == [b"1" * 40_000]
    assert values(only(old(room, ("a", 0, 1), version=3)).records) == [b"2" * 40_000]


def test_one_answer_converts_no_more_than_its_limit(room: Replicas) -> None:
    room.create("a", 2)
    for number in (0, 1):
        for _ in range(4):
            room.produce("a", b"v" * 400_000, number=number)
    found = rows(old(room, ("a", 0, 0, 1 << 30), ("a", 1, 0, 1 << 30), version=3))
    sizes = [len(row.records) for row in found.values()]
    assert sum(sizes) <= MAX_CONVERTED_BYTES
    assert [size // 400_000 for size in sizes] == [2, 0]


@pytest.mark.parametrize("version", [0, 2])
def test_client_without_a_way_past_a_large_batch_gets_it(room: Replicas, version: int) -> None:
    """Apache Kafka 3.9.2 returns nothing, again and again."""
    room.create("a", 2)
    room.produce("a", b"v" * 1000, number=0)
    room.produce("a", b"w" * 1000, number=1)
    found = rows(old(room, ("a", 0, 0, 100), ("a", 1, 0, 100), version=version))
    assert [values(row.records) for row in found.values()] == [[b"v" * 1000], [b"w" * 1000]]


def test_old_client_is_led_past_markers(room: Replicas) -> None:
    """Old magics have no markers; after an answer without them, the client would ask again."""
    room.create("a")
    room.append("a", transactional(7, 0, b"1"))
    commit(room, "a", 7)
    room.produce("a", b"2")
    assert values(only(old(room, ("a", 0, 1, 1), version=2)).records) == [b"2"]
    commit_only = only(old(room, ("a", 0, 3), version=2))
    assert (commit_only.error_code, commit_only.records) == (0, b"")


def test_partitions_nobody_knows_come_last(room: Replicas) -> None:
    """In the order of Apache Kafka 3.9.2: partitions that were read, unknown ids, unknown partitions."""
    room.create("a")
    asked = fetch_request(("gone", 0, 0), ("a", 5, 0), ("a", 0, 0))
    for topic in asked.topics:
        topic.topic_id, topic.topic = topic_id(topic.topic), ""
    assert list(rows(room.call(fetch, asked, LATEST))) == [("a", 0), ("a", 5), ("gone", 0)]
    by_name = rows(ask(room, ("gone", 0, 0), ("a", 5, 0), ("a", 0, 0), version=BY_NAME))
    assert list(by_name) == [("a", 0), ("a", 5), ("gone", 0)]


def test_partition_beyond_the_limit_has_no_list_of_aborted_transactions(room: Replicas) -> None:
    """Only if some of the limit is left and the first batch is larger, as in Apache Kafka 3.9.2."""
    room.create("a", 3)
    for number in (0, 1):
        room.produce("a", b"v" * 100, number=number)
    for limit, expected in ((180, [[], None, []]), (1, [[], [], []])):
        asked = ("a", 0, 0), ("a", 1, 0), ("a", 2, 0)
        found = rows(ask(room, *asked, version=BY_NAME, isolation_level=1, max_bytes=limit))
        assert [row.aborted_transactions for row in found.values()] == expected


def test_epoch_below_0_is_no_opinion(room: Replicas) -> None:
    room.create("a", epoch=3)
    row = only(ask(room, ("a", 0, 0), version=BY_NAME, current_leader_epoch=-2))
    assert (row.error_code, row.high_watermark) == (0, 0)
    row = only(ask(room, ("a", 0, 0), version=BY_NAME, last_fetched_epoch=-7))
    assert (row.error_code, row.diverging_epoch) == (0, None)


@pytest.mark.parametrize("version", [0, 3])
def test_zstd_cannot_be_converted(room: Replicas, version: int) -> None:
    room.create("a")
    room.produce("a", codec=4)
    row = only(old(room, ("a", 0, 0), version=version))
    assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (row.high_watermark, row.records) == (-1, None)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (10, ErrorCode.NONE),
    ],
)
def test_topic_of_zstd_is_for_version_10_on(room: Replicas, version: int, error: ErrorCode) -> None:
    room.create("a", configs={"compression.type": "zstd"})
    row = only(old(room, ("a", 0, 0), version=version))
    assert row.error_code == error


def test_zstd_of_the_producer_is_not_looked_for(room: Replicas) -> None:
    """As in Apache Kafka: aiokafka fetches with version 4 and reads zstd."""
    room.create("a")
    room.produce("a", b"1", codec=4)
    assert values(only(ask(room, ("a", 0, 0), version=4)).records) == [b"1"]


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.UNSUPPORTED_VERSION), (4, 0)])
def test_topic_may_forbid_conversion(room: Replicas, version: int, error: int) -> None:
    room.create("a", configs={"message.downconversion.enable": "false"})
    room.produce("a")
    assert only(old(room, ("a", 0, 0), version=version)).error_code == error


def test_damaged_records_cannot_be_converted(room: Replicas) -> None:
    import struct

    from kwire.records.batch import rewrite_crc

    room.create("a")
    lying = bytearray(batch(b"1"))
    struct.pack_into(">b", lying, 61, 99)
    rewrite_crc(lying, 0)
    room.append_unread("a", bytes(lying))
    assert only(old(room, ("a", 0, 0), version=3)).error_code == ErrorCode.CORRUPT_MESSAGE


def test_client_that_watches_its_share_of_partitions_does_not_wait(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others, and fetches of few partitions, wait."""
    monkeypatch.setattr("server.replication.read.FEW_WATCHED", 1)
    monkeypatch.setattr("server.replication.read.MAX_WATCHED", 12)

    async def run() -> None:
        room.create("a", 3)
        of_all = [("a", number, 0) for number in range(3)]
        with caused_by(Client("greedy")):
            held = [waits(room, *of_all) for _ in range(3)]
            answer = ask(room, *of_all, max_wait_ms=60_000)
            assert [row.error_code for row in rows(answer).values()] == [0, 0, 0]
            waits(room, ("a", 0, 0))
        with caused_by(Client("other")):
            waits(room, ("a", 0, 0), ("a", 1, 0))
        for each in held[:2]:
            assert each.on_disconnect is not None
            each.on_disconnect()
        await turns()
        with caused_by(Client("greedy")):
            waits(room, *of_all)

    asyncio.run(run())


class Client(NamedTuple):
    """A connection, as far as work is counted for it."""

    account: str

    @property
    def client_host(self) -> str:
        return self.account
