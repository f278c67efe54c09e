"""Requests to the transaction coordinator's machine, their answers and their tickets."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

from ...shares import NOBODY
from .state import BUMPS_EPOCHS


class Producer(NamedTuple):
    """The parameters of InitProducerId; id and epoch are -1 unless the producer already has them.

    Shape: `account` is the client that memory is counted for.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    account: Hashable = NOBODY


class End(NamedTuple):
    """The parameters of EndTxn; `client_version` is the version of the protocol."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int = 0

    @property
    def bumps_epoch(self) -> bool:
        """Whether the answer gives the producer an epoch for its next transaction."""
        return self.client_version >= BUMPS_EPOCHS


# Answers


class Initialized(NamedTuple):
    """The answer to InitProducerId; with an error, id and epoch are -1."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class EndedTransaction(NamedTuple):
    """The answer to EndTxn; id and epoch are those for the next transaction, -1 before version 2."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class NeedsProducerId(NamedTuple):
    """The answer to a request that must be repeated with a new producer id."""


# Effects


class TimeoutNeedsProducerId(NamedTuple):
    """A transaction timed out, and its producer id has no epoch left for the next one."""

    transactional_id: str


# Tickets


class Started(NamedTuple):
    """Ticket of InitProducerId: the producer's previous epoch, and the answer."""

    transactional_id: str
    last_producer_epoch: int
    token: int
    answer: Initialized


class AddedPartitions(NamedTuple):
    """Ticket of added partitions."""

    transactional_id: str
    token: int


class Prepared(NamedTuple):
    """Ticket of an outcome; `answer` is sent to the token once the outcome is decided.

    Shape: None as answer means the answer of EndTxn, made from the outcome.
    """

    transactional_ids: tuple[str, ...]
    fenced: bool
    token: int | None = None
    answer: Initialized | None = None


class Completed(NamedTuple):
    """Ticket of a transaction whose partitions all have their marker."""

    transactional_id: str


class Expired(NamedTuple):
    """Ticket of tombstones."""

    transactional_ids: tuple[str, ...]
