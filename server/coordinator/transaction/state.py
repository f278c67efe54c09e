"""The state of one transactional id, and its transitions.

    EMPTY ──▶ ONGOING ──▶ PREPARE_COMMIT ──▶ COMPLETE_COMMIT ──▶ ONGOING, EMPTY
      ▲          │  └───▶ PREPARE_ABORT ───▶ COMPLETE_ABORT ───▶ ONGOING, EMPTY
      └ InitProducerId    (decided)          (every partition has its marker)

A transaction that ends in version 2 of the protocol (KIP-890) gets the next epoch with PREPARE_*;
its markers also have that epoch. If the epochs of a producer id are used up, a new id is reserved
at that point (`next_producer_id`) and used, with epoch 0, from COMPLETE_* on. Version 2 can also
abort when no transaction is open: from EMPTY or COMPLETE_* to PREPARE_ABORT.

Source: TransactionMetadata, TransactionState; those of 3.9 for version 0, of 4.3 for version 2.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import NamedTuple

from kwire.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ..common.transition import IllegalTransition

MAX_EPOCH = 0x7FFF
LAST_EPOCH = MAX_EPOCH - 1
"""The last epoch that a producer can get; one more is reserved to fence it."""
BUMPS_EPOCHS = 2
"""The first version of the protocol in which every transaction has its own epoch."""


class TransactionState(IntEnum):
    """The states by their number in the log; DEAD and PREPARE_EPOCH_FENCE are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see and filter by."""
        return TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """True while the outcome is decided but not every partition has its marker."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """True once every partition of a transaction has its marker."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if there is no transaction, so that the id may expire."""
        return self in VALID_PREVIOUS[TransactionState.DEAD]


_S = TransactionState
TITLES = {state: state.name.title().replace("_", "") for state in TransactionState}
_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
#: The states from which each state may be reached. A fence enters PREPARE_ABORT with the next epoch in one record, so
#: no transaction stays in PREPARE_EPOCH_FENCE.
VALID_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}


class TransactionMetadata(NamedTuple):
    """The stored state of a transactional id.

    Shape: `previous_producer_id` is the id before the last change, `next_producer_id` the id after a prepared
    transaction is complete; -1 for none. `client_version` is the version of the protocol in which the last change was
    requested. Values of version 0 do not have these three.
    Unit: times in ms since the epoch; start_ms is -1 before the first transaction.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a producer."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def completed_producer(self) -> tuple[int, int]:
        """Id and epoch of the next transaction, in a prepared state."""
        if self.client_version >= BUMPS_EPOCHS and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class Transaction:
    """A transactional id: its stored state, and the soft state while it is coordinated here.

    Shape: `stored` is None until the first record is committed. `pending` is the target state of a write in flight;
    until the write ends, nothing else may change. `unmarked` are the partitions without their marker, in a prepared
    state, and `sent` those of them whose marker has been sent without an outcome yet. `client` is the address of the
    client that last used it, as `client_of` gives it. `last_producer_epoch` is the producer's epoch before the last
    change, which identifies a retry of InitProducerId; the log does not store it. `held_bytes` is the memory that the
    shard counts for it, and `account` the client that it is counted for.
    """

    __slots__ = (
        "account",
        "client",
        "due_ms",
        "held_bytes",
        "last_producer_epoch",
        "pending",
        "sent",
        "stored",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str, account: Hashable = NOBODY) -> None:
        self.transactional_id = transactional_id
        self.account = account
        self.stored: TransactionMetadata | None = None
        self.pending: TransactionState | None = None
        self.held_bytes = 0
        self.unmarked: set[TopicPartition] = set()
        self.sent: set[TopicPartition] = set()
        self.client: object = None
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        #: When the open transaction will be aborted, in the machine's time.
        self.due_ms = NO_TIMESTAMP

    def prepare(self, state: TransactionState) -> None:
        """Note that a write to this state is in flight. Errors: IllegalTransition."""
        current = TransactionState.EMPTY if self.stored is None else self.stored.state
        if self.pending is not None or current not in VALID_PREVIOUS[state]:
            note = "" if self.pending is None else f" while it goes to {self.pending.title}"
            what = f"transactional id {self.transactional_id!r}"
            raise IllegalTransition(what, current.title, state.title, note)
        self.pending = state

    def __repr__(self) -> str:
        return f"Transaction({self.transactional_id!r}, {self.stored!r}, pending={self.pending!r})"
