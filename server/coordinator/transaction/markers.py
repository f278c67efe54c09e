"""Markers that end a transaction: their content and partitions, and the interface for writing them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple, Protocol

from kwire.errors import ErrorCode

from ...metadata.topic_partition import TopicPartition


class Markers(NamedTuple):
    """The end of one transaction, for the partitions that do not have its marker yet.

    Shape: `coordinator_epoch` is the leader epoch of the partition of __transaction_state. `transaction_version` is the
    version of the protocol; from 2 on, the marker's epoch is higher than that of all records. `client` is the address of
    the client whose transaction it is; None if it is not known, after the coordinator has moved.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0
    client: object = None


#: The outcome for some of the partitions; those not named are still being written.
Outcomes = Iterable[tuple[TopicPartition, ErrorCode]]


class MarkerSender(Protocol):
    """Has markers written by the leaders of the partitions."""

    def send(
        self, markers: Markers, written: Callable[[Outcomes], None]
    ) -> Generator[None, None, None]:
        """Write markers in steps, one marker in each, and report the outcome of each partition once, in any order.

        Shape: `written` may be called within these steps, or later. NONE: committed there. UNKNOWN_TOPIC_OR_PARTITION:
        the partition was deleted, and needs no marker. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED:
        another coordinator has taken over. All other errors should be retried.
        """
        ...
