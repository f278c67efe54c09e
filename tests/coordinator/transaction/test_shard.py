"""The transaction coordinator's machine, request by request; cases of TransactionCoordinatorTest."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.coordinator.common.result import Timer
from server.coordinator.common.transition import IllegalTransition
from server.coordinator.transaction import shard
from server.coordinator.transaction.shard import MARKERS_DUE
from server.coordinator.transaction.state import TransactionState
from server.coordinator.transaction.tickets import Initialized
from tests.coordinator.transaction.machine import A0, A1, B0, ID, TIMEOUT_MS, TxnMachine

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
DAY_MS = 86_400_000
LAST = 32766


@pytest.fixture
def machine() -> TxnMachine:
    return TxnMachine()


# InitProducerId


def test_new_id_begins_with_epoch_zero(machine: TxnMachine) -> None:
    assert machine.producer() == (1000, 0)
    assert machine.state is TransactionState.EMPTY


def test_same_id_gets_the_next_epoch_of_the_same_producer_id(machine: TxnMachine) -> None:
    machine.producer()
    assert machine.producer() == (1000, 1)
    assert machine.producer("other") == (1001, 0)


def test_older_producer_is_fenced_by_the_next(machine: TxnMachine) -> None:
    old = machine.producer()
    machine.producer()
    assert machine.error(machine.add(old, A0)) is FENCED
    assert machine.error(machine.end(old, True)) is FENCED
    assert machine.error(machine.init(producer=old)) is FENCED


def test_open_transaction_is_aborted_and_its_producer_fenced(machine: TxnMachine) -> None:
    old = machine.producer()
    machine.add(old, A0)
    machine.deliver = False
    assert machine.error(machine.init()) is CONCURRENT
    (markers,) = machine.to_send
    assert (markers.producer_epoch, markers.committed) == (1, False)
    assert machine.error(machine.init()) is CONCURRENT  # until the markers are written
    machine.send()
    assert machine.producer() == (1000, 2)


def test_producer_that_names_its_epoch_goes_on_with_the_next(machine: TxnMachine) -> None:
    """KIP-360."""
    first = machine.producer()
    token = machine.init(producer=first)
    assert machine.answers[token] == Initialized(NONE, 1000, 1)
    again = machine.init(producer=first)  # the answer was lost
    assert machine.answers[again] == Initialized(NONE, 1000, 1)
    third = machine.init(producer=first)
    assert machine.answers[third] == Initialized(NONE, 1000, 1)
    assert machine.error(machine.init(producer=(1000, 1))) is NONE
    assert machine.error(machine.init(producer=first)) is FENCED


def test_start_of_the_last_transaction_is_shown_until_the_next(machine: TxnMachine) -> None:
    """The log has no start time for EMPTY; TransactionMetadata.completeTransitionTo keeps the old one."""
    producer = machine.producer()
    assert machine.stored().start_ms == -1
    machine.add(producer, A0)
    start_ms = machine.now
    machine.init()
    machine.advance(1000)
    machine.producer()
    assert (machine.state, machine.stored().start_ms) == (TransactionState.EMPTY, start_ms)


def test_producer_that_names_another_id_is_fenced(machine: TxnMachine) -> None:
    machine.producer()
    assert machine.error(machine.init(producer=(7, 0))) is FENCED


def test_unknown_transactional_id_takes_a_producer_that_names_an_epoch(machine: TxnMachine) -> None:
    token = machine.init(producer=(7, 3))
    assert machine.answers[token] == Initialized(NONE, 1000, 0)


def exhausted(machine: TxnMachine) -> tuple[int, int]:
    producer = machine.producer()
    transaction = machine.shard.transactions[ID]
    transaction.stored = machine.stored()._replace(producer_epoch=LAST)
    return producer[0], LAST


def test_exhausted_epochs_bring_a_new_producer_id(machine: TxnMachine) -> None:
    exhausted(machine)
    assert machine.producer() == (1001, 0)


def test_retry_after_a_new_producer_id_is_told_the_same(machine: TxnMachine) -> None:
    last = exhausted(machine)
    for _ in range(2):
        token = machine.init(producer=last)
        assert machine.answers[token] == Initialized(NONE, 1001, 0)


def test_epoch_kept_back_fences_an_exhausted_producer(machine: TxnMachine) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    assert machine.error(machine.init()) is CONCURRENT
    assert machine.stored().producer_epoch == LAST + 1
    assert machine.error(machine.end(last, True)) is FENCED
    assert machine.producer() == (1001, 0)


def test_write_that_fails_leaves_a_new_id_unknown(machine: TxnMachine) -> None:
    machine.hold = True
    token = machine.init()
    assert machine.error(machine.init()) is CONCURRENT
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error(token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.shard.transactions == {}


def test_init_that_timed_out_blocks_until_its_write_is_known(machine: TxnMachine) -> None:
    machine.hold = True
    token = machine.init()
    _, ticket = machine.in_flight[0]
    machine.apply(machine.shard.completed(ticket, ErrorCode.REQUEST_TIMED_OUT, machine.now))
    assert machine.error(token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.error(machine.init()) is CONCURRENT
    machine.commit()
    machine.hold = False
    assert machine.producer() == (1000, 1)


# Partitions


def test_first_partition_opens_the_transaction(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.clock.advance(5)
    opened_at = machine.now
    assert machine.error(machine.add(producer, A0)) is NONE
    machine.clock.advance(5)
    assert machine.error(machine.add(producer, A1, B0)) is NONE
    stored = machine.stored()
    assert (stored.state, stored.start_ms) == (TransactionState.ONGOING, opened_at)
    assert stored.partitions == {A0, A1, B0}
    assert stored.last_update_ms == opened_at + 5


def test_partitions_that_are_added_again_need_no_write(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0, A1)
    written = len(machine.log)
    assert machine.error(machine.add(producer, A1)) is NONE
    assert len(machine.log) == written


def test_unknown_producer_adds_nothing(machine: TxnMachine) -> None:
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert machine.error(machine.add((1000, 0), A0)) is unknown
    producer_id, epoch = machine.producer()
    assert machine.error(machine.add((producer_id + 1, epoch), A0)) is unknown
    assert machine.error(machine.add((producer_id, epoch + 1), A0)) is FENCED


def test_partitions_wait_for_the_end_of_the_transaction_before(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.deliver = False
    machine.end(producer, True)
    assert machine.error(machine.add(producer, A1)) is CONCURRENT
    machine.send()
    assert machine.error(machine.add(producer, A1)) is NONE
    assert machine.stored().partitions == {A1}


def test_partition_is_verified_while_its_transaction_is_open(machine: TxnMachine) -> None:
    """KIP-890."""
    verify = machine.shard.verify
    assert verify(ID, 1000, 0, A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = machine.producer()
    machine.add(producer, A0)
    assert verify(ID, *producer, A0) is NONE
    assert verify(ID, *producer, A1) is ErrorCode.TRANSACTION_ABORTABLE
    assert verify(ID, 1000, 7, A0) is FENCED
    machine.deliver = False
    machine.end(producer, True)
    assert verify(ID, *producer, A0) is CONCURRENT
    machine.send()
    assert verify(ID, *producer, A0) is ErrorCode.TRANSACTION_ABORTABLE


# The end


@pytest.mark.parametrize("committed", [True, False])
def test_end_is_decided_then_marked_then_complete(machine: TxnMachine, committed: bool) -> None:
    producer = machine.producer()
    machine.add(producer, A0, B0)
    machine.deliver = False
    token = machine.end(producer, committed)
    assert machine.error(token) is NONE  # decided
    prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    assert machine.state is prepared
    (markers,) = machine.to_send
    assert markers[:3] == (ID, *producer)
    assert (markers.committed, markers.partitions) == (committed, (A0, B0))
    machine.send()
    done = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert (machine.state, machine.stored().partitions) == (done, frozenset())


def test_end_that_comes_again_is_answered_as_the_first(machine: TxnMachine) -> None:
    producer = machine.producer()
    invalid = ErrorCode.INVALID_TXN_STATE
    assert machine.error(machine.end(producer, True)) is invalid  # there is none yet
    machine.add(producer, A0)
    machine.deliver = False
    machine.end(producer, True)
    assert machine.error(machine.end(producer, True)) is CONCURRENT
    assert machine.error(machine.end(producer, False)) is CONCURRENT
    machine.send()
    assert machine.error(machine.end(producer, True)) is NONE
    assert machine.error(machine.end(producer, False)) is invalid


def test_nothing_changes_while_the_outcome_is_on_its_way(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.hold = True
    token = machine.end(producer, True)
    assert machine.error(machine.add(producer, A1)) is CONCURRENT
    assert machine.error(machine.end(producer, False)) is CONCURRENT
    assert machine.error(machine.init()) is CONCURRENT
    assert (machine.error(token), machine.to_send) == (None, [])
    machine.hold = False
    machine.commit()
    assert (machine.error(token), machine.state) == (NONE, TransactionState.COMPLETE_COMMIT)


def test_outcome_that_cannot_be_stored_leaves_the_transaction_open(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.hold = True
    token = machine.end(producer, True)
    machine.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.error(token) is ErrorCode.NOT_COORDINATOR
    assert (machine.state, machine.to_send) == (TransactionState.ONGOING, [])
    machine.hold = False
    assert machine.error(machine.end(producer, False)) is NONE


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_markers_that_fail_are_sent_again(machine: TxnMachine, error: ErrorCode) -> None:
    producer = machine.producer()
    machine.add(producer, A0, A1, B0)
    machine.deliver = False
    machine.end(producer, True)
    markers = machine.to_send.pop()
    machine.written(markers, {A0: NONE, A1: error})
    machine.written(markers, {B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})  # deleted
    machine.advance(machine.config.marker_retry_ms)
    (again,) = machine.to_send
    assert again.partitions == (A1,)
    machine.send()
    assert machine.state is TransactionState.COMPLETE_COMMIT


def test_coordinator_that_is_fenced_by_a_partition_sends_no_more(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.deliver = False
    machine.end(producer, True)
    machine.send(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    machine.advance(DAY_MS)
    assert (machine.state, machine.to_send) == (TransactionState.PREPARE_COMMIT, [])


def test_late_word_of_markers_of_an_earlier_transaction_changes_nothing(
    machine: TxnMachine,
) -> None:
    first = machine.producer()
    machine.add(first, A0)
    machine.deliver = False
    machine.end(first, True)
    markers = machine.to_send[0]
    machine.send()
    second = machine.producer()
    machine.add(second, A0)
    machine.end(second, False)
    machine.written(markers, {A0: NONE})
    assert machine.state is TransactionState.PREPARE_ABORT


def test_completion_that_cannot_be_stored_is_tried_again(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.deliver = False
    machine.end(producer, True)
    machine.hold = True
    machine.send()
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    machine.hold = False
    assert machine.state is TransactionState.PREPARE_COMMIT
    machine.advance(machine.config.marker_retry_ms)
    assert machine.state is TransactionState.COMPLETE_COMMIT


def test_transaction_without_partitions_is_complete_at_once(machine: TxnMachine) -> None:
    producer = machine.producer()
    assert machine.error(machine.add(producer)) is NONE
    assert machine.error(machine.end(producer, True)) is NONE
    machine.advance(0)
    assert machine.state is TransactionState.COMPLETE_COMMIT


# Time


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    machine: TxnMachine,
) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.advance(TIMEOUT_MS)
    assert machine.state is TransactionState.ONGOING
    machine.advance(machine.config.timeout_check_interval_ms)
    assert machine.state is TransactionState.COMPLETE_ABORT
    assert machine.stored().producer_epoch == 1
    assert machine.error(machine.end(producer, True)) is FENCED
    assert machine.producer() == (1000, 2)


def test_many_that_take_too_long_are_aborted_batch_by_batch(machine: TxnMachine) -> None:
    for number in range(2_500):
        name = f"id-{number}"
        machine.add(machine.producer(name), A0, name=name)
    machine.advance(TIMEOUT_MS + machine.config.timeout_check_interval_ms)
    states = {t.stored.state for t in machine.shard.transactions.values() if t.stored}
    assert states == {TransactionState.COMPLETE_ABORT}
    assert not machine.shard.open


def test_timeouts_are_looked_for_only_while_a_transaction_is_open(machine: TxnMachine) -> None:
    producer = machine.producer()
    assert ("timeouts_due", ()) not in machine.timers
    machine.add(producer, A0)
    assert ("timeouts_due", ()) in machine.timers
    machine.end(producer, True)
    machine.advance(machine.config.timeout_check_interval_ms)
    assert ("timeouts_due", ()) not in machine.timers


def test_clock_that_is_set_times_nothing_out(machine: TxnMachine) -> None:
    machine.add(machine.producer(), A0)
    machine.clock.advance(DAY_MS)
    machine.shard.shift_time(DAY_MS)
    machine.apply(machine.shard.fire(Timer("timeouts_due", (), 0), machine.now))
    assert machine.state is TransactionState.ONGOING


def test_id_that_nobody_uses_expires() -> None:
    machine = TxnMachine(transactional_id_expiration_ms=DAY_MS)
    machine.producer("unused")
    machine.add(machine.producer("open"), A0, name="open")
    busy = machine.producer("busy")
    machine.advance(DAY_MS - 1)
    machine.add(busy, A0, name="busy")
    machine.end(busy, True, name="busy")
    assert set(machine.shard.transactions) == {"unused", "open", "busy"}
    machine.advance(machine.config.expiration_check_interval_ms)
    assert "unused" not in machine.shard.transactions
    assert "busy" in machine.shard.transactions
    assert machine.log[-1][1] is None
    assert machine.producer("unused")[1] == 0


def test_many_ids_are_checked_for_expiry_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "LOOKED_AT", 10)
    machine = TxnMachine(transactional_id_expiration_ms=DAY_MS)
    for number in range(15):
        machine.producer(f"old{number}")
    machine.clock.advance(DAY_MS)
    for number in range(10):
        machine.producer(f"new{number}")
    left, next_checks = [], []
    for _ in range(3):
        result = machine.shard.fire(Timer("expiration_due", (), 0), machine.now)
        machine.apply(result)
        (timer,) = result.timers
        left.append(len(machine.shard.transactions))
        next_checks.append(timer.at_ms - machine.now)
    assert left == [25, 15, 10]
    assert next_checks == [0, 0, machine.config.expiration_check_interval_ms]


def test_expiry_that_cannot_be_stored_leaves_the_id(machine: TxnMachine) -> None:
    machine.producer()
    machine.hold = True
    machine.advance(machine.config.transactional_id_expiration_ms + 3_600_000)
    assert machine.error(machine.init()) is CONCURRENT
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    machine.hold = False
    assert machine.producer() == (1000, 1)


# Another coordinator


@pytest.mark.parametrize("committed", [True, False])
def test_new_coordinator_goes_on_with_the_markers(machine: TxnMachine, committed: bool) -> None:
    producer = machine.producer()
    machine.add(producer, A0, A1)
    machine.deliver = False
    machine.end(producer, committed)
    machine.written(machine.to_send[0], {A0: NONE})
    machine.restart()
    (markers,) = machine.to_send
    assert (markers.committed, markers.partitions) == (committed, (A0, A1))
    machine.send()
    assert machine.state.is_idle


def test_new_coordinator_times_out_what_was_open(machine: TxnMachine) -> None:
    machine.add(machine.producer(), A0)
    machine.clock.advance(TIMEOUT_MS)
    machine.restart()
    machine.advance(machine.config.timeout_check_interval_ms)
    assert machine.state is TransactionState.COMPLETE_ABORT


def test_marker_retry_of_a_transaction_that_has_ended_does_nothing(machine: TxnMachine) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.end(producer, True)
    machine.apply(machine.shard.fire(Timer(MARKERS_DUE, (ID,), 0), machine.now))
    assert machine.to_send == []


def test_illegal_move_raises_and_changes_nothing(machine: TxnMachine) -> None:
    machine.producer()
    transaction = machine.shard.transactions[ID]
    with pytest.raises(IllegalTransition, match="Empty to PrepareCommit"):
        transaction.prepare(TransactionState.PREPARE_COMMIT)
    assert transaction.pending is None


def test_outdated_producer_that_asks_for_the_next_epoch_ends_no_transaction(
    machine: TxnMachine,
) -> None:
    old = machine.producer()
    current = machine.producer()
    machine.add(current, A0)
    assert machine.error(machine.init(producer=old)) is FENCED
    assert machine.error(machine.end(current, True)) is ErrorCode.NONE
    machine.add(current, A0)
    assert machine.error(machine.init(producer=current)) is CONCURRENT  # its own may be aborted
