"""Requests to the share coordinator and its answers, as rows for single share partitions.

A share partition is a partition of a topic as one share group consumes it. The rows have the fields of APIs 83 to 87,
without their nesting by topic. Source: org.apache.kafka.server.share.persister.PartitionFactory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kwire.errors import ErrorCode

#: "Not given" in a request, and "not known yet" in an answer.
UNINITIALIZED_START_OFFSET = -1
UNINITIALIZED_DELIVERY_COMPLETE_COUNT = -1
DEFAULT_STATE_EPOCH = 0
DEFAULT_LEADER_EPOCH = 0


class StateBatch(NamedTuple):
    """Consecutive offsets with the same state.

    Shape: `last_offset` is inclusive. `delivery_state` is 0 (available), 2 (acknowledged) or 4 (archived); the acquired
    state is not stored. `delivery_count` is the number of deliveries.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class StatePartition:
    """A share partition of the group in the request.

    Shape: `topic_id` has 16 bytes.
    """

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class InitializeState(StatePartition):
    """Begin at `start_offset`; if it is -1, where the group's share.auto.offset.reset says."""

    state_epoch: int
    start_offset: int = UNINITIALIZED_START_OFFSET


@dataclass(frozen=True, slots=True)
class ReadState(StatePartition):
    """Read the state as the leader of the partition in `leader_epoch`; -1 if the reader need not be the leader."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteState(StatePartition):
    """Change the state as the leader of the partition in `leader_epoch`.

    Shape: a `start_offset` of -1 leaves it unchanged. Batches replace the state of their offsets; batches below the
    start offset are dropped. `delivery_complete_count` is the number of records from the start offset on in a final
    state.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNINITIALIZED_DELIVERY_COMPLETE_COUNT


@dataclass(frozen=True, slots=True)
class StateOutcome(StatePartition):
    """The outcome for a share partition.

    Shape: `error_message` is None without an error.
    """

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class StateRead(StateOutcome):
    """The state of a share partition. Shape: a `start_offset` of -1 means that nothing has been initialized or read."""

    state_epoch: int = DEFAULT_STATE_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSummary(StateOutcome):
    """The state of a share partition without its batches."""

    state_epoch: int = DEFAULT_STATE_EPOCH
    leader_epoch: int = DEFAULT_LEADER_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    delivery_complete_count: int = UNINITIALIZED_DELIVERY_COMPLETE_COUNT
