"""What requests of a few bytes make the broker write is paced, for each client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from server.cause import Address, caused_by
from server.coordinator.common.write_pace import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    SMALL_BYTES,
    WritePace,
)
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.coordinator import GroupCoordinator
from server.coordinator.group.modern.context import GroupClient
from server.coordinator.group.state import GroupState
from server.metadata.image import MetadataImage
from server.metadata.topic_partition import TopicPartition
from server.net.connection_info import ConnectionInfo
from server.turns import Turns
from tests.coordinator.consumer_group.group_machine import ConsumerMachine, topic
from tests.coordinator.machine import GroupMachine
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.share_group.group_machine import ShareMachine
from tests.coordinator.transaction.machine import TxnMachine
from tests.support.clock import ManualClock

BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GREEDY, HONEST = Address("10.0.0.1"), Address("10.0.0.2")
EXPRESSION: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": ".*"}


def used_up(pace: WritePace, now_ms: int, client: str = GREEDY.client_host) -> None:
    pace.wrote(client, BURST_BYTES + SMALL_BYTES, now_ms)
    assert not pace.may_write(client, now_ms)


# The account


def test_a_client_may_have_a_burst_written_and_then_so_much_in_each_second() -> None:
    pace = WritePace()
    for _ in range(BURST_BYTES // 65_536):
        assert pace.may_write("greedy", 0)
        pace.wrote("greedy", 65_536 + SMALL_BYTES, 0)
    assert not pace.may_write("greedy", 0)
    assert pace.may_write("honest", 0)
    written = 0
    for now_ms in range(0, 10_000, 10):
        if pace.may_write("greedy", now_ms):
            pace.wrote("greedy", 65_536 + SMALL_BYTES, now_ms)
            written += 65_536
    assert written == pytest.approx(10 * BYTES_PER_SECOND, rel=0.05)


def test_small_writes_and_those_of_the_broker_itself_do_not_count() -> None:
    pace = WritePace()
    pace.wrote(None, 2 * BURST_BYTES, 0)
    for _ in range(3 * BURST_BYTES // SMALL_BYTES):
        pace.wrote("honest", SMALL_BYTES, 0)
    assert pace.may_write(None, 0) and pace.may_write("honest", 0)
    assert not pace._settled_ms


def test_clients_whose_writes_no_longer_count_are_forgotten() -> None:
    pace = WritePace()
    for number in range(5_000):
        pace.wrote(number, BYTES_PER_SECOND, number * 1_000)
    assert len(pace._settled_ms) < 1_100


def test_a_clock_that_is_set_back_does_not_hold_up_a_client() -> None:
    pace = WritePace()
    day_ms = 86_400_000
    used_up(pace, day_ms)
    assert pace.may_write(GREEDY.client_host, 0)


# Consumer groups and share groups


def with_topics(number: int = 2_000, **config: Any) -> ConsumerMachine:
    machine = ConsumerMachine(**config)
    machine.add_topics(*(topic(f"topic-{each}", 1) for each in range(number)))
    return machine


def test_members_that_come_and_go_with_an_expression_are_told_to_retry_but_may_leave() -> None:
    machine = with_topics()
    pace = machine.shard.memory.pace
    with caused_by(GREEDY):
        assert machine.beat("m", 0, **EXPRESSION).error_code == 0
        machine.beat("m", 1)
        # The names, the target, and what the member has.
        assert (
            pace.counted_ms(GREEDY.client_host, machine.now) > 2_000 * 50 * 1000 / BYTES_PER_SECOND
        )
        used_up(pace, machine.now)
        log = len(machine.log)
        epoch = machine.group.members["m"].member_epoch
        assert machine.beat("m", epoch).error_code == 0, "it only stays"
        assert len(machine.log) == log
        assert machine.beat("m", -1).error_code == 0
        assert machine.beat("m", 0, **EXPRESSION).error_code == BUSY
        assert machine.beat("m", 0, group_id="other").error_code == BUSY
    with caused_by(HONEST):
        assert machine.beat("honest", 0, **EXPRESSION).error_code == 0
    machine.advance(1_000)
    with caused_by(GREEDY):
        assert machine.beat("m", 0, **EXPRESSION).error_code == 0


def test_a_member_whose_subscription_changes_again_and_again_is_told_to_retry() -> None:
    machine = ConsumerMachine()
    machine.add_topics(topic("wide", 4_000))
    with caused_by(GREEDY):
        epoch = machine.beat("m", 0, subscribed_topic_names=["wide"]).member_epoch
        used_up(machine.shard.memory.pace, machine.now)
        assert machine.beat("m", epoch, subscribed_topic_names=["foo"]).error_code == BUSY
        assert machine.group.members["m"].subscribed_topic_names == {"wide"}


def test_a_static_member_that_returns_to_a_consumer_group_is_told_to_retry() -> None:
    machine = ConsumerMachine()
    machine.add_topics(topic("wide", 4_000))
    with caused_by(GREEDY):
        machine.beat("m1", 0, instance_id="i", subscribed_topic_names=["wide"])
        machine.beat("m1", -2, instance_id="i")
        used_up(machine.shard.memory.pace, machine.now)
        again = machine.beat("m2", 0, instance_id="i", subscribed_topic_names=["wide"])
        assert again.error_code == BUSY
    assert set(machine.group.members) == {"m1"}


def test_members_of_share_groups_are_told_to_retry() -> None:
    machine = ShareMachine()
    with caused_by(GREEDY):
        assert machine.beat("m", 0).error_code == 0
        used_up(machine.shard.memory.pace, machine.now)
        assert machine.beat("n", 0).error_code == BUSY
        assert machine.beat("m", -1).error_code == 0


def test_matches_that_are_the_same_as_before_are_not_written_again() -> None:
    machine = with_topics(consumer_regex_refresh_interval_ms=20_000)
    epoch = machine.beat("m", 0, **EXPRESSION).member_epoch
    epoch = machine.beat("m", epoch).member_epoch
    log = len(machine.log)
    first = machine.group.resolved[".*"]
    for _ in range(5):
        machine.advance(15_000)
        machine.beat("m", epoch)
    assert len(machine.log) == log
    assert machine.group.resolved[".*"] is first
    # Matched twice, after 30 s and 60 s: not with each heartbeat after the first 20 s.
    assert machine.group.resolved_ms == machine.now - 15_000
    machine.add_topics(topic("later", 1))
    machine.advance(15_000)
    machine.beat("m", epoch)
    assert "later" in machine.group.resolved[".*"].topics
    assert machine.reload().groups["group"].resolved == machine.group.resolved  # type: ignore[attr-defined]


# Work of the coordinator


def heartbeat(coordinator: GroupCoordinator, group: str, epoch: int, client: ConnectionInfo) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        topic_partitions=[],
        **EXPRESSION,
    )
    with caused_by(client):
        return coordinator.consumer_group_heartbeat(
            request, GroupClient("client", client.client_host, 1, lambda name: True)
        )


@pytest.mark.parametrize("leave", [True, False])
def test_work_for_groups_whose_members_have_left_or_whose_client_wrote_much_is_not_begun(
    leave: bool,
) -> None:
    async def test() -> tuple[int, int, int]:
        image = MetadataImage().with_topics([topic(f"topic-{each}", 1) for each in range(500)])
        log = MemoryLog()
        turns = Turns(lambda: 0, slice_steps=200)
        coordinator = GroupCoordinator(
            GroupConfig(offsets_topic_partitions=1, consumer_assignment_interval_ms=0),
            log,
            ManualClock(),
            turns=turns,
            metadata=lambda: image,
        )
        coordinator.lead(0, 1)
        await coordinator.runtime.wait_until_loaded()
        client = ConnectionInfo("1")
        for number in range(20):
            assert heartbeat(coordinator, f"g{number}", 0, client).error_code == 0
        ((_, shard),) = coordinator.runtime.active()
        if leave:
            for number in range(20):
                heartbeat(coordinator, f"g{number}", -1, client)
        else:
            used_up(coordinator.memory.pace, coordinator.runtime.now_ms(), client.account)
        written = sum(map(len, log.batches[0]))
        while turns.waiting:
            await asyncio.sleep(0)
        groups: list[Any] = list(shard.groups.values())
        resolving = sum(group.is_resolving for group in groups)
        resolved = sum(bool(group.resolved) for group in groups)
        return sum(map(len, log.batches[0])) - written, resolving, resolved

    written, resolving, resolved = asyncio.run(test())
    assert resolving == 0, "a later heartbeat may begin it again"
    # The two that have begun before go on.
    assert resolved <= 2 and written < 3 * 500 * 30


# Classic groups


def test_a_returning_static_member_has_its_group_written_only_at_the_pace_of_its_client() -> None:
    machine = GroupMachine()
    wide = [("range", b"m" * 50_000)]
    machine.stable_static("a", "b", protocols=wide)
    with caused_by(GREEDY):
        assert machine.answers[machine.join(instance="b", protocols=wide)].error_code == 0
        pace = machine.shard.memory.pace
        assert pace.counted_ms(GREEDY.client_host, machine.now) > 90_000 * 1000 / BYTES_PER_SECOND
        used_up(pace, machine.now)
        answer = machine.answers[machine.join(instance="b", protocols=wide)]
        assert answer.error_code == BUSY and machine.state is GroupState.STABLE
    with caused_by(HONEST):
        assert machine.answers[machine.join(instance="b", protocols=wide)].error_code == 0


# Transactions


def test_a_transaction_with_many_partitions_gets_more_at_the_pace_of_its_client() -> None:
    machine = TxnMachine()
    machine.account = GREEDY.client_host
    large, small = machine.producer("large"), machine.producer("small")
    many = [TopicPartition("wide", number) for number in range(5_000)]
    assert machine.error(machine.add(large, *many, name="large")) is ErrorCode.NONE
    pace = machine.shard.memory.pace
    assert pace.counted_ms(GREEDY.client_host, machine.now) > 0
    used_up(pace, machine.now)
    more = TopicPartition("wide", 5_000)
    assert machine.error(machine.add(large, more, name="large")) is BUSY
    assert machine.error(machine.add(large, many[0], name="large")) is ErrorCode.NONE
    assert machine.error(machine.add(small, more, name="small")) is ErrorCode.NONE
    machine.advance(1_000)
    assert machine.error(machine.add(large, more, name="large")) is ErrorCode.NONE
    assert machine.error(machine.end(large, True, name="large")) is ErrorCode.NONE
