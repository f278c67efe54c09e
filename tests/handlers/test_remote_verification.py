"""Batches and offsets whose transactional id is coordinated by another broker wait for its answer.

Here the broker is also the coordinator, but the question takes a detour and some time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.metadata.topic_partition import TopicPartition
from tests.support.replicas import turns
from tests.support.services import with_rooms

from .transaction_broker import TOPIC, Producer, TransactionBroker, run

SETTINGS = {"transaction.partition.verification.enable": "true"}


class Elsewhere:
    """Collects questions, which the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, asyncio.Future[ErrorCode]]] = []

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> asyncio.Future[ErrorCode]:
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.asked.append((tp, future))
        return future

    async def answer(self, index: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.asked[index][1].set_result(error)
        await turns()


def elsewhere(
    tmp_path: Path, test: Callable[[TransactionBroker, Elsewhere, Producer], Awaitable[None]]
) -> None:
    """Run a test with a producer whose transaction contains both partitions of the topic."""

    async def main(broker: TransactionBroker) -> None:
        verifier = Elsewhere()
        rooms = broker.broker.rooms
        services = with_rooms(rooms.services, partition_verifier=verifier)
        broker.broker.rooms = replace(rooms, services=services)
        producer = await broker.producer()
        assert await broker.add(producer, (TOPIC, 0), (TOPIC, 1)) == [0, 0]
        await test(broker, verifier, producer)

    run(tmp_path, main, SETTINGS)


def test_batch_is_appended_when_the_other_broker_agrees_and_the_next_is_not_asked_for(
    tmp_path: Path,
) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        row = broker.send(producer, 0)
        await turns()
        assert [tp for tp, _ in other.asked] == [(TOPIC, 0)]
        assert broker.partition().log.log_end_offset == 0
        await other.answer(0)
        assert (await row).error_code == 0
        assert broker.send(producer, 1).error_code == 0
        assert len(other.asked) == 1

    elsewhere(tmp_path, test)


def test_batch_for_a_partition_that_is_led_elsewhere_is_refused_without_asking(
    tmp_path: Path,
) -> None:
    """Otherwise, if the coordinator could not be reached, the producer would never look up the leader."""

    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        broker.partition().is_leader = False
        row = broker.send(producer, 0)
        assert ErrorCode(row.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert other.asked == []

    elsewhere(tmp_path, test)


@pytest.mark.parametrize(
    ("found", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_refusal_is_told_as_apache_kafka_does(
    tmp_path: Path, found: ErrorCode, version: int, told: ErrorCode
) -> None:
    """Source: ReplicaManager.handleProduceAppend."""

    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        row = broker.send(producer, 0, version=version)
        await turns()
        await other.answer(0, found)
        assert ErrorCode((await row).error_code) is told
        assert broker.partition().log.log_end_offset == 0

    elsewhere(tmp_path, test)


def test_answer_from_before_a_marker_is_not_believed(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        row = broker.send(producer, 0)
        await turns()
        assert await broker.end(producer, committed=False) is ErrorCode.NONE
        await turns(20)
        await other.answer(0)
        assert len(other.asked) == 2  # it gets another request
        await other.answer(1, ErrorCode.TRANSACTION_ABORTABLE)
        assert ErrorCode((await row).error_code) is ErrorCode.TRANSACTION_ABORTABLE
        assert broker.is_stable()

    elsewhere(tmp_path, test)


def test_second_batch_that_is_allowed_before_the_first_is_out_of_order(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        first, second = broker.send(producer, 0), broker.send(producer, 1)
        await turns()
        await other.answer(1)
        assert ErrorCode((await second).error_code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await other.answer(0)
        assert (await first).error_code == 0

    elsewhere(tmp_path, test)


def test_others_may_write_while_one_waits(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        row = broker.send(producer, 0)
        await turns()
        second = await broker.producer("second")
        assert await broker.add(second, (TOPIC, 0), name="second") == [0]
        theirs = broker.send(second, 0, name="second")
        await turns()
        await other.answer(1)
        assert (await theirs).base_offset == 0
        await other.answer(0)
        assert (await row).base_offset == 1

    elsewhere(tmp_path, test)


def test_offsets_wait_for_the_other_broker(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        assert await broker.add_offsets(producer) is ErrorCode.NONE
        for found, told in (
            (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
            (ErrorCode.NONE, ErrorCode.NONE),
        ):
            rows = asyncio.ensure_future(broker.commit_offsets(producer, {(TOPIC, 0): 5}))
            await turns()
            await other.answer(-1, found)
            assert await rows == [told]
        asked = len(other.asked)
        # From now on the transaction is open in the partition of the group's offsets.
        assert await broker.commit_offsets(producer, {(TOPIC, 1): 5}) == [ErrorCode.NONE]
        assert len(other.asked) == asked

    elsewhere(tmp_path, test)


def test_offsets_are_asked_for_again_after_a_marker(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker, other: Elsewhere, producer: Producer) -> None:
        assert await broker.add_offsets(producer) is ErrorCode.NONE
        rows = asyncio.ensure_future(broker.commit_offsets(producer, {(TOPIC, 0): 5}))
        await turns()
        assert await broker.end(producer, committed=False) is ErrorCode.NONE
        await turns(20)
        await other.answer(0)
        await other.answer(1, ErrorCode.TRANSACTION_ABORTABLE)
        assert await rows == [ErrorCode.TRANSACTION_ABORTABLE]

    elsewhere(tmp_path, test)
