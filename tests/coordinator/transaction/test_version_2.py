"""The transaction coordinator's machine in version 2 of the protocol (KIP-890, part 2).

Cases of TransactionCoordinatorTest and TransactionMetadataTest of Apache Kafka 4.3.
"""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from kwire.messages.internal import number_of
from server.coordinator.transaction.state import TransactionState
from server.coordinator.transaction.tickets import Initialized
from tests.coordinator.transaction.machine import A0, A1, ID, TIMEOUT_MS, TxnMachine, hard_state

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
LAST = 32766


@pytest.fixture
def machine() -> TxnMachine:
    return TxnMachine(transaction_version=2)


def at(machine: TxnMachine, state: TransactionState) -> tuple[int, int]:
    """Bring the id to a state, and return the producer that it then has."""
    producer = machine.producer()
    if state is EMPTY:
        return producer
    machine.deliver = state not in (PREPARE_COMMIT, PREPARE_ABORT)
    machine.add(producer, A0)
    if state is not ONGOING:
        machine.end(producer, state in (PREPARE_COMMIT, COMPLETE_COMMIT))
    assert machine.state is state
    return machine.stored().producer_id, machine.stored().producer_epoch


def exhausted(machine: TxnMachine, epoch: int = LAST) -> tuple[int, int]:
    machine.producer()
    value = machine.stored()._replace(producer_epoch=epoch)
    machine.shard.transactions[ID].stored = value
    return value.producer_id, epoch


# Each end has its own epoch


@pytest.mark.parametrize("committed", [True, False])
def test_end_gives_the_epoch_of_the_next_transaction(machine: TxnMachine, committed: bool) -> None:
    machine.deliver = False
    producer = machine.producer()
    machine.add(producer, A0)
    token = machine.end(producer, committed)
    assert machine.ended(token) == (NONE, 1000, 1)
    (markers,) = machine.to_send
    assert (markers.producer_epoch, markers.transaction_version) == (1, 2)
    machine.send()
    assert machine.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert machine.error(machine.add((1000, 1), A1)) is NONE
    assert machine.error(machine.add(producer, A1)) is FENCED


TABLE = {  # state: (commit, abort) with the current epoch, (commit, abort) with the previous one
    EMPTY: ((INVALID, "end"), (FENCED, FENCED)),
    ONGOING: (("end", "end"), (FENCED, FENCED)),
    PREPARE_COMMIT: ((CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    PREPARE_ABORT: ((CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    COMPLETE_COMMIT: ((INVALID, "end"), ("told", INVALID)),
    COMPLETE_ABORT: ((INVALID, "end"), (INVALID, "told")),
}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("is_retry", [False, True])
@pytest.mark.parametrize("state", TABLE)
def test_end_is_taken_as_the_table_says(
    machine: TxnMachine, state: TransactionState, is_retry: bool, committed: bool
) -> None:
    """The table above TransactionCoordinator.endTransaction, and the prepared states."""
    producer_id, epoch = at(machine, state)
    asked = (producer_id, epoch - is_retry)
    expected = TABLE[state][is_retry][not committed]
    written = len(machine.log)
    ended = machine.ended(machine.end(asked, committed))
    if expected == "end":
        assert ended == (NONE, producer_id, epoch + 1)
        assert machine.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    elif expected == "told":
        assert ended == (NONE, producer_id, epoch)
        assert len(machine.log) == written
    else:
        assert ended == (expected, -1, -1)
        assert (machine.state, len(machine.log)) == (state, written)


def test_end_of_what_was_never_begun_counts_from_now(machine: TxnMachine) -> None:
    producer = machine.producer()
    assert machine.stored().start_ms == -1
    machine.clock.advance(5)
    machine.end(producer, False)
    assert machine.stored().start_ms == machine.now


def test_new_producer_has_no_transaction_that_began(machine: TxnMachine) -> None:
    """In 3.9.2 the start of the last one is shown until the next."""
    producer = machine.producer()
    machine.add(producer, A0)
    machine.end(producer, True)
    machine.producer()
    assert machine.stored().start_ms == -1


def test_end_of_a_stranger_is_refused(machine: TxnMachine) -> None:
    producer_id, epoch = at(machine, ONGOING)
    assert machine.error(machine.end((7, epoch), True)) is MAPPING
    assert machine.error(machine.end((producer_id, epoch + 1), True)) is FENCED
    assert machine.error(machine.end((producer_id, epoch), True, "other")) is MAPPING


def test_while_markers_are_written_a_stranger_is_told_no_more(machine: TxnMachine) -> None:
    """Apache Kafka 4.3 has a transition pending until the markers are there."""
    producer_id, epoch = at(machine, PREPARE_COMMIT)
    assert machine.error(machine.end((7, epoch), True)) is CONCURRENT
    assert machine.error(machine.end((producer_id, epoch + 5), True)) is CONCURRENT


def test_while_a_write_is_on_its_way_nobody_is_told_more(machine: TxnMachine) -> None:
    """Not even that it is fenced, since the epoch may have changed."""
    producer_id, epoch = at(machine, ONGOING)
    machine.hold = True
    machine.end((producer_id, epoch), True)
    assert machine.error(machine.end((7, 3), True)) is CONCURRENT
    assert machine.error(machine.end((producer_id, epoch), True)) is CONCURRENT
    assert machine.error(machine.add((7, 3), A0)) is CONCURRENT
    assert machine.error(machine.init()) is CONCURRENT


def test_end_that_cannot_be_stored_leaves_the_epoch(machine: TxnMachine) -> None:
    producer = at(machine, ONGOING)
    machine.hold = True
    token = machine.end(producer, True)
    machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.ended(token) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    machine.hold = False
    assert machine.ended(machine.end(producer, True)) == (NONE, producer[0], producer[1] + 1)


def test_older_client_keeps_its_epoch_over_an_end(machine: TxnMachine) -> None:
    """EndTxn up to version 4 with transaction.version 2."""
    producer = machine.producer()
    machine.client_version = 0
    machine.add(producer, A0)
    assert machine.ended(machine.end(producer, True)) == (NONE, -1, -1)
    assert machine.stored().producer_epoch == producer[1]
    assert machine.stored().client_version == 0
    assert machine.ended(machine.end(producer, True)) == (NONE, -1, -1)


# Fencing


def test_open_transaction_is_aborted_with_the_next_epoch(machine: TxnMachine) -> None:
    old = machine.producer()
    machine.add(old, A0)
    machine.deliver = False
    assert machine.error(machine.init()) is CONCURRENT
    (markers,) = machine.to_send
    assert (markers.producer_epoch, markers.committed, markers.transaction_version) == (1, False, 2)
    machine.send()
    assert machine.producer() == (1000, 2)


def test_transaction_of_an_older_client_is_fenced_in_the_brokers_version(
    machine: TxnMachine,
) -> None:
    producer = machine.producer()
    machine.client_version = 0
    machine.add(producer, A0)
    assert machine.error(machine.init()) is CONCURRENT
    assert (machine.stored().producer_epoch, machine.stored().client_version) == (1, 2)


def test_producer_that_goes_on_while_its_transaction_is_open_gets_the_next_epoch(
    machine: TxnMachine,
) -> None:
    """In 3.9.2 it is fenced; in 4.3.0 older clients are not either."""
    for client_version in (0, 2):
        producer = machine.producer()
        machine.client_version = client_version
        machine.add(producer, A0)
        assert machine.error(machine.init(producer=producer)) is CONCURRENT
        token = machine.init(producer=producer)
        assert machine.answers[token] == Initialized(NONE, producer[0], producer[1] + 1)


def test_producer_that_took_too_long_may_go_on_with_the_epoch_of_the_abort(
    machine: TxnMachine,
) -> None:
    producer = machine.producer()
    machine.add(producer, A0)
    machine.advance(TIMEOUT_MS + machine.config.timeout_check_interval_ms)
    assert machine.state is COMPLETE_ABORT
    assert machine.ended(machine.end(producer, False)) == (NONE, 1000, 1)  # as if it had ended it
    assert machine.error(machine.end(producer, True)) is INVALID
    token = machine.init(producer=producer)
    assert machine.answers[token] == Initialized(NONE, 1000, 1)


# The last epoch


@pytest.mark.parametrize("committed", [True, False])
def test_end_at_the_last_epoch_brings_a_new_producer_id(
    machine: TxnMachine, committed: bool
) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    machine.deliver = False
    assert machine.ended(machine.end(last, committed)) == (NONE, 1001, 0)
    assert machine.stored()[:2] == (1000, LAST + 1)
    assert machine.stored().next_producer_id == 1001
    (markers,) = machine.to_send
    assert (markers.producer_id, markers.producer_epoch) == (1000, LAST + 1)
    machine.send()
    assert machine.stored()[:2] == (1001, 0)
    assert (machine.stored().previous_producer_id, machine.stored().next_producer_id) == (1000, -1)
    assert machine.ended(machine.end(last, committed)) == (NONE, 1001, 0)  # the answer was lost
    assert machine.error(machine.end(last, not committed)) is INVALID
    assert machine.error(machine.add((1001, 0), A0)) is NONE
    assert machine.error(machine.end(last, committed)) is MAPPING


def test_epoch_before_the_last_keeps_the_producer_id(machine: TxnMachine) -> None:
    producer = exhausted(machine, LAST - 1)
    machine.add(producer, A0)
    assert machine.ended(machine.end(producer, True)) == (NONE, 1000, LAST)


def test_new_producer_id_outlives_the_coordinator(machine: TxnMachine) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    machine.deliver = False
    machine.end(last, True)
    machine.deliver = True
    machine.restart()
    assert machine.stored()[:2] == (1001, 0)
    machine.restart()
    assert machine.ended(machine.end(last, True)) == (NONE, 1001, 0)


def test_timeout_at_the_last_epoch_brings_a_new_producer_id(machine: TxnMachine) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    machine.advance(TIMEOUT_MS + machine.config.timeout_check_interval_ms)
    assert machine.stored()[:2] == (1001, 0)
    token = machine.init(producer=last)
    assert machine.answers[token] == Initialized(NONE, 1001, 0)


def test_fence_at_the_last_epoch_brings_a_new_producer_id(machine: TxnMachine) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    assert machine.error(machine.init()) is CONCURRENT
    assert machine.stored()[:2] == (1001, 0)
    assert machine.producer() == (1001, 1)


# Stored state


def test_values_of_version_1_are_written_and_loaded(machine: TxnMachine) -> None:
    last = exhausted(machine)
    machine.add(last, A0)
    machine.end(last, True)
    assert {number_of(value) for _, value in machine.log if value is not None} == {1}
    assert hard_state(machine.reload()) == hard_state(machine.shard)


def test_broker_of_the_older_protocol_writes_values_of_version_0() -> None:
    machine = TxnMachine(transaction_version=0)
    producer = machine.producer()
    machine.add(producer, A0)
    machine.end(producer, True)
    assert {number_of(value) for _, value in machine.log if value is not None} == {0}


def test_broker_of_the_older_protocol_ends_what_a_later_one_prepared() -> None:
    """The finalized version was lowered: the markers keep their epoch, and the new id is used."""
    later = TxnMachine(transaction_version=2)
    last = exhausted(later)
    later.add(last, A0)
    later.deliver = False
    later.end(last, True)
    machine = TxnMachine(transaction_version=0)
    machine.deliver = False
    machine.log = later.log
    machine.restart()
    (markers,) = machine.to_send
    assert (markers.producer_epoch, markers.transaction_version) == (LAST + 1, 2)
    machine.send()
    assert machine.stored()[:2] == (1001, 0)
