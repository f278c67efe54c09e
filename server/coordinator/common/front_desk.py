"""What the broker and handlers need of every coordinator: which partition a key belongs to, and who serves it.

A key (a group, a transactional id, a share partition) belongs to the broker that leads its partition of the
coordinator's internal topic.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kwire.errors import ErrorCode

from ...clock import Clock
from ...turns import Turns
from .partitioner import partition_for
from .result import Result
from .runtime import CoordinatorLog, CoordinatorRuntime, CoordinatorShard


class ConfiguredShard(CoordinatorShard, Protocol):
    """A machine with the coordinator's settings, which may change while it runs."""

    config: Any


ConfigT = TypeVar("ConfigT")
S = TypeVar("S", bound=ConfiguredShard)
T = TypeVar("T")


class FrontDesk(ABC, Generic[ConfigT, S]):
    """All keys that this broker coordinates, of one kind.

    Shape: `topic_partitions` is the number of partitions that the topic has or will have; the broker sets it to the
    real count once the topic exists.
    """

    #: The internal topic.
    topic: ClassVar[str]
    #: The error for an empty key.
    no_key: ClassVar[ErrorCode] = ErrorCode.INVALID_GROUP_ID

    def __init__(
        self,
        config: ConfigT,
        topic_partitions: int,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        make_shard: Callable[[int], S],
        write_timeout_ms: Callable[[], int],
        turns: Turns | None,
    ) -> None:
        self.config = config
        self.topic_partitions = topic_partitions
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(
            self.topic, coordinator_log, clock, make_shard, write_timeout_ms, self.perform, turns
        )

    @abstractmethod
    def perform(self, partition: int, leader_epoch: int, effect: Any) -> None:
        """Carry out a shard's effect outside its log."""

    # Called by the broker

    def lead(self, partition: int, leader_epoch: int) -> None:
        """Start coordinating the keys of a partition of the topic."""
        self.runtime.lead(partition, leader_epoch)

    def resign(self, partition: int) -> None:
        """Stop coordinating the keys of a partition."""
        self.runtime.resign(partition)

    def reconfigure(self, config: ConfigT) -> None:
        """Apply changed settings; waiting requests keep their original timeouts."""
        self.config = config
        for _, shard in self.runtime.active():
            shard.config = config

    def close(self) -> None:
        """Give up all partitions."""
        self.runtime.close()

    # The place of a key

    def partition_for(self, key: str) -> int:
        """Return the partition of the topic that a key belongs to."""
        return partition_for(key, self.topic_partitions)

    def find(self, key: str, may_be_empty: bool = False) -> tuple[int, ErrorCode | S]:
        """Return a key's partition and its shard, or an error if the key cannot be served here.

        Errors: `no_key` for "", unless `may_be_empty`; NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not key and not may_be_empty:
            return -1, self.no_key
        partition = self.partition_for(key)
        return partition, self.runtime.shard(partition)

    def run(
        self,
        key: str,
        operation: Callable[[S, int, int], Result[T]],
        refusal: Callable[[ErrorCode], T],
        *,
        may_be_empty: bool = False,
    ) -> T | asyncio.Future[T]:
        """Run `operation(shard, token, now_ms)` on a key's shard, or return the refusal that carries the error of `find`."""
        partition, shard = self.find(key, may_be_empty)
        if isinstance(shard, ErrorCode):
            return refusal(shard)
        return self.runtime.run(partition, operation)

    def hand_over(self, partition: int, operation: Callable[[S, int], Result[Any]]) -> None:
        """Run an operation without a waiting request, unless another broker now coordinates the partition."""
        if not isinstance(self.runtime.shard(partition), ErrorCode):
            self.runtime.start(partition, operation)
