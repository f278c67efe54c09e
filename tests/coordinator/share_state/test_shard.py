"""The share coordinator's machine: cases of Apache Kafka's ShareCoordinatorShardTest, and writes on their way."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.share_state.records import ShareRecord, ShareSnapshot, Update, encode_record
from server.coordinator.share_state.rows import StateBatch
from server.coordinator.share_state.shard import (
    COLD_SNAPSHOTS,
    MAX_BATCHES,
    MAX_UNORDERED,
    MAX_WRITTEN,
    PRUNE,
)
from server.coordinator.share_state.shard import TOO_MANY_BATCHES as TOO_MANY
from tests.coordinator.share_state.machine import KEY, TOPIC, ShareStateMachine
from tests.support.cpu_time import cpu_time

NONE = ErrorCode.NONE
#: No turn of the loop should take longer.
TURN_S = 0.05


def test_initialized_state_is_a_snapshot_without_batches() -> None:
    machine = ShareStateMachine()
    assert machine.initialize(3, 10).error_code == NONE
    assert machine.written() == [
        ShareRecord(KEY, ShareSnapshot(0, 3, 0, 10, 0, machine.now, machine.now))
    ]


def test_unknown_start_offset_has_an_unknown_count() -> None:
    machine = ShareStateMachine()
    machine.initialize(0, -1)
    assert machine.summary().start_offset == -1
    assert machine.summary().delivery_complete_count == -1


def test_repeated_initialization_is_the_next_snapshot() -> None:
    machine = ShareStateMachine()
    machine.initialize(0, 10)
    machine.initialize(1, 20)
    value = machine.written()[-1].value
    assert isinstance(value, ShareSnapshot)
    assert (value.snapshot_epoch, value.state_epoch, value.start_offset) == (1, 1, 20)


def test_write_is_an_update_with_the_leader_epoch_that_read() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.read(leader_epoch=5)
    machine.write((0, 10, 0, 1), leader_epoch=7, complete=4)
    assert [each.value for each in machine.written()[1:]] == [
        Update(0, 5, 0, 0),
        Update(0, 5, 0, 4, (StateBatch(0, 10, 0, 1),)),
    ]


def test_write_without_initialization_is_refused() -> None:
    machine = ShareStateMachine()
    answer = machine.write((0, 10, 0, 1))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "Write operation on uninitialized share partition not allowed."
    assert not machine.log


@pytest.mark.parametrize(
    ("epochs", "error"),
    [
        ({"leader_epoch": 4, "state_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 5, "state_epoch": 1}, ErrorCode.FENCED_STATE_EPOCH),
        ({"leader_epoch": -1, "state_epoch": -1}, NONE),
        ({"leader_epoch": 5, "state_epoch": 2}, NONE),
    ],
)
def test_writes_of_earlier_epochs_are_refused(epochs: dict[str, int], error: ErrorCode) -> None:
    machine = ShareStateMachine()
    machine.initialize(2)
    machine.read(leader_epoch=5)
    assert machine.write((0, 1, 0, 1), **epochs).error_code == error


def test_unknown_partition_is_refused() -> None:
    machine = ShareStateMachine()
    assert machine.initialize(partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.initialize(partition=-1).error_code == ErrorCode.INVALID_REQUEST


def test_read_of_an_earlier_leader_is_refused() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    assert machine.read(leader_epoch=3).error_code == NONE
    assert machine.read(leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert machine.read(leader_epoch=3).error_code == NONE
    assert len(machine.log) == 2  # the second read of the same leader writes nothing


def test_read_before_initialization_is_refused() -> None:
    assert ShareStateMachine().read().error_code == ErrorCode.INVALID_REQUEST


def test_after_so_many_updates_a_snapshot_has_everything() -> None:
    machine = ShareStateMachine(snapshot_update_records_per_snapshot=2)
    machine.initialize()
    for offset in range(0, 30, 10):
        machine.write((offset, offset + 9, 2, 1), complete=offset)
    machine.write((30, 39, 0, 2), start=5, complete=35)
    kinds = [type(each.value) for each in machine.written()]
    assert kinds == [ShareSnapshot, Update, Update, ShareSnapshot, Update]
    value = machine.written()[3].value
    assert isinstance(value, ShareSnapshot)
    assert value.snapshot_epoch == 1
    assert value.state_batches == (StateBatch(0, 29, 2, 1),)
    state = machine.read()
    assert state.start_offset == 5
    assert state.state_batches == (StateBatch(5, 29, 2, 1), StateBatch(30, 39, 0, 2))


def test_summary_of_what_was_never_initialized_is_empty() -> None:
    answer = ShareStateMachine().summary()
    assert (answer.error_code, answer.start_offset, answer.state_epoch) == (NONE, -1, 0)


def test_deleted_state_is_gone() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    assert machine.delete().error_code == NONE
    assert machine.written()[-1] == ShareRecord(KEY, None)
    assert machine.write((0, 1, 0, 1)).error_code == ErrorCode.INVALID_REQUEST
    length = len(machine.log)
    assert machine.delete().error_code == NONE
    assert len(machine.log) == length


def test_restarted_machine_goes_on() -> None:
    machine = ShareStateMachine(snapshot_update_records_per_snapshot=3)
    machine.initialize()
    machine.read(leader_epoch=2)
    for count in range(1, 8):
        machine.write((count, count + 3, 0, count), leader_epoch=2, complete=count)
    before = machine.shard.states
    machine.restart()
    assert machine.shard.states == before
    assert machine.write((0, 1, 0, 1), leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_write_on_its_way_counts_for_the_next_but_answers_wait() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.hold = True
    assert machine.read(leader_epoch=1) is None
    refused = machine.write((0, 1, 0, 1), leader_epoch=0)
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert machine.write((0, 5, 2, 1), leader_epoch=1) is None
    assert machine.read(leader_epoch=1) is None
    machine.commit()
    assert machine.answers[2].error_code == NONE
    machine.commit()
    assert machine.answers[5].state_batches == (StateBatch(0, 5, 2, 1),)
    assert not machine.shard.changes


def test_failed_write_is_forgotten_and_what_follows_is_decided_without_it() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.hold = True
    machine.read(leader_epoch=9)
    machine.write((0, 5, 2, 1), leader_epoch=9)
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.answers[2].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.answers[3].error_code == ErrorCode.NOT_COORDINATOR
    machine.hold = False
    assert machine.read(leader_epoch=0).state_batches == ()


def test_timed_out_write_is_answered_once_and_counts_when_it_is_committed() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.hold = True
    machine.write((0, 5, 2, 1))
    machine.time_out()
    assert machine.answers[2].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.commit()
    machine.hold = False
    assert machine.read().state_batches == (StateBatch(0, 5, 2, 1),)


def test_states_of_deleted_topics_are_removed() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.initialize(partition=1)
    for keys in list(machine.shard.keys_of({TOPIC})):
        machine.apply(machine.shard.remove(keys))
    assert not machine.shard.states
    assert [each.value for each in machine.written()[2:]] == [None, None]


def test_cold_state_is_written_again_while_others_change() -> None:
    machine = ShareStateMachine(cold_partition_snapshot_interval_ms=1_000)
    machine.initialize()
    machine.write((0, 5, 2, 1))
    machine.clock.advance(500)
    machine.initialize(partition=1)
    machine.fire(machine.timers[COLD_SNAPSHOTS, ()])
    value = machine.written()[-1].value
    assert isinstance(value, ShareSnapshot)
    assert (value.snapshot_epoch, value.state_batches) == (1, (StateBatch(0, 5, 2, 1),))
    assert value.write_timestamp == machine.now != value.create_timestamp
    length = len(machine.log)
    machine.fire(machine.timers[COLD_SNAPSHOTS, ()])  # both are old now
    machine.fire(machine.timers[COLD_SNAPSHOTS, ()])  # all were written again: quiet
    assert len(machine.log) == length + 2
    assert (COLD_SNAPSHOTS, ()) in machine.timers


def test_records_before_the_snapshot_are_not_needed() -> None:
    machine = ShareStateMachine(snapshot_update_records_per_snapshot=1)
    machine.initialize()
    machine.write((0, 5, 2, 1))
    machine.write((6, 7, 2, 1))
    machine.write((8, 9, 2, 1))
    needed = [machine.shard.is_needed(each) for each in machine.written()]
    assert needed == [False, False, True, True]
    machine.delete()
    assert not any(machine.shard.is_needed(each) for each in machine.written())


def test_pruning_is_asked_for_from_time_to_time() -> None:
    machine = ShareStateMachine()
    machine.fire(machine.timers[PRUNE, ()])
    assert machine.effects == [PRUNE]
    assert (PRUNE, ()) in machine.timers


# Of clients that may play a broker


def test_state_takes_no_more_batches_than_a_group_can_have() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    some = [(4 * number, 4 * number + 1, 0, 1) for number in range(MAX_BATCHES)]
    assert machine.write(*some[: MAX_WRITTEN + 1]).error_message == TOO_MANY
    for first in range(0, MAX_BATCHES, MAX_WRITTEN):
        assert machine.write(*some[first : first + MAX_WRITTEN]).error_code == NONE
    answer = machine.write((2, 2, 2, 1))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, TOO_MANY)
    # A write that does not increase the size is accepted: the end of the same batches.
    assert machine.write(*((*each[:2], 2, 1) for each in some[:10])).error_code == NONE
    assert machine.write(start=4 * MAX_BATCHES).error_code == NONE
    assert machine.read().state_batches == ()


def test_many_batches_have_to_be_in_order() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    turned = [(2 * number, 2 * number, 0, 1) for number in reversed(range(MAX_UNORDERED + 1))]
    assert machine.write(*turned).error_message == TOO_MANY
    assert machine.write(*turned[1:]).error_code == NONE
    assert len(machine.read().state_batches) == MAX_UNORDERED


def test_largest_state_is_changed_within_a_turn() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    singles = [(2 * number, 2 * number, 0, 1) for number in range(MAX_BATCHES)]
    machine.write(*singles[:MAX_WRITTEN])
    machine.write(*singles[MAX_WRITTEN:])
    asked = [(2 * number, 2 * number, 2, 1) for number in range(MAX_WRITTEN)]
    with cpu_time() as taken:
        assert machine.write(*asked).error_code == NONE
    assert taken.seconds < 2 * TURN_S


def test_snapshot_after_the_last_epoch_begins_anew() -> None:
    machine = ShareStateMachine(snapshot_update_records_per_snapshot=0)
    machine.log.append(encode_record(ShareRecord(KEY, ShareSnapshot(2**31 - 1, 0, 0, 5, 0, 1, 1))))
    machine.restart()
    assert machine.write((5, 6, 2, 1)).error_code == NONE
    value = machine.written()[-1].value
    assert value is not None and value.snapshot_epoch == 0
    assert machine.read().state_batches == (StateBatch(5, 6, 2, 1),)


def test_states_are_the_same_after_a_restart_when_writes_overlap() -> None:
    machine = ShareStateMachine()
    machine.initialize()
    machine.hold = True
    machine.write((0, 9, 0, 1))
    machine.write((3, 4, 2, 1))
    machine.hold = False
    machine.commit()
    machine.commit()
    machine.write((5, 5, 4, 2))
    live = machine.shard.states
    assert machine.reload().states == live


def test_states_take_no_more_memory_than_they_may() -> None:
    machine = ShareStateMachine(states_max_bytes=1000)
    machine.partitions[TOPIC] = 9
    assert [machine.initialize(partition=number).error_code for number in range(3)] == [
        NONE,
        NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    assert machine.initialize(1).error_code == NONE  # again
    assert machine.write((0, 5, 0, 1), (7, 9, 2, 1), state_epoch=1).error_code == NONE
    much = [(2 * number, 2 * number, 0, 1) for number in range(200)]
    full = machine.write(*much, state_epoch=1)
    assert full.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    held = machine.shard.memory.held
    assert held == machine.shard.held_bytes == machine.reload().held_bytes > 1000
    machine.delete()
    assert machine.initialize(partition=2).error_code == NONE
    list(machine.shard.unload(machine.now))
    assert machine.shard.memory.held == 0
