"""The runtime: writes in order, answers, timers, loading and giving up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.errors import EncodeError, ErrorCode
from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.offset_commit import (
    OffsetCommitResponse,
)
from kwire.messages.offset_delete import OffsetDeleteRequest
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire.records.batch import RecordBatch
from kwire.records.builder import BatchBuilder
from kwire.records.compression import Codec
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from server.cause import cause, caused_by, client_of
from server.coordinator.common.result import Result, Timer
from server.coordinator.common.runtime import HEAP_TIMERS
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.coordinator import GroupCoordinator, WaitingJoin
from server.coordinator.group.modern.context import GroupClient
from server.coordinator.group.shard import GroupShard
from server.metadata.topic_partition import TopicPartition
from server.net.connection_info import ConnectionInfo
from server.turns import Turns, exhaust
from tests.coordinator.memory_log import MemoryLog
from tests.support.clock import ManualClock
from tests.support.requests import commit_request, txn_commit_request

SESSION_MS = 10_000


def compressed(batch: bytes) -> bytes:
    """The same records as a producer with compression sends them."""
    builder = BatchBuilder(codec=Codec.GZIP)
    for record in RecordBatch(memoryview(batch)).records():
        builder.append(record.timestamp, record.key, record.value)
    return builder.build()


class Broker:
    """The coordinator of one partition, with its log and clock."""

    def __init__(self, log: MemoryLog | None = None, **config: int) -> None:
        settings = {"initial_rebalance_delay_ms": 0, "offsets_topic_partitions": 1, **config}
        self.log = log or MemoryLog()
        self.clock = ManualClock()
        self.coordinator = GroupCoordinator(GroupConfig(**settings), self.log, self.clock)

    async def start(self) -> Broker:
        self.coordinator.lead(0, 1)
        await self.coordinator.runtime.wait_until_loaded()
        return self

    def advance(self, ms: int) -> None:
        """Advance time, as if the loop's timer had fired."""
        self.clock.advance(ms)
        self.coordinator.runtime.fire_timers()

    def commit(self, offset: int, partition: int = 0, **request: Any) -> Any:
        return self.coordinator.commit_offsets(
            commit_request(("topic", partition, offset), **request)
        )

    def fetch(self, partition: int = 0, stable: bool = False) -> tuple[int, ErrorCode]:
        found = self.coordinator.fetch_offsets("group", [("topic", [partition])], stable)
        assert found.error is ErrorCode.NONE
        row = found.topics[0][1][0]
        return row.offset, row.error

    def join(self, member_id: str = "") -> Any:
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        answer = self.coordinator.join_group(
            request,
            client_id="client",
            client_host="/127.0.0.1",
            require_member_id=False,
            can_skip_assignment=False,
            may_describe=lambda name: True,
        )
        return answer.answer if isinstance(answer, WaitingJoin) else answer

    def beat(self, member_id: str) -> Any:
        """Join the consumer group `consumers`."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="consumers",
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["topic"],
            topic_partitions=[],
        )
        client = GroupClient("client", "/127.0.0.1", 1, lambda name: True)
        return self.coordinator.consumer_group_heartbeat(request, client)

    def sync(self, member_id: str, generation: int) -> Any:
        assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
        return self.coordinator.sync_group(
            SyncGroupRequest(
                group_id="group",
                generation_id=generation,
                member_id=member_id,
                assignments=[assignment],
            )
        )

    def heartbeat(self, member_id: str, generation: int = 1) -> int:
        request = HeartbeatRequest(group_id="group", generation_id=generation, member_id=member_id)
        return self.coordinator.heartbeat(request).error_code

    async def stable(self) -> str:
        joining = self.join()
        self.advance(0)
        joined = await joining
        synced = self.sync(joined.member_id, joined.generation_id)
        if isinstance(synced, asyncio.Future):
            synced = await synced
        assert synced.assignment == b"all"
        member_id: str = joined.member_id
        return member_id


def errors(response: OffsetCommitResponse) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def test_commit_that_is_committed_at_once_needs_no_future() -> None:
    async def test() -> None:
        broker = await Broker().start()
        response = broker.commit(7)
        assert errors(response) == [0]
        assert broker.fetch() == (7, ErrorCode.NONE)
        assert broker.coordinator.runtime.waiting == {}

    run(test)


def test_one_operation_is_one_batch_without_compression() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.coordinator.commit_offsets(commit_request(*(("topic", p, p) for p in range(3))))
        (stored,) = broker.log.batches[0]
        batch = RecordBatch(stored)
        batch.verify_crc()
        assert (
            batch.magic,
            batch.codec,
            batch.header.records_count,
            batch.header.last_offset_delta,
        ) == (2, 0, 3, 2)
        assert {broker.clock.now_ms()} == {record.timestamp for record in batch.records()}

    run(test)


def test_commit_is_answered_when_the_log_says_so() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        answer = broker.commit(7)
        assert broker.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        broker.log.settle()
        assert errors(await answer) == [0]
        assert broker.fetch(stable=True) == (7, ErrorCode.NONE)

    run(test)


def test_log_that_gives_a_coroutine_is_awaited() -> None:
    class Awaiting(MemoryLog):
        async def later(self, answer: ErrorCode) -> ErrorCode:
            await asyncio.sleep(0)
            return answer

        def append(self, partition: int, batch: bytes, now_ms: int) -> Awaitable[ErrorCode]:
            answer = super().append(partition, batch, now_ms)
            assert isinstance(answer, ErrorCode)
            return self.later(answer)

    async def test() -> None:
        broker = await Broker(Awaiting()).start()
        assert errors(await broker.commit(7)) == [0]

    run(test)


def test_writes_are_replayed_in_log_order_whoever_is_told_first() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        first, second = broker.commit(1), broker.commit(2)
        broker.log.settle(1)
        await asyncio.sleep(0)
        assert not second.done()
        assert broker.fetch() == (-1, ErrorCode.NONE)
        broker.log.settle(0)
        assert [errors(await answer) for answer in (first, second)] == [[0], [0]]
        assert broker.fetch() == (2, ErrorCode.NONE)

    run(test)


def test_hundreds_of_operations_that_wait_for_a_write_are_performed_after_it() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        answers = [broker.beat(f"member {number}") for number in range(500)]
        assert len(broker.log.held) == 1
        # As when the last follower leaves the in-sync replicas: further writes are committed at once.
        broker.log.hold = False
        broker.log.settle()
        assert [(await answer).error_code for answer in answers] == [0] * 500

    run(test)


def test_failed_append_is_answered_with_the_coordinators_error() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.answer = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert errors(broker.commit(7)) == [ErrorCode.NOT_COORDINATOR]
        assert broker.fetch(stable=True) == (-1, ErrorCode.NONE)

    run(test)


def test_append_that_raises_is_our_mistake_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        answer = broker.commit(7)
        broker.log.held[0][2].set_exception(ZeroDivisionError())
        assert errors(await answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert "append failed" in caplog.text

    run(test)


def test_append_that_raises_at_once_holds_up_no_later_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemoryLog):
        works = False

        def append(
            self, partition: int, batch: bytes, now_ms: int
        ) -> Awaitable[ErrorCode] | ErrorCode:
            if not self.works:
                raise ZeroDivisionError
            return super().append(partition, batch, now_ms)

    async def test() -> None:
        log = Broken()
        broker = await Broker(log).start()
        assert errors(broker.commit(7)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert "append failed" in caplog.text
        log.works = True
        assert errors(broker.commit(8)) == [0]
        assert broker.fetch(stable=True) == (8, ErrorCode.NONE)

    run(test)


def test_commit_that_takes_too_long_is_answered_and_still_counts_later() -> None:
    async def test() -> None:
        broker = await Broker(offsets_commit_timeout_ms=5_000).start()
        broker.log.hold = True
        answer = broker.commit(7)
        broker.advance(2_000)
        later = broker.commit(8, 1)
        broker.advance(2_999)
        assert not answer.done()
        broker.advance(1)
        assert errors(await answer) == [ErrorCode.REQUEST_TIMED_OUT]
        assert not later.done()
        assert broker.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        broker.advance(2_000)
        assert errors(await later) == [ErrorCode.REQUEST_TIMED_OUT]
        behind_both = broker.commit(9, 2)
        broker.advance(4_999)
        assert not behind_both.done()
        broker.advance(1)
        assert errors(await behind_both) == [ErrorCode.REQUEST_TIMED_OUT]
        broker.log.settle()
        broker.log.settle()
        await asyncio.sleep(0)
        assert broker.fetch(stable=True) == (7, ErrorCode.NONE)
        assert broker.fetch(1, stable=True) == (8, ErrorCode.NONE)

    run(test)


def test_log_that_gives_up_ends_the_wait() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        answer = broker.commit(7)
        broker.log.settle(0, ErrorCode.REQUEST_TIMED_OUT)
        assert errors(await answer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert broker.fetch(stable=True) == (-1, ErrorCode.NONE)

    run(test)


def test_members_are_removed_by_the_runtimes_timer() -> None:
    async def test() -> None:
        broker = await Broker().start()
        member = await broker.stable()
        broker.advance(SESSION_MS - 1)
        assert broker.heartbeat(member) == 0
        broker.advance(SESSION_MS - 1)
        assert broker.heartbeat(member) == 0
        broker.advance(SESSION_MS)
        assert broker.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_timers_fire_by_the_loop() -> None:
    """The only test here that waits; the first delay is 0 ms, so only until the next turn of the loop."""

    async def test() -> None:
        broker = await Broker().start()
        joined = await asyncio.wait_for(broker.join(), 5)
        assert joined.generation_id == 1

    run(test)


def test_due_timers_of_one_client_do_not_delay_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        broker = await Broker().start()
        runtime = broker.coordinator.runtime
        runtime.turns = Turns(lambda: 0, slice_steps=100)
        slot = next(iter(runtime.slots.values()))
        fired: list[tuple[str, object]] = []

        def fire(shard: GroupShard, timer: Timer, now_ms: int) -> Result[Any]:
            fired.append((timer.key[0], client_of(cause())))
            return Result()

        monkeypatch.setattr(GroupShard, "fire", fire)
        due_ms = runtime.now_ms()
        attacker, other = ConnectionInfo("1", client_host="a"), ConnectionInfo("2", client_host="b")
        same_address = ConnectionInfo("3", client_host="a")
        for owner, number in ((attacker, 2_000), (same_address, 1), (other, 1)):
            with caused_by(owner):
                for each in range(number):
                    timer = Timer("due", (owner.connection_id, str(each)), due_ms)
                    runtime.set_timer(slot, timer, due_ms)
        runtime.fire_timers()
        while len({key for key, _ in fired}) < 3:
            await asyncio.sleep(0)
        assert len(fired) < 1_000
        while runtime.due:
            await asyncio.sleep(0)
        assert Counter(fired) == {("1", "a"): 2_000, ("3", "a"): 1, ("2", "b"): 1}

    run(test)


def test_what_follows_a_write_belongs_to_the_client_whose_operation_wrote() -> None:
    class Slow(MemoryLog):
        def append(self, partition: int, batch: bytes, now_ms: int) -> Any:
            future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            waiting.append(future)
            return future

    waiting: list[asyncio.Future[ErrorCode]] = []

    async def test() -> None:
        broker = await Broker(Slow()).start()
        runtime = broker.coordinator.runtime
        seen: list[object] = []
        runtime.perform = lambda partition, epoch, effect: seen.append((effect, client_of(cause())))
        shard = next(iter(runtime.slots.values())).shard

        def operation(name: str) -> Callable[[Any, int, int], Result[Any]]:
            def write(shard: Any, token: int, now_ms: int) -> Result[Any]:
                out: Result[Any] = Result()
                out.write([], name)
                return out

            return write

        def completed(ticket: str, error: ErrorCode, now_ms: int) -> Result[Any]:
            out: Result[Any] = Result()
            out.effects.append(ticket)
            return out

        shard.completed = completed
        for host in "ab":
            with caused_by(ConnectionInfo(host, client_host=host)):
                runtime.run(0, operation(host))
        for future in waiting:
            future.set_result(ErrorCode.NONE)
        await asyncio.sleep(0)
        assert seen == [("a", "a"), ("b", "b")]

    run(test)


def test_members_that_come_and_go_leave_few_timers() -> None:
    async def test() -> None:
        broker = await Broker().start()
        for number in range(5_000):
            broker.join()
            members = broker.coordinator.runtime.active()[0][1].groups["group"].members
            request = LeaveGroupRequest(
                group_id="group", members=[MemberIdentity(member_id=each) for each in members]
            )
            broker.coordinator.leave_group(request)
            if not number % 100:
                await asyncio.sleep(0)
        assert len(broker.coordinator.runtime.heap) <= HEAP_TIMERS + 1

    run(test)


def test_thousand_heartbeats_leave_one_timer() -> None:
    async def test() -> None:
        broker = await Broker().start()
        member = await broker.stable()
        before = len(broker.coordinator.runtime.heap)
        for _ in range(1_000):
            broker.clock.advance(1)
            broker.heartbeat(member)
        assert before == len(broker.coordinator.runtime.heap)

    run(test)


def test_wall_clock_that_is_set_removes_nobody() -> None:
    class Settable(ManualClock):
        def __init__(self) -> None:
            super().__init__()
            self.since_ms = 0

        def advance(self, ms: int) -> int:
            self.since_ms += ms
            return super().advance(ms)

        def monotonic_ms(self) -> int:
            return self.since_ms

    async def test() -> None:
        broker = Broker()
        clock = Settable()
        broker.clock = broker.coordinator.runtime.clock = clock
        broker.coordinator.runtime.clock_offset_ms = clock.now_ms()
        await broker.start()
        member = await broker.stable()
        for jump_ms in (3_600_000, -7_200_000):
            clock._now_ms += jump_ms
            broker.advance(SESSION_MS - 1)
            assert broker.heartbeat(member) == 0
        broker.advance(SESSION_MS)
        assert broker.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_partition_led_elsewhere_is_refused() -> None:
    async def test() -> None:
        broker = Broker()
        refused = ErrorCode.NOT_COORDINATOR
        assert refused == broker.heartbeat("m")
        assert refused == broker.join().error_code
        assert refused == broker.sync("m", 1).error_code
        assert [refused] == errors(broker.commit(1))
        assert refused == broker.coordinator.fetch_offsets("group", None, False).error
        assert refused == broker.coordinator.delete_group("group")
        assert refused == broker.coordinator.describe_group("group", 5).error_code
        deleted = broker.coordinator.delete_offsets(OffsetDeleteRequest(group_id="group"))
        assert refused == deleted.error_code

    run(test)


def test_partition_that_is_loading_is_refused_as_older_clients_expect() -> None:
    async def test() -> None:
        broker = Broker()
        broker.coordinator.lead(0, 1)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert broker.heartbeat("m") == ErrorCode.NONE
        assert broker.sync("m", 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert loading == broker.join().error_code
        assert [loading] == errors(broker.commit(1))
        assert loading == broker.coordinator.fetch_offsets("group", None, False).error
        assert (loading, []) == exhaust(broker.coordinator.list_groups())
        await broker.coordinator.runtime.wait_until_loaded()
        assert exhaust(broker.coordinator.list_groups()) == (ErrorCode.NONE, [])

    run(test)


def test_group_id_may_be_empty_only_where_offsets_are_stored() -> None:
    """GroupCoordinatorTest.testGroupIdIsValid... : isValidGroupId."""

    async def test() -> None:
        broker = await Broker().start()
        invalid = ErrorCode.INVALID_GROUP_ID
        assert invalid == broker.coordinator.heartbeat(HeartbeatRequest()).error_code
        assert invalid == broker.coordinator.sync_group(SyncGroupRequest()).error_code
        deleted = broker.coordinator.delete_offsets(OffsetDeleteRequest())
        assert invalid == deleted.error_code
        assert errors(broker.commit(1, group_id="")) == [0]
        assert broker.coordinator.describe_group("", 5).group_state == "Empty"
        assert broker.coordinator.delete_group("") == ErrorCode.NONE

    run(test)


def test_next_coordinator_goes_on_from_the_log() -> None:
    async def test() -> None:
        broker = await Broker().start()
        member = await broker.stable()
        broker.commit(7, member_id=member, generation_id_or_member_epoch=1)
        successor = await Broker(broker.log).start()
        assert successor.heartbeat(member) == 0
        assert successor.fetch() == (7, ErrorCode.NONE)

    run(test)


def test_giving_a_partition_up_answers_all_who_wait() -> None:
    async def test() -> None:
        broker = await Broker(initial_rebalance_delay_ms=3_000).start()
        joining = broker.join()
        broker.log.hold = True
        committing = broker.commit(7, group_id="other")
        broker.coordinator.resign(0)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert errors(await committing) == [ErrorCode.NOT_COORDINATOR]
        assert broker.coordinator.runtime.waiting == {}
        broker.log.settle()
        await asyncio.sleep(0)
        broker.advance(10_000)
        assert broker.heartbeat("m") == ErrorCode.NOT_COORDINATOR

    run(test)


def test_newer_epoch_loads_again_and_an_older_one_does_not() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.commit(7)
        shard = broker.coordinator.runtime.shard(0)
        broker.coordinator.lead(0, 1)
        assert shard is broker.coordinator.runtime.shard(0)
        broker.coordinator.lead(0, 2)
        await broker.coordinator.runtime.wait_until_loaded()
        assert shard is not broker.coordinator.runtime.shard(0)
        assert broker.fetch() == (7, ErrorCode.NONE)

    run(test)


def test_resigning_while_loading_leaves_nothing_behind() -> None:
    async def test() -> None:
        broker = Broker()
        broker.coordinator.lead(0, 1)
        broker.coordinator.resign(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert broker.heartbeat("m") == ErrorCode.NOT_COORDINATOR
        assert broker.coordinator.runtime.heap == []

    run(test)


def test_resigning_in_the_middle_of_loading_gives_back_the_memory() -> None:
    async def test() -> None:
        broker = await Broker().start()
        await broker.stable()
        for number in range(20):
            broker.commit(number, group_id=f"group {number}")
        successor = Broker(broker.log)
        groups = successor.coordinator
        groups.runtime.turns = Turns(successor.clock.monotonic_us, slice_steps=2)
        groups.lead(0, 1)
        while not groups.memory.offsets:
            await asyncio.sleep(0)
        assert groups.runtime.is_loading()
        assert groups.memory.members > 0
        groups.resign(0)
        while groups.runtime.turns.waiting:
            await asyncio.sleep(0)
        assert (groups.memory.members, groups.memory.offsets) == (0, 0)

    run(test)


def test_loading_gives_others_their_turn() -> None:
    async def test() -> None:
        broker = await Broker().start()
        for offset in range(20):
            broker.commit(offset)
        successor = Broker(broker.log)
        slices = Turns(successor.clock.monotonic_us, slice_steps=2)
        successor.coordinator.runtime.turns = slices
        successor.coordinator.lead(0, 1)
        turns = 0
        while successor.coordinator.runtime.is_loading():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10
        assert successor.fetch() == (19, ErrorCode.NONE)

    run(test)


def test_transactional_batches_and_markers_are_loaded() -> None:
    async def test() -> None:
        broker = await Broker().start()
        for producer_id, offset in ((5, 50), (6, 60), (7, 70)):
            request = txn_commit_request(
                ("topic", producer_id, offset), producer_id=producer_id, producer_epoch=0
            )
            broker.coordinator.commit_transactional_offsets(request)
        stored = RecordBatch(broker.log.batches[0][0])
        assert stored.is_transactional
        assert (stored.header.producer_id, stored.header.producer_epoch) == (5, 0)
        for producer_id, kind in ((5, ControlType.COMMIT), (6, ControlType.ABORT)):
            marker = end_transaction_batch(
                EndTransactionMarker(kind, 0),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=broker.clock.now_ms(),
            )
            broker.log.batches[0].append(marker)
            broker.coordinator.end_transaction(0, producer_id, kind is ControlType.COMMIT)
        for each in (broker, await Broker(broker.log).start()):
            assert each.fetch(5, stable=True) == (50, ErrorCode.NONE)
            assert each.fetch(6, stable=True) == (-1, ErrorCode.NONE)
            assert each.fetch(7, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    run(test)


@pytest.mark.parametrize("turn", range(12))
def test_marker_that_is_committed_during_a_load_counts_whenever_it_comes(turn: int) -> None:
    class Pausing(Turns):
        """Lets other work run at each pause."""

        async def pause(self, owner: object = None) -> None:
            await asyncio.sleep(0)

    async def test() -> None:
        broker = await Broker().start()
        broker.commit(6)
        request = txn_commit_request(("topic", 0, 7), producer_id=5, producer_epoch=0)
        broker.coordinator.commit_transactional_offsets(request)
        assert broker.fetch() == (6, ErrorCode.NONE)
        successor = Broker(broker.log)
        successor.coordinator.runtime.turns = Pausing(successor.clock.monotonic_us)
        successor.coordinator.lead(0, 2)
        for _ in range(turn):
            await asyncio.sleep(0)
        marker = end_transaction_batch(
            EndTransactionMarker(ControlType.COMMIT, 0),
            producer_id=5,
            producer_epoch=0,
            timestamp=0,
        )
        broker.log.batches[0].append(marker)
        successor.coordinator.end_transaction(0, 5, True)
        await successor.coordinator.runtime.wait_until_loaded()
        assert successor.fetch(stable=True) == (7, ErrorCode.NONE)

    run(test)


def test_marker_waits_for_the_writes_before_it() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.log.hold = True
        request = txn_commit_request(("topic", 0, 5), producer_id=5, producer_epoch=0)
        answer = broker.coordinator.commit_transactional_offsets(request)
        broker.log.settle()
        broker.coordinator.end_transaction(0, 5, True)
        assert broker.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert isinstance(answer, asyncio.Future)
        await answer
        assert broker.fetch(stable=True) == (5, ErrorCode.NONE)

    run(test)


def test_damaged_batch_is_named_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = await Broker().start()
        for offset in (1, 2, 3):
            broker.commit(offset, offset)
        damaged = bytearray(broker.log.batches[0][1])
        damaged[66] = 0x7F
        broker.log.batches[0][1] = bytes(damaged)
        with caplog.at_level(logging.ERROR):
            successor = await Broker(broker.log).start()
        assert "cannot be read" in caplog.text
        assert [successor.fetch(p)[0] for p in (1, 2, 3)] == [1, -1, 3]

    run(test)


def test_compressed_batches_are_inflated_one_at_a_time_and_damaged_ones_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Threads(MemoryLog):
        inflating = 0
        most = 0

        async def inflated(self, batch: RecordBatch) -> bytes:
            self.inflating += 1
            self.most = max(self.most, self.inflating)
            await asyncio.sleep(0.001)
            self.inflating -= 1
            return await super().inflated(batch)

    async def test() -> None:
        broker = await Broker().start()
        for offset in (1, 2, 3):
            broker.commit(offset, offset)
        log = Threads()
        log.batches[0] = [compressed(batch) for batch in broker.log.batches[0]]
        damaged = bytearray(log.batches[0][1])
        damaged[-1] ^= 0xFF
        log.batches[0][1] = bytes(damaged)
        log.batches[1] = log.batches[0]
        successor = Broker(log, offsets_topic_partitions=2)
        successor.coordinator.lead(1, 1)
        with caplog.at_level(logging.ERROR):
            await successor.start()
        assert log.most == 1
        assert caplog.text.count("cannot be read and is skipped") == 2
        shards = successor.coordinator.runtime.active()
        assert [len(shard.groups["group"].offsets.committed) for _, shard in shards] == [2, 2]

    run(test)


def test_partition_with_many_groups_is_given_up_in_steps() -> None:
    async def test() -> None:
        turns = Turns(lambda: 0, slice_steps=100)
        broker = Broker()
        broker.coordinator = GroupCoordinator(
            GroupConfig(offsets_topic_partitions=1), broker.log, broker.clock, turns=turns
        )
        await broker.start()
        for number in range(1000):
            broker.commit(1, group_id=f"group-{number}")
        ((_, shard),) = broker.coordinator.runtime.active()
        broker.coordinator.resign(0)
        assert broker.coordinator.runtime.shard(0) is ErrorCode.NOT_COORDINATOR
        assert 800 < len(shard.groups) < 1000
        while turns.waiting:
            await asyncio.sleep(0)
        assert not shard.groups and not shard.memory.offsets

    run(test)


def test_log_that_cannot_be_read_is_named_and_what_was_read_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(MemoryLog):
        def read_all(self, partition: int) -> Any:
            yield from super().read_all(partition)
            raise OSError("disk")

    async def test() -> None:
        log = Failing()
        broker = await Broker(log).start()
        broker.commit(7)
        successor = await Broker(log).start()
        assert "could not be read" in caplog.text
        assert successor.fetch() == (7, ErrorCode.NONE)

    run(test)


def test_offsets_of_deleted_partitions_go_in_all_groups() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.commit(1, 0)
        broker.commit(2, 1)
        broker.commit(3, 0, group_id="other")
        broker.coordinator.partitions_deleted([TopicPartition("topic", 0)])
        assert [broker.fetch(p)[0] for p in (0, 1)] == [-1, 2]
        (code, rows) = exhaust(broker.coordinator.list_groups())
        assert (code, [row.group_id for row in rows]) == (ErrorCode.NONE, ["group"])

    run(test)


def test_groups_are_listed_by_state_and_type_in_any_case_of_letters() -> None:
    """GroupCoordinatorTest.testListGroupsWithStates, WithTypes."""

    async def test() -> None:
        broker = await Broker().start()
        await broker.stable()
        broker.commit(1, group_id="simple")

        def names(states: list[str], types: list[str]) -> list[str]:
            return [
                row.group_id for row in exhaust(broker.coordinator.list_groups(states, types))[1]
            ]

        assert names([], []) == ["group", "simple"]
        assert names(["sTABLE"], []) == ["group"]
        assert names(["Empty"], ["CLASSIC"]) == ["simple"]
        assert names([], ["consumer"]) == []
        assert names(["nonsense"], []) == []

    run(test)


def test_changed_settings_count_from_then_on() -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.coordinator.reconfigure(
            GroupConfig(max_session_timeout_ms=SESSION_MS - 1, offsets_topic_partitions=1)
        )
        assert broker.join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    run(test)


def test_mistake_in_one_timer_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = await Broker().start()
        member = await broker.stable()
        shard = broker.coordinator.runtime.shard(0)
        assert not isinstance(shard, ErrorCode)
        del shard.fired["retention_due"]
        broker.advance(600_000)
        assert "retention_due" in caplog.text
        assert broker.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_closing_leaves_no_timer() -> None:
    async def test() -> None:
        broker = await Broker().start()
        await broker.stable()
        broker.coordinator.close()
        assert broker.coordinator.runtime.handle is None
        assert broker.coordinator.runtime.heap == []

    run(test)


def test_deleted_partitions_of_many_groups_are_forgotten_in_turns_unless_made_again() -> None:
    async def test() -> None:
        broker = await Broker().start()
        for number in range(200):
            broker.commit(number, group_id=f"g{number}")
        broker.coordinator.runtime.turns = Turns(broker.clock.monotonic_us, slice_steps=10)
        made_again = False
        tp = TopicPartition("topic", 0)
        broker.coordinator.partitions_deleted([tp], lambda tp: made_again)

        def left() -> int:
            return sum(
                bool(group.offsets)
                for _, shard in broker.coordinator.runtime.active()
                for group in shard.groups.values()
            )

        assert 0 < left() < 200
        made_again = True
        while broker.coordinator.runtime.turns.waiting:
            await asyncio.sleep(0)
        assert 0 < left() < 200

    run(test)


def test_record_that_cannot_be_read_takes_no_others_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broker = await Broker().start()
        for offset in (1, 2):
            broker.commit(offset, offset)
        builder = BatchBuilder()
        # A value without room for its version, in a batch and before others; a key without; none.
        for key, value in (
            (b"\0\5\0\1g\0\1m", b"\0"),
            (b"\0\x0a\0\1g\0\1m", b""),
            (b"", b""),
            (None, b""),
        ):
            builder.append(0, key, value)
        broker.log.batches[0].insert(1, builder.build())
        with caplog.at_level(logging.ERROR):
            successor = await Broker(broker.log).start()
        assert caplog.text.count("cannot be read and is skipped") == 4
        ((_, shard),) = successor.coordinator.runtime.active()
        assert len(shard.groups["group"].offsets.committed) == 2

    run(test)


def test_group_whose_members_cannot_be_read_takes_no_others_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broker = await Broker().start()
        broker.commit(7, group_id="other")
        builder = BatchBuilder()
        builder.append(0, b"\0\2\0\5other", b"\0\3damaged")
        broker.log.batches[0].append(builder.build())
        member = await broker.stable()
        with caplog.at_level(logging.ERROR):
            successor = await Broker(broker.log).start()
        assert "group other: its members cannot be read" in caplog.text
        found = successor.coordinator.fetch_offsets("other", [("topic", [0])], False)
        assert found.topics[0][1][0].offset == 7
        assert errors(successor.commit(8, group_id="other")) == [0]
        assert successor.heartbeat(member) == 0
        successor.advance(SESSION_MS)
        assert successor.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_record_that_cannot_be_encoded_is_a_failed_write(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = await Broker().start()
        ((_, shard),) = broker.coordinator.runtime.active()
        encode, failing = shard.encode, [True]

        def refuse_once(record: Any) -> Any:
            if failing:
                failing.clear()
                raise EncodeError("no room", offset=0)
            return encode(record)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(shard), "encode", lambda self, record: refuse_once(record))
            assert errors(broker.commit(1, 1)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert "no room" in caplog.text
        assert errors(broker.commit(1, 1)) == [ErrorCode.NONE]
        assert not broker.coordinator.runtime.waiting

    run(test)
