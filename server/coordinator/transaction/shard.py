"""The transactional ids of one partition of __transaction_state: the machine that the runtime runs.

A transaction ends in two phases. An EndTxn (or a fence, or a timeout) writes PREPARE_COMMIT or PREPARE_ABORT; this
record decides the outcome. Then each partition is sent its marker, repeatedly if necessary. When all partitions have
it, COMPLETE_COMMIT or COMPLETE_ABORT is written. A coordinator that loads a prepared transaction continues with the
markers; an ongoing transaction times out eventually. So a transaction ends as a whole, regardless of when a coordinator
stops. Work that concerns many transactions is done by timers, each of which does a small part and sets the next.

`Transaction.stored` changes only in `replay`. No function here waits, reads a clock or uses a log.
Source: TransactionCoordinator.scala, TransactionStateManager.scala.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from kwire.errors import ErrorCode
from kwire.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

from ...cause import cause, client_of
from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ..common.result import Result, Timer
from .config import TransactionConfig
from .markers import Markers, Outcomes
from .memory import PARTITION_BYTES, TransactionMemory, state_bytes
from .records import TransactionRecord, decode_record, encode_record
from .rules import (
    check_producer,
    is_its_producer,
    next_epoch,
    outcome_of,
    transaction_error_for,
)
from .state import BUMPS_EPOCHS, MAX_EPOCH, Transaction, TransactionMetadata, TransactionState
from .tickets import (
    AddedPartitions,
    Completed,
    End,
    EndedTransaction,
    Expired,
    Initialized,
    NeedsProducerId,
    Prepared,
    Producer,
    Started,
    TimeoutNeedsProducerId,
)

log = logging.getLogger(__name__)

TIMEOUTS_DUE = "timeouts_due"
EXPIRATION_DUE = "expiration_due"
MARKERS_DUE = "markers_due"
COMPLETE_DUE = "complete_due"
RESUME_DUE = "resume_due"

LOOKED_AT = 256
"""The number of transactional ids that are checked in one operation."""
CHANGED = 32
"""The number of transactional ids that are changed in one operation."""
MANY_PARTITIONS = 100
"""The number of partitions from which on a transaction gets more only at the pace of its client (`WritePace`)."""
CHANGED_PARTITIONS = 1_024
"""The number of partitions whose transactions are changed in one operation, unless a single one has more."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_DONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_EMPTY: frozenset[TopicPartition] = frozenset()


class TransactionShard:
    """All transactional ids of one partition.

    Shape: `transactions` by id; `open` are the ids of those that are ONGOING, `prepared_ids` of those that are being ended.
    `memory` is the account of all transactional ids of the broker. `unchecked` are the ids that the current check for expiration has not reached,
    `undue` those that the current check for timeouts has not, and `unresumed` those whose end is to be continued after the
    log was loaded.
    """

    keeps_latest = True

    def __init__(
        self, partition: int, config: TransactionConfig, memory: TransactionMemory | None = None
    ) -> None:
        self.partition = partition
        self.config = config
        self.memory = memory or TransactionMemory()
        self.transactions: dict[str, Transaction] = {}
        self.open: set[str] = set()
        self.prepared_ids: dict[str, None] = {}
        self.watching = False
        self.unchecked: list[str] = []
        self.undue: list[str] = []
        self.unresumed: list[str] = []
        self.fired: dict[str, Callable[[Timer, int, Result[Any]], None]] = {
            TIMEOUTS_DUE: self.timeouts_due,
            EXPIRATION_DUE: self.expiration_due,
            MARKERS_DUE: self.markers_due,
            COMPLETE_DUE: self.complete_due,
            RESUME_DUE: self.resume_due,
        }

    # A producer begins

    def init_producer_id(
        self, asked: Producer, new_producer_id: int | None, token: int, now_ms: int
    ) -> Result[Initialized | NeedsProducerId]:
        """Give a producer its next epoch, which fences the holder of the previous one.

        Shape: the answer is Initialized, or NeedsProducerId if one is needed and `new_producer_id` is None. An open
        transaction is aborted first.
        Errors: CONCURRENT_TRANSACTIONS while a transaction ends, PRODUCER_FENCED for a producer that sends an id and
        epoch that are not the current ones (KIP-360), COORDINATOR_LOAD_IN_PROGRESS if there is no memory for a new id.
        """
        out: Result[Initialized | NeedsProducerId] = Result()
        transaction = self.transactions.get(asked.transactional_id)
        stored = None if transaction is None else transaction.stored
        if transaction is not None and transaction.account is NOBODY:
            self.memory.account.move(NOBODY, asked.account, transaction.held_bytes)
            transaction.account = asked.account
        answer: Initialized | NeedsProducerId | None = None
        if transaction is not None and transaction.pending is not None:
            answer = Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif transaction is None or stored is None:
            more = 0 if transaction is not None else state_bytes(asked.transactional_id, None)
            full = self.memory.refuses(self.config, asked.account, more)
            if full is not ErrorCode.NONE:
                answer = Initialized(full)
            elif new_producer_id is None:
                answer = NeedsProducerId()
            else:
                self.begin(
                    asked, Initialized(ErrorCode.NONE, new_producer_id, 0), token, now_ms, out
                )
        elif not is_its_producer(stored, asked):
            answer = Initialized(ErrorCode.PRODUCER_FENCED)
        elif stored.state.is_prepared:
            answer = Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif stored.state is TransactionState.ONGOING:
            if asked.producer_epoch not in (NO_PRODUCER_EPOCH, stored.producer_epoch):
                # Apache Kafka aborts the transaction first, and then fences the outdated producer that asked.
                answer = Initialized(ErrorCode.PRODUCER_FENCED)
            elif self.fence_needs_producer_id(stored) and new_producer_id is None:
                answer = NeedsProducerId()
            else:
                transaction.client = client_of(cause())
                again = Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
                ticket = Prepared((asked.transactional_id,), True, token, again)
                self.fence([transaction], ticket, now_ms, out, new_producer_id)
        else:
            answer = next_epoch(transaction, stored, asked, new_producer_id)
            if isinstance(answer, Initialized) and answer.error is ErrorCode.NONE:
                self.begin(asked, answer, token, now_ms, out)
                answer = None
        if answer is not None:
            out.reply(token, answer)
        return out

    def begin(
        self, asked: Producer, answer: Initialized, token: int, now_ms: int, out: Result[Any]
    ) -> None:
        """Write the id and epoch that a producer gets."""
        name = asked.transactional_id
        transaction = self.transactions.get(name)
        if transaction is None:
            transaction = self.create(name, asked.account)
        transaction.client = client_of(cause())
        stored = transaction.stored
        last_epoch = NO_PRODUCER_EPOCH
        if stored is not None and asked.producer_epoch != NO_PRODUCER_EPOCH:
            last_epoch = stored.producer_epoch
            if answer[1:] == (stored.producer_id, last_epoch):  # a retry
                last_epoch = transaction.last_producer_epoch
        transaction.prepare(TransactionState.EMPTY)
        value = TransactionMetadata(
            answer.producer_id,
            answer.producer_epoch,
            asked.timeout_ms,
            TransactionState.EMPTY,
            _EMPTY,
            now_ms,
            NO_TIMESTAMP,
            answer.producer_id if stored is None else stored.producer_id,
            client_version=0 if stored is None else stored.client_version,
        )
        ticket = Started(name, last_epoch, token, answer)
        out.write([TransactionRecord(name, value)], ticket)

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        tps: frozenset[TopicPartition],
        token: int,
        now_ms: int,
        client_version: int = 0,
    ) -> Result[ErrorCode]:
        """Add partitions to a producer's transaction; the first one opens it.

        Shape: the answer is an ErrorCode, available once the partitions are stored.
        Errors: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; COORDINATOR_LOAD_IN_PROGRESS if
        there is no memory for them, or much was written for the client: each request has all partitions written.
        """
        out: Result[ErrorCode] = Result()
        transaction = self.transactions.get(transactional_id)
        error = check_producer(transaction, producer_id, producer_epoch)
        if (
            self.config.transaction_version >= BUMPS_EPOCHS
            and transaction is not None
            and transaction.pending is not None
        ):
            # The epoch may already be the next one, but that is not known yet.
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            out.reply(token, error)
            return out
        assert transaction is not None and transaction.stored is not None
        stored = transaction.stored
        if transaction.pending is not None or stored.state.is_prepared:
            out.reply(token, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif stored.state is TransactionState.ONGOING and tps <= stored.partitions:
            out.reply(token, ErrorCode.NONE)
        elif full := self.memory.refuses(
            self.config, transaction.account, PARTITION_BYTES * len(tps - stored.partitions)
        ):
            out.reply(token, full)
        elif len(stored.partitions) >= MANY_PARTITIONS and not self.memory.pace.may_write(
            transaction.account, now_ms
        ):
            out.reply(token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            is_open = stored.state is TransactionState.ONGOING
            transaction.client = client_of(cause())
            transaction.prepare(TransactionState.ONGOING)
            value = stored._replace(
                state=TransactionState.ONGOING,
                partitions=stored.partitions | tps,
                last_update_ms=now_ms,
                start_ms=stored.start_ms if is_open else now_ms,
                previous_producer_id=stored.producer_id,
                client_version=client_version,
            )
            record = TransactionRecord(transactional_id, value)
            out.write([record], AddedPartitions(transactional_id, token))
            account = transaction.account
            out.on_appended = lambda size: self.memory.pace.wrote(account, size, now_ms)
        return out

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> ErrorCode:
        """Check whether a partition is part of a producer's open transaction (KIP-890).

        Errors: those of add_partitions; TRANSACTION_ABORTABLE if the partition is not part of it.
        """
        transaction = self.transactions.get(transactional_id)
        error = check_producer(transaction, producer_id, producer_epoch)
        if error is not ErrorCode.NONE:
            return error
        assert transaction is not None and transaction.stored is not None
        stored = transaction.stored
        if stored.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if tp in stored.partitions:
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    # The end

    def end_transaction(
        self, asked: End, new_producer_id: int | None, token: int, now_ms: int
    ) -> Result[EndedTransaction | NeedsProducerId]:
        """Decide the outcome of a transaction.

        Shape: the answer is Ended, available once the outcome is stored; the markers follow. It is NeedsProducerId if
        the epochs are used up and `new_producer_id` is None. A repeated EndTxn after the end gets the same answer as
        the first.
        Errors: those of outcome_of.
        """
        out: Result[EndedTransaction | NeedsProducerId] = Result()
        transaction = self.transactions.get(asked.transactional_id)
        outcome = outcome_of(transaction, asked)
        if isinstance(outcome, EndedTransaction):
            out.reply(token, outcome)
            return out
        assert transaction is not None and transaction.stored is not None
        transaction.client = client_of(cause())
        if asked.bumps_epoch and transaction.stored.is_exhausted and new_producer_id is None:
            out.reply(token, NeedsProducerId())
            return out
        ticket = Prepared((asked.transactional_id,), False, token)
        version = asked.client_version
        self.decide([transaction], outcome, ticket, now_ms, out, version, new_producer_id)
        return out

    def fence_needs_producer_id(self, stored: TransactionMetadata) -> bool:
        """Whether an abort by the coordinator must reserve a producer id."""
        return self.config.transaction_version >= BUMPS_EPOCHS and stored.is_exhausted

    def fence(
        self,
        transactions: Iterable[Transaction],
        ticket: Prepared,
        now_ms: int,
        out: Result[Any],
        new_producer_id: int | None = None,
    ) -> None:
        """Abort open transactions with the broker's transaction version, fencing their producers."""
        version = self.config.transaction_version
        outcome = TransactionState.PREPARE_ABORT
        self.decide(transactions, outcome, ticket, now_ms, out, version, new_producer_id)

    def decide(
        self,
        transactions: Iterable[Transaction],
        outcome: TransactionState,
        ticket: Prepared,
        now_ms: int,
        out: Result[Any],
        client_version: int,
        new_producer_id: int | None,
    ) -> None:
        """Write the outcome of transactions; this also invalidates the epoch of fenced producers.

        Shape: in version 2, each end increments the epoch. If the epoch has reached its limit, the new producer id is
        stored, and is used once the transaction is complete.
        """
        bumps = client_version >= BUMPS_EPOCHS
        records = []
        for transaction in transactions:
            stored = transaction.stored
            assert stored is not None
            transaction.prepare(outcome)
            next_id = NO_PRODUCER_ID
            if bumps and stored.is_exhausted and new_producer_id is not None:
                next_id = new_producer_id
            is_open = stored.state is TransactionState.ONGOING
            value = stored._replace(
                state=outcome,
                producer_epoch=min(stored.producer_epoch + (bumps or ticket.fenced), MAX_EPOCH),
                last_update_ms=now_ms,
                start_ms=stored.start_ms if is_open else now_ms,
                previous_producer_id=stored.producer_id,
                next_producer_id=next_id,
                client_version=client_version if bumps else 0,
            )
            records.append(TransactionRecord(transaction.transactional_id, value))
        out.write(records, ticket)

    def markers_for(self, transaction: Transaction) -> Markers:
        """The markers still to be sent for a prepared transaction; the caller adds the epoch."""
        stored = transaction.stored
        assert stored is not None
        to_send = transaction.unmarked - transaction.sent
        transaction.sent |= to_send
        return Markers(
            transaction.transactional_id,
            stored.producer_id,
            stored.producer_epoch,
            -1,
            stored.state is TransactionState.PREPARE_COMMIT,
            tuple(sorted(to_send)),
            stored.client_version,
            transaction.client,
        )

    def markers_written(self, markers: Markers, outcomes: Outcomes, now_ms: int) -> Result[Any]:
        """Record the outcome of markers; when the last is written, the transaction is complete.

        Shape: late outcomes of a transaction that has already ended change nothing.
        """
        out: Result[Any] = Result()
        transaction = self.transactions.get(markers.transactional_id)
        if transaction is None or not transaction.unmarked:
            return out
        stored = transaction.stored
        assert stored is not None
        producer = stored.producer_id, stored.producer_epoch
        if producer != (markers.producer_id, markers.producer_epoch):
            return out
        again = False
        for tp, error in outcomes:
            transaction.sent.discard(tp)
            if error in _DONE:
                transaction.unmarked.discard(tp)
            elif error in _FENCED:
                # The new coordinator of this transaction will end it.
                log.warning("%s for the marker of %r in %s", error.name, transaction, tp)
            else:
                again = True
        if not transaction.unmarked:
            self.complete(transaction, now_ms, out)
        elif again:
            key = (markers.transactional_id,)
            out.timers.append(Timer(MARKERS_DUE, key, now_ms + self.config.marker_retry_ms))
        return out

    def complete(self, transaction: Transaction, now_ms: int, out: Result[Any]) -> None:
        """Write that a prepared transaction is complete."""
        stored = transaction.stored
        assert stored is not None
        state = TransactionState.COMPLETE_ABORT
        if stored.state is TransactionState.PREPARE_COMMIT:
            state = TransactionState.COMPLETE_COMMIT
        transaction.prepare(state)
        producer_id, producer_epoch = stored.completed_producer
        value = stored._replace(
            state=state,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=_EMPTY,
            last_update_ms=now_ms,
            previous_producer_id=stored.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
        name = transaction.transactional_id
        out.write([TransactionRecord(name, value)], Completed(name))

    # Timers

    def fire(self, timer: Timer, now_ms: int) -> Result[Any]:
        """Run the operation that a timer was set for."""
        out: Result[Any] = Result()
        self.fired[timer.op_name](timer, now_ms, out)
        return out

    def watch_timeouts(self, now_ms: int, out: Result[Any]) -> None:
        """Check for timed-out transactions while any are open."""
        if self.open and not self.watching:
            self.watching = True
            interval_ms = self.config.timeout_check_interval_ms
            out.timers.append(Timer(TIMEOUTS_DUE, (), now_ms + interval_ms))

    def timeouts_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Abort transactions that exceed their producer's timeout, and fence that producer; some of them at a time."""
        self.watching = False
        names = self.undue
        if not names:
            names += self.open
        due: list[Transaction] = []
        partitions = 0
        for _ in range(min(len(names), LOOKED_AT)):
            name = names.pop()
            if name not in self.open:
                continue
            transaction = self.transactions[name]
            stored = transaction.stored
            assert stored is not None
            if transaction.pending is not None or transaction.due_ms >= now_ms:
                continue
            if self.fence_needs_producer_id(stored):
                out.effects.append(TimeoutNeedsProducerId(name))
            else:
                due.append(transaction)
                partitions += len(stored.partitions)
            if len(due) + len(out.effects) == CHANGED or partitions >= CHANGED_PARTITIONS:
                break
        if due:
            ids = tuple(transaction.transactional_id for transaction in due)
            self.fence(due, Prepared(ids, True), now_ms, out)
        if names:
            self.watching = True
            out.timers.append(Timer(TIMEOUTS_DUE, (), now_ms))
        else:
            self.watch_timeouts(now_ms, out)

    def time_out(self, name: str, new_producer_id: int, now_ms: int) -> Result[Any]:
        """Abort a timed-out transaction, with a new producer id for the next one."""
        out: Result[Any] = Result()
        transaction = self.transactions.get(name)
        if (
            transaction is not None
            and name in self.open
            and transaction.pending is None
            and transaction.due_ms < now_ms
        ):
            self.fence([transaction], Prepared((name,), True), now_ms, out, new_producer_id)
        return out

    def expiration_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove ids that have been unused for long; looks at one batch of ids at a time."""
        names = self.unchecked
        if not names:
            names += self.transactions
        expired: list[str] = []
        for _ in range(min(len(names), LOOKED_AT)):
            if len(expired) == CHANGED:
                break
            transaction = self.transactions.get(names.pop())
            if transaction is None or transaction.pending is not None:
                continue
            stored = transaction.stored
            if (
                stored is not None
                and stored.state.is_idle
                and stored.last_update_ms + self.config.transactional_id_expiration_ms <= now_ms
            ):
                transaction.prepare(TransactionState.DEAD)
                expired.append(transaction.transactional_id)
        if expired:
            records = [TransactionRecord(name, None) for name in expired]
            out.write(records, Expired(tuple(expired)))
        interval_ms = 0 if names else self.config.expiration_check_interval_ms
        out.timers.append(Timer(EXPIRATION_DUE, (), now_ms + interval_ms))

    def markers_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        transaction = self.transactions.get(timer.key[0])
        if transaction is not None and transaction.unmarked - transaction.sent:
            out.effects.append(self.markers_for(transaction))

    def resume_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Continue transactions that were being ended when the log was loaded; some of them at a time."""
        partitions = 0
        for _ in range(min(len(self.unresumed), CHANGED)):
            name = self.unresumed.pop()
            if name in self.prepared_ids:
                transaction = self.transactions[name]
                partitions += len(transaction.unmarked)
                self.send_markers(transaction, now_ms, out)
                if partitions >= CHANGED_PARTITIONS:
                    break
        if self.unresumed:
            out.timers.append(Timer(RESUME_DUE, (), now_ms))

    def complete_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        transaction = self.transactions.get(timer.key[0])
        if transaction is not None and transaction.pending is None:
            stored = transaction.stored
            if stored is not None and stored.state.is_prepared and not transaction.unmarked:
                self.complete(transaction, now_ms, out)

    # Writes

    def replay(self, record: TransactionRecord, position: int, producer_id: int = -1) -> None:
        """Apply a committed record; hard state changes only here. Called in log order."""
        name, value = record
        self.open.discard(name)
        self.prepared_ids.pop(name, None)
        if value is None:
            self.forget(name)
            return
        transaction = self.transactions.get(name)
        if transaction is None:
            transaction = self.create(name)
        elif transaction.stored is not None:
            before = transaction.stored
            # The replaced value has fields that this one lacks; they remain until it is compacted away.
            if value.previous_producer_id == NO_PRODUCER_ID:  # version 0 has no field for it
                value = value._replace(previous_producer_id=before.producer_id)
            if value.start_ms == NO_TIMESTAMP and self.config.transaction_version < BUMPS_EPOCHS:
                # DescribeTransactions of 3.9 shows the last transaction's start until the next one.
                value = value._replace(start_ms=before.start_ms)
        transaction.stored = value
        self.count(transaction)
        if value.state is TransactionState.ONGOING:
            self.open.add(name)
            transaction.due_ms = value.start_ms + value.timeout_ms
        elif value.state.is_prepared:
            self.prepared_ids[name] = None
            transaction.unmarked = set(value.partitions)
            transaction.sent = set()

    def replay_marker(self, producer_id: int, committed: bool) -> Iterator[None]:
        """Do nothing: this topic itself has no transactions."""
        return iter(())

    def completed(self, ticket: Any, error: ErrorCode, now_ms: int) -> Result[Any]:
        """Continue after a write was committed and replayed, or failed with an error of the log.

        Shape: a second call, with the final outcome, may follow REQUEST_TIMED_OUT; until then nothing else may change.
        """
        out: Result[Any] = Result()
        is_known = error is not ErrorCode.REQUEST_TIMED_OUT
        mapped = transaction_error_for(error)
        if isinstance(ticket, Started):
            self.started(ticket, mapped, is_known, out)
        elif isinstance(ticket, AddedPartitions):
            self.added(ticket, mapped, is_known, now_ms, out)
        elif isinstance(ticket, Prepared):
            self.prepared(ticket, mapped, is_known, now_ms, out)
        elif isinstance(ticket, Completed):
            if is_known:
                self.ended(ticket, error, now_ms, out)
        elif isinstance(ticket, Expired) and is_known and error is not ErrorCode.NONE:
            for name in ticket.transactional_ids:
                self.transactions[name].pending = None
        return out

    def create(self, name: str, account: Hashable = NOBODY) -> Transaction:
        """Create the entry of a transactional id."""
        transaction = self.transactions[name] = Transaction(name, account)
        self.count(transaction)
        return transaction

    def count(self, transaction: Transaction) -> None:
        """Update the memory that is counted for a transactional id."""
        now = state_bytes(transaction.transactional_id, transaction.stored)
        self.memory.account.hold(transaction.account, now - transaction.held_bytes)
        transaction.held_bytes = now

    def forget(self, name: str) -> None:
        """Remove a transactional id from memory."""
        transaction = self.transactions.pop(name, None)
        if transaction is not None:
            self.memory.account.hold(transaction.account, -transaction.held_bytes)

    def settle(self, name: str) -> Transaction:
        """Return a transaction whose write has succeeded or failed."""
        transaction = self.transactions[name]
        transaction.pending = None
        return transaction

    def started(self, ticket: Started, error: ErrorCode, is_known: bool, out: Result[Any]) -> None:
        if is_known:
            transaction = self.settle(ticket.transactional_id)
            if error is ErrorCode.NONE:
                transaction.last_producer_epoch = ticket.last_producer_epoch
            elif transaction.stored is None:
                self.forget(ticket.transactional_id)
        answer = ticket.answer if error is ErrorCode.NONE else Initialized(error)
        out.reply(ticket.token, answer)

    def added(
        self,
        ticket: AddedPartitions,
        error: ErrorCode,
        is_known: bool,
        now_ms: int,
        out: Result[Any],
    ) -> None:
        if is_known:
            self.settle(ticket.transactional_id)
            if error is ErrorCode.NONE:
                self.watch_timeouts(now_ms, out)
        out.reply(ticket.token, error)

    def prepared(
        self, ticket: Prepared, error: ErrorCode, is_known: bool, now_ms: int, out: Result[Any]
    ) -> None:
        if is_known:
            for name in ticket.transactional_ids:
                transaction = self.settle(name)
                if error is ErrorCode.NONE:
                    stored = transaction.stored
                    assert stored is not None
                    if stored.client_version >= BUMPS_EPOCHS:
                        # The producer can get the next epoch by sending its previous one.
                        transaction.last_producer_epoch = stored.producer_epoch - 1
                    elif ticket.fenced:
                        transaction.last_producer_epoch = NO_PRODUCER_EPOCH
                    self.send_markers(transaction, now_ms, out)
        if ticket.token is None:
            level = logging.INFO if error is ErrorCode.NONE else logging.WARNING
            log.log(
                level,
                "%s: aborting %s, open longer than its timeout",
                error.name,
                ticket.transactional_ids,
            )
        elif ticket.answer is None:
            out.reply(ticket.token, self.ended_answer(ticket.transactional_ids[0], error))
        else:
            out.reply(
                ticket.token, ticket.answer if error is ErrorCode.NONE else Initialized(error)
            )

    def ended_answer(self, name: str, error: ErrorCode) -> EndedTransaction:
        """The answer to an EndTxn whose outcome was decided, or that failed."""
        stored = self.transactions[name].stored
        assert stored is not None
        if error is not ErrorCode.NONE or stored.client_version < BUMPS_EPOCHS:
            return EndedTransaction(error)
        return EndedTransaction(error, *stored.completed_producer)

    def ended(self, ticket: Completed, error: ErrorCode, now_ms: int, out: Result[Any]) -> None:
        self.settle(ticket.transactional_id)
        if error is not ErrorCode.NONE:
            # Every partition has its marker; only its record is missing.
            key = (ticket.transactional_id,)
            out.timers.append(Timer(COMPLETE_DUE, key, now_ms + self.config.marker_retry_ms))

    def send_markers(self, transaction: Transaction, now_ms: int, out: Result[Any]) -> None:
        """Begin the second phase of a transaction whose outcome is stored."""
        if transaction.unmarked:
            out.effects.append(self.markers_for(transaction))
        elif out.ticket is None:
            self.complete(transaction, now_ms, out)
        else:  # an operation may write only once
            key = (transaction.transactional_id,)
            out.timers.append(Timer(COMPLETE_DUE, key, now_ms))

    # Loading and unloading the partition

    def loaded(self, now_ms: int) -> Result[Any]:
        """Start to serve the replayed ids, and continue transactions that were being ended."""
        out: Result[Any] = Result()
        if self.prepared_ids:
            self.unresumed += self.prepared_ids
            out.timers.append(Timer(RESUME_DUE, (), now_ms))
        self.watch_timeouts(now_ms, out)
        interval_ms = self.config.expiration_check_interval_ms
        out.timers.append(Timer(EXPIRATION_DUE, (), now_ms + interval_ms))
        return out

    def unload(self, now_ms: int) -> Iterator[Result[Any]]:
        """Forget all ids, one per step; waiting requests were answered when their writes were abandoned."""
        self.open.clear()
        self.prepared_ids.clear()
        nothing: Result[Any] = Result()
        while self.transactions:
            self.forget(next(reversed(self.transactions)))
            yield nothing

    def shift_time(self, delta_ms: int) -> None:
        """Shift all deadlines, because the clock behind `now_ms` was set."""
        for name in self.open:
            self.transactions[name].due_ms += delta_ms

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Return key and value of a record, in the broker's version of values."""
        return encode_record(record, self.config.value_version)

    decode = staticmethod(decode_record)
