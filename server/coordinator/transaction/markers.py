"""Markers that end a transaction: what is to be written where, and the seam that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kwire.errors import ErrorCode

from ...metadata.topic_partition import TopicPartition


class Markers(NamedTuple):
    """The end of one transaction, for those partitions that do not have it yet.

    Shape: `coordinator_epoch` is the leader epoch of the partition of __transaction_state;
    `transaction_version` is that of the protocol, from 2 on with an epoch nobody produced with.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


#: What became of some of the partitions; those not named are still under way.
Outcomes = Iterable[tuple[TopicPartition, ErrorCode]]


class MarkerSender(Protocol):
    """Has markers written by whoever leads the partitions."""

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> None:
        """Write markers, and say what came of each partition, once, at any time, in any order.

        Shape: `written` may be called before this returns. NONE: committed there.
        UNKNOWN_TOPIC_OR_PARTITION: the partition was deleted, and needs none. INVALID_PRODUCER_EPOCH
        and TRANSACTION_COORDINATOR_FENCED: another coordinator has taken over. Anything else is
        worth another try.
        """
        ...
