"""Proposing a changed ISR to the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from server.coordination.store import StoreError
from server.replication.alter_partition import (
    ALTER_PARTITION_VERSION,
    AlterPartitions,
    alter_request,
    take_answers,
)
from server.replication.isr import IsrState
from server.replication.membership import PartitionState
from server.replication.partition import Partition
from server.replication.read_result import FollowerFetch
from tests.support.replicas import NOW, Replicas


def leading(room: Replicas, name: str = "a") -> Partition:
    """A partition that proposes to add broker 2."""
    room.create(name)
    found = room.partition(name)
    partition = Partition(found.tp, found.log, room.replicas.membership)
    partition.apply(PartitionState(0, 1, (0, 1), (0, 1, 2), 4), NOW)
    partition.read(0, 10, current_leader_epoch=1, follower=FollowerFetch(2, 77, 0), now_ms=NOW)
    partition.isr = IsrState((0, 1), adding=2)
    return partition


def answer(request: AlterPartitionRequest, **row: Any) -> AlterPartitionResponse:
    """The same answer for every partition in the request."""
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    AlterPartitionResponsePartitionData(
                        partition_index=asked.partition_index, **row
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_request_names_the_proposal_with_the_epochs_of_the_brokers(room: Replicas) -> None:
    partition = leading(room)
    request = alter_request([partition], 0, 55)
    encode(request, ALTER_PARTITION_VERSION)
    (asked,) = request.topics[0].partitions
    assert (asked.leader_epoch, asked.partition_epoch) == (1, 4)
    proposed = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
    assert proposed == [(0, 55), (1, -1), (2, 77)]


@pytest.mark.parametrize(
    ("error", "again", "after"),
    [
        (ErrorCode.NONE, False, IsrState((0, 1, 2))),
        (ErrorCode.INELIGIBLE_REPLICA, False, IsrState((0, 1))),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, IsrState((0, 1))),
        # The controller's decision counts; until it arrives, both sets count.
        (ErrorCode.INVALID_UPDATE_VERSION, False, IsrState((0, 1), adding=2)),
        (ErrorCode.FENCED_LEADER_EPOCH, False, IsrState((0, 1), adding=2)),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, IsrState((0, 1), adding=2)),
    ],
)
def test_answers_end_the_proposal_or_have_it_repeated(
    room: Replicas, error: ErrorCode, again: bool, after: IsrState
) -> None:
    partition = leading(room)
    request = alter_request([partition], 0, 55)
    response = answer(request, error_code=error, isr=[0, 1, 2], partition_epoch=5, leader_epoch=1)
    assert take_answers([partition], request, response, NOW) == ([partition] if again else [])
    assert partition.isr == after
    assert partition.state.partition_epoch == (4 if error else 5)


def test_answer_for_a_role_that_is_over_is_passed_over(room: Replicas) -> None:
    partition = leading(room)
    request = alter_request([partition], 0, 55)
    response = answer(request, isr=[0, 1, 2], partition_epoch=5, leader_epoch=1)
    partition.apply(PartitionState(0, 2, (0,), (0, 1, 2), 6), NOW)
    assert take_answers([partition], request, response, NOW) == []
    assert partition.isr == IsrState((0,))


def test_partition_that_the_answer_leaves_out_is_asked_for_again(room: Replicas) -> None:
    partition = leading(room)
    request = alter_request([partition], 0, 55)
    assert take_answers([partition], request, AlterPartitionResponse(topics=[]), NOW) == [partition]


def test_one_request_at_a_time_takes_all_that_came_meanwhile(room: Replicas) -> None:
    one, two, three = (leading(room, name) for name in "abc")
    sent: list[int] = []

    async def run() -> None:
        gate = asyncio.Event()

        async def send(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
            sent.append(len(request.topics))
            if len(sent) == 1:
                await gate.wait()
                raise OSError("the controller is gone")
            return answer(request, isr=[0, 1, 2], partition_epoch=5, leader_epoch=1)

        asking = AlterPartitions(0, lambda: 55, send, room.clock)
        asking.propose(one)
        await asyncio.sleep(0)
        asking.propose(two)
        asking.propose(three)
        gate.set()
        assert asking._task is not None
        await asking._task
        asking.close()
        asking.propose(one)  # too late: nothing happens

    asyncio.run(run())
    assert sent == [1, 3]
    assert {each.isr for each in (one, two, three)} == {IsrState((0, 1, 2))}


def test_leader_that_was_elected_uncleanly_calls_itself_recovered(room: Replicas) -> None:
    """The controller accepts no second replica from a leader that is recovering."""
    partition = leading(room)
    partition.apply(PartitionState(0, 2, (0,), (0, 1, 2), 6, recovering=True), NOW)
    partition.isr = IsrState((0,), adding=2)
    (asked,) = alter_request([partition], 0, 55).topics[0].partitions
    assert asked.leader_recovery_state == 0


def test_proposal_is_made_again_whatever_error_sending_ends_in(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    partition = leading(room)
    failures: list[Exception] = [
        StoreError("/brokers", "lost"),
        ValueError("odd"),
        AssertionError(),
    ]

    async def run() -> None:
        async def send(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
            if failures:
                raise failures.pop()
            return answer(request, isr=[0, 1, 2], partition_epoch=5, leader_epoch=1)

        asking = AlterPartitions(0, lambda: 55, send, room.clock)
        asking.propose(partition)
        assert asking._task is not None
        await asking._task

    asyncio.run(run())
    assert partition.isr == IsrState((0, 1, 2))
    assert caplog.text.count("asking for other in-sync replicas failed") == 1


def test_many_changes_have_a_few_lines_of_the_log(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "server.replication.alter_partition")
    batch = [leading(room, f"t{number}") for number in range(30)]
    request = alter_request(batch, 0, 55)
    take_answers(batch, request, answer(request, isr=[0, 1, 2], partition_epoch=5), NOW)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 4
    assert lines[-1] == "in-sync replicas of 27 more partitions changed"
