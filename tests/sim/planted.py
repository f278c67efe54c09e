"""Mistakes that the simulation must notice; each is put into the running code by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kwire.connection import ClientConnection, ResponseReceived, ServerConnection
from kwire.errors import ErrorCode
from server.controller import leadership
from server.coordinator.common.result import Result
from server.coordinator.transaction.marker_channels import MarkerChannels
from server.coordinator.transaction.shard import TransactionShard
from server.log.cleaner.offset_map import Left, NativeOffsetMap, OffsetMap, PythonOffsetMap
from server.net.broker_channel import BrokerChannel, ChannelError
from server.net.frame_memory import FrameBlock, FrameMemory
from server.replication import fetcher, partition
from server.replication.isr import IsrState
from server.replication.partition import Partition
from server.replication.read_result import ReadResult

from . import network

Patches = list[tuple[Any, str, Any]]


def acknowledge_early() -> Patches:
    """The leader considers records committed before the in-sync replicas have them."""

    def all_of_it(leader_end: int, *_: Any) -> int:
        return leader_end

    return [(partition, "committed_offset", all_of_it)]


def ignore_epochs_on_truncation() -> Patches:
    """A follower continues at its own log end, ignoring the leader's history."""

    def own_end(replica: Partition, *_: Any) -> int:
        return replica.log.log_end_offset

    read = Partition.read

    def blind(self: Partition, offset: int, size: int, **options: Any) -> ReadResult:
        options["last_fetched_epoch"] = -1
        return read(self, offset, size, **options)

    return [(fetcher, "common_end", own_end), (Partition, "read", blind)]


def keep_a_stale_isr() -> Patches:
    """A leader removes followers from the ISR by itself, and commits before the controller knows."""

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
            self.advance_high_watermark(0, now_ms)

    return [(Partition, "drop_laggards", drop)]


def wait_for_the_fastest() -> Patches:
    """The leader considers records committed once a single follower has them."""

    def fastest(leader_end: int, followers: Any, maximal: Any, *_: Any) -> int:
        ends = [each.log_end_offset for each in followers if each.broker_id in maximal]
        return max(ends, default=leader_end)

    return [(partition, "committed_offset", fastest)]


def elect_anybody() -> Patches:
    """A partition without a live in-sync replica gets a leader, although that is not allowed."""

    def unclean(*_: Any) -> bool:
        return True

    return [(leadership.Leadership, "allows_unclean", unclean)]


def lose_markers() -> Patches:
    """A marker that did not reach another broker is assumed to be written."""

    def written(self: MarkerChannels, batch: Any) -> None:
        for markers, told in batch:
            told([(tp, ErrorCode.NONE) for tp in markers.partitions])

    return [(MarkerChannels, "_failed", written)]


def forget_decided_transactions() -> Patches:
    """A new coordinator does not complete transactions that its predecessor had decided."""

    def loaded(self: TransactionShard, now_ms: int) -> Result:
        return Result()

    return [(TransactionShard, "loaded", loaded)]


def answer_in_any_order() -> Patches:
    """A reply is sent when it is ready, even before the reply to an earlier request."""

    def at_once(self: ServerConnection, request: Any, parts: Any = ()) -> None:
        self._slots.remove(request)
        self._output.extend(parts)

    return [(ServerConnection, "reply", at_once)]


def share_the_memory_of_frames() -> Patches:
    """Two frames that have arrived only in part use the same memory. The network cuts all that is sent into parts."""
    home = FrameMemory.home
    shared = bytearray(1 << 22)

    def same(self: FrameMemory, need: int, held: memoryview, *rest: Any) -> FrameBlock:
        block = home(self, need, held, *rest)
        block.buffer = shared
        block.view = memoryview(shared)[: len(block.view)]
        block.view[: len(held)] = held
        return block

    return [(FrameMemory, "home", same), (network, "CUT_SHARE", 1.0)]


def go_on_after_a_timeout() -> Patches:
    """A channel keeps its connection after a timeout, and takes the late reply for the next one."""

    end = BrokerChannel._end

    def give_up(self: BrokerChannel, connection: Any, reason: str) -> None:
        if "did not answer" not in reason:
            end(self, connection, reason)
            return
        oldest = next(iter(connection.waiting))
        connection.waiting.pop(oldest).reply.set_exception(ChannelError("too late"))
        connection.client._sent.popleft()
        self._time_out(connection)

    def any_response(self: ClientConnection) -> ResponseReceived | None:
        frame = self._frames.next_lasting_frame()
        if frame is None:
            self._frames.rest()
            return None
        sent = self._sent.popleft()
        return ResponseReceived(*sent, frame, 5)

    return [
        (BrokerChannel, "_end", give_up),
        (ClientConnection, "next_response", any_response),
    ]


def compact_away_the_last() -> Patches:
    """Compaction removes the last record of a key along with the earlier ones."""
    filter_batches = NativeOffsetMap.filter_batches

    def after(kind: type[OffsetMap]) -> Callable[[OffsetMap, bytes], int]:
        get = kind.get
        return lambda self, key: get(self, key) + 1

    def all_after(self: OffsetMap, keys: Any) -> list[int]:
        return list(map(self.get, keys))

    def none(self: OffsetMap, start: int, _: int) -> bytearray:
        return bytearray(self.latest_offset + 1 - start)

    def nothing_left(self: NativeOffsetMap, *batches: Any) -> tuple[int, list[Left]]:
        end, rows = filter_batches(self, *batches)
        return end, [(None, size, last_offset, had, 0) for _, size, last_offset, had, _ in rows]

    return [
        (NativeOffsetMap, "filter_batches", nothing_left),
        (NativeOffsetMap, "get", after(NativeOffsetMap)),
        (PythonOffsetMap, "get", after(PythonOffsetMap)),
        (PythonOffsetMap, "last_offsets", all_after),
        (PythonOffsetMap, "marks", none),
    ]


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
        answer_in_any_order,
        share_the_memory_of_frames,
        go_on_after_a_timeout,
        compact_away_the_last,
    )
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """A context in which the named mistake is in the code."""
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
