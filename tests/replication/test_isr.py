"""The replicas in sync, and the records that the leader therefore considers committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kwire.errors import ErrorCode
from server.log.log import AppendError
from server.log.validator import AppendInfo
from server.metadata.image import MetadataImage
from server.replication.isr import FollowerState, IsrState, committed_offset, may_join, out_of_sync
from server.replication.membership import Membership, PartitionState
from server.replication.partition import Partition
from server.replication.purgatory import FetchWaiter, LowWatermarkWaiter
from server.replication.read_result import FollowerFetch, ReadResult
from tests.support.replicas import NOW, Replicas, batch, registration, values

LAG = 1000


def follower(broker_id: int, end: int, caught_up: int = NOW) -> FollowerState:
    state = FollowerState(broker_id)
    state.log_end_offset = end
    state.last_caught_up_ms = caught_up
    return state


# States


def test_change_under_way_counts_whoever_may_be_in() -> None:
    joining = IsrState((0, 1), adding=2)
    assert (joining.maximal, joining.proposed) == ((0, 1, 2), (0, 1, 2))
    leaving = IsrState((0, 1, 2), dropping=(1,))
    assert (leaving.maximal, leaving.proposed) == ((0, 1, 2), (0, 2))
    assert joining.in_flight and leaving.in_flight and not joining.committed().in_flight


def test_follower_at_the_end_of_the_fetch_before_is_caught_up_as_of_then() -> None:
    state = FollowerState(1)
    state.reset(NOW, 100, new_leader=True, in_sync=False)
    state.on_fetch(50, 0, 100, 1, NOW)
    assert not state.is_caught_up(100, NOW, LAG)
    state.on_fetch(100, 0, 250, 1, NOW + 500)  # where the leader's end was at NOW
    assert state.last_caught_up_ms == NOW
    assert state.is_caught_up(250, NOW + LAG, LAG)
    assert not state.is_caught_up(250, NOW + LAG + 1, LAG)
    assert state.is_caught_up(100, NOW + 10 * LAG, LAG)  # nothing to catch up with


@pytest.mark.parametrize(
    ("followers", "maximal", "eligible", "expected"),
    [
        ([follower(1, 7), follower(2, 9)], (0, 1, 2), (0, 1, 2), 7),
        ([follower(1, 7, NOW - 2 * LAG), follower(2, 9)], (0, 2), (0, 1, 2), 9),
        # A follower that keeps up is waited for, although it is not in the set yet ...
        ([follower(1, 7), follower(2, 9)], (0, 2), (0, 1, 2), 7),
        # ... unless its broker is gone.
        ([follower(1, 7), follower(2, 9)], (0, 2), (0, 2), 9),
        ([follower(1, -1)], (0, 1), (0, 1), -1),
    ],
)
def test_committed_is_what_all_have_who_count(
    followers: list[FollowerState],
    maximal: tuple[int, ...],
    eligible: tuple[int, ...],
    expected: int,
) -> None:
    assert committed_offset(10, followers, maximal, eligible, NOW, LAG) == expected


def test_only_confirmed_members_that_lag_are_out_of_sync() -> None:
    slow = NOW - LAG - 1
    followers = [follower(1, 3, slow), follower(2, 10, slow), follower(3, 3, slow)]
    assert out_of_sync(IsrState((0, 1, 2)), 10, followers, NOW, LAG) == (1,)
    assert out_of_sync(IsrState((0, 1, 2), adding=3), 10, followers, NOW, LAG) == ()


def test_follower_joins_with_all_that_is_committed_and_the_leaders_first_offset() -> None:
    one = follower(1, 8)
    assert may_join(IsrState((0,)), one, 8, 8)
    assert not may_join(IsrState((0,)), one, 9, 0)
    assert not may_join(IsrState((0,)), one, 8, 9)
    assert not may_join(IsrState((0, 1)), one, 8, 8)
    assert not may_join(IsrState((0,), adding=2), one, 8, 8)


# A partition with followers


class Led:
    """A partition with three replicas, led by broker 0."""

    def __init__(
        self,
        room: Replicas,
        isr: tuple[int, ...] = (0, 1, 2),
        minimum: int = 1,
        steady_ms: Callable[[int], int] = lambda now_ms: now_ms,
    ) -> None:
        self.proposed: list[tuple[int, ...]] = []
        self.live = {0, 1, 2}
        self.room = room
        membership = Membership(
            0,
            max_lag_ms=LAG,
            live_brokers=lambda: self.live,
            propose=lambda partition: self.proposed.append(partition.isr.proposed),
            steady_ms=steady_ms,
        )
        room.create("a")
        self.partition = Partition(room.partition("a").tp, room.partition("a").log, membership)
        self.partition.min_insync_replicas = minimum
        self.partition.apply(PartitionState(0, 1, isr, (0, 1, 2), 1), NOW)
        room.replicas.partitions[self.partition.tp] = self.partition

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark

    def fetch(
        self, broker_id: int, offset: int, now_ms: int = NOW, epoch: int = 5, start: int = 0
    ) -> ReadResult:
        return self.partition.read(
            offset,
            1 << 20,
            current_leader_epoch=1,
            follower=FollowerFetch(broker_id, epoch, start),
            now_ms=now_ms,
        )


def test_nothing_is_committed_before_every_in_sync_replica_has_it(room: Replicas) -> None:
    led = Led(room)
    room.produce("a", b"1", b"2")
    assert led.high_watermark == 0
    found = led.fetch(1, 0)
    assert values(found.data) == [b"1", b"2"]  # a follower reads uncommitted records
    assert values(led.partition.read(0, 1 << 20).data) == []
    led.fetch(1, 2)
    assert led.high_watermark == 0
    led.fetch(2, 2)
    assert led.high_watermark == 2
    assert values(led.partition.read(0, 1 << 20).data) == [b"1", b"2"]


def test_laggard_holds_the_watermark_until_the_controller_has_confirmed(room: Replicas) -> None:
    led = Led(room)
    room.produce("a", b"1")
    later = NOW + LAG + 1
    led.fetch(1, 1, later)
    led.partition.drop_laggards(later)
    assert led.proposed == [(0, 1)]
    assert led.high_watermark == 0
    led.partition.drop_laggards(later)
    assert len(led.proposed) == 1  # one change at a time
    led.partition.on_isr_confirmed((0, 1), 2, later)
    assert led.high_watermark == 1


def test_wall_clock_that_jumps_drops_nobody_and_keeps_nobody(room: Replicas) -> None:
    steady = 0  # of a machine that has just booted
    led = Led(room, isr=(0, 1), steady_ms=lambda _: steady)
    room.produce("a", b"1")
    assert led.high_watermark == 0
    led.fetch(1, 1)
    assert led.high_watermark == 1  # broker 2 has never been in sync in this time
    room.produce("a", b"2")
    led.partition.drop_laggards(NOW + 1_000_000)
    assert led.proposed == []
    steady = LAG + 1
    led.partition.drop_laggards(NOW - 1_000_000)
    assert led.proposed == [(0,)]


def test_refused_change_may_be_proposed_anew(room: Replicas) -> None:
    led = Led(room)
    room.produce("a", b"1")
    later = NOW + LAG + 1
    led.partition.drop_laggards(later)
    led.partition.on_isr_refused(later)
    led.partition.drop_laggards(later)
    assert led.proposed == [(0,), (0,)]


def test_replica_that_was_refused_and_left_no_longer_holds_the_watermark(room: Replicas) -> None:
    led = Led(room, isr=(0, 1))
    room.produce("a", b"1")
    led.fetch(2, 0)
    led.fetch(1, 1)
    assert (led.high_watermark, led.proposed) == (0, [(0, 1, 2)])
    led.live = {0, 1}
    led.partition.on_isr_refused(NOW)
    assert led.high_watermark == 1


def test_replica_that_was_refused_holds_the_watermark_only_once_it_fetches_again(
    room: Replicas,
) -> None:
    """A broker that shuts down is refused while it is still alive, and may never fetch again."""
    led = Led(room, isr=(0, 1))
    led.fetch(2, 0)
    room.produce("a", b"1")
    led.fetch(1, 1)
    assert (led.high_watermark, led.proposed) == (0, [(0, 1, 2)])
    led.partition.on_isr_refused(NOW)
    assert led.high_watermark == 1
    led.fetch(2, 1)
    assert led.proposed == [(0, 1, 2)] * 2
    room.produce("a", b"2")
    led.fetch(1, 2)
    assert led.high_watermark == 1


def test_broker_that_leaves_the_cluster_no_longer_holds_the_watermark(room: Replicas) -> None:
    led = Led(room, isr=(0,))
    led.fetch(1, 0)
    led.fetch(2, 0)
    assert led.proposed == [(0, 1)]
    room.produce("a", b"1")
    led.fetch(1, 1)
    led.partition.on_isr_confirmed((0, 1), 2, NOW)
    assert led.high_watermark == 0  # broker 2 has just caught up, and may join next
    led.live = {0, 1}
    before = MetadataImage().with_brokers({each: registration(each) for each in (0, 1, 2)})
    after = before.with_brokers({each: registration(each) for each in (0, 1)})
    room.replicas.on_image(before, after)
    assert led.high_watermark == 1


def test_follower_that_caught_up_is_proposed_once_and_holds_the_watermark(room: Replicas) -> None:
    led = Led(room, isr=(0, 1))
    room.produce("a", b"1")
    led.fetch(2, 0)
    led.fetch(1, 1)
    assert (led.high_watermark, led.proposed) == (0, [(0, 1, 2)])  # has reached the committed end
    led.fetch(2, 1)
    assert len(led.proposed) == 1
    assert led.high_watermark == 1


def test_broker_that_is_not_alive_may_not_join(room: Replicas) -> None:
    led = Led(room, isr=(0, 1))
    led.live = {0, 1}
    led.fetch(2, 0)
    assert led.proposed == []


def test_fetch_of_an_earlier_process_of_the_follower_says_nothing(room: Replicas) -> None:
    led = Led(room, isr=(0, 1))
    room.produce("a", b"1")
    led.fetch(1, 0, epoch=7)
    led.fetch(1, 1, epoch=6)
    assert led.high_watermark == 0


def test_watermark_stands_while_there_are_too_few(room: Replicas) -> None:
    """Source: KAFKA-15583."""
    led = Led(room, isr=(0,), minimum=2)
    led.live = {0}
    appended = led.partition.append_as_leader(
        memoryview(bytearray(batch(b"1"))), acks=1, now_ms=NOW
    )
    assert isinstance(appended, AppendInfo)
    assert led.high_watermark == 0
    refused = led.partition.append_as_leader(
        memoryview(bytearray(batch(b"1"))), acks=-1, now_ms=NOW
    )
    assert isinstance(refused, AppendError)
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    led.partition.on_isr_confirmed((0, 1), 2, NOW)
    led.fetch(1, 1)
    assert led.high_watermark == 1


def test_lower_minimum_commits_at_once_what_the_higher_one_held_back(room: Replicas) -> None:
    led = Led(room, isr=(0,), minimum=2)
    led.live = {0}
    room.produce("a", b"1")
    assert led.high_watermark == 0
    led.partition.min_insync_replicas = 2
    room.replicas.reconfigure(["a"])  # the topic's setting is 1
    assert led.high_watermark == 1


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [
        (1, 1, ErrorCode.NONE),
        (3, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_stranger_may_not_fetch_as_a_replica(
    room: Replicas, broker_id: int, epoch: int, error: ErrorCode
) -> None:
    led = Led(room)
    found = led.partition.read(
        0, 100, current_leader_epoch=epoch, follower=FollowerFetch(broker_id, 1, 0), now_ms=NOW
    )
    assert found.error is error


def test_consumer_is_sent_to_the_most_advanced_in_sync_replica_of_its_rack(room: Replicas) -> None:
    led = Led(room)
    room.produce("a", b"1", b"2")
    led.fetch(1, 1)
    led.fetch(2, 2)
    assert led.partition.preferred_replica(0, (1, 2)) == 2
    assert led.partition.preferred_replica(2, (1,)) == -1  # it does not have this offset yet
    assert led.partition.preferred_replica(0, (0, 2)) == -1  # this broker is in the rack itself
    assert led.partition.preferred_replica(0, ()) == -1


def test_follower_takes_over_what_the_leader_committed(room: Replicas) -> None:
    led = Led(room)
    room.produce("a", b"1", b"2")
    led.partition.apply(PartitionState(1, 2, (0, 1, 2), (0, 1, 2), 2), NOW)
    led.partition.follow_offsets(9, 1)
    assert led.high_watermark == 2  # never beyond its own log
    assert led.partition.log.log_start_offset == 1
    assert led.partition.read(1, 1 << 20, leader_only=False).error is ErrorCode.NONE


# Deleting records


def deleted(led: Led, offset: int) -> asyncio.Future[dict[int, tuple[ErrorCode, int]]]:
    """The waiter of a DeleteRecords below an offset, with a timeout of ten seconds."""
    partition = led.partition
    assert partition.delete_records_before(offset) == (ErrorCode.NONE, offset)
    loop = asyncio.get_running_loop()
    return LowWatermarkWaiter(loop, [(7, partition, offset)], timeout_ms=10_000).future


def filled(room: Replicas) -> Led:
    """Three records, which all replicas have."""
    led = Led(room)
    for _ in range(3):
        room.produce("a")
    for broker_id in (1, 2):
        led.fetch(broker_id, 3)
    assert led.high_watermark == 3
    return led


def test_deletion_is_done_when_every_live_replica_begins_there(room: Replicas) -> None:
    led = filled(room)

    async def main() -> None:
        future = deleted(led, 2)
        assert led.partition.low_watermark == 0
        led.fetch(1, 3, start=2)
        assert not future.done()
        led.fetch(2, 3, start=3)
        assert future.result() == {7: (ErrorCode.NONE, 2)}
        assert not led.partition.waiters.starts

    asyncio.run(main())


def test_deletion_does_not_wait_for_a_broker_that_is_gone(room: Replicas) -> None:
    led = filled(room)

    async def main() -> None:
        future = deleted(led, 2)
        led.fetch(1, 3, start=2)
        led.live.remove(2)
        led.partition.drop_laggards(NOW)
        assert future.result() == {7: (ErrorCode.NONE, 2)}

    asyncio.run(main())


def test_deletion_ends_with_the_leaders_time_and_with_its_own(room: Replicas) -> None:
    led = filled(room)

    async def main() -> None:
        partition = led.partition
        late = LowWatermarkWaiter(asyncio.get_running_loop(), [(0, partition, 2)], timeout_ms=0)
        future = deleted(led, 2)
        assert await late.future == {0: (ErrorCode.REQUEST_TIMED_OUT, 0)}
        partition.apply(PartitionState(1, 2, (0, 1, 2), (0, 1, 2), 2), NOW)
        assert future.result() == {7: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}

    asyncio.run(main())


def test_deletion_wakes_the_followers_fetches(room: Replicas) -> None:
    led = filled(room)

    async def main() -> None:
        waiter = FetchWaiter(
            asyncio.get_running_loop(),
            [(led.partition, 3)],
            missing_bytes=1,
            max_wait_ms=10_000,
            read_committed=False,
            of_replica=True,
        )
        led.partition.delete_records_before(1)
        assert waiter.future.done()

    asyncio.run(main())
