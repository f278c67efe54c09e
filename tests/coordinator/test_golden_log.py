"""Records that Apache Kafka 3.9.2 wrote to __consumer_offsets, read and written again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.records.batch import RecordBatch, iter_batches
from server.coordinator.common.partitioner import partition_for
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.coordinator import GroupCoordinator
from server.coordinator.group.records import (
    GroupRecord,
    group_record,
)
from server.coordinator.group.shard import GroupShard
from server.coordinator.group.stored import decode_record, encode_record
from server.turns import exhaust
from tests.golden.recorded import log_directory, read_json
from tests.support.clock import ManualClock

PARTITIONS = 2


@pytest.fixture(scope="module")
def segments() -> list[bytes]:
    """The only segment of each partition."""
    with log_directory() as files:
        name = "b0/__consumer_offsets-{}/00000000000000000000.log"
        members = [files.extractfile(name.format(n)) for n in range(PARTITIONS)]
        return [member.read() for member in members if member is not None]


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = read_json("logdir/expected.json")
    return found


def records(segment: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    for batch in iter_batches(segment):
        if not batch.is_control:
            for record in batch.records():
                assert record.key is not None
                yield record.key, record.value


def test_groups_are_in_the_partition_that_apache_kafka_chose(segments: list[bytes]) -> None:
    for partition, segment in enumerate(segments):
        for key, value in records(segment):
            record = decode_record(key, value)
            assert record is not None
            assert partition_for(record.group_id, PARTITIONS) == partition


def test_stored_records_are_written_again_byte_for_byte(segments: list[bytes]) -> None:
    count = 0
    for segment in segments:
        for key, value in records(segment):
            record = decode_record(key, value)
            assert record is not None
            assert encode_record(record) == (key, value)
            count += 1
    assert count > 10


def test_loaded_generations_are_written_again_byte_for_byte(segments: list[bytes]) -> None:
    """By way of the group in memory, so that no stored field of a member is lost."""
    states = set()
    for segment in segments:
        for key, value in records(segment):
            record = decode_record(key, value)
            if isinstance(record, GroupRecord) and record.value is not None:
                shard = GroupShard(0, GroupConfig())
                shard.replay(record, 1)
                shard.loaded(5)
                group = shard.groups[record.group_id]
                assignment = {m.member_id: m.assignment for m in group.members.values()}
                assert group_record(group, assignment) == record
                states.add(group.state.value)
    assert states == {"Stable", "Empty"}


def test_committed_offsets_are_those_that_apache_kafka_tells(
    segments: list[bytes], expected: dict[str, Any]
) -> None:
    """Including those of a committed transaction."""

    class Stored:
        def read_all(self, partition: int) -> Iterator[memoryview]:
            yield memoryview(segments[partition])

        async def inflated(self, batch: RecordBatch) -> bytes:
            raise AssertionError("nothing is compressed")

        def append(self, partition: int, batch: bytes, now_ms: int) -> ErrorCode:
            raise AssertionError("nothing is written")

    async def load() -> dict[str, Any]:
        config = GroupConfig(offsets_topic_partitions=PARTITIONS)
        coordinator = GroupCoordinator(config, Stored(), ManualClock())
        for partition in range(PARTITIONS):
            coordinator.lead(partition, 1)
        await coordinator.runtime.wait_until_loaded()
        found = {}
        for row in exhaust(coordinator.list_groups())[1]:
            fetched = coordinator.fetch_offsets(row.group_id, None, True)
            assert fetched.error is ErrorCode.NONE
            found[row.group_id] = {
                f"{topic}-{each.partition}": [
                    each.offset,
                    each.metadata,
                    each.leader_epoch if each.leader_epoch >= 0 else None,
                ]
                for topic, rows in fetched.topics
                for each in rows
            }
        coordinator.close()
        return found

    assert asyncio.run(load()) == expected["groupOffsets"]
