"""The cluster as a partition sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")


class PartitionState(NamedTuple):
    """Who leads a partition, as decided by the controller.

    Shape: `leader` is a broker id or -1; `partition_epoch` is the version of the state's node;
    `recovering` marks a leader elected uncleanly that has not recovered yet.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False


class ReplicaCounts:
    """Counters over all partitions of a broker, including those that it no longer has.

    Shape: `appends_gone`, `bytes_in_gone` and `messages_in_gone` are the counts of partitions that have left this
    broker.
    """

    __slots__ = ("appends_gone", "bytes_in_gone", "isr_expands", "isr_shrinks", "messages_in_gone")

    def __init__(self) -> None:
        self.appends_gone = 0
        self.bytes_in_gone = 0
        self.messages_in_gone = 0
        self.isr_expands = 0
        self.isr_shrinks = 0

    def isr_changed(self, before: int, after: int) -> None:
        """The controller has confirmed a change of a partition's in-sync replicas from one number to another."""
        if after > before:
            self.isr_expands += 1
        elif after < before:
            self.isr_shrinks += 1


class Membership(Generic[P]):
    """The brokers around the partitions, as partitions see them.

    Shape: P is Partition, a type variable only to avoid the import. `live_brokers()` are those that may join the
    in-sync replicas; `propose(partition)` proposes its `isr.proposed` to the controller.
    Unit: `max_lag_ms` is replica.lag.time.max.ms. `steady_ms` turns wall-clock time into time that does not jump, by
    which lag is measured. Apache Kafka uses the wall clock: setting it back keeps dead followers in sync for that long.
    """

    __slots__ = (
        "counts",
        "flush",
        "live_brokers",
        "local_id",
        "max_lag_ms",
        "propose",
        "steady_ms",
    )

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
        self.counts = ReplicaCounts()
        self.local_id = local_id
        self.steady_ms = steady_ms
        self.max_lag_ms = max_lag_ms
        self.live_brokers = live_brokers
        self.propose = propose
        #: Force the partition's log to the device, then call its `on_flushed`.
        self.flush = flush
