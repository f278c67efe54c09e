"""The transaction coordinator on the runtime: waiting, moving away, coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.records.batch import RecordBatch
from server.coordinator.transaction.config import TransactionConfig
from server.coordinator.transaction.coordinator import DescribedTransaction, TransactionCoordinator
from server.coordinator.transaction.markers import Markers, Outcomes
from server.coordinator.transaction.records import decode_record
from server.coordinator.transaction.shard import TransactionShard
from server.coordinator.transaction.state import TransactionState
from server.coordinator.transaction.tickets import End, EndedTransaction, Initialized, Producer
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.transaction.machine import A0, A1, ID
from tests.support.clock import ManualClock

NONE = ErrorCode.NONE
ASKED = Producer(ID, 60_000)


class Ids:
    """Producer ids that are available, or for which the coordinator has to wait."""

    def __init__(self) -> None:
        self.last = 999
        self.reserved = True

    def next_now(self) -> int | None:
        if not self.reserved:
            return None
        self.last += 1
        return self.last

    async def next(self) -> int:
        self.reserved = True
        await asyncio.sleep(0)
        self.last += 1
        return self.last


class Sender:
    """Markers that are written at the test's request."""

    def __init__(self) -> None:
        self.sent: list[tuple[Markers, Callable[[Outcomes], None]]] = []

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> None:
        self.sent.append((markers, written))

    def write(self) -> Markers:
        markers, written = self.sent.pop(0)
        written([(tp, NONE) for tp in markers.partitions])
        return markers


class Room:
    """A coordinator whose broker leads the only partition of __transaction_state."""

    def __init__(self) -> None:
        self.log, self.clock, self.ids, self.sender = MemoryLog(), ManualClock(), Ids(), Sender()
        self.coordinator = TransactionCoordinator(
            TransactionConfig(state_topic_partitions=1),
            self.log,
            self.clock,
            self.ids,
            self.sender,
        )

    async def lead(self, epoch: int) -> None:
        self.coordinator.lead(0, epoch)
        await self.coordinator.runtime.wait_until_loaded()

    def state(self) -> TransactionState:
        found = self.coordinator.describe(ID)
        assert isinstance(found, DescribedTransaction)
        return found.metadata.state


def run(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.lead(5)
        try:
            await test(room)
        finally:
            room.coordinator.close()

    asyncio.run(main())


def test_markers_carry_the_leader_epoch_and_end_the_transaction() -> None:
    async def test(room: Room) -> None:
        coordinator = room.coordinator
        assert coordinator.init_producer_id(ASKED) == Initialized(NONE, 1000, 0)
        assert coordinator.add_partitions(ID, 1000, 0, frozenset({A0})) is NONE
        assert coordinator.end_transaction(End(ID, 1000, 0, True)) == EndedTransaction(NONE)
        assert room.state() is TransactionState.PREPARE_COMMIT
        assert room.sender.write() == Markers(ID, 1000, 0, 5, True, (A0,))
        assert room.state() is TransactionState.COMPLETE_COMMIT
        stored = RecordBatch(memoryview(room.log.batches[0][-1]))
        assert not stored.is_transactional

    run(test)


def test_producer_waits_for_a_block_of_ids() -> None:
    async def test(room: Room) -> None:
        room.ids.reserved = False
        answer: Any = room.coordinator.init_producer_id(ASKED)
        assert await answer == Initialized(NONE, 1000, 0)

    run(test)


def test_coordinator_that_moves_while_ids_are_reserved_says_so() -> None:
    async def test(room: Room) -> None:
        room.ids.reserved = False
        answer: Any = room.coordinator.init_producer_id(ASKED)
        room.coordinator.resign(0)
        assert await answer == Initialized(ErrorCode.NOT_COORDINATOR)

    run(test)


def test_two_at_once_do_not_both_get_the_new_id() -> None:
    async def test(room: Room) -> None:
        room.ids.reserved = False
        room.log.hold = True
        first: Any = asyncio.ensure_future(room.coordinator.init_producer_id(ASKED))  # type: ignore[arg-type]
        for _ in range(5):
            await asyncio.sleep(0)
        again = room.coordinator.init_producer_id(ASKED)
        assert again == Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
        room.log.settle()
        assert await first == Initialized(NONE, 1000, 0)

    run(test)


def test_request_waits_for_its_write() -> None:
    async def test(room: Room) -> None:
        coordinator = room.coordinator
        coordinator.init_producer_id(ASKED)
        room.log.hold = True
        added: Any = coordinator.add_partitions(ID, 1000, 0, frozenset({A0}))
        assert coordinator.verify(ID, 1000, 0, A0) is ErrorCode.TRANSACTION_ABORTABLE
        room.log.settle()
        assert await added is NONE
        assert coordinator.verify(ID, 1000, 0, A0) is NONE

    run(test)


def test_coordinator_that_moves_refuses_what_waits() -> None:
    async def test(room: Room) -> None:
        coordinator = room.coordinator
        coordinator.init_producer_id(ASKED)
        room.log.hold = True
        added: Any = coordinator.add_partitions(ID, 1000, 0, frozenset({A0}))
        coordinator.resign(0)
        assert await added is ErrorCode.NOT_COORDINATOR
        assert coordinator.describe(ID) is ErrorCode.NOT_COORDINATOR

    run(test)


def test_next_coordinator_sends_the_markers_and_does_not_hear_of_older_ones() -> None:
    async def test(room: Room) -> None:
        coordinator = room.coordinator
        coordinator.init_producer_id(ASKED)
        coordinator.add_partitions(ID, 1000, 0, frozenset({A0, A1}))
        coordinator.end_transaction(End(ID, 1000, 0, False))
        coordinator.resign(0)
        await room.lead(6)
        old, new = room.sender.sent
        assert (old[0].coordinator_epoch, new[0].coordinator_epoch) == (5, 6)
        assert new[0].partitions == (A0, A1)
        room.sender.write()  # outcomes reported to the old one
        assert room.state() is TransactionState.PREPARE_ABORT
        room.sender.write()
        assert room.state() is TransactionState.COMPLETE_ABORT

    run(test)


def test_only_the_latest_record_of_each_id_is_decoded_when_the_log_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log holds each state that an id ever had, until it is compacted."""
    decoded: list[bytes | memoryview] = []

    def decode(key: bytes | memoryview, value: bytes | memoryview | None) -> Any:
        decoded.append(key)
        return decode_record(key, value)

    async def main() -> None:
        room = Room()
        await room.lead(1)
        for _ in range(5):
            answered = room.coordinator.init_producer_id(ASKED)
            assert isinstance(answered, Initialized)
        room.coordinator.resign(0)
        monkeypatch.setattr(TransactionShard, "decode", staticmethod(decode))
        await room.lead(2)
        assert len(decoded) == 1
        found = room.coordinator.describe(ID)
        assert isinstance(found, DescribedTransaction)
        assert found.metadata.producer_epoch == answered.producer_epoch == 4

    asyncio.run(main())
