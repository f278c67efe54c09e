"""Markers to several brokers: destinations, batches, and reports of those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from server.coordinator.transaction.marker_channels import (
    ENTRY_PARTITIONS,
    MAX_ENTRIES,
    MarkerChannels,
)
from server.coordinator.transaction.markers import Markers, Outcomes
from server.metadata.image import MetadataImage
from server.metadata.topic_partition import TopicPartition
from server.turns import Steps, Turns, exhaust
from tests.support.clock import ManualClock
from tests.support.replicas import registration, topic_image, turns

OWN = 0
TPS = [TopicPartition(f"t{leader}", 0) for leader in range(3)]
GONE = TopicPartition("gone", 0)


def image(*alive: int, partitions: int = 1) -> MetadataImage:
    """One topic led by each of three brokers."""
    topics = [
        topic_image(f"t{leader}", leader=leader, replicas=(0, 1, 2), partitions=partitions)
        for leader in range(3)
    ]
    cluster = MetadataImage().with_brokers({number: registration(number) for number in alive})
    return cluster.with_topics(topics)


def markers(*tps: TopicPartition, producer_id: int = 7, epoch: int = 3) -> Markers:
    return Markers("id", producer_id, epoch, 5, True, tps)


def answer_to(request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    """An answer with the same error for all partitions."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=row.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=n, error_code=error)
                            for n in topic.partition_indexes
                        ],
                    )
                    for topic in row.topics
                ],
            )
            for row in request.markers
        ]
    )


class Cluster:
    """The markers of broker 0; requests to others wait until the test answers them."""

    def __init__(self) -> None:
        self.image = image(0, 1, 2)
        self.sent: list[tuple[int, WriteTxnMarkersRequest, asyncio.Future[Any]]] = []
        self.local: list[tuple[Markers, Callable[[Outcomes], None]]] = []
        self.told: list[tuple[TopicPartition, ErrorCode]] = []
        self.channels = MarkerChannels(
            OWN, self, lambda: self.image, self.ask, Turns(ManualClock().monotonic_us)
        )

    def send(self, asked: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
        self.local.append((asked, written))
        yield

    async def ask(self, broker_id: int, request: Any, version: int) -> Any:
        request = decode(WriteTxnMarkersRequest, encode(request, version), version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((broker_id, request, future))
        return await future

    def write(self, asked: Markers) -> None:
        exhaust(self.channels.send(asked, self.told.extend))

    async def answer(self, index: int, error: ErrorCode = ErrorCode.NONE) -> None:
        _, request, future = self.sent[index]
        future.set_result(answer_to(request, error))
        await turns()


def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        await test(cluster)
        cluster.channels.close()

    asyncio.run(main())


def test_each_leader_gets_its_own_and_deleted_partitions_need_none() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.write(markers(*TPS, GONE))
        await turns()
        assert cluster.told == [(GONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        ((here, written),) = cluster.local
        assert here.partitions == (TPS[0],)
        assert [broker_id for broker_id, _, _ in cluster.sent] == [1, 2]
        (row,) = cluster.sent[0][1].markers
        assert (row.producer_id, row.producer_epoch, row.coordinator_epoch) == (7, 3, 5)
        assert row.transaction_result
        assert [(topic.name, topic.partition_indexes) for topic in row.topics] == [("t1", [0])]
        written([(TPS[0], ErrorCode.NONE)])
        await cluster.answer(0)
        await cluster.answer(1)
        assert cluster.told[1:] == [(tp, ErrorCode.NONE) for tp in TPS]

    run(test)


def test_what_comes_while_a_request_is_under_way_goes_together() -> None:
    async def test(cluster: Cluster) -> None:
        for producer_id in (1, 2, 3):
            cluster.write(markers(TPS[1], producer_id=producer_id))
            await turns()
        assert len(cluster.sent) == 1
        await cluster.answer(0)
        assert [row.producer_id for row in cluster.sent[1][1].markers] == [2, 3]
        await cluster.answer(1)
        assert cluster.told == [(TPS[1], ErrorCode.NONE)] * 3

    run(test)


def test_many_markers_go_in_several_requests_in_which_clients_take_turns() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.image = image(0, 1, 2, partitions=1_000)
        many = tuple(TopicPartition("t1", number) for number in range(1_000))
        for producer_id in (1, 2, 3):
            cluster.write(markers(*many, producer_id=producer_id)._replace(client="10.0.0.1"))
        cluster.write(markers(TPS[1], producer_id=4)._replace(client="10.0.0.2"))
        sizes = []
        while len(cluster.sent) > len(sizes) or not sizes:
            await turns()
            rows = cluster.sent[len(sizes)][1].markers
            if not sizes:
                assert 4 in [row.producer_id for row in rows]
            sizes.append(sum(len(topic.partition_indexes) for row in rows for topic in row.topics))
            await cluster.answer(len(sizes) - 1)
        assert sum(sizes) == 3_001
        assert max(sizes) <= MAX_ENTRIES * ENTRY_PARTITIONS
        assert sorted(cluster.told) == sorted(
            [(tp, ErrorCode.NONE) for tp in many] * 3 + [(TPS[1], ErrorCode.NONE)]
        )

    run(test)


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        # It exists in the image, so it is led elsewhere or not created yet.
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_errors_are_told_as_the_shard_understands_them(
    answered: ErrorCode, told: ErrorCode
) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.write(markers(TPS[1]))
        await turns()
        await cluster.answer(0, answered)
        assert cluster.told == [(TPS[1], told)]

    run(test)


@pytest.mark.parametrize("error", [OSError("lost"), AssertionError("not understood")])
def test_request_that_fails_is_told_and_the_next_goes_out(error: Exception) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.write(markers(TPS[1]))
        await turns()
        cluster.sent[0][2].set_exception(error)
        await turns()
        assert cluster.told == [(TPS[1], ErrorCode.NETWORK_EXCEPTION)]
        cluster.write(markers(TPS[1]))
        await turns()
        await cluster.answer(1)
        assert cluster.told[1:] == [(TPS[1], ErrorCode.NONE)]

    run(test)


def test_broker_that_is_gone_is_not_waited_for() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.write(markers(TPS[1]))
        await turns()
        cluster.write(markers(TPS[1], producer_id=8))
        before, cluster.image = cluster.image, image(0, 2)
        cluster.channels.on_image(before, cluster.image)
        assert cluster.told == [(TPS[1], ErrorCode.NETWORK_EXCEPTION)] * 2
        cluster.write(markers(TPS[1]))
        assert cluster.told[2:] == [(TPS[1], ErrorCode.LEADER_NOT_AVAILABLE)]
        cluster.image = image(0, 1, 2)
        cluster.write(markers(TPS[1]))
        await turns()
        await cluster.answer(1)
        assert cluster.told[3:] == [(TPS[1], ErrorCode.NONE)]

    run(test)
