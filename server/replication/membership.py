"""What a partition is told of the cluster around it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")


class PartitionState(NamedTuple):
    """Who leads a partition, as the controller decided it.

    Shape: `leader` is a broker id or -1; `partition_epoch` is the version of the state's node;
    `recovering` says that an unclean leader has not caught up with itself yet.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False


class Membership(Generic[P]):
    """What partitions know of the brokers around them.

    Shape: P is Partition, which is named here only so. `live_brokers()` are those that may join the in-sync replicas; `propose(partition)` has
    the controller asked for the partition's `isr.proposed`.
    Unit: `max_lag_ms` is replica.lag.time.max.ms. `steady_ms` makes of the wall clock's time one
    that does not jump, by which lag is measured: Apache Kafka uses the wall clock, and one that is
    set back keeps dead followers in sync for so long.
    """

    __slots__ = ("flush", "live_brokers", "local_id", "max_lag_ms", "propose", "steady_ms")

    def __init__(
        self,
        local_id: int,
        *,
        max_lag_ms: int = 30_000,
        live_brokers: Callable[[], Collection[int]] = tuple,
        propose: Callable[[P], None] = lambda _: None,
        flush: Callable[[P], None] = lambda _: None,
        steady_ms: Callable[[int], int] = lambda now_ms: now_ms,
    ) -> None:
        self.local_id = local_id
        self.steady_ms = steady_ms
        self.max_lag_ms = max_lag_ms
        self.live_brokers = live_brokers
        self.propose = propose
        #: Force the partition's log to the device, then call its `on_flushed`.
        self.flush = flush
