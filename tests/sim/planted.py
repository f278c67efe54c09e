"""Mistakes that the simulation must notice: each is put into the running code by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kwire.errors import ErrorCode
from server.controller import leadership
from server.coordinator.marker_channels import MarkerChannels
from server.coordinator.result import Result
from server.coordinator.transaction.shard import TransactionShard
from server.replication import fetcher, partition
from server.replication.isr import IsrState
from server.replication.partition import Partition
from server.replication.read_result import ReadResult

Patches = list[tuple[Any, str, Any]]


def acknowledge_early() -> Patches:
    """What the leader has is called committed before the in-sync replicas have it."""

    def all_of_it(leader_end: int, *_: Any) -> int:
        return leader_end

    return [(partition, "committed_offset", all_of_it)]


def ignore_epochs_on_truncation() -> Patches:
    """A follower goes on from its own end, whatever the leader says of its history."""

    def own_end(replica: Partition, *_: Any) -> int:
        return replica.log.log_end_offset

    read = Partition.read

    def blind(self: Partition, offset: int, size: int, **options: Any) -> ReadResult:
        options["last_fetched_epoch"] = -1
        return read(self, offset, size, **options)

    return [(fetcher, "common_end", own_end), (Partition, "read", blind)]


def keep_a_stale_isr() -> Patches:
    """A leader drops followers by itself and commits before the controller knows of it."""

    def drop(self: Partition, now_ms: int) -> None:
        if not self.is_leader or not self.followers:
            return
        slow = partition.out_of_sync(
            self.isr,
            self.log.log_end_offset,
            self.followers.values(),
            now_ms,
            self._membership.max_lag_ms,
        )
        if slow:
            kept = tuple(each for each in self.isr.isr if each not in slow)
            self.isr = IsrState(kept)
            self.min_insync_replicas = 1
            self._advance_high_watermark(0, now_ms)

    return [(Partition, "drop_laggards", drop)]


def wait_for_the_fastest() -> Patches:
    """What one follower has is called committed, whatever the others have."""

    def fastest(leader_end: int, followers: Any, maximal: Any, *_: Any) -> int:
        ends = [each.log_end_offset for each in followers if each.broker_id in maximal]
        return max(ends, default=leader_end)

    return [(partition, "committed_offset", fastest)]


def elect_anybody() -> Patches:
    """A partition without a live in-sync replica gets another leader although that is not allowed."""

    def unclean(*_: Any) -> bool:
        return True

    return [(leadership.Leadership, "allows_unclean", unclean)]


def lose_markers() -> Patches:
    """A marker that did not get through to another broker is taken for written."""

    def written(self: MarkerChannels, batch: Any) -> None:
        for markers, told in batch:
            told([(tp, ErrorCode.NONE) for tp in markers.partitions])

    return [(MarkerChannels, "_failed", written)]


def forget_decided_transactions() -> Patches:
    """A coordinator that takes over does not end what the one before had decided."""

    def loaded(self: TransactionShard, now_ms: int) -> Result:
        return Result()

    return [(TransactionShard, "loaded", loaded)]


MISTAKES: dict[str, Callable[[], Patches]] = {
    mistake.__name__.replace("_", "-"): mistake
    for mistake in (
        acknowledge_early,
        ignore_epochs_on_truncation,
        keep_a_stale_isr,
        wait_for_the_fastest,
        elect_anybody,
        lose_markers,
        forget_decided_transactions,
    )
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Make a mistake for as long as this lasts."""
    if name is None:
        yield
        return
    patches = [patch.object(*each) for each in MISTAKES[name]()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
