"""The limit on the memory of transactional ids, and refusals above it."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.metadata.topic_partition import TopicPartition
from tests.coordinator.transaction.machine import TxnMachine

MIB = 1024 * 1024
FULL = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # upon which clients try again


def test_flood_of_transactional_ids_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    made = TxnMachine(state_max_bytes=MIB)
    made.init("first")
    errors = [made.error(made.init(f"{'x' * 30_000}{number}")) for number in range(100)]
    assert set(errors) == {ErrorCode.NONE, FULL} and errors[-1] is FULL
    assert made.shard.memory.used <= MIB
    assert caplog.text.count("kwire.transaction.state.max.bytes") == 1
    assert made.error(made.init("first")) is ErrorCode.NONE
    assert len(made.shard.transactions) == 1 + errors.count(ErrorCode.NONE)


def test_partitions_of_transactions_are_bounded() -> None:
    made = TxnMachine(state_max_bytes=MIB)
    made.init()
    producer = made.producer()
    errors = [
        made.error(made.add(producer, *(TopicPartition("t", 100 * k + n) for n in range(100))))
        for k in range(100)
    ]
    assert set(errors) == {ErrorCode.NONE, FULL} and errors[-1] is FULL
    assert made.shard.memory.used <= MIB
    again = [TopicPartition("t", n) for n in range(100)]
    assert made.error(made.add(producer, *again)) is ErrorCode.NONE
    made.end(producer, True)
    assert made.shard.memory.used < 10_000


def test_ids_in_the_log_are_loaded_and_expire_whatever_they_need() -> None:
    made = TxnMachine(state_max_bytes=MIB)
    for number in range(500):
        made.init(f"id{number}")
    made.config = made.shard.config = type(made.config)(state_max_bytes=1)
    made.restart()
    assert len(made.shard.transactions) == 500
    made.advance(made.config.transactional_id_expiration_ms + 7_200_000)
    assert (len(made.shard.transactions), made.shard.memory.used) == (0, 0)


def test_ids_of_one_client_leave_room_for_others_also_after_a_restart() -> None:
    made = TxnMachine(state_max_bytes=MIB)
    made.account = "User:mallory"
    for number in range(1_000):
        made.init(f"m{number}")
    assert made.error(made.init("more")) is FULL
    assert made.shard.memory.used < MIB * 7 // 8
    made.restart()
    made.account = "User:alice"
    assert made.error(made.init("honest")) is ErrorCode.NONE
    producer = made.producer("m0")
    assert made.shard.transactions["m0"].account == "User:alice"
    made.account = "User:mallory"
    made.init("m0")
    assert made.shard.transactions["m0"].account == "User:alice"
    topics = (TopicPartition("t", n) for n in range(20))
    assert made.error(made.add(producer, *topics, name="m0")) is not FULL
