"""InitProducerId for idempotent producers, and the blocks from which ids are taken.

Transactional producers are in test_transactions.py.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from server.coordination.store import ConnectionLost
from server.coordinator.transaction.producer_ids import ProducerIds
from server.handlers.producers import describe_producers, init_producer_id
from tests.support.replicas import Replicas, turns
from tests.support.services import with_rooms


class Block(NamedTuple):
    first: int
    last: int


class Store:
    """Reserves blocks of ten ids, unless it is unavailable."""

    def __init__(self) -> None:
        self.reserved = 0
        self.broken = False

    async def allocate(self) -> Block:
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionLost("/latest_producer_id_block")
        self.reserved += 1
        return Block(10 * self.reserved, 10 * self.reserved + 9)


@pytest.fixture
def store(room: Replicas) -> Store:
    store = Store()
    room.services = with_rooms(room.services, producer_ids=ProducerIds(store.allocate))
    return store


def ask(room: Replicas, version: int = 4, **options: int) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, **options)
    answer = asyncio.run(room.ask(init_producer_id, request, version))
    encode(answer, version)
    assert isinstance(answer, InitProducerIdResponse)
    return answer


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_an_id_with_epoch_0(room: Replicas, store: Store, version: int) -> None:
    answer = ask(room, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 10, 0)


def test_present_id_of_an_idempotent_producer_does_not_matter(room: Replicas, store: Store) -> None:
    """Source: TransactionCoordinator.handleInitProducerId."""
    answer = ask(room, producer_id=5, producer_epoch=3)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 10, 0)


@pytest.mark.parametrize("options", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_id_without_epoch_or_the_reverse_is_refused(
    room: Replicas, store: Store, options: dict[str, int]
) -> None:
    answer = ask(room, **options)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert store.reserved == 0


def test_no_id_is_given_twice_and_blocks_are_reserved_when_needed(
    room: Replicas, store: Store
) -> None:
    given = [ask(room).producer_id for _ in range(25)]
    assert given == list(range(10, 35))
    assert store.reserved == 3


def test_many_at_once_share_the_next_block(store: Store) -> None:
    ids = ProducerIds(store.allocate)

    async def run() -> list[int]:
        return await asyncio.gather(*(ids.next() for _ in range(15)))

    assert sorted(asyncio.run(run())) == list(range(10, 25))
    assert store.reserved == 2


def test_id_at_hand_is_given_without_waiting(store: Store) -> None:
    ids = ProducerIds(store.allocate)

    async def run() -> None:
        assert ids.next_now() is None
        assert await ids.next() == 10
        assert ids.next_now() == 11
        pending = asyncio.ensure_future(ids.next())
        await turns()
        assert await pending == 12

    asyncio.run(run())


def test_producer_asks_again_while_no_block_can_be_reserved(
    room: Replicas, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """As with Apache Kafka while the next block is being requested."""
    store.broken = True
    answer = ask(room)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert "cannot reserve producer ids" in caplog.text
    store.broken = False
    assert ask(room).error_code == 0


def test_producers_of_what_is_not_there_are_refused(room: Replicas) -> None:
    """In Apache Kafka 3.9.2, an invalid topic name is reported before everything else."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0]) for name in ("", "a b", "none")]
    )
    answer = room.call(describe_producers, request, 0)
    bad = ErrorCode.INVALID_TOPIC_EXCEPTION
    rows = [topic.partitions[0] for topic in answer.topics]
    assert [row.error_code for row in rows] == [bad, bad, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert rows[0].error_message == "Topic name is invalid: the empty string is not allowed"
