"""Requests of brokers and administrators to the controller of a cluster of two brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kwire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.messages.controlled_shutdown import ControlledShutdownRequest
from kwire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from server.handlers.context import ConnectionInfo, Later, RequestContext
from server.handlers.registry import Handler
from server.handlers.table import HANDLERS
from tests.controller.members import Member, Network, create, join
from tests.coordination.conftest import stores
from tests.support.services import services_of
from tests.support.steps import finished

CONNECTION = ConnectionInfo("1")


async def ask(member: Member, request: Any, version: int) -> Any:
    """The answer as a client of that version reads it."""
    handler = next(each for each in HANDLERS if each.request_class is type(request))
    assert isinstance(handler, Handler)
    services = services_of(controller=member.controller, metadata=member.publisher.current)
    sent = decode(type(request), encode(request, version), version)
    ctx = RequestContext(handler, version, 1, None, 0, CONNECTION, services)
    answer = finished(handler(ctx, sent))
    if isinstance(answer, Later):
        found = await answer.awaitable
        answer = found if answer.finish is None else finished(answer.finish(found))
    return decode(type(answer), encode(answer, version), version)


def run(body: Callable[[Member, Member], Awaitable[None]]) -> None:
    """Run a test with brokers 1 (the controller) and 2, and a topic t with replicas on both."""

    async def main() -> None:
        async with stores("embedded", None) as maker:
            network = Network()
            one, two = await join(maker, 1, network), await join(maker, 2, network)
            await one.until(lambda image: len(image.brokers) == 2)
            await create(one, "t", (2, 1), (1, 2))
            await two.until(lambda image: "t" in image.topics)
            await body(one, two)
            await two.stop()
            await one.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("version", range(4))
def test_broker_that_shuts_down_is_told_what_it_still_leads(version: int) -> None:
    async def body(one: Member, two: Member) -> None:
        request = ControlledShutdownRequest(
            broker_id=2, broker_epoch=two.controller.broker_epoch if version >= 2 else -1
        )
        refused = await ask(two, request, version)
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        answer = await ask(one, request, version)
        assert (answer.error_code, answer.remaining_partitions) == (0, [])
        # No other broker can take over from the last one.
        last = ControlledShutdownRequest(broker_id=1, broker_epoch=-1)
        answer = await ask(one, last, version)
        assert [(row.topic_name, row.partition_index) for row in answer.remaining_partitions] == [
            ("t", 0),
            ("t", 1),
        ]

    run(body)


@pytest.mark.parametrize("version", range(4))
def test_in_sync_replicas_are_changed_at_each_version(version: int) -> None:
    async def body(one: Member, two: Member) -> None:
        row = AlterPartitionRequestPartitionData(partition_index=0, partition_epoch=0)
        if version >= 3:
            row.new_isr_with_epochs = [BrokerState(broker_id=2)]
        else:
            row.new_isr = [2]
        request = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=two.controller.broker_epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_name="t", topic_id=one.image.topics["t"].topic_id, partitions=[row]
                )
            ],
        )
        assert (await ask(two, request, version)).error_code == ErrorCode.NOT_CONTROLLER
        answer = await ask(one, request, version)
        topic = answer.topics[0]
        assert (topic.topic_name == "t") is (version < 2)
        assert (topic.topic_id == one.image.topics["t"].topic_id) is (version >= 2)
        (got,) = topic.partitions
        assert (got.error_code, got.leader_id, got.leader_epoch) == (0, 2, 0)
        assert (got.isr, got.partition_epoch) == ([2], 1)

    run(body)


def test_producer_ids_come_in_blocks() -> None:
    async def body(one: Member, two: Member) -> None:
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=two.controller.broker_epoch)
        answer = await ask(one, request, 0)
        assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (0, 0, 1000)
        assert (await ask(one, request, 0)).producer_id_start == 1000
        assert (await ask(two, request, 0)).error_code == ErrorCode.NOT_CONTROLLER
        request.broker_epoch -= 1
        assert (await ask(one, request, 0)).error_code == ErrorCode.STALE_BROKER_EPOCH

    run(body)


def move(number: int, replicas: list[int] | None, topic: str = "t") -> Any:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[ReassignablePartition(partition_index=number, replicas=replicas)],
            )
        ]
    )


def test_moves_are_begun_listed_and_refused_by_row() -> None:
    async def body(one: Member, two: Member) -> None:
        answer = await ask(two, move(0, [1]), 0)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert answer.error_message
        await create(one, "u", (1,))
        answer = await ask(one, move(0, [2], "u"), 0)
        (row,) = answer.responses[0].partitions
        assert (row.partition_index, row.error_code, row.error_message) == (0, 0, None)
        for asked in (
            ListPartitionReassignmentsRequest(topics=None),
            ListPartitionReassignmentsRequest(
                topics=[ListPartitionReassignmentsTopics(name="u", partition_indexes=[0, 7])]
            ),
        ):
            listed = await ask(one, asked, 0)
            (topic,) = listed.topics
            (moving,) = topic.partitions
            assert (topic.name, moving.partition_index) == ("u", 0)
            assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == (
                [2, 1],
                [2],
                [1],
            )
            assert (await ask(two, asked, 0)).error_code == ErrorCode.NOT_CONTROLLER
        answer = await ask(one, move(1, None), 0)
        (row,) = answer.responses[0].partitions
        assert row.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert row.error_message == "No partition reassignment is in progress."
        fixed = move(1, [1])
        fixed.allow_replication_factor_change = False
        answer = await ask(one, fixed, 1)
        assert not answer.allow_replication_factor_change
        assert answer.responses[0].partitions[0].error_code == (
            ErrorCode.INVALID_REPLICATION_FACTOR
        )

    run(body)


@pytest.mark.parametrize("version", range(3))
def test_elections_are_answered_by_row(version: int) -> None:
    async def body(one: Member, two: Member) -> None:
        asked = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="t", partitions=[0, 9])]
        )
        (topic,) = (await ask(two, asked, version)).replica_election_results
        assert [row.error_code for row in topic.partition_result] == (
            [ErrorCode.NOT_CONTROLLER] * 2
        )
        answer = await ask(one, asked, version)
        (topic,) = answer.replica_election_results
        assert {row.partition_id: row.error_code for row in topic.partition_result} == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        everything = ElectLeadersRequest(topic_partitions=None)
        assert (await ask(one, everything, version)).replica_election_results == []
        shutdown = ControlledShutdownRequest(broker_id=2, broker_epoch=-1)
        await ask(one, shutdown, 3)
        (topic,) = (await ask(one, everything, version)).replica_election_results
        (row,) = topic.partition_result
        assert (row.partition_id, row.error_code) == (
            0,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        )
        if version >= 1:
            strange = ElectLeadersRequest(election_type=7, topic_partitions=None)
            assert (await ask(one, strange, version)).error_code == ErrorCode.INVALID_REQUEST

    run(body)
