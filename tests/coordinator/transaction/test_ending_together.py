"""Many transactions that end at one moment: no turn of the loop is long, and clients take turns.

The clock moves only when work is done, by what the work takes, so that turns are measured by what happens in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.cause import Address, caused_by
from server.coordinator.transaction.config import TransactionConfig
from server.coordinator.transaction.coordinator import TransactionCoordinator
from server.coordinator.transaction.ends import STEPS_IN_TURN, TransactionEnds
from server.coordinator.transaction.markers import Markers, Outcomes
from server.coordinator.transaction.state import TransactionState
from server.coordinator.transaction.tickets import End, Initialized, Producer
from server.metadata.topic_partition import TopicPartition
from server.turns import Steps, Turns
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.transaction.test_coordinator import Ids

NONE = ErrorCode.NONE
OPERATION_US = 50
MARKER_US = 100
APPEND_US = 100
TIMEOUT_MS = 60_000
#: The slice of long work, what may be added to it, and the longest single step.
LONGEST_TURN_US = 12_000

NUMBER, PARTITIONS = 200, 32
TPS = frozenset(TopicPartition("t", number) for number in range(PARTITIONS))


class WorkClock:
    """A clock that is moved by work: each operation reads the time once."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_ms(self) -> int:
        self.us += OPERATION_US
        return self.us // 1000

    def monotonic_ms(self) -> int:
        return self.us // 1000

    def monotonic_us(self) -> int:
        return self.us


class Log(MemoryLog):
    """A log whose appends take time, also for each partition in the state."""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__()
        self.clock = clock

    def append(self, partition: int, batch: bytes, now_ms: int) -> Awaitable[ErrorCode] | ErrorCode:
        self.clock.us += APPEND_US + len(batch) // 4
        return super().append(partition, batch, now_ms)


class Sender:
    """Markers that take time."""

    def __init__(self, clock: WorkClock) -> None:
        self.clock = clock
        self.written: list[tuple[str, TopicPartition]] = []

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
        for tp in markers.partitions:
            self.clock.us += MARKER_US
            self.written.append((markers.transactional_id, tp))
            yield
        written([(tp, NONE) for tp in markers.partitions])


class Room:
    """A coordinator with many open transactions."""

    def __init__(self) -> None:
        self.clock = WorkClock()
        self.log = Log(self.clock)
        self.sender = Sender(self.clock)
        self.names = [f"id-{number}" for number in range(NUMBER)]
        self.coordinator = self.made()

    def made(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionConfig(state_topic_partitions=1),
            self.log,
            self.clock,
            Ids(),
            self.sender,
            Turns(self.clock.monotonic_us),
        )

    async def lead(self) -> None:
        self.coordinator.lead(0, 5)
        await self.coordinator.runtime.wait_until_loaded()

    def open(self, name: str, tps: frozenset[TopicPartition], client: str) -> End:
        with caused_by(Address(client)):
            given = self.coordinator.init_producer_id(Producer(name, TIMEOUT_MS))
            assert isinstance(given, Initialized) and given.error is NONE
            added = self.coordinator.add_partitions(
                name, given.producer_id, given.producer_epoch, tps
            )
        assert added is NONE
        return End(name, given.producer_id, given.producer_epoch, True)

    def end(self, ended: End, client: str = "10.0.0.1") -> Any:
        with caused_by(Address(client)):
            return self.coordinator.end_transaction(ended)

    def states(self) -> set[TransactionState]:
        found = [self.coordinator.describe(name) for name in self.names]
        return {each.metadata.state for each in found if not isinstance(each, ErrorCode)}

    async def longest_turn_us(self) -> int:
        """Let the loop run until all transactions have ended; returns the longest turn."""
        longest = 0
        for _ in range(20_000):
            before = self.clock.us
            await asyncio.sleep(0)
            longest = max(longest, self.clock.us - before)
            if all(state.is_complete for state in self.states() or (TransactionState.EMPTY,)):
                return longest
        raise AssertionError(f"not all have ended: {self.states()}")


def run(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.lead()
        try:
            await test(room)
        finally:
            room.coordinator.close()

    asyncio.run(main())


def test_transactions_that_time_out_together_are_aborted_in_short_turns() -> None:
    async def test(room: Room) -> None:
        for name in room.names:
            room.open(name, TPS, "10.0.0.1")
        room.clock.us += 2 * TIMEOUT_MS * 1000
        before = room.clock.us
        room.coordinator.runtime.fire_timers()
        assert room.clock.us - before <= LONGEST_TURN_US
        assert await room.longest_turn_us() <= LONGEST_TURN_US
        assert room.states() == {TransactionState.COMPLETE_ABORT}
        assert len(room.sender.written) == NUMBER * PARTITIONS

    run(test)


def test_transactions_that_are_ended_together_get_their_markers_in_short_turns() -> None:
    async def test(room: Room) -> None:
        ends = [room.open(name, TPS, "10.0.0.1") for name in room.names]
        for end in ends:
            before = room.clock.us
            room.end(end)
            assert room.clock.us - before <= LONGEST_TURN_US
        assert await room.longest_turn_us() <= LONGEST_TURN_US
        assert room.states() == {TransactionState.COMPLETE_COMMIT}
        assert len(room.sender.written) == NUMBER * PARTITIONS

    run(test)


def test_outcomes_that_followers_commit_together_are_continued_in_short_turns() -> None:
    async def test(room: Room) -> None:
        ends = [room.open(name, TPS, "10.0.0.1") for name in room.names]
        room.log.hold = True
        answers: list[Any] = [room.end(end) for end in ends]
        await asyncio.sleep(0)
        room.log.hold = False
        for _, _, committed in room.log.held:  # one fetch of a follower
            committed.set_result(NONE)
        assert await room.longest_turn_us() <= LONGEST_TURN_US
        assert {(await answer).error for answer in answers} == {NONE}
        assert len(room.sender.written) == NUMBER * PARTITIONS

    run(test)


def test_coordinator_that_comes_back_goes_on_in_short_turns() -> None:
    async def test(room: Room) -> None:
        ends = [room.open(name, TPS, "10.0.0.1") for name in room.names]
        room.coordinator.marker_sender = Silent()
        for end in ends:
            room.end(end)
        assert room.states() == {TransactionState.PREPARE_COMMIT}
        room.coordinator = room.made()
        room.coordinator.lead(0, 6)
        assert await room.longest_turn_us() <= LONGEST_TURN_US
        assert room.states() == {TransactionState.COMPLETE_COMMIT}
        assert len(room.sender.written) == NUMBER * PARTITIONS

    run(test)


class Silent:
    """Markers that are never written."""

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
        yield


@pytest.mark.parametrize("client", ["10.0.0.1", "10.0.0.2"])
def test_small_transaction_ends_soon_beside_many_large_ones(client: str) -> None:
    """At once for another client; for the same one, in the first round of its transactions."""

    async def test(room: Room) -> None:
        ends = [room.open(name, TPS, "10.0.0.1") for name in room.names]
        honest = room.open("honest", frozenset({TopicPartition("t", 0)}), client)
        for end in ends:
            room.end(end)
        begun = len(room.sender.written)
        room.end(honest, client)
        while ("honest", TopicPartition("t", 0)) not in room.sender.written:
            await asyncio.sleep(0)
        written = room.sender.written.index(("honest", TopicPartition("t", 0))) - begun
        assert written <= (2 if client == "10.0.0.2" else NUMBER) * STEPS_IN_TURN
        await room.longest_turn_us()

    run(test)


def test_work_that_fails_keeps_no_other_transaction_open() -> None:
    done = []

    def fails() -> None:
        raise ZeroDivisionError("a bug")

    def marks(fail: bool) -> Steps[None]:
        yield
        if fail:
            fails()
        done.append("sent")

    ends = TransactionEnds(Turns(WorkClock().monotonic_us))

    async def test() -> None:
        ends.send(None, marks(True))
        ends.tell(None, fails)
        ends.tell(None, lambda: done.append("told"))
        ends.send(None, marks(False))
        await asyncio.sleep(0)

    asyncio.run(test())
    assert done == ["told", "sent"]
