"""Followers commit coordinators' appends, possibly before anything awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.coordinator.common.internal_topic import InternalTopicLog
from server.coordinator.transaction.marker_writer import TransactionMarkerWriter
from server.coordinator.transaction.markers import Markers
from server.metadata.topic_partition import TopicPartition
from server.replication.read_result import FollowerFetch
from server.turns import exhaust
from tests.support.replicas import NOW, Replicas, batch, turns

TOPIC = "t"

Append = Callable[[Replicas], Awaitable[ErrorCode] | ErrorCode]


def append_marker(room: Replicas) -> Awaitable[ErrorCode] | ErrorCode:
    nothing: Any = None
    markers = TransactionMarkerWriter(room.replicas, nothing, room.publisher.current, room.clock)
    return markers.write(room.partition(TOPIC).tp, Markers("id", 7, 0, 0, True, ()))


def append_to_log(room: Replicas) -> Awaitable[ErrorCode] | ErrorCode:
    return InternalTopicLog(TOPIC, room.replicas).append(0, batch(b"v"), NOW)


@pytest.mark.parametrize("append", [append_marker, append_to_log])
def test_record_that_is_committed_before_it_is_awaited_is_not_waited_for(
    tmp_path: Path, append: Append
) -> None:
    room = Replicas(tmp_path / "data").start()

    async def run() -> ErrorCode:
        partition = room.create(TOPIC, replicas=(0, 1))
        begun = append(room)
        assert not isinstance(begun, ErrorCode)
        end = partition.log.log_end_offset
        partition.on_follower_fetch(FollowerFetch(1, -1, 0), end, end, NOW)
        assert partition.log.high_watermark == end
        return await asyncio.wait_for(begun, 5)

    try:
        assert asyncio.run(run()) is ErrorCode.NONE
    finally:
        room.stop()


def test_marker_that_is_not_replicated_in_time_is_given_up(tmp_path: Path) -> None:
    room = Replicas(tmp_path / "data").start()

    async def run() -> ErrorCode:
        nothing: Any = None
        markers = TransactionMarkerWriter(
            room.replicas, nothing, room.publisher.current, room.clock, write_timeout_ms=1
        )
        partition = room.create(TOPIC, replicas=(0, 1))
        begun = markers.write(partition.tp, Markers("id", 7, 0, 0, True, ()))
        assert not isinstance(begun, ErrorCode)
        return await asyncio.wait_for(begun, 5)

    try:
        assert asyncio.run(run()) is ErrorCode.REQUEST_TIMED_OUT
    finally:
        room.stop()


def test_group_hears_of_its_marker_before_anybody_awaits_it(tmp_path: Path) -> None:
    """WriteTxnMarkers waits for one partition after another, and any of them may take long."""
    room = Replicas(tmp_path / "data").start()

    class Groups:
        def __init__(self) -> None:
            self.ended: list[tuple[int, int, bool]] = []

        def end_transaction(self, *ended: Any) -> None:
            self.ended.append(ended)

    async def run() -> None:
        groups: Any = Groups()
        markers = TransactionMarkerWriter(room.replicas, groups, room.publisher.current, room.clock)
        partition = room.create("__consumer_offsets", replicas=(0, 1))
        begun = markers.write(partition.tp, Markers("id", 7, 0, 0, True, ()))
        assert not isinstance(begun, ErrorCode)
        await turns()
        assert groups.ended == []
        partition.on_follower_fetch(FollowerFetch(1, -1, 0), 1, 1, NOW)
        await turns()
        assert groups.ended == [(0, 7, True)]
        assert await begun is ErrorCode.NONE

    try:
        asyncio.run(run())
    finally:
        room.stop()


def test_marker_that_fails_in_one_partition_is_told_and_written_to_the_others(
    tmp_path: Path,
) -> None:
    room = Replicas(tmp_path / "data").start()

    class Groups:
        def end_transaction(self, *ended: Any) -> None:
            raise ZeroDivisionError("a bug")

    async def run() -> list[tuple[str, ErrorCode]]:
        groups: Any = Groups()
        writer = TransactionMarkerWriter(room.replicas, groups, room.publisher.current, room.clock)
        tps = tuple(room.create(name).tp for name in ("__consumer_offsets", TOPIC))
        told: list[tuple[TopicPartition, ErrorCode]] = []
        exhaust(writer.send(Markers("id", 7, 0, 0, True, tps), told.extend))
        return [(tp.topic, error) for tp, error in told]

    try:
        assert asyncio.run(run()) == [
            ("__consumer_offsets", ErrorCode.UNKNOWN_SERVER_ERROR),
            (TOPIC, ErrorCode.NONE),
        ]
    finally:
        room.stop()


@pytest.mark.parametrize("append", [append_marker, append_to_log])
def test_record_is_refused_without_enough_replicas_and_given_up_with_the_leadership(
    tmp_path: Path, append: Append
) -> None:
    room = Replicas(tmp_path / "data").start()

    async def run() -> None:
        partition = room.create(TOPIC, replicas=(0, 1), configs={"min.insync.replicas": "2"})
        begun = append(room)
        assert not isinstance(begun, ErrorCode)
        state = partition.state
        partition.apply(state._replace(leader=1, leader_epoch=state.leader_epoch + 1), NOW)
        assert await begun is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert append(room) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.apply(state._replace(isr=(0,), leader_epoch=state.leader_epoch + 2), NOW)
        end = partition.log.log_end_offset
        assert append(room) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == end

    try:
        asyncio.run(run())
    finally:
        room.stop()
