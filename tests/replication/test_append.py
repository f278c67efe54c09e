"""Appends that must wait: the order in which they become visible, and concurrent events."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import ErrorCode
from kwire.records.batch import iter_batch_headers
from kwire.records.compression import Codec
from server.log import validator
from server.log.validator import INLINE_REWRITE_BYTES, AppendError, AppendInfo, AppendOrigin
from server.replication import append
from server.replication.append import AppendRow, AppendVerifier, Granted
from server.replication.partition import Partition
from server.turns import Turns
from server.workers import TookTooLong, TookTooMuch
from tests.support.forms import form
from tests.support.replicas import NOW, Replicas, batch, stored, turns, values
from tests.support.waiting import HeldExecutor, HeldVerifier

GZIP = {"compression.type": "gzip"}
NOT_LEADER = AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
FENCED = AppendError(ErrorCode.INVALID_PRODUCER_EPOCH)
Result = AppendInfo | AppendError

pytestmark = pytest.mark.usefixtures("both_forms")


@pytest.fixture(autouse=True)
def small_is_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch over 500 bytes goes to the worker process."""
    monkeypatch.setattr(validator, "INLINE_REWRITE_BYTES", 500)
    monkeypatch.setattr(append, "INLINE_READ_BYTES", 500)


def small(value: bytes) -> AppendRow | Any:
    return memoryview(bytearray(batch(value)))


def large(value: bytes) -> AppendRow | Any:
    return memoryview(bytearray(batch(value + bytes(600))))


def begin(
    room: Replicas,
    *rows: AppendRow,
    acks: int = 1,
    timeout_ms: int | None = 60_000,
    verifier: AppendVerifier | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    client: Any = None,
) -> list[Result] | asyncio.Future[list[Result]]:
    now_ms = room.clock.now_ms()
    appends = room.replicas.appends
    return appends.append_records(
        rows, acks, timeout_ms, now_ms, verifier=verifier, origin=origin, client=client
    )


def waits(room: Replicas, *rows: AppendRow, **options: Any) -> asyncio.Future[list[Result]]:
    begun = begin(room, *rows, **options)
    assert isinstance(begun, asyncio.Future)
    return begun


def visible(partition: Partition) -> list[bytes]:
    """The values in a log, without their padding."""
    data = partition.read(0, 1 << 20).data  # type: ignore[union-attr]
    return [(value or b"").rstrip(b"\0") for value in values(data)]


Test = Callable[[Replicas, HeldExecutor], Awaitable[None]]


def play(room: Replicas, test: Test) -> None:
    async def run() -> None:
        room.replicas.appends.executor = worker = HeldExecutor()  # type: ignore[assignment]
        await test(room, worker)

    asyncio.run(run())


# -- order -----------------------------------------------------------------------------------------


def test_batch_that_needs_nothing_is_appended_within_the_call(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a")
        (result,) = begin(room, (partition, large(b"1")))  # type: ignore[misc]
        assert isinstance(result, AppendInfo)

    play(room, test)


def test_row_that_waits_does_not_hold_up_the_others_of_its_request(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        slow, quick = room.create("slow", configs=GZIP), room.create("quick")
        refused = AppendError(ErrorCode.INVALID_RECORD)
        request = waits(room, (slow, large(b"1")), refused, (quick, small(b"2")))
        await turns()
        assert (visible(slow), visible(quick)) == ([], [b"2"])
        worker.waiting[0].set_result(None)
        first, second, third = await request
        assert isinstance(first, AppendInfo) and isinstance(third, AppendInfo)
        assert second is refused

    play(room, test)


def test_what_waits_keeps_copies_of_the_records(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        frames = [bytearray(batch(b"1" + bytes(600))), bytearray(batch(b"2"))]
        requests = [waits(room, (partition, memoryview(frame))) for frame in frames]
        for frame in frames:
            frame[:] = bytes(len(frame))  # the memory is used again
        await turns()
        worker.waiting[0].set_result(None)
        for request in requests:
            await request
        assert visible(partition) == [b"1", b"2"]

    play(room, test)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_later_batch_of_whatever_origin_waits_behind_the_first(
    room: Replicas, origin: AppendOrigin
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        first = waits(room, (partition, large(b"1")))
        second = waits(room, (partition, small(b"2")), origin=origin)
        await turns()
        assert visible(partition) == []
        worker.waiting[0].set_result(None)
        await first
        await second
        assert visible(partition) == [b"1", b"2"]
        assert partition.append_queues is None

    play(room, test)


def test_batch_of_a_coordinator_is_never_rewritten(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs={"cleanup.policy": "compact"})
        (result,) = begin(room, (partition, large(b"1")), origin=AppendOrigin.COORDINATOR)  # type: ignore[misc]
        assert isinstance(result, AppendInfo)

    play(room, test)


def test_batch_that_is_being_verified_holds_up_nobody(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a"), HeldVerifier()
        request = waits(room, (partition, small(b"1")), verifier=verifier)
        await turns()
        assert isinstance(begin(room, (partition, small(b"2"))), list)
        verifier.grant()
        await request
        assert visible(partition) == [b"2", b"1"]

    play(room, test)


def test_batch_that_fails_before_its_turn_gives_it_to_nobody(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        rows = (large(b"1"), small(b"2"), large(b"3"))
        requests = [waits(room, (partition, row)) for row in rows]
        await turns()
        worker.waiting[1].set_exception(ZeroDivisionError())
        await requests[2]
        await turns()
        assert visible(partition) == []
        worker.waiting[0].set_result(None)
        await requests[1]
        assert visible(partition) == [b"1", b"2"]

    play(room, test)


def test_batch_that_must_be_verified_again_lets_those_behind_it_pass(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a", configs=GZIP), HeldVerifier(rounds=2)
        first = waits(room, (partition, large(b"1")), verifier=verifier)
        verifier.grant()
        await turns()
        second = waits(room, (partition, small(b"2")))
        worker.waiting[0].set_result(None)
        await second
        assert visible(partition) == [b"2"]
        verifier.grant(seen=2)
        await first
        assert visible(partition) == [b"2", b"1"]
        assert len(worker.waiting) == 1  # it was rewritten once

    play(room, test)


def test_refusal_of_the_verifier_frees_the_queue(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a", configs=GZIP), HeldVerifier(rounds=2)
        first = waits(room, (partition, large(b"1")), verifier=verifier)
        verifier.grant()
        await turns()
        worker.waiting[0].set_result(None)
        await turns()
        verifier.asked[-1].set_result(FENCED)
        assert await first == [FENCED]
        assert isinstance(begin(room, (partition, small(b"2"))), list)

    play(room, test)


# -- what may happen meanwhile ---------------------------------------------------------------------


def test_batch_of_an_earlier_leader_epoch_is_refused(room: Replicas) -> None:
    """Also if the same broker leads again: the sender has to look up the leader."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        options: dict[str, Any] = {"replicas": (0, 1), "isr": (0, 1), "configs": GZIP}
        partition = room.create("a", **options)
        first = waits(room, (partition, large(b"1")))
        room.create("a", leader=1, epoch=1, **options)
        room.create("a", leader=0, epoch=2, **options)
        second = waits(room, (partition, small(b"2")))
        await turns()
        worker.waiting[0].set_result(None)
        assert await first == [NOT_LEADER]
        assert isinstance((await second)[0], AppendInfo)
        ((_, header),) = iter_batch_headers(stored(partition.log.read(0, 1 << 20, 9).data))  # type: ignore[union-attr]
        assert header.partition_leader_epoch == 2

    play(room, test)


def test_batch_whose_leader_epoch_ended_while_it_was_verified_is_refused(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a"), HeldVerifier()
        request = waits(room, (partition, small(b"1")), verifier=verifier)
        room.create("a", epoch=1)
        verifier.grant()
        assert await request == [NOT_LEADER]
        assert partition.append_queues is None

    play(room, test)


def test_batch_for_a_topic_that_was_deleted_and_made_anew_is_refused(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        request = waits(room, (room.create("a", configs=GZIP), large(b"1")))
        await turns()
        room.delete("a")
        anew = room.create("a", configs=GZIP, id=b"another".ljust(16))
        assert isinstance(begin(room, (anew, small(b"2"))), list)
        worker.waiting[0].set_result(None)
        assert await request == [NOT_LEADER]
        assert visible(anew) == [b"2"]

    play(room, test)


def test_batch_whose_disk_failed_meanwhile_is_a_storage_error(tmp_path: Path) -> None:
    room = Replicas(tmp_path / "a", {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}).start()

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        request = waits(room, (partition, large(b"1")))
        await turns()
        partition.log.on_io_error(OSError(5, "Input/output error"))
        room.replicas.directory_failed()
        worker.waiting[0].set_result(None)
        assert await request == [AppendError(ErrorCode.KAFKA_STORAGE_ERROR)]

    play(room, test)
    room.stop()


@pytest.mark.parametrize("problem", [BrokenExecutor(), ZeroDivisionError()])
def test_work_that_fails_costs_its_own_row_only(
    room: Replicas, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        first, second = room.create("a", configs=GZIP), room.create("b", configs=GZIP)
        request = waits(room, (first, large(b"1")), (second, large(b"2")))
        behind = waits(room, (first, small(b"3")))
        await turns()
        worker.waiting[0].set_exception(problem)
        worker.waiting[1].set_result(None)
        failed, appended = await request
        assert isinstance(failed, AppendError)
        assert failed.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert isinstance(appended, AppendInfo)
        await behind
        assert visible(first) == [b"3"]

    play(room, test)
    assert "a-0" in caplog.text


def test_row_that_raises_costs_its_own_row_only(
    room: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The row before it waits, and the row after it is appended."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        first, second, third = room.create("a", configs=GZIP), room.create("b"), room.create("c")
        appends, sender = room.replicas.appends, Sender("greedy")
        appends.memory.max_bytes = 1000
        append_to = Partition.append_as_leader

        def fail_for_second(self: Partition, *args: Any, **options: Any) -> Result:
            if self is second:
                raise OSError("unforeseen")
            return append_to(self, *args, **options)

        monkeypatch.setattr(Partition, "append_as_leader", fail_for_second)
        request = waits(
            room, (first, large(b"1")), (second, small(b"2")), (third, small(b"3")), client=sender
        )
        assert sender.is_held, "it uses more than half of the memory"
        await turns()
        worker.waiting[0].set_result(None)
        later, failed, appended = await request
        assert isinstance(later, AppendInfo)
        assert failed == AppendError(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert isinstance(appended, AppendInfo)
        await turns()
        assert appends.memory.total == 0
        assert not sender.is_held
        assert first.append_queues is None

    play(room, test)
    assert "b-0" in caplog.text
    assert "unforeseen" in caplog.text


def test_batch_that_raises_after_its_memory_was_reserved_gives_it_back(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        appends, sender = room.replicas.appends, Sender("greedy")
        appends.memory.max_bytes = 1000

        def fail(*args: Any) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(append, "Turn", fail)
            failed = begin(room, (partition, large(b"1")), client=sender)
        assert failed == [AppendError(ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert appends.memory.total == 0
        await turns()
        assert not sender.is_held

    play(room, test)


def test_nothing_that_waits_is_appended_when_the_broker_stops(room: Replicas) -> None:
    """Not even a batch that waits only for its turn, since the logs are closed by then."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a", configs=GZIP), HeldVerifier()
        requests = [
            waits(room, (partition, large(b"1"))),
            waits(room, (partition, small(b"2"))),
            waits(room, (partition, small(b"3")), verifier=verifier),
        ]
        await turns()
        worker.waiting[0].set_result(None)
        verifier.grant()
        room.replicas.close()
        end = partition.log.log_end_offset
        room.stop()
        await turns(20)
        assert all(request.cancelled() for request in requests)
        assert begin(room, (partition, small(b"4"))) == [NOT_LEADER]
        assert (end, partition.log.log_end_offset) == (0, 0)

    play(room, test)


def test_what_is_refused_in_any_case_needs_no_turn_to_be_told(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        configs = {**GZIP, "min.insync.replicas": "2"}
        partition = room.create("a", replicas=(0, 1), isr=(0,), configs=configs)
        first = waits(room, (partition, large(b"1")))
        (row,) = begin(room, (partition, large(b"2")), acks=-1)  # type: ignore[misc]
        assert isinstance(row, AppendError)
        assert row.error is ErrorCode.NOT_ENOUGH_REPLICAS
        await turns()
        worker.waiting[0].set_result(None)
        assert isinstance((await first)[0], AppendInfo)

    play(room, test)


def test_batch_that_lost_its_leader_between_append_and_commit_hears_of_it(room: Replicas) -> None:
    """The other row waits long, and in the meantime another leader's records take its place."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        options: dict[str, Any] = {"replicas": (0, 1), "isr": (0, 1), "configs": GZIP}
        first, second = room.create("a", **options), room.create("b", **options)
        request = waits(room, (first, small(b"1")), (second, large(b"2")), acks=-1)
        await turns()
        room.create("a", leader=1, epoch=1, **options)
        first.log.high_watermark = 1
        worker.waiting[0].set_result(None)
        await turns()
        second.close()
        assert await request == [NOT_LEADER, NOT_LEADER]
        assert first.log.log_end_offset == second.log.log_end_offset == 1

    play(room, test)


# -- what costs more than it looks -----------------------------------------------------------------

COMPACTED = {"cleanup.policy": "compact"}


def bomb(value: bytes = b"1", **options: Any) -> AppendRow | Any:
    """Small in compressed form; the value is made large."""
    records = batch(value + bytes(600), codec=Codec.GZIP, **options)
    assert len(records) < validator.INLINE_REWRITE_BYTES
    return memoryview(bytearray(records))


class Sender:
    """A client with one connection."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.connection = self
        self.is_held = False

    @property
    def peer(self) -> str:
        return "192.0.2.1:9999"

    def hold_requests(self, held: bool) -> None:
        assert held is not self.is_held
        self.is_held = held


OLD_STAMP = {"message.timestamp.before.max.ms": "1000"}


@pytest.mark.parametrize(
    ("configs", "options"),
    [
        (COMPACTED, {}),
        ({"compression.type": "lz4"}, {}),
        ({}, {"magic": 1}),
        (OLD_STAMP, {"timestamp": NOW - 5000}),
    ],
    ids=["compacted", "recompressed", "old magic", "timestamps to be listed"],
)
def test_batch_that_inflates_goes_to_a_worker_however_small_it_is(
    room: Replicas, configs: dict[str, str], options: Any
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=configs)
        request = waits(room, (partition, bomb(**options)))
        await turns()
        assert len(worker.waiting) == 1
        worker.waiting[0].set_result(None)
        (result,) = await request
        if configs is OLD_STAMP:
            assert isinstance(result, AppendError)
            assert (result.error, len(result.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 1)
        else:
            assert visible(partition) == [b"1"]
        assert partition.append_queues is None

    play(room, test)


def test_many_batches_are_not_read_in_one_turn_of_the_loop(room: Replicas) -> None:
    """The clock moves on by a millisecond each time it is read."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        clock = itertools.count(0, 1000)
        room.replicas.appends._turns = Turns(lambda: next(clock), slice_us=5000)
        senders = [Sender(str(number)) for number in range(40)]
        begun = [begin(room, (partition, small(b"1")), client=sender) for sender in senders]
        at_once = [each for each in begun if isinstance(each, list)]
        assert 1 <= len(at_once) < (18 if partition.log.reads_natively else 6)
        for _ in range(40):
            await turns()
        assert len(worker.waiting) > 5
        for each in worker.waiting:
            each.set_result(None)
        await turns(20)
        assert len(visible(partition)) == 40

    play(room, test)


@pytest.mark.parametrize(
    ("codec", "value"),
    [(Codec.LZ4, b"1"), (Codec.NONE, b"1" * INLINE_REWRITE_BYTES)],
    ids=["compressed", "large"],
)
def test_batches_that_are_read_natively_wait_for_turns_of_the_loop(
    room: Replicas, codec: Codec, value: bytes
) -> None:
    """The clock moves on by a millisecond each time it is read."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=COMPACTED)
        clock = itertools.count(0, 1000)
        room.replicas.appends._turns = Turns(lambda: next(clock), slice_us=5000)
        senders = [Sender(str(number)) for number in range(40)]
        begun = [
            begin(room, (partition, memoryview(batch(value, codec=codec))), client=sender)
            for sender in senders
        ]
        at_once = [each for each in begun if isinstance(each, list)]
        assert 1 <= len(at_once) < 18
        for each in begun:
            if not isinstance(each, list):
                await each
        assert partition.log.log_end_offset == 40
        assert worker.waiting == []

    with form("native"):
        play(room, test)


def test_batch_that_waits_longer_than_its_timeout_is_not_appended(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "MIN_WAIT_MS", 0)

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a", configs=GZIP), HeldVerifier()
        patient = waits(room, (partition, large(b"1")))
        hasty = [
            waits(room, (partition, large(b"2")), timeout_ms=1),
            waits(room, (partition, small(b"3")), timeout_ms=1),
            waits(room, (partition, small(b"4")), timeout_ms=1, verifier=verifier),
        ]
        for request in hasty:
            assert await request == [AppendError(ErrorCode.REQUEST_TIMED_OUT)]
        assert worker.waiting[1].cancelled()
        assert not verifier.asked[0].cancelled()  # others may also wait for it
        verifier.grant()
        worker.waiting[0].set_result(None)
        await patient
        assert visible(partition) == [b"1"]
        assert partition.append_queues is None

    play(room, test)


def test_client_does_not_wait_behind_another_clients_batches(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, slow, quick = (
            room.create("a", configs=COMPACTED),
            Sender("slow"),
            Sender("quick"),
        )
        first = waits(room, (partition, bomb(b"1")), client=slow)
        behind = waits(room, (partition, small(b"2")), client=slow)
        assert isinstance(begin(room, (partition, small(b"3")), client=quick), list)
        await turns()
        worker.waiting[0].set_result(None)
        await first
        await behind
        assert visible(partition) == [b"3", b"1", b"2"]

    play(room, test)


@pytest.mark.parametrize("limit", [TookTooLong("after 1 s"), TookTooMuch("after 1 MB")])
def test_batch_that_costs_too_much_is_too_large_and_the_log_says_whose(
    room: Replicas, limit: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition = room.create("a", configs=GZIP)
        request = waits(room, (partition, large(b"1")), client=Sender("me"))
        await turns()
        worker.waiting[0].set_exception(limit)
        (result,) = await request
        assert isinstance(result, AppendError)
        assert result.error is ErrorCode.MESSAGE_TOO_LARGE
        assert visible(partition) == []

    play(room, test)
    assert "for a-0 from client 'me' at 192.0.2.1:9999 are refused" in caplog.text
    assert str(limit) in caplog.text


def test_what_would_wait_beyond_the_bound_is_to_be_sent_again(room: Replicas) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, verifier = room.create("a", configs=GZIP), HeldVerifier()
        memory = room.replicas.appends.memory
        memory.max_bytes = 1500
        greedy, modest = Sender("greedy"), Sender("modest")
        first = [waits(room, (partition, large(b"1")), client=greedy) for _ in range(2)]
        for options in ({}, {"verifier": verifier}):
            (refused,) = begin(room, (partition, large(b"2")), client=greedy, **options)  # type: ignore[arg-type, misc]
            assert isinstance(refused, AppendError)
            assert refused.error is ErrorCode.REQUEST_TIMED_OUT
        second = waits(room, (partition, large(b"3")), client=modest)
        await turns()
        for each in worker.waiting:
            each.set_result(None)
        for request in (*first, second):
            await request
        assert sorted(visible(partition)) == [b"1", b"1", b"3"]
        assert memory.total == 0
        verifier.grant()

    play(room, test)


def test_beyond_the_bound_a_batch_waits_in_its_request_while_there_is_memory_for_requests(
    room: Replicas,
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        partition, greedy = room.create("a", configs=GZIP), Sender("greedy")
        appends = room.replicas.appends
        appends.memory.max_bytes = 1500
        appends.may_keep_requests = memory = HeldMemory()
        requests = [waits(room, (partition, large(b"1")), client=greedy) for _ in range(2)]
        counted = appends.memory.total
        assert greedy.is_held, "it uses more than half of the memory"
        frame = bytearray(batch(b"2" + bytes(600)))
        requests.append(waits(room, (partition, memoryview(frame)), client=greedy))
        assert appends.memory.total == counted
        with pytest.raises(BufferError):
            frame.append(0)  # it is in use
        memory.is_full = True
        (refused,) = begin(room, (partition, large(b"3")), client=greedy)  # type: ignore[misc]
        assert isinstance(refused, AppendError)
        assert refused.error is ErrorCode.REQUEST_TIMED_OUT
        await turns()
        while not all(request.done() for request in requests):
            for each in worker.waiting:
                if not each.done():
                    each.set_result(None)
            await turns()
        assert visible(partition) == [b"1", b"1", b"2"]
        assert appends.memory.total == 0
        frame.append(0)  # nothing uses it any more
        await turns()
        assert not greedy.is_held

    play(room, test)


def test_view_of_records_can_be_sent_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(memoryview(bytearray(b"records"))[3:])) == b"ords"


class HeldMemory:
    """The memory of requests."""

    is_full = False

    def __call__(self) -> bool:
        return not self.is_full


# -- all of it -------------------------------------------------------------------------------------

TOPICS = ("a", "b")
ROW = st.tuples(st.sampled_from(TOPICS), st.sampled_from(["small", "large"]))
STEP = st.one_of(
    st.tuples(
        st.just("send"), st.lists(ROW, min_size=1, max_size=3), st.sampled_from([0, 0, 1, 2])
    ),
    st.tuples(
        st.just("worked"),
        st.integers(0, 3),
        st.sampled_from([None, None, None, BrokenExecutor(), ZeroDivisionError(), "cancel"]),
    ),
    st.tuples(st.just("answered"), st.integers(0, 3), st.sampled_from([None, None, FENCED])),
    st.tuples(st.just("new epoch"), st.sampled_from(TOPICS), st.none()),
    st.tuples(st.just("deleted"), st.sampled_from(TOPICS), st.none()),
)


class Model:
    """Requests, and the order in which the batches of each partition arrived."""

    def __init__(self, room: Replicas, worker: HeldExecutor) -> None:
        self.room = room
        self.worker = worker
        self.verifiers: list[NotingVerifier] = []
        self.logs = [room.create(topic, configs=GZIP) for topic in TOPICS]
        #: For each batch: its partition, its leader epoch and its row's answer.
        self.sent: dict[bytes, tuple[Partition, int]] = {}
        self.requests: list[tuple[list[bytes], asyncio.Future[list[Result]]]] = []
        self.told: dict[bytes, Result] = {}
        self.arrived: dict[Partition, list[bytes]] = {log: [] for log in self.logs}

    def send(self, rows: list[tuple[str, str]], rounds: int) -> None:
        verifier = NotingVerifier(self, rounds) if rounds else None
        names, asked = [], []
        for topic, size in rows:
            name = b"%d" % len(self.sent)
            partition = self.room.partition(topic)
            self.sent[name] = partition, partition.state.leader_epoch
            names.append(name)
            asked.append((partition, (small if size == "small" else large)(name)))
            if verifier is None:
                self.arrived[partition].append(name)
        if verifier is not None:
            self.verifiers.append(verifier)
        begun = begin(self.room, *asked, verifier=verifier)
        if isinstance(begun, list):
            self.told.update(zip(names, begun, strict=True))
        else:
            self.requests.append((names, begun))

    def work(self, index: int, problem: Any) -> None:
        open_ = [each for each in self.worker.waiting if not each.done()]
        if open_:
            settle(open_[index % len(open_)], problem)

    def answer(self, index: int, refusal: AppendError | None) -> None:
        open_ = [
            (verifier, name, future)
            for verifier in self.verifiers
            for name, future in verifier.questions
            if not future.done()
        ]
        if open_:
            verifier, name, future = open_[index % len(open_)]
            if refusal is not None:
                future.set_result(refusal)
                return
            partition = self.sent[name][0]
            if name in self.arrived[partition]:  # the topic existed before and is created again
                self.arrived[partition].remove(name)
            self.arrived[partition].append(name)
            verifier.rounds_of[name] += 1
            future.set_result(Granted(verifier.rounds_of[name]))

    def check(self) -> None:
        for partition in self.logs:
            found = visible(partition) if partition.is_leader else []
            expected = [name for name in self.arrived[partition] if name in found]
            assert found == expected, "in another order than they arrived"

    def check_end(self) -> None:
        for names, request in self.requests:
            assert request.done(), "a request without an answer"
            if not request.cancelled():
                self.told.update(zip(names, request.result(), strict=True))
        for partition in self.logs:
            assert partition.append_queues is None
        for name, told in self.told.items():
            partition, epoch = self.sent[name]
            if not partition.is_leader:
                continue  # deleted
            is_there = name in visible(partition)
            assert is_there == isinstance(told, AppendInfo), (name, told)
            if is_there:
                assert epoch == epochs(partition)[name], "appended in a later leader epoch"
            if epoch != partition.state.leader_epoch and not is_there:
                assert told in (NOT_LEADER, FENCED) or told.error is ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[union-attr]


class NotingVerifier:
    """Asks several times for each batch, which it recognises by its value."""

    def __init__(self, model: Model, rounds: int) -> None:
        self._model = model
        self._rounds = rounds
        self.rounds_of: dict[bytes, int] = {}
        self.questions: list[tuple[bytes, asyncio.Future[AppendError | Granted]]] = []

    def verify(
        self, partition: Partition, records: Any, granted: Granted | None = None
    ) -> Awaitable[AppendError | Granted] | None:
        name = (values(bytes(records))[0] or b"").rstrip(b"\0")
        if self.rounds_of.setdefault(name, 0) >= self._rounds:
            return None
        future: asyncio.Future[AppendError | Granted] = asyncio.get_running_loop().create_future()
        self.questions.append((name, future))
        return future


def headers(partition: Partition) -> list[Any]:
    data = partition.read(0, 1 << 20).data  # type: ignore[union-attr]
    return [header for _, header in iter_batch_headers(stored(data))]


def epochs(partition: Partition) -> dict[bytes, int]:
    """The leader epoch in which each value was appended; each batch has one value."""
    stamped = (header.partition_leader_epoch for header in headers(partition))
    return dict(zip(visible(partition), stamped, strict=True))


def settle(future: asyncio.Future[None], problem: Any) -> None:
    if problem == "cancel":
        future.cancel()
    elif problem is None:
        future.set_result(None)
    else:
        future.set_exception(problem)


@given(steps=st.lists(STEP, min_size=8, max_size=25))
def test_batches_of_a_partition_become_visible_in_the_order_in_which_they_arrived(
    steps: list[tuple[str, Any, Any]],
) -> None:
    async def test(room: Replicas, worker: HeldExecutor) -> None:
        model = Model(room, worker)
        leader_epochs = dict.fromkeys(TOPICS, 0)
        gone: set[str] = set()
        for what, which, how in steps:
            if what == "send":
                model.send([row for row in which if row[0] not in gone] or [], how)
            elif what == "worked":
                model.work(which, how)
            elif what == "answered":
                model.answer(which, how)
            elif which in gone:
                continue
            elif what == "new epoch":
                leader_epochs[which] += 1
                room.create(which, epoch=leader_epochs[which], configs=GZIP)
            else:
                gone.add(which)
                room.delete(which)
            await turns(8)
            model.check()
        for _ in range(1000):
            if not room.replicas.appends._tasks:
                break
            model.work(0, None)
            model.answer(0, None)
            await turns(8)
        model.check()
        model.check_end()

    with tempfile.TemporaryDirectory() as folder:
        room = Replicas(Path(folder)).start()
        try:
            play(room, test)
        finally:
            room.stop()


def test_now_is_the_time_of_the_append(room: Replicas) -> None:
    """With LogAppendTime, also for waiting batches: timestamps of a partition never go back."""

    async def test(room: Replicas, worker: HeldExecutor) -> None:
        configs = {**GZIP, "message.timestamp.type": "LogAppendTime"}
        partition, verifier = room.create("a", configs=configs), HeldVerifier()
        request = waits(room, (partition, small(b"1")), verifier=verifier)
        room.clock.advance(5)
        assert isinstance(begin(room, (partition, small(b"2"))), list)
        verifier.grant()
        await request
        times = [header.max_timestamp for header in headers(partition)]
        assert times == [NOW + 5, NOW + 5]

    play(room, test)
