"""ListOffsets and OffsetForLeaderEpoch, compared with answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import BrokenExecutor
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.records.batch import rewrite_crc
from kwire.records.compression import Codec
from kwire.records.layout import INT64, MAX_TIMESTAMP_AT
from server.handlers.list_offsets import list_offsets, offset_for_leader_epoch
from server.workers import TookTooLong
from tests.support.cpu_time import cpu_time
from tests.support.replicas import NOW, Replicas, batch, topic_image
from tests.support.transactions import transactional
from tests.support.versions import versions
from tests.support.waiting import InThisProcess

LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
NEWEST_VERSION = list_offsets.max_version
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


def ask(
    room: Replicas,
    *timestamps: int,
    version: int = NEWEST_VERSION,
    topic: str = "a",
    number: int = 0,
    epoch: int = -1,
    count: int = 1,
    **options: Any,
) -> Any:
    """Send a request for one partition as a consumer, once for each timestamp; return the answer's rows."""
    options = {"replica_id": -1, **options}
    answer = room.call(
        list_offsets,
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            timestamp=timestamp,
                            current_leader_epoch=epoch,
                            max_num_offsets=count,
                        )
                        for timestamp in timestamps
                    ],
                )
            ],
            **options,
        ),
        version,
    )
    encode(answer, version)
    ((name, rows),) = [(each.name, each.partitions) for each in answer.topics]
    assert name == topic and {row.partition_index for row in rows} == {number}
    return rows


def offset(room: Replicas, timestamp: int, **options: Any) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) of an answer without an error."""
    (row,) = ask(room, timestamp, **options)
    assert row.error_code == 0
    return row.offset, row.timestamp, row.leader_epoch


@pytest.fixture
def filled(room: Replicas) -> Replicas:
    """Batches of two records at 1000, 5000 and 3000, in leader epoch 2."""
    room.create("a", 2, epoch=2)
    for timestamp in (1000, 5000, 3000):
        room.produce("a", b"1", b"2", timestamp=timestamp)
    return room


@pytest.mark.parametrize("version", versions(list_offsets, first=1))
@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (LATEST, 1, (6, -1, 2)),
        (EARLIEST, 1, (0, -1, 2)),
        (MAX, 7, (3, 5001, 2)),
        (LOCAL, 8, (0, -1, 2)),
        (TIERED, 9, (-1, -1, -1)),
        (PENDING, 11, (-1, -1, -1)),
        (-7, 99, None),
        (0, 1, (0, 1000, 2)),
        (1001, 1, (1, 1001, 2)),
        (1002, 1, (2, 5000, 2)),
        (5001, 1, (3, 5001, 2)),
        (5002, 1, (-1, -1, -1)),
    ],
)
def test_every_version_answers_what_it_knows(
    filled: Replicas,
    version: int,
    timestamp: int,
    since: int,
    expected: tuple[int, int, int] | None,
) -> None:
    (row,) = ask(filled, timestamp, version=version)
    found = (row.offset, row.timestamp, row.leader_epoch)
    if version < since:
        assert (row.error_code, found) == (UNSUPPORTED, (-1, -1, -1))
    else:
        assert expected is not None
        epoch = expected[2] if version >= 4 else -1
        assert (row.error_code, found) == (0, (*expected[:2], epoch))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(LATEST, (0, -1, 2)), (EARLIEST, (0, -1, 2)), (MAX, (-1, -1, -1)), (5, (-1, -1, -1))],
)
def test_empty_partition_has_ends_but_no_records(
    filled: Replicas, timestamp: int, expected: tuple[int, int, int]
) -> None:
    assert offset(filled, timestamp, number=1) == expected


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"number": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.NONE),
    ],
)
def test_partition_that_cannot_answer_says_why(
    filled: Replicas, options: dict[str, Any], error: ErrorCode
) -> None:
    (row,) = ask(filled, LATEST, **options)
    assert row.error_code == error
    if error:
        assert (row.offset, row.timestamp, row.leader_epoch) == (-1, -1, -1)


def test_partition_named_twice_is_refused_twice(filled: Replicas) -> None:
    rows = ask(filled, LATEST, EARLIEST)
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST] * 2


def test_version_0_answers_a_partition_as_often_as_it_is_named(filled: Replicas) -> None:
    rows = ask(filled, LATEST, LATEST, version=0)
    assert [row.error_code for row in rows] == [0, 0]
    assert rows[0].old_style_offsets == rows[1].old_style_offsets != []


def test_follower_answers_only_who_debugs(room: Replicas) -> None:
    room.create("a", leader=1, replicas=(0, 1), isr=(1,))
    (row,) = ask(room, LATEST)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offset(room, LATEST, replica_id=-2)[0] == 0


def test_failed_directory_is_a_storage_error(filled: Replicas) -> None:
    filled.partition("a").log.offline = True
    (row,) = ask(filled, LATEST)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_committed_reader_is_told_of_nothing_undecided(filled: Replicas) -> None:
    filled.append("a", transactional(7, 0, b"open"))
    assert offset(filled, LATEST)[0] == 7
    assert offset(filled, LATEST, isolation_level=1)[0] == 6
    assert offset(filled, NOW)[0] == 6
    assert offset(filled, NOW, isolation_level=1) == (-1, -1, -1)
    assert offset(filled, MAX)[0] == 6
    assert offset(filled, MAX, isolation_level=1) == (-1, -1, -1)


def test_consumer_is_told_of_nothing_uncommitted(room: Replicas) -> None:
    room.create("a", replicas=(0, 1), isr=(0, 1))
    room.produce("a")
    assert offset(room, LATEST)[0] == 0
    assert offset(room, LATEST, replica_id=1)[0] == 1
    assert offset(room, NOW) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("version", "error"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_new_leader_does_not_tell_an_end_before_it_knows_what_was_committed(
    room: Replicas, version: int, error: ErrorCode
) -> None:
    """Source: KIP-207."""
    partition = room.create("a", leader=1, replicas=(0, 1))
    partition.append_as_follower(memoryview(batch(b"1")), NOW)
    state = partition.state._replace(leader=0, leader_epoch=1)
    partition.apply(state, NOW)
    for timestamp in (LATEST, NOW + 60_000):
        assert ask(room, timestamp, version=version)[0].error_code == error
    assert ask(room, EARLIEST, version=version)[0].error_code == ErrorCode.NONE
    assert ask(room, NOW, version=version)[0].error_code == error
    partition.on_isr_confirmed((0,), 5, NOW)
    assert offset(room, LATEST, version=version)[0] == 1


def test_deleted_records_are_not_found_again(filled: Replicas) -> None:
    filled.partition("a").log.delete_records_before(3)
    assert offset(filled, EARLIEST)[0] == 3
    assert offset(filled, 0) == (3, 5001, 2)


def test_epoch_is_that_of_the_record(filled: Replicas) -> None:
    filled.create("a", 2, epoch=5)
    filled.produce("a", timestamp=9000)
    assert offset(filled, 9000) == (6, 9000, 5)
    assert offset(filled, 3000) == (2, 5000, 2)
    assert offset(filled, EARLIEST)[2] == 2
    assert offset(filled, LATEST)[2] == 5


# Version 0: UnifiedLog.legacyFetchOffsetsBefore


def test_version_0_answers_where_segments_begin_newest_first(filled: Replicas) -> None:
    log = filled.partition("a").log
    log.roll(NOW)
    filled.produce("a")

    def offsets(timestamp: int, count: int) -> list[int]:
        (row,) = ask(filled, timestamp, version=0, count=count)
        assert row.error_code == 0
        return list(row.old_style_offsets)

    assert offsets(LATEST, 5) == [7, 6, 0]
    assert offsets(LATEST, 1) == [7]
    assert offsets(LATEST, 0) == []
    assert offsets(EARLIEST, 5) == [0]
    assert offsets(0, 5) == []
    assert offsets(1 << 61, 5) == [7, 6, 0]  # the end of the log is as old as the request


def test_version_0_knows_two_special_times(filled: Replicas) -> None:
    (row,) = ask(filled, MAX, version=0)
    assert (row.error_code, row.old_style_offsets) == (UNSUPPORTED, [])


# OffsetForLeaderEpoch


@pytest.mark.parametrize("version", versions(offset_for_leader_epoch))
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (0, (0, 0)),
        (1, (1, 0)),
        (2, (2, 6)),
        (4, (2, 6)),
        (5, (5, 7)),
        (6, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_epoch_ends_where_the_next_begins(
    filled: Replicas, version: int, asked: int, expected: tuple[int, int]
) -> None:
    filled.create("a", 2, epoch=5)
    filled.produce("a")
    row = epoch_row(filled, asked, version=version)
    encoded = (row.leader_epoch, row.end_offset)
    assert (row.error_code, encoded) == (0, expected)


def epoch_row(room: Replicas, asked: int, *, version: int = 4, **options: Any) -> Any:
    number = options.pop("number", 0)
    topic = options.pop("topic", "a")
    answer = room.call(
        offset_for_leader_epoch,
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(partition=number, leader_epoch=asked, **options)
                    ],
                )
            ]
        ),
        version,
    )
    encode(answer, version)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"number": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"topic": "other"}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_epoch_of_a_partition_that_cannot_answer(
    filled: Replicas, options: dict[str, Any], error: ErrorCode
) -> None:
    other = topic_image("other", leader=1, replicas=(1,))
    filled.publisher.publish(filled.publisher.image.with_topics([other]))
    row = epoch_row(filled, 2, **options)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (error, -1, -1)


def test_epoch_of_a_failed_directory_is_a_storage_error(filled: Replicas) -> None:
    filled.partition("a").log.offline = True
    assert epoch_row(filled, 2).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# -- searches that take long -----------------------------------------------------------------------


def lying(size: int, **options: Any) -> bytes:
    """A small batch with a large body, whose header promises a record of a later time."""
    records = bytearray(batch(bytes(size), codec=Codec.ZSTD, **options))
    INT64.pack_into(records, MAX_TIMESTAMP_AT, NOW + 1000)
    rewrite_crc(records)
    return bytes(records)


async def later(room: Replicas, *timestamps: int, version: int = NEWEST_VERSION) -> list[Any]:
    rows = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
        )
        for topic, timestamp in zip("abc", timestamps, strict=False)
    ]
    answer = await room.ask(list_offsets, ListOffsetsRequest(topics=rows, replica_id=-1), version)
    return [
        (row.error_code, row.offset, row.timestamp)
        for topic in answer.topics
        for row in topic.partitions
    ]


def test_what_takes_long_is_searched_in_a_worker(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = InThisProcess()
    monkeypatch.setattr(room.executor, "in_worker", executor.in_worker)
    for name in "abc":
        room.create(name)
        room.append_unread(name, lying(1 << 20))
        room.produce(name, b"1", timestamp=NOW + 1000)
    answer = asyncio.run(later(room, NOW + 500, MAX, LATEST))
    assert answer == [(0, 1, NOW + 1000), (0, 1, NOW + 1000), (0, 2, -1)]
    assert executor.calls == 2
    assert asyncio.run(later(room, NOW)) == [(0, 0, NOW)]  # the first record, in the same batch
    assert executor.calls == 3


def test_search_is_begun_again_if_the_log_has_changed(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.create("a")
    room.append_unread("a", lying(1 << 20))
    searches = []

    async def in_worker(client: Any, function: Any, search: Any, *args: Any) -> Any:
        searches.append(search)
        if len(searches) == 1:
            room.create("a", epoch=1)
            room.produce("a", b"1", timestamp=NOW + 1000)
            return None
        if len(searches) == 2:
            raise FileNotFoundError
        return function(search, *args)

    monkeypatch.setattr(room.executor, "in_worker", in_worker)
    assert asyncio.run(later(room, NOW + 500)) == [(0, 1, NOW + 1000)]
    assert len(searches) == 3


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (TookTooLong("after 1 s"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (BrokenExecutor(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError(5, "Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (FileNotFoundError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_search_that_fails_costs_its_own_row_only(
    room: Replicas, monkeypatch: pytest.MonkeyPatch, problem: Exception, error: ErrorCode
) -> None:
    async def in_worker(*_: Any) -> Any:
        raise problem

    monkeypatch.setattr(room.executor, "in_worker", in_worker)
    for name in "ab":
        room.create(name)
        room.append_unread(name, lying(1 << 20))
    assert asyncio.run(later(room, NOW + 500, LATEST)) == [(error, -1, -1), (0, 1, -1)]


def test_partition_that_went_during_its_search_is_missing(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.create("a")
    room.append_unread("a", lying(1 << 20))

    async def in_worker(*_: Any) -> Any:
        room.delete("a")

    monkeypatch.setattr(room.executor, "in_worker", in_worker)
    (row,) = asyncio.run(later(room, NOW + 500))
    assert row == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_lying_batch_of_64_megabytes_costs_the_loop_little(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_worker(*_: Any) -> Any:
        taken.add(time.process_time() - began)

    monkeypatch.setattr(room.executor, "in_worker", in_worker)
    room.create("a")
    room.append_unread("a", lying(64 << 20))
    with cpu_time() as taken:
        began = time.process_time()
        asyncio.run(later(room, NOW + 500))
    assert taken.longest_s < 0.05
