"""DeleteRecords, compared with answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import errno

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from server.handlers.delete_records import delete_records
from server.log.file_layer import FileLayer
from server.replication.read_result import FollowerFetch
from tests.support.replicas import Replicas, topic_image, turns, values
from tests.support.versions import versions


def delete(
    room: Replicas, *asked: tuple[int, int], topic: str = "a", version: int = 2
) -> list[tuple[int, int]]:
    """(error, low watermark) of each row of (partition, offset)."""
    answer = room.call(
        delete_records,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=number, offset=offset)
                        for number, offset in asked
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        version,
    )
    encode(answer, version)
    (found,) = answer.topics
    assert found.name == topic
    assert [row.partition_index for row in found.partitions] == [number for number, _ in asked]
    return [(row.error_code, row.low_watermark) for row in found.partitions]


@pytest.fixture
def filled(room: Replicas) -> Replicas:
    room.create("a")
    for value in (b"1", b"2", b"3"):
        room.produce("a", value)
    return room


def test_disk_that_fails_is_the_error_of_its_partitions(
    filled: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(FileLayer, "replace_file", fails)
    log = filled.partition("a").log
    assert delete(filled, (0, 2), (1, 0)) == [
        (ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert log.offline


@pytest.mark.parametrize("version", versions(delete_records))
def test_records_before_the_offset_are_gone(filled: Replicas, version: int) -> None:
    assert delete(filled, (0, 2), version=version) == [(0, 2)]
    partition = filled.partition("a")
    assert partition.read(1, 1000).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(partition.read(2, 1000).data) == [b"3"]


def test_start_never_goes_back(filled: Replicas) -> None:
    assert delete(filled, (0, 2)) == delete(filled, (0, 1)) == [(0, 2)]


def test_minus_one_deletes_all(filled: Replicas) -> None:
    assert delete(filled, (0, -1)) == [(0, 3)]
    assert filled.partition("a").log.log_start_offset == 3


@pytest.mark.parametrize(
    ("number", "offset", "topic", "error"),
    [
        (0, 4, "a", ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, -2, "a", ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, 1, "a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 1, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0, "compacted", ErrorCode.POLICY_VIOLATION),
        (0, 0, "__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (0, 0, "elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, 0, "followed", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_cannot_be_deleted_says_why(
    filled: Replicas, number: int, offset: int, topic: str, error: ErrorCode
) -> None:
    filled.create("compacted", configs={"cleanup.policy": "compact"})
    filled.create("__consumer_offsets")
    filled.create("followed", leader=1, replicas=(0, 1), isr=(1,))
    elsewhere = topic_image("elsewhere", leader=1, replicas=(1,))
    filled.publisher.publish(filled.publisher.image.with_topics([elsewhere]))
    assert delete(filled, (number, offset), topic=topic) == [(error, -1)]
    assert filled.partition("a").log.log_start_offset == 0


def test_rows_do_not_mind_each_other(filled: Replicas) -> None:
    assert delete(filled, (9, 1), (0, 1)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (0, 1)]


def test_topic_that_is_compacted_and_deleted_may_be(room: Replicas) -> None:
    room.create("a", configs={"cleanup.policy": "compact,delete"})
    room.produce("a")
    assert delete(room, (0, 1)) == [(0, 1)]


def test_failed_directory_is_a_storage_error(filled: Replicas) -> None:
    filled.partition("a").log.offline = True
    assert delete(filled, (0, 1)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_followers_are_waited_for_and_refused_rows_stay(filled: Replicas) -> None:
    """As in DelayedDeleteRecords: the final low watermark, or its value at the timeout."""
    partition = filled.create("led", leader=0, replicas=(0, 1), isr=(0, 1))
    filled.produce("led", b"1", b"2")
    filled.replicas.membership.live_brokers = lambda: (0, 1)

    def fetched(start: int) -> None:
        partition.on_follower_fetch(FollowerFetch(1, 5, start), 2, 2, filled.clock.now_ms())

    def request(timeout_ms: int) -> DeleteRecordsRequest:
        asked = [DeleteRecordsPartition(partition_index=n, offset=-1) for n in (9, 0)]
        topic = DeleteRecordsTopic(name="led", partitions=asked)
        return DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)

    async def main() -> None:
        fetched(0)
        late = await filled.ask(delete_records, request(0), 2)
        asked = asyncio.ensure_future(filled.ask(delete_records, request(30_000), 2))
        await turns()
        assert not asked.done()
        fetched(2)
        for answer, error, low in ((late, 7, 0), (await asked, 0, 2)):
            encode(answer, 2)
            found = [(r.error_code, r.low_watermark) for r in answer.topics[0].partitions]
            assert found == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (error, low)]

    asyncio.run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_restart_keeps_the_start(filled: Replicas, clean: bool) -> None:
    """Also after a crash, where Apache Kafka may show the records deleted in the last minute again."""
    delete(filled, (0, 2))
    if clean:
        filled.stop()
    else:
        filled.stopped = True
        filled.logs.unlock()
    again = Replicas(filled.folder).start(topic_image("a"))
    log = again.partition("a").log
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    again.stop()
