"""Partitions of transactions coordinated by another broker: batching, and the handling of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from server.coordinator.transaction.partition_verifier import PartitionVerifier
from server.metadata.image import MetadataImage
from server.metadata.topic_partition import TopicPartition
from tests.support.replicas import registration, topic_image, turns

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ID = "id"


class Cluster:
    """Broker 0, whose ids are all coordinated by `leader`."""

    def __init__(self) -> None:
        self.lead(1)
        self.sent: list[tuple[int, AddPartitionsToTxnRequest, asyncio.Future[Any]]] = []
        self.verifier = PartitionVerifier(0, self, lambda: self.image, self.ask)  # type: ignore[arg-type]

    def lead(self, leader: int, *, alive: tuple[int, ...] = (0, 1)) -> None:
        cluster = MetadataImage().with_brokers({number: registration(number) for number in alive})
        self.image = cluster.with_topics([topic_image("__transaction_state", leader=leader)])

    def partition_for(self, transactional_id: str) -> int:
        return 0

    def verify(self, *asked: Any) -> ErrorCode:
        return ErrorCode.TRANSACTION_ABORTABLE

    async def ask(self, broker_id: int, request: Any, version: int) -> Any:
        request = decode(AddPartitionsToTxnRequest, encode(request, version), version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((broker_id, request, future))
        return await future

    def begin(
        self, tp: TopicPartition, name: str = ID, producer: tuple[int, int] = (7, 0)
    ) -> asyncio.Future[ErrorCode]:
        found = self.verifier.verify(name, *producer, tp)
        assert isinstance(found, asyncio.Future)
        return found

    def asked(self, index: int) -> list[tuple[str, int, int, dict[str, list[int]]]]:
        return [
            (
                row.transactional_id,
                row.producer_id,
                row.producer_epoch,
                {topic.name: topic.partitions for topic in row.topics},
            )
            for row in self.sent[index][1].transactions
            if row.verify_only
        ]

    async def answer(self, index: int, *errors: tuple[str, TopicPartition, ErrorCode]) -> None:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=tp.topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=tp.partition, partition_error_code=error
                            )
                        ],
                    )
                ],
            )
            for name, tp, error in errors
        ]
        self.sent[index][2].set_result(AddPartitionsToTxnResponse(results_by_transaction=results))
        await turns()


def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        await test(cluster)
        cluster.verifier.close()

    asyncio.run(main())


def test_coordinator_here_is_asked_at_once() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.lead(0)
        assert cluster.verifier.verify(ID, 7, 0, A) is ErrorCode.TRANSACTION_ABORTABLE
        assert not cluster.sent

    run(test)


def test_coordinator_that_nobody_is_cannot_be_asked() -> None:
    async def test(cluster: Cluster) -> None:
        for leader, alive in ((-1, (0, 1)), (1, (0,))):
            cluster.lead(leader, alive=alive)
            found = cluster.verifier.verify(ID, 7, 0, A)
            assert found is ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.image = MetadataImage()
        assert cluster.verifier.verify(ID, 7, 0, A) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_questions_go_in_one_request_and_each_has_its_answer() -> None:
    async def test(cluster: Cluster) -> None:
        first = cluster.begin(A, "first")
        await turns()
        waiting = [cluster.begin(A), cluster.begin(B), cluster.begin(A), cluster.begin(A, "other")]
        await turns()
        assert len(cluster.sent) == 1
        await cluster.answer(0, ("first", A, ErrorCode.NONE))
        assert await first is ErrorCode.NONE
        assert cluster.asked(1) == [(ID, 7, 0, {"a": [0], "b": [1]}), ("other", 7, 0, {"a": [0]})]
        await cluster.answer(
            1,
            (ID, A, ErrorCode.NONE),
            (ID, B, ErrorCode.TRANSACTION_ABORTABLE),
            ("other", A, ErrorCode.PRODUCER_FENCED),
        )
        assert await asyncio.gather(*waiting) == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.NONE,
            ErrorCode.PRODUCER_FENCED,
        ]

    run(test)


def test_producers_of_one_id_are_asked_for_one_after_the_other() -> None:
    """A request can contain each transactional id only once."""

    async def test(cluster: Cluster) -> None:
        old, new = cluster.begin(A, producer=(7, 0)), cluster.begin(A, producer=(7, 1))
        await turns()
        await cluster.answer(0, (ID, A, ErrorCode.PRODUCER_FENCED))
        assert cluster.asked(0) == [(ID, 7, 0, {"a": [0]})]
        assert cluster.asked(1) == [(ID, 7, 1, {"a": [0]})]
        await cluster.answer(1, (ID, A, ErrorCode.NONE))
        assert (await old, await new) == (ErrorCode.PRODUCER_FENCED, ErrorCode.NONE)

    run(test)


@pytest.mark.parametrize(
    ("whole", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),  # and has no row for the partition
    ],
)
def test_answer_without_rows_is_one_for_all(whole: ErrorCode, told: ErrorCode) -> None:
    async def test(cluster: Cluster) -> None:
        found = cluster.begin(A)
        await turns()
        cluster.sent[0][2].set_result(
            AddPartitionsToTxnResponse(error_code=whole, results_by_transaction=[])
        )
        assert await found is told

    run(test)


def test_lost_request_and_lost_broker_are_network_exceptions() -> None:
    async def test(cluster: Cluster) -> None:
        lost = cluster.begin(A)
        await turns()
        cluster.sent[0][2].set_exception(OSError("lost"))
        assert await lost is ErrorCode.NETWORK_EXCEPTION
        gone = cluster.begin(A)
        await turns()
        before = cluster.image
        cluster.lead(1, alive=(0,))
        cluster.verifier.on_image(before, cluster.image)
        assert await gone is ErrorCode.NETWORK_EXCEPTION

    run(test)
