"""Moving replicas between log directories: copying, following the log, taking its place, restarts and kills."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.records.batch import iter_batches
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from server.log.checkpoint import RECOVERY_POINT
from server.log.file_layer import FileLayer
from server.log.log import AppendError, AppendOrigin, Log
from server.log.log_directory import LogDirectory
from server.log.log_manager import LogManager
from server.metadata.image import TOPICS
from server.metadata.topic_partition import TopicPartition
from server.replication import log_dir_moves
from server.replication.log_dir_moves import RATE, LogDirMoves, common_end
from tests.log.faults.disk import Disk, DiskFiles, Fault, Stopped
from tests.log.logs import append as append_to
from tests.log.logs import batch as batch_of
from tests.log.logs import open_log
from tests.support.replicas import Replicas, UnsyncedFiles, batch, topic_image

TP = TopicPartition("orders", 0)


class Room(Replicas):
    """A broker with log directories `one`, which gets the first partition, and `two`."""

    def __init__(
        self, folder: Path, config: dict[str, str] | None = None, layer: FileLayer | None = None
    ) -> None:
        self.one, self.two = (str(folder / name) for name in ("one", "two"))
        dirs = {"log.dirs": f"{self.one},{self.two}"}
        super().__init__(folder, {**dirs, **(config or {})}, layer=layer)
        self.moves: LogDirMoves

    def begin(self, *topics: Any) -> Room:
        """Start with these topics; to be called on the loop."""
        self.moves = LogDirMoves(
            self.config,
            self.logs,
            self.replicas,
            self.executor,
            self.clock,
            self.turns,
            lambda tp: self.publisher.image.partition(*tp) is not None,
        )
        self.replicas.moves = self.moves
        self.start(*topics)
        return self

    async def moved(self) -> None:
        """Wait until nothing is being moved."""
        while self.moves._tasks:
            await asyncio.gather(*self.moves._tasks.values(), return_exceptions=True)

    def place(self, tp: TopicPartition = TP) -> str:
        directory = self.logs.directory_of(tp)
        assert directory is not None
        return directory.path

    def stop(self) -> None:
        if not self.stopped:
            self.moves.close()
        super().stop()


def content(log: Log) -> list[tuple[int, int, bytes | None]]:
    """Offset, epoch and value of every record, read as a consumer reads."""
    rows = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        assert not isinstance(found, ErrorCode)
        data = found.data if isinstance(found.data, bytes) else found.data.read()
        for each in iter_batches(data):
            epoch = each.header.partition_leader_epoch
            rows += [(r.offset, epoch, r.value) for r in each.records() if r.offset >= offset]
        offset = found.next_offset
    return rows


def folders(path: str) -> list[str]:
    """The kind of each directory: a name, or the suffix of a directory that is not a log."""
    named = (each.name.rpartition(".") for each in Path(path).iterdir() if each.is_dir())
    return sorted(f"{log}{suffix[32:]}" if log else suffix for log, _, suffix in named)


def damage(log: Log) -> None:
    path = Path(log.segments[0].log.path)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Callable[[Room], Awaitable[None]]], None]]:
    """Run a test's body with a room on its loop."""

    def start(body: Callable[[Room], Awaitable[None]], **config: str) -> None:
        async def whole() -> None:
            room = Room(tmp_path, {name.replace("_", "."): v for name, v in config.items()})
            room.begin(topic_image("orders"))
            try:
                await body(room)
            finally:
                room.stop()

        asyncio.run(whole())

    return start  # type: ignore[return-value]


def fill(room: Room, count: int = 50, size: int = 3000) -> None:
    chooser = random.Random(count)
    for _ in range(count):
        room.produce("orders", chooser.randbytes(size), chooser.randbytes(20))


# -- a whole move


def test_replica_is_moved_and_goes_on_there(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        partition = room.partition("orders")
        old, before = partition.log, content(partition.log)
        assert room.moves.move(TP, room.two) == 0
        assert room.logs.future(TP) is not None
        await room.moved()
        assert partition.log is room.logs.get(TP) is partition.reader
        assert partition.log is not old
        assert old.offline
        assert room.place() == room.two
        assert content(partition.log) == before
        assert room.produce("orders", b"after") == before[-1][0] + 1
        assert partition.log.high_watermark == before[-1][0] + 2
        assert folders(room.two) == ["orders-0"]
        assert folders(room.one) == ["orders-0-delete"]

    run(body, log_segment_bytes="20000")


def test_records_written_meanwhile_and_their_epochs_come_along(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 100)
        partition = room.partition("orders")
        room.moves.move(TP, room.two)
        number = 0
        while room.logs.future(TP) is not None:
            number += 1
            room.produce("orders", b"%d" % number)
            await asyncio.sleep(0)
        last = content(partition.log)[-number:]
        assert [value for _, _, value in last] == [b"%d" % n for n in range(1, number + 1)]
        assert number > 10
        await room.moved()
        # An epoch that has begun without a batch is also known.
        assert partition.log.leader_epoch_cache.entries() == [(0, 0)]

    run(body)


def test_moved_log_is_opened_again_from_its_new_directory(run: Any, tmp_path: Path) -> None:
    async def body(room: Room) -> None:
        fill(room)
        room.replicas.partitions[TP].log.delete_records_before(7)
        room.moves.move(TP, room.two)
        await room.moved()
        before = content(room.partition("orders").log)
        room.stop()
        again = Room(tmp_path).begin(topic_image("orders"))
        assert again.place() == again.two
        log = again.partition("orders").log
        assert content(log) == before
        assert (log.log_start_offset, log.high_watermark) == (7, before[-1][0] + 1)
        again.stop()

    run(body)


def test_producers_are_known_after_the_move(run: Any) -> None:
    async def body(room: Room) -> None:
        producer = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
        room.produce("orders", b"open", base_sequence=0, **producer)
        stable = room.partition("orders").log.last_stable_offset
        room.moves.move(TP, room.two)
        await room.moved()
        log = room.partition("orders").log
        assert log.last_stable_offset == stable == 0
        refused = room.append("orders", batch(b"x", base_sequence=7, **producer))
        assert refused.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        room.produce("orders", b"next", base_sequence=1, **producer)

    run(body)


def test_aborted_transactions_are_known_after_the_move(run: Any) -> None:
    async def body(room: Room) -> None:
        log = room.partition("orders").log
        for number in range(20):
            producer = {"producer_id": number, "producer_epoch": 0, "is_transactional": True}
            room.produce("orders", b"x" * 3000, base_sequence=0, **producer)
            decided = ControlType.COMMIT if number % 2 else ControlType.ABORT
            marker = EndTransactionMarker(decided, 0)
            data = end_transaction_batch(
                marker, producer_id=number, producer_epoch=0, timestamp=room.clock.now_ms()
            )
            info = room.append("orders", data, origin=AppendOrigin.COORDINATOR)
            assert not isinstance(info, AppendError)
        before = log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset
        assert len(before[0]) == 10
        room.moves.move(TP, room.two)
        await room.moved()
        log = room.partition("orders").log
        assert (log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset) == before
        room.stop()
        again = Room(Path(room.one).parent).begin(topic_image("orders"))
        log = again.partition("orders").log
        assert (log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset) == before
        again.stop()

    run(body, log_segment_bytes="20000")


def test_retention_is_that_of_the_log_and_not_of_the_copy(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 100)
        room.moves.move(TP, room.two)
        while (copy := room.logs.future(TP)) is not None and copy.log_end_offset < 40:
            await asyncio.sleep(0)
        assert copy is not None
        segments = len(copy.segments)
        kept = {"retention.bytes": "30000"}
        room.publisher.publish(
            room.publisher.image.edit().put_config(TOPICS, "orders", kept).build()
        )
        room.logs.retention(room.clock.now_ms(), room.logs.logs())
        log = room.partition("orders").log
        assert log.log_start_offset > 40
        assert len(copy.segments) == segments
        await room.moved()
        moved = room.partition("orders").log
        assert (room.place(), moved.log_start_offset) == (room.two, log.log_start_offset)
        assert [offset for offset, _, _ in content(moved)] == [*range(moved.log_start_offset, 200)]

    run(body, log_segment_bytes="9000")


def test_compaction_waits_until_the_move_is_over(run: Any) -> None:
    async def body(room: Room) -> None:
        from server.log.cleaner.log_cleaner import LogCleaner

        room.create("table", configs={"cleanup.policy": "compact", "segment.bytes": "3000"})
        tp = TopicPartition("table", 0)
        for n in range(60):
            room.produce("table", b"%d" % n * 100, key=b"same")
        log = room.partition("table").log
        log.flush(room.clock.now_ms())
        cleaner = LogCleaner(room.logs)
        round_ = cleaner.next_round(room.clock.now_ms())
        assert round_ is not None
        cleaner.keys_read(round_, round_.plan.round_end_offset)
        assert cleaner.is_current(round_, round_.groups[0])
        target = room.one if room.place(tp) == room.two else room.two
        room.moves.move(tp, target)
        assert not cleaner.is_current(round_, round_.groups[0])
        assert cleaner.next_round(room.clock.now_ms()) is None
        await room.moved()
        assert cleaner.next_round(room.clock.now_ms()) is not None

    run(body)


# -- the rule of following


@pytest.mark.parametrize(
    ("log", "copy", "common"),
    [
        ([], [], 0),
        ([0, 0, 0], [0, 0], 2),
        ([0, 0, 1], [0, 0, 0], 2),  # truncated and written again in another epoch
        ([0, 0, 2, 2], [0, 1, 1], 1),  # the log has no more data of epoch 1
        ([1, 1], [0, 0], 0),
        ([0, 0], [0, 0, 0, 0], 2),  # truncated
    ],
)
def test_common_end_is_found_by_epochs(
    tmp_path: Path, log: list[int], copy: list[int], common: int | None
) -> None:
    logs = []
    for name, epochs in (("log", log), ("copy", copy)):
        (tmp_path / name).mkdir()
        made = open_log(tmp_path / name)
        for epoch in epochs:
            append_to(made, batch_of(b"v"), epoch=epoch)
        logs.append(made)
    assert common_end(*logs) in ((common, 0) if common is None else (common,))


def test_truncation_of_the_log_truncates_the_copy(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        log = room.partition("orders").log
        room.moves.move(TP, room.two)
        while (copy := room.logs.future(TP)) is not None and not copy.log_end_offset:
            await asyncio.sleep(0)
        log.truncate_to(2, room.clock.now_ms())
        for n in range(30):
            append_to(log, memoryview(bytearray(batch(b"new %d" % n))), epoch=1)
        await room.moved()
        assert room.place() == room.two
        assert content(room.partition("orders").log)[2:] == [
            (n + 2, 1, b"new %d" % n) for n in range(30)
        ]

    run(body)


def test_records_deleted_before_they_are_copied_are_left_out(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        log = room.partition("orders").log
        log.delete_records_before(40)
        log.delete_old_segments(room.clock.now_ms())
        before = content(log)
        room.moves.move(TP, room.two)
        await room.moved()
        moved = room.partition("orders").log
        assert (moved.log_start_offset, content(moved)) == (40, before)

    run(body, log_segment_bytes="9000")


def test_log_that_ends_without_records_is_moved(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 3)
        log = room.partition("orders").log
        log.skip_to(100, room.clock.now_ms())
        room.moves.move(TP, room.two)
        await asyncio.wait_for(room.moved(), 20)
        moved = room.partition("orders").log
        assert (room.place(), moved.log_end_offset) == (room.two, 100)
        assert room.produce("orders", b"x") == 100

    run(body)


# -- what is asked


def test_answers_to_what_cannot_be_done(run: Any) -> None:
    async def body(room: Room) -> None:
        moves, other = room.moves, TopicPartition("orders", 1)
        assert moves.move(TP, "/no/log/directory") == ErrorCode.LOG_DIR_NOT_FOUND
        assert moves.move(TP, "one") == ErrorCode.LOG_DIR_NOT_FOUND
        assert moves.move(other, room.two) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = TopicPartition("t" * 230, 0)
        assert moves.move(long, room.two) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert moves.move(TP, room.one) == 0  # it is there
        assert room.logs.future(TP) is None
        room.logs.directories[1].offline = True
        assert moves.move(TP, room.two) == ErrorCode.KAFKA_STORAGE_ERROR

    run(body)


def test_replica_that_is_not_there_yet_is_made_where_it_was_asked_for(run: Any) -> None:
    async def body(room: Room) -> None:
        for name in ("a", "b", "c"):
            tp = TopicPartition(name, 0)
            assert room.moves.move(tp, room.two) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            room.create(name)
            assert room.place(tp) == room.two

    run(body)


def test_move_back_to_where_it_is_ends_the_move(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        room.moves.move(TP, room.two)
        assert folders(room.two) == ["orders-0-future"]
        assert room.moves.move(TP, room.one) == 0
        await room.moved()
        assert (room.place(), room.logs.future(TP)) == (room.one, None)
        assert folders(room.two) == ["orders-0-delete"]
        room.moves.move(TP, room.two)
        await room.moved()
        assert room.place() == room.two

    run(body)


def test_topic_deleted_during_its_move_leaves_nothing(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        room.moves.move(TP, room.two)
        room.delete("orders")
        await room.moved()
        assert folders(room.one) == folders(room.two) == ["orders-0-delete"]

    run(body)


def test_throttle_spreads_the_bytes_over_time(run: Any, monkeypatch: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 100)  # 300 KB
        slept = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            room.clock.advance(int(seconds * 1000) or 1)

        monkeypatch.setattr(log_dir_moves.asyncio, "sleep", sleep)
        room.config.dynamic_broker[RATE] = "50000"
        before = room.clock.now_ms()
        room.moves.move(TP, room.two)
        await room.moved()
        assert room.place() == room.two
        assert 4000 <= room.clock.now_ms() - before <= 8000
        assert max(slept) <= 1

    run(body)


def test_log_that_cannot_be_read_stays_where_it_is(run: Any, caplog: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        damage(room.partition("orders").log)
        room.moves.move(TP, room.two)
        await room.moved()
        assert room.place() == room.one
        assert "orders-0 cannot be moved, and stays where it is" in caplog.text
        room.produce("orders", b"still served")

    run(body)


async def copying(room: Room, at_least: int = 1) -> Log:
    """Begin to move, and return the copy as soon as it has some records."""
    assert room.moves.move(TP, room.two) == 0
    while (copy := room.logs.future(TP)) is not None and copy.log_end_offset < at_least:
        await asyncio.sleep(0)
    assert copy is not None
    return copy


def test_failed_target_leaves_the_log_where_it_is(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 100)
        before = content(room.partition("orders").log)
        copy = await copying(room)
        copy.on_io_error(OSError(errno.EIO, "test"))
        room.replicas.directory_failed()
        await room.moved()
        assert (room.place(), room.logs.future(TP)) == (room.one, None)
        assert content(room.partition("orders").log) == before
        assert room.produce("orders", b"still served") == len(before)
        assert room.moves.move(TP, room.two) == ErrorCode.KAFKA_STORAGE_ERROR
        assert room.moves.move(TP, room.one) == 0

    run(body)


def test_failed_source_ends_the_move(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 100)
        await copying(room)
        room.partition("orders").log.on_io_error(OSError(errno.EIO, "test"))
        room.replicas.directory_failed()
        await room.moved()
        assert room.moves.move(TP, room.two) == ErrorCode.KAFKA_STORAGE_ERROR
        assert folders(room.two) == ["orders-0-future"]

    run(body)


def test_old_log_stays_if_the_new_directory_fails_as_it_takes_its_place(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room, 30)
        before = content(room.partition("orders").log)
        replace = room.logs.replace_with_future

        def then_fail(tp: TopicPartition) -> Log:
            log = replace(tp)
            log.on_io_error(OSError(errno.EIO, "test"))
            return log

        room.logs.replace_with_future = then_fail  # type: ignore[method-assign]
        room.moves.move(TP, room.two)
        await room.moved()
        room.stop()
        shutil.rmtree(room.two)
        again = Room(Path(room.one).parent).begin(topic_image("orders"))
        assert content(again.partition("orders").log) == before
        again.stop()

    run(body)


def test_copy_of_an_earlier_topic_is_not_taken_for_one_of_the_new_topic(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        room = Room(tmp_path).begin(topic_image("orders"))
        fill(room, 100)
        await copying(room)
        room.stop()
        again = Room(tmp_path).begin(topic_image("orders", id=b"another topic id"))
        assert again.logs.future(TP) is None
        await again.moved()
        assert content(again.partition("orders").log) == []
        again.stop()

    asyncio.run(body())
    assert len([*tmp_path.glob("*/*-stray")]) == 1


# -- restarts and kills


def test_restart_continues_a_move(tmp_path: Path) -> None:
    async def body() -> None:
        room = Room(tmp_path).begin(topic_image("orders"))
        fill(room, 100)
        before = content(room.partition("orders").log)
        room.moves.move(TP, room.two)
        while (copy := room.logs.future(TP)) is not None and not copy.log_end_offset:
            await asyncio.sleep(0)
        assert copy is not None
        room.stop()
        again = Room(tmp_path)
        copied = []
        create_future = LogManager.create_future
        again.logs.create_future = lambda *_: pytest.fail("it began anew")  # type: ignore[method-assign]
        again.begin(topic_image("orders"))
        found = again.logs.future(TP)
        assert found is not None
        copied.append(found.log_end_offset)
        assert copied[0] > 0
        await again.moved()
        assert create_future is LogManager.create_future
        assert again.place() == again.two
        assert content(again.partition("orders").log) == before
        again.stop()

    asyncio.run(body())


def test_copy_gets_no_checkpoints_of_the_log_that_was_there_before(run: Any) -> None:
    async def body(room: Room) -> None:
        fill(room)
        room.partition("orders").log.flush(room.clock.now_ms())
        room.logs.checkpoint(room.clock.now_ms())
        one = room.logs.directories[0]
        assert one.read_checkpoint(RECOVERY_POINT) == {TP: 100}
        room.moves.move(TP, room.two)
        await room.moved()
        room.moves.move(TP, room.one)
        assert one.read_checkpoint(RECOVERY_POINT) == {}
        await room.moved()
        assert room.place() == room.one

    run(body)


def test_copies_without_their_log_are_left_alone(tmp_path: Path, caplog: Any) -> None:
    async def body() -> None:
        (tmp_path / "two" / f"orders-0.{'a' * 32}-future").mkdir(parents=True)
        room = Room(tmp_path).begin(topic_image("orders"))
        assert room.logs.future(TP) is None
        assert "it is not a copy of a log in another directory" in caplog.text
        assert (tmp_path / "two" / f"orders-0.{'a' * 32}-future").exists()
        room.stop()

    asyncio.run(body())


def test_of_two_logs_of_a_partition_the_one_with_more_records_is_used(
    tmp_path: Path, caplog: Any
) -> None:
    async def written() -> None:
        room = Room(tmp_path).begin(topic_image("orders"))
        fill(room, 3)
        room.stop()

    async def opened(place: str) -> None:
        room = Room(tmp_path).begin(topic_image("orders"))
        assert room.place() == str(tmp_path / place)
        assert room.partition("orders").log.log_end_offset == 6
        room.stop()

    asyncio.run(written())
    for rounds, (place, other) in enumerate((("two", "one"), ("one", "two"))):
        shutil.copytree(tmp_path / other / "orders-0", tmp_path / place / "orders-0")
        (tmp_path / other / "orders-0" / "00000000000000000000.log").write_bytes(b"")
        for path in tmp_path.glob("*/.kafka_cleanshutdown"):
            path.unlink()
        asyncio.run(opened(place))
        assert len([*tmp_path.glob("*/*-stray")]) == rounds + 1


class Witness(UnsyncedFiles):
    """Checks, before and after each rename on the loop, the state that kill -9 would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] | None = None

    def rename(self, source: str, target: str) -> None:
        look = self.look if threading.current_thread() is threading.main_thread() else None
        if look is not None:
            look()
        super().rename(source, target)
        if look is not None:
            look()


@pytest.mark.parametrize("compacted", [False, True])
def test_nothing_is_lost_wherever_the_broker_is_killed(tmp_path: Path, compacted: bool) -> None:
    """At each rename and step of a move under load: every acknowledged record is there, and the move ends."""
    moments: list[tuple[Path, int]] = []
    policy = "compact" if compacted else "delete"

    async def move() -> None:
        room = Room(tmp_path / "live", {"log.cleanup.policy": policy, "log.segment.bytes": "40000"})
        witness = Witness()
        room.logs.layer = witness
        for directory in room.logs.directories:
            directory.layer = directory._checkpoints._layer = witness
        room.begin(topic_image("orders"))
        fill(room, 60, 2000)
        room.partition("orders").log.delete_records_before(5)
        room.logs.checkpoint(room.clock.now_ms())

        def look() -> None:
            copy = tmp_path / f"moment-{len(moments)}"
            # A thread may be replacing a checkpoint, with a file of another name.
            shutil.copytree(tmp_path / "live", copy, ignore=shutil.ignore_patterns("*.tmp"))
            moments.append((copy, room.partition("orders").log.log_end_offset))

        witness.look = look
        room.moves.move(TP, room.two)
        number = 0
        while room.moves.moving:
            room.produce("orders", b"more %d" % number)
            number += 1
            if number < 40 and not number % 4:
                look()
            await asyncio.sleep(0.001)
        witness.look = None
        room.stop()

    async def restart(copy: Path, end: int) -> bool:
        room = Room(copy).begin(topic_image("orders"))
        log = room.partition("orders").log
        assert log.log_end_offset >= end
        assert log.log_start_offset == 5
        rows = content(log)
        assert [offset for offset, _, _ in rows] == list(range(5, log.log_end_offset))
        under_way = room.logs.future(TP) is not None
        await room.moved()
        assert content(room.partition("orders").log) == rows
        assert not under_way or room.place() == room.two
        room.stop()
        return room.place() == room.two

    asyncio.run(move())
    ended = [asyncio.run(restart(copy, end)) for copy, end in moments]
    assert len(moments) >= 6
    assert ended[-1]


@pytest.mark.parametrize("compacted", [False, True])
def test_power_cuts_take_nothing_that_was_flushed(compacted: bool) -> None:
    """At every third call of the file system during a move there and back under load; the disk loses unsynced data."""
    settings = {"log.cleanup.policy": "compact" if compacted else "delete"}
    settings["log.segment.bytes"] = "9000"

    async def move(disk: Disk, at: int) -> tuple[int, bool]:
        """Returns the end of the data flushed before the cut at a call, and whether there was one."""
        chooser = Random(at)
        files = DiskFiles(disk, chooser)
        room = Room(Path("/"), settings, files).begin(topic_image("orders"))
        fill(room, 12)
        room.partition("orders").log.delete_records_before(3)
        room.partition("orders").log.flush(room.clock.now_ms())
        room.logs.checkpoint(room.clock.now_ms())
        flushed = room.partition("orders").log.recovery_point
        files.fault = Fault("stop", at)
        try:
            for target in (room.two, room.one):
                room.moves.move(TP, target)
                while room.moves.moving and not files.stopped:
                    room.produce("orders", b"more")
                    if chooser.random() < 0.3:
                        room.partition("orders").log.flush(room.clock.now_ms())
                        flushed = room.partition("orders").log.recovery_point
                    await asyncio.sleep(0)
        except Stopped:
            pass
        for task in room.moves._tasks.values():
            task.cancel()
        await asyncio.gather(*room.moves._tasks.values(), return_exceptions=True)
        room.executor.close()
        files.close()
        disk.lose_power(Random(at))
        return flushed, files.stopped

    async def restart(disk: Disk, flushed: int) -> None:
        files = DiskFiles(disk)
        room = Room(Path("/"), settings, files).begin(topic_image("orders"))
        log = room.partition("orders").log
        rows = content(log)
        assert log.log_start_offset == 3
        offsets = [offset for offset, _, _ in rows]
        if compacted:  # gaps in unflushed data are normal there
            assert offsets[: flushed - 3] == list(range(3, flushed))
        else:
            assert log.log_end_offset >= flushed
            assert offsets == list(range(3, log.log_end_offset))
        target = room.logs.future_directory_of(TP)
        await room.moved()
        assert content(room.partition("orders").log) == rows
        assert target is None or room.place() == target.path
        room.stop()
        files.close()

    at, stopped = 1 + compacted, True
    while stopped:
        disk = Disk(("/one", "/two"))
        flushed, stopped = asyncio.run(move(disk, at))
        asyncio.run(restart(disk, flushed))
        at += 3
    assert at > 120


def test_refused_move_leaves_the_one_in_progress_alone(run: Any, tmp_path: Path) -> None:
    async def body(room: Room) -> None:
        fill(room)
        assert room.moves.move(TP, room.two) == 0
        copy = room.logs.future(TP)
        third = LogDirectory(FileLayer(), str(tmp_path / "three"))
        failed = LogDirectory(FileLayer(), str(tmp_path / "four"))
        failed.offline = True
        room.logs.directories += [third, failed]
        assert room.moves.move(TP, third.path) == ErrorCode.KAFKA_STORAGE_ERROR
        assert room.logs.future(TP) is copy
        assert folders(room.two) == ["orders-0-future"]

    run(body)
