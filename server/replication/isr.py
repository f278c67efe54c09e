"""In-sync replicas as a partition's leader sees them: who keeps up, and what is committed. Pure.

A change of the set is proposed to the controller and takes effect when the controller confirms it.
Until then the union of the old and the new set counts (`maximal`): before the answer arrives the
controller may elect a replica that is about to join, and still elect one that is about to be
dropped. So the high watermark waits for both. Source: kafka.cluster.Partition, Replica,
PartitionState (KIP-497).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
#: Earlier than any time of a clock, even one that began a moment ago.
NEVER_MS = -(1 << 62)


class IsrState(NamedTuple):
    """The in-sync replicas.

    Shape: `isr` is what the controller last confirmed, including the leader. At most one change is
    in flight: one replica to be added, or some to be dropped.
    """

    isr: tuple[int, ...]
    adding: int | None = None
    dropping: tuple[int, ...] = ()

    @property
    def in_flight(self) -> bool:
        """Whether a change is in flight."""
        return self.adding is not None or bool(self.dropping)

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that may be in the set, regardless of the controller's decision."""
        return self.isr if self.adding is None else (*self.isr, self.adding)

    @property
    def proposed(self) -> tuple[int, ...]:
        """The set once the change in flight is accepted."""
        return tuple(each for each in self.maximal if each not in self.dropping)

    def committed(self) -> IsrState:
        """The state without the change in flight."""
        return IsrState(self.isr)


class FollowerState:
    """The leader's knowledge of one follower, from its fetches.

    Unit: offsets are the follower's log end and log start, -1 before its first fetch from this leader; times are
    milliseconds of a clock that does not jump. Source: kafka.cluster.Replica.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_leader_end = 0
        self.last_fetch_ms = NEVER_MS
        self.broker_epoch = UNKNOWN_EPOCH

    def __repr__(self) -> str:
        return f"FollowerState({self.broker_id}, log_end_offset={self.log_end_offset})"

    def reset(self, now_ms: int, leader_end: int, *, new_leader: bool, in_sync: bool) -> None:
        """Begin a leader epoch: a follower that is in sync gets time to fetch."""
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS
        if new_leader:
            self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = UNKNOWN_EPOCH
        else:
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = now_ms if in_sync else NEVER_MS

    def on_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Note a fetch from `fetch_offset`, which is the follower's log end.

        The follower was caught up if it fetched from the leader's end. As that end keeps moving, it
        was also caught up, at the time of its previous fetch, if it has now reached the leader's
        end of that time.
        """
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it is at the leader's end, or was within the last `replica.lag.time.max.ms`."""
        return leader_end == self.log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


def committed_offset(
    leader_end: int,
    followers: Iterable[FollowerState],
    maximal: Collection[int],
    eligible: Collection[int],
    now_ms: int,
    max_lag_ms: int,
) -> int:
    """The offset up to which all replicas that count have the log; the high watermark's limit.

    Shape: a follower that keeps up counts even before it joins, otherwise the high watermark would
    stay ahead of it for ever; `eligible` are the brokers that may join.
    """
    offset = leader_end
    for follower in followers:
        if follower.log_end_offset < offset and (
            follower.broker_id in maximal
            or (
                follower.broker_id in eligible
                and follower.is_caught_up(leader_end, now_ms, max_lag_ms)
            )
        ):
            offset = follower.log_end_offset
    return offset


def out_of_sync(
    state: IsrState,
    leader_end: int,
    followers: Iterable[FollowerState],
    now_ms: int,
    max_lag_ms: int,
) -> tuple[int, ...]:
    """The in-sync followers that have not kept up; empty while a change is under way."""
    if state.in_flight:
        return ()
    return tuple(
        follower.broker_id
        for follower in followers
        if follower.broker_id in state.isr
        and not follower.is_caught_up(leader_end, now_ms, max_lag_ms)
    )


def may_join(
    state: IsrState, follower: FollowerState, high_watermark: int, epoch_start_offset: int
) -> bool:
    """Whether a follower has everything committed and has reached this leader's first offset."""
    return (
        not state.in_flight
        and follower.broker_id not in state.isr
        and follower.log_end_offset >= high_watermark
        and follower.log_end_offset >= epoch_start_offset
    )
