"""The rules for operations on transactional ids: decisions without effects, and their errors.

The table shows how an EndTxn is decided while no write is in flight, by the epoch in the request.
"retry" is the epoch before the current one; versions before 2 have no retry. ITS is
INVALID_TXN_STATE, CT is CONCURRENT_TRANSACTIONS, PF is PRODUCER_FENCED; "end" decides the outcome,
and "told" only answers. While markers are written (PREPARE_*), Kafka always has a transition pending,
so its cases for these states are never reached; version 2 checks that before the producer.

                     version 0 and 1     version 2
                     current epoch       current epoch       retry
                     commit   abort      commit   abort      commit   abort
    EMPTY            ITS      ITS        ITS      end        PF       PF
    ONGOING          end      end        end      end        PF       PF
    PREPARE_COMMIT   CT       CT         CT       CT         CT       CT
    PREPARE_ABORT    CT       CT         CT       CT         CT       CT
    COMPLETE_COMMIT  told     ITS        ITS      end        told     ITS
    COMPLETE_ABORT   ITS      told       ITS      end        ITS      told

Source: TransactionCoordinator.endTransaction and endTransactionWithTV1, TransactionMetadata.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

from .state import LAST_EPOCH, Transaction, TransactionMetadata, TransactionState
from .tickets import End, EndedTransaction, Initialized, NeedsProducerId, Producer


def check_producer(
    transaction: Transaction | None, producer_id: int, producer_epoch: int
) -> ErrorCode:
    """Check that this is the current producer of the transactional id."""
    stored = None if transaction is None else transaction.stored
    if stored is None or stored.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if stored.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# InitProducerId


def is_its_producer(stored: TransactionMetadata, asked: Producer) -> bool:
    """Whether a producer that sends its id may continue.

    Shape: it may with the current id, whose epoch is checked later. It also may with the previous id if the epochs of
    that id were used up, since the answer with the new id may have been lost.
    """
    return (
        asked.producer_id == NO_PRODUCER_ID
        or asked.producer_id == stored.producer_id
        or (asked.producer_id == stored.previous_producer_id and asked.producer_epoch >= LAST_EPOCH)
    )


def next_epoch(
    transaction: Transaction,
    stored: TransactionMetadata,
    asked: Producer,
    new_producer_id: int | None,
) -> Initialized | NeedsProducerId:
    """Return the id and epoch for a producer between two transactions.

    Errors: PRODUCER_FENCED for an epoch that is neither the current one nor, in a retry, the
    previous one. Source: TransactionMetadata.prepareIncrementProducerEpoch.
    """
    expected, epoch = asked.producer_epoch, stored.producer_epoch
    if expected not in (NO_PRODUCER_EPOCH, epoch):
        if expected == transaction.last_producer_epoch:
            return Initialized(ErrorCode.NONE, stored.producer_id, epoch)
        return Initialized(ErrorCode.PRODUCER_FENCED)
    if epoch < LAST_EPOCH:
        return Initialized(ErrorCode.NONE, stored.producer_id, epoch + 1)
    if new_producer_id is None:
        return NeedsProducerId()
    return Initialized(ErrorCode.NONE, new_producer_id, 0)


# EndTxn


def outcome_of(transaction: Transaction | None, asked: End) -> TransactionState | EndedTransaction:
    """Return the state that an EndTxn leads to, or its answer if the state stays.

    Errors: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, and INVALID_TXN_STATE if there is no
    transaction or it ended with the other outcome.
    """
    stored = None if transaction is None else transaction.stored
    if transaction is None or stored is None:
        return EndedTransaction(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asked.bumps_epoch:
        return _outcome_in_version_2(transaction, stored, asked)
    error = check_producer(transaction, asked.producer_id, asked.producer_epoch)
    if error is not ErrorCode.NONE:
        return EndedTransaction(error)
    state = stored.state
    if transaction.pending is not None or state.is_prepared:
        return EndedTransaction(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is TransactionState.ONGOING:
        return _prepared(asked)
    committed = state is TransactionState.COMPLETE_COMMIT
    if state is TransactionState.EMPTY or asked.committed is not committed:
        return EndedTransaction(ErrorCode.INVALID_TXN_STATE)
    return EndedTransaction(ErrorCode.NONE)


def _prepared(asked: End) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if asked.committed else TransactionState.PREPARE_ABORT


def _outcome_in_version_2(
    transaction: Transaction, stored: TransactionMetadata, asked: End
) -> TransactionState | EndedTransaction:
    state, epoch = stored.state, asked.producer_epoch
    if transaction.pending is not None or state.is_prepared:
        return EndedTransaction(ErrorCode.CONCURRENT_TRANSACTIONS)
    # The answer with a new producer id, or with the next epoch, was lost.
    is_after_last = (
        stored.previous_producer_id == asked.producer_id
        and epoch == LAST_EPOCH
        and stored.producer_epoch == 0
    )
    is_retry = is_after_last or stored.producer_epoch == epoch + 1
    if stored.producer_id != asked.producer_id and not is_after_last:
        return EndedTransaction(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_retry and state.is_complete
    if stored.producer_epoch != epoch and not is_retry:
        return EndedTransaction(ErrorCode.PRODUCER_FENCED)
    if state is TransactionState.ONGOING:
        return _prepared(asked)
    if is_retry and asked.committed is (state is TransactionState.COMPLETE_COMMIT):
        return EndedTransaction(ErrorCode.NONE, stored.producer_id, stored.producer_epoch)
    if is_retry or asked.committed:
        return EndedTransaction(ErrorCode.INVALID_TXN_STATE)
    return TransactionState.PREPARE_ABORT


# Errors of the log

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def transaction_error_for(error: ErrorCode) -> ErrorCode:
    """Translate the log's error for a producer. Source: appendTransactionToLog."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
