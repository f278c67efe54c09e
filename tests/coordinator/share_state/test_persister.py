"""The persister: the broker and the order of requests, repeated attempts; pruning of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.read_share_group_state import ReadShareGroupStateRequest
from kwire.messages.write_share_group_state import WriteShareGroupStateRequest
from server.coordinator.share_state import persister as share_persister
from server.coordinator.share_state.config import ShareCoordinatorConfig
from server.coordinator.share_state.coordinator import ShareCoordinator, coordinator_key, parsed_key
from server.coordinator.share_state.operations import (
    INITIALIZE_STATE,
    READ_STATE,
    READ_SUMMARY,
    WRITE_STATE,
)
from server.coordinator.share_state.persister import StatePersister
from server.coordinator.share_state.rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StateRead,
    WriteState,
)
from server.metadata.internal_topics import SHARE_GROUP_STATE_TOPIC
from server.turns import Turns, exhaust
from tests.coordinator.memory_log import MemoryLog
from tests.support.clock import ManualClock

TOPIC = bytes(15) + b"\x01"
GROUP = "g"


class Image:
    """The part of an image that is needed: the leader of the one partition, and live brokers 1 and 2."""

    def __init__(self) -> None:
        self.leader = 1
        self.topics: dict[str, Any] = {SHARE_GROUP_STATE_TOPIC: None}
        self.topics_by_id = {TOPIC: SimpleNamespace(partitions={0: None, 1: None})}
        self.brokers = {1: None, 2: None}

    def partition(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(leader=self.leader)


class World:
    """Broker 1 with its coordinator, which asks broker 2 by `requests`."""

    def __init__(self) -> None:
        self.image: Any = Image()
        self.log = MemoryLog()
        self.clock = ManualClock()
        self.deleted: list[tuple[int, int]] = []
        self.coordinator = ShareCoordinator(
            ShareCoordinatorConfig(
                state_topic_partitions=1, snapshot_update_records_per_snapshot=1
            ),
            self.log,
            self.clock,
            lambda: self.image,
            lambda *found: self.deleted.append(found),
            Turns(lambda: 0),
        )
        self.requests: list[tuple[int, Any, int]] = []
        self.responses: list[Any] = []
        self.made = 0
        self.persister = StatePersister(
            1, self.coordinator, lambda: self.image, self.make_topic, self.send
        )

    async def make_topic(self) -> None:
        self.made += 1
        self.image.topics[SHARE_GROUP_STATE_TOPIC] = None

    async def send(self, broker_id: int, request: Any, version: int) -> Any:
        self.requests.append((broker_id, request, version))
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    async def led(self) -> None:
        self.coordinator.lead(0, 1)
        await self.coordinator.runtime.wait_until_loaded()

    async def initialize(self, partition: int = 0) -> StateOutcome:
        rows = [InitializeState(TOPIC, partition, 0, 0)]
        return (await self.persister.ask(INITIALIZE_STATE, GROUP, rows))[0]

    def write(self, *offsets: int, leader_epoch: int = 0) -> asyncio.Future[list[StateOutcome]]:
        batches = tuple(StateBatch(each, each, 2, 1) for each in offsets)
        row = WriteState(TOPIC, 0, 0, leader_epoch, offsets[0], batches, 1)
        return self.persister.ask(WRITE_STATE, GROUP, [row])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_persister, "FIRST_BACKOFF_S", 0.0)
    monkeypatch.setattr(share_persister, "MAX_BACKOFF_S", 0.0)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_own_coordinator_answers_at_once(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        assert (await world.initialize()).error_code == ErrorCode.NONE
        assert world.write(5).done()
        (state,) = await world.persister.ask(READ_STATE, GROUP, [ReadState(TOPIC, 0, 3)])
        assert state.state_batches == (StateBatch(5, 5, 2, 1),)
        (summary,) = await world.persister.ask(READ_SUMMARY, GROUP, [ReadState(TOPIC, 0, -1)])
        assert (summary.leader_epoch, summary.delivery_complete_count) == (3, 1)
        assert not world.requests

    loop.run(run())


def test_rows_keep_their_order_and_have_their_own_errors(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        rows = [InitializeState(TOPIC, each, 0, 0) for each in (1, 7, 0)]
        answers = await world.persister.ask(INITIALIZE_STATE, GROUP, rows)
        assert [(each.partition, each.error_code) for each in answers] == [
            (1, ErrorCode.NONE),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (0, ErrorCode.NONE),
        ]
        assert await world.persister.ask(WRITE_STATE, GROUP, []) == []

    loop.run(run())


def test_later_write_waits_for_the_one_before(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        await world.initialize()
        world.log.hold = True
        first, second = world.write(5), world.write(6)
        assert len(world.log.held) == 1
        world.log.settle()
        assert (await first)[0].error_code == ErrorCode.NONE
        assert not second.done()
        world.log.settle()
        assert (await second)[0].error_code == ErrorCode.NONE

    loop.run(run())


def test_mistake_is_answered_and_what_waits_behind_it_goes_on(
    loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        await world.initialize()

        def fails(*_: Any) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(world.coordinator.runtime, "run", fails)
            (outcome,) = await world.write(5)
        assert outcome.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        (outcome,) = await world.write(6)
        assert outcome.error_code == ErrorCode.NONE

    loop.run(run())


def test_hundreds_of_writes_that_wait_for_a_load_are_answered(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        await world.initialize()
        world.coordinator.resign(0)
        writes = [world.write(offset) for offset in range(1000)]
        world.coordinator.lead(0, 2)
        answers = [(await each)[0] for each in writes]
        assert answers == [StateOutcome(TOPIC, 0)] * 1000
        assert not world.persister._queues

    loop.run(run())


def test_coordinator_that_loads_is_asked_again(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        answer = asyncio.ensure_future(world.initialize())
        await asyncio.sleep(0)
        await world.led()
        assert (await answer).error_code == ErrorCode.NONE

    loop.run(run())


def test_nobody_who_coordinates_is_told_after_some_tries(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        world.image.leader = -1
        assert (await world.initialize()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    loop.run(run())


def test_missing_topic_is_made(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        world.image.topics.clear()
        await world.led()
        assert (await world.initialize()).error_code == ErrorCode.NONE
        assert world.made == 1

    loop.run(run())


def test_other_broker_is_asked_by_requests_and_again_after_a_failure(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        world.image.leader = 2
        done = [StateOutcome(TOPIC, 0)]
        moved = [StateOutcome(TOPIC, 0, ErrorCode.NOT_COORDINATOR)]
        world.responses = [
            OSError("gone"),
            exhaust(WRITE_STATE.response(moved)),
            exhaust(WRITE_STATE.response(done)),
        ]
        (answer,) = await world.write(5, leader_epoch=4)
        assert answer == StateOutcome(TOPIC, 0)
        assert len(world.requests) == 3
        broker_id, request, version = world.requests[-1]
        assert (broker_id, version) == (2, 1)
        assert isinstance(request, WriteShareGroupStateRequest)
        (row,) = request.topics[0].partitions
        assert (row.leader_epoch, row.start_offset, row.delivery_complete_count) == (4, 5, 1)

    loop.run(run())


def test_rows_for_one_broker_and_group_are_one_request(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        world.image.leader = 2
        state = StateRead(
            TOPIC, 0, state_epoch=1, start_offset=3, state_batches=(StateBatch(3, 4, 0, 2),)
        )
        fenced = StateRead(TOPIC, 1, ErrorCode.FENCED_LEADER_EPOCH, "older")
        world.responses = [exhaust(READ_STATE.response([state, fenced]))]
        rows = [ReadState(TOPIC, 0, 1), ReadState(TOPIC, 1, 1)]
        first, second = await world.persister.ask(READ_STATE, GROUP, rows)
        assert first == state
        assert second.error_code == ErrorCode.FENCED_LEADER_EPOCH
        ((_, request, _),) = world.requests
        assert isinstance(request, ReadShareGroupStateRequest)
        assert [each.partition for each in request.topics[0].partitions] == [0, 1]

    loop.run(run())


def test_records_before_the_oldest_that_is_needed_are_deleted(loop: asyncio.Runner) -> None:
    async def run() -> None:
        world = World()
        await world.led()
        await world.initialize(0)
        await world.initialize(1)
        world.coordinator.perform(0, 1, "prune")
        assert world.deleted == []
        for number in range(5):
            await world.write(number)
        world.coordinator.perform(0, 1, "prune")
        assert world.deleted == [(0, 1)]  # the first of partition 0; then the state of 1
        world.image.topics_by_id.clear()
        world.coordinator.topics_deleted({TOPIC})
        assert not world.coordinator.runtime.active()[0][1].states
        world.coordinator.perform(0, 1, "prune")
        assert len(world.deleted) == 2

    loop.run(run())


def test_keys_are_read_as_apache_kafka_writes_them() -> None:
    row = InitializeState(TOPIC, 3, 0)
    key = coordinator_key("a:b", row)
    assert key == "a:b:AAAAAAAAAAAAAAAAAAAAAQ:3"
    assert parsed_key(key) == key
    for wrong in ("", "g", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x"):
        assert parsed_key(wrong) is None
