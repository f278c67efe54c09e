"""Runs coordinators' machines: the only module in this folder with a loop, a clock and a log.

Each partition of the internal topic that this broker leads has one shard. An operation's records are appended as one
batch. When the log reports the batch as committed, the records are replayed in log order, and the operation continues
(`completed`). The timers of all shards share one `call_later`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kwire.errors import CorruptRecord, EncodeError, ErrorCode, WireError
from kwire.records.batch import BatchHeader, RecordBatch, iter_batches
from kwire.records.builder import BatchBuilder
from kwire.records.control import ControlType, control_type
from kwire.records.record import Record

from ...cause import CAUSE, Address, Own, caused_by
from ...clock import Clock
from ...net.log_limit import LineLimiter
from ...turns import Steps, Turns
from .result import Result, Timer

log = logging.getLogger(__name__)

LOAD_STEP = 64
"""The number of records that are loaded in one step."""
CLOCK_JUMP_MS = 1_000
"""The minimum shift between the wall clock and the monotonic clock that counts as setting the clock."""

HEAP_TIMERS = 1_000
"""The number of timers after which invalid timers are removed."""

MAX_DUE = 1_000
"""The number of due timers that are taken up in one turn of the loop."""

WRITE_DUE = "write_due"

FINISH_MORE_US = 3_000
"""How much longer than the slice of long work a turn may continue after writes that are committed. Unit: microseconds."""

#: The format whose records are compressed together.
MAGIC_2 = 2

#: The number of load times that are kept.
LOAD_TIMES = 64


class CoordinatorLog(Protocol):
    """The internal topic's partitions, as a coordinator uses them."""

    def append(self, partition: int, batch: bytes, now_ms: int) -> Awaitable[ErrorCode] | ErrorCode:
        """Append one batch as leader.

        Shape: the result is available once the batch is committed, or can never be committed. There is no timeout, and
        NONE arrives in log order. An ErrorCode instead of an awaitable, or a future that is done, is the cheapest
        result.
        """
        ...

    def read_all(self, partition: int) -> Iterator[memoryview]:
        """Yield the stored batches, some at a time, from the log's start to its end.

        Shape: batches that are appended during the reading are included.
        """
        ...

    def inflated(self, batch: RecordBatch) -> Awaitable[bytes]:
        """Verify a compressed stored batch and return its records as `RecordBatch.body` does, off the loop.

        Errors: WireError.
        """
        ...


class CoordinatorShard(Protocol):
    """A machine: every operation is `op(..., now_ms) -> Result`; see result.py.

    Shape: with `keeps_latest`, only the latest record of each key counts, and those before it are not decoded when the
    log is loaded.
    """

    keeps_latest: bool

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...

    def replay(self, record: Any, position: int, producer_id: int = -1) -> None: ...

    def replay_marker(self, producer_id: int, committed: bool) -> Iterator[None]: ...

    def completed(self, ticket: Any, error: ErrorCode, now_ms: int) -> Result[Any]: ...

    def fire(self, timer: Timer, now_ms: int) -> Result[Any]: ...

    def loaded(self, now_ms: int) -> Result[Any]: ...

    def unload(self, now_ms: int) -> Iterator[Result[Any]]: ...

    def shift_time(self, delta_ms: int) -> None: ...


S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")


class SlotState(Enum):
    """LOADING: its log is being read. ACTIVE: it serves requests. CLOSED: another broker now leads the partition."""

    LOADING = 1
    ACTIVE = 2
    CLOSED = 3


@dataclass(slots=True, eq=False)
class Write:
    """A batch being written, or a transaction's marker that waits behind one.

    Shape: `outcome` is None until the log has told it; `finished` is set when the machine has been told. `owner` is the
    client that it is written for, to which belongs what follows (`cause()`).
    """

    records: list[Any]
    ticket: Any
    producer_id: int
    due_ms: int
    outcome: ErrorCode | None = None
    owner: object = None
    timed_out: bool = False
    finished: bool = False
    marker: bool | None = None


@dataclass(slots=True, eq=False)
class Slot(Generic[S]):
    """One partition that this broker leads.

    Shape: `in_flight` is in log order; `position` counts batches; `timers` maps (op_name, key) to
    the number of the valid timer. `draining` is set while writes are completed.
    """

    partition: int
    leader_epoch: int
    shard: S
    state: SlotState = SlotState.LOADING
    position: int = 0
    in_flight: deque[Write] = field(default_factory=deque)
    timers: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None
    draining: bool = False


Concerned: TypeAlias = tuple["str | None", "str | None"]
"""The client whose operation set a timer, if any: its address, and the id of its connection."""

TimerEntry: TypeAlias = tuple[int, int, Slot[S], Timer, "str | None", "str | None"]
"""A timer: when it is due, its number, slot and name, and its client as in `Concerned`."""


class CoordinatorRuntime(Generic[S]):
    """Owns the shards of one internal topic.

    Shape: `make_shard(partition)` returns an empty machine; `write_timeout_ms()` is how long a request waits until its
    write is committed. `perform(partition, leader_epoch, effect)` carries out a Result's effects outside the log. For
    use on one event loop.
    """

    def __init__(
        self,
        topic: str,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        make_shard: Callable[[int], S],
        write_timeout_ms: Callable[[], int],
        perform: Callable[[int, int, Any], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.topic = topic
        self.owner = Own(topic)
        self.writes = Own(f"writes to {topic}")
        self.lines = LineLimiter(log, clock.monotonic_ms)
        self.turns = turns or Turns(clock.monotonic_us)
        self.coordinator_log = coordinator_log
        self.clock = clock
        self.make_shard = make_shard
        self.write_timeout_ms = write_timeout_ms
        self.perform = perform
        self.slots: dict[int, Slot[S]] = {}
        #: The times that the latest partitions took to load.
        self.load_times_ms: deque[int] = deque(maxlen=LOAD_TIMES)
        #: Held by the load that has the records of a compressed batch in memory.
        self.inflating = asyncio.Lock()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.last_token = 0
        self.answers: dict[int, Any] = {}
        self.heap: list[TimerEntry[S]] = []
        #: The timers that are due, by client: those of one client do not delay those of others.
        self.due: dict[Concerned, deque[TimerEntry[S]]] = {}
        self.heap_limit = HEAP_TIMERS
        self.timer_number = 0
        self.handle: asyncio.TimerHandle | None = None
        self.handle_at_ms = 0
        self.clock_offset_ms = clock.now_ms() - clock.monotonic_ms()

    # Leadership of partitions

    def lead(self, partition: int, leader_epoch: int) -> None:
        """Start to load a partition that this broker now leads."""
        slot = self.slots.get(partition)
        if slot is not None:
            if slot.leader_epoch >= leader_epoch:
                return
            self.resign(partition)
        slot = Slot(partition, leader_epoch, self.make_shard(partition))
        self.slots[partition] = slot
        slot.loading = asyncio.get_running_loop().create_task(self.load(slot))

    def resign(self, partition: int) -> None:
        """Give up a partition; its waiting requests are refused, so that clients look for the new coordinator."""
        slot = self.slots.pop(partition, None)
        if slot is None:
            return
        was_active = slot.state is SlotState.ACTIVE
        slot.state = SlotState.CLOSED
        slot.timers.clear()
        if slot.loading is not None:
            slot.loading.cancel()
        # Also after a part of a load: the broker's account of memory counts what was loaded.
        self.turns.start(self.unload(slot, self.now_ms()), self.owner)
        if was_active:
            log.debug("%s-%d: no longer its coordinator", self.topic, partition)

    def unload(self, slot: Slot[S], now_ms: int) -> Steps[None]:
        """Release the state of a partition's machine, and answer its waiting requests, in steps."""
        in_flight, slot.in_flight = slot.in_flight, deque()
        for write in in_flight:
            if write.marker is None and not write.finished:
                write.finished = True
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self.reply(slot.shard.completed(write.ticket, error, now_ms))
                yield
        for result in slot.shard.unload(now_ms):
            self.reply(result)
            yield

    def shard(self, partition: int) -> S | ErrorCode:
        """Return the machine of a partition.

        Errors: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        slot = self.slots.get(partition)
        if slot is None:
            return ErrorCode.NOT_COORDINATOR
        if slot.state is not SlotState.ACTIVE:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return slot.shard

    def is_loading(self) -> bool:
        """Whether any partition is still being loaded."""
        return any(slot.state is SlotState.LOADING for slot in self.slots.values())

    def active(self) -> list[tuple[int, S]]:
        """The partitions that are loaded, with their machines."""
        return [(p, s.shard) for p, s in self.slots.items() if s.state is SlotState.ACTIVE]

    async def wait_until_loaded(self) -> None:
        """Wait for all loads in progress."""
        tasks = [slot.loading for slot in self.slots.values() if slot.loading is not None]
        if tasks:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Give up all partitions and set no more timers."""
        for partition in list(self.slots):
            self.resign(partition)
        self.heap.clear()
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    # Operations

    def run(
        self, partition: int, operation: Callable[[S, int, int], Result[T]]
    ) -> T | asyncio.Future[T]:
        """Call `operation(shard, token, now_ms)` on a loaded partition.

        Shape: the answer itself if it is available immediately, otherwise a future of it.
        """
        slot = self.slots[partition]
        now_ms = self.now_ms()
        self.last_token += 1
        token = self.last_token
        answers = self.answers
        answers.clear()
        self.apply(slot, operation(slot.shard, token, now_ms), now_ms)
        if token in answers:
            answer: T = answers.pop(token)
            return answer
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = asyncio.Future(loop=loop)
        self.waiting[token] = future
        return future

    def run_at_once(self, partition: int, operation: Callable[[S, int, int], Result[T]]) -> T:
        """Call an operation that never waits, and return its answer."""
        answer = self.run(partition, operation)
        assert not isinstance(answer, asyncio.Future)
        return answer

    def start(self, partition: int, operation: Callable[[S, int], Result[Any]]) -> None:
        """Call an operation without a waiting request."""
        slot = self.slots[partition]
        now_ms = self.now_ms()
        self.apply(slot, operation(slot.shard, now_ms), now_ms)

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """Apply a marker that is committed in a partition's log."""
        slot = self.slots.get(partition)
        if slot is None or slot.state is not SlotState.ACTIVE:
            return  # loading reads the marker, now or later
        write = Write([], None, producer_id, 0, ErrorCode.NONE, marker=committed)
        slot.in_flight.append(write)
        self.drain(slot)

    def apply(self, slot: Slot[S], result: Result[Any], now_ms: int) -> None:
        """Carry out the actions of an operation's result."""
        if result.replies:
            self.reply(result)
        for name in result.cancelled:
            slot.timers.pop(name, None)
        for timer in result.timers:
            self.set_timer(slot, timer, now_ms)
        if result.ticket is not None:
            self.append(slot, result, now_ms)
        if result.effects and self.perform is not None:
            for effect in result.effects:
                self.perform(slot.partition, slot.leader_epoch, effect)

    def reply(self, result: Result[Any]) -> None:
        for token, value in result.replies:
            future = self.waiting.pop(token, None)
            if future is None:
                # For the current operation, or for a request that was already answered.
                self.answers[token] = value
            elif not future.done():
                future.set_result(value)

    # Writes

    def append(self, slot: Slot[S], result: Result[Any], now_ms: int) -> None:
        """Append an operation's records as one batch."""
        if result.producer is None:
            builder, producer_id = BatchBuilder(), -1
        else:
            producer_id, epoch = result.producer
            builder = BatchBuilder(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            )
        due_ms = now_ms + self.write_timeout_ms()
        write = Write(result.records, result.ticket, producer_id, due_ms, owner=result.owner)
        outcome: Awaitable[ErrorCode] | ErrorCode
        encode = slot.shard.encode
        try:
            for record in result.records:
                builder.append(now_ms, *encode(record))
        except EncodeError as error:  # as a failed write, so that no request waits for it
            self.lines.log(
                logging.ERROR,
                EncodeError,
                "%s-%d: the state does not fit into a record: %.500s",
                self.topic,
                slot.partition,
                error,
            )
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            slot.in_flight.append(write)
        else:
            slot.in_flight.append(write)
            batch = builder.build()
            if result.on_appended is not None:
                result.on_appended(len(batch))
            try:
                outcome = self.coordinator_log.append(slot.partition, batch, now_ms)
            except (
                Exception
            ):  # as a failed write: all later writes of the partition wait for this one
                log.exception("%s-%d: append failed", self.topic, slot.partition)
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(outcome, int):
            write.outcome = outcome
            self.drain(slot)
            return
        future = asyncio.ensure_future(outcome)
        if future.done():
            self.settle(slot, write, future)
        else:
            future.add_done_callback(lambda done: self.settle(slot, write, done))
            if (WRITE_DUE, ()) not in slot.timers:  # otherwise set again when it fires
                self.set_timer(slot, Timer(WRITE_DUE, (), due_ms), now_ms)

    def settle(self, slot: Slot[S], write: Write, future: asyncio.Future[ErrorCode]) -> None:
        """Record the outcome of a write."""
        if future.cancelled():
            write.outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif (error := future.exception()) is not None:
            log.error("%s-%d: append failed", self.topic, slot.partition, exc_info=error)
            write.outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            write.outcome = future.result()
            if write.outcome is ErrorCode.REQUEST_TIMED_OUT:
                # A log that gives up says so only once, so nothing may wait for a second answer.
                write.outcome = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if slot.draining or self.turns.has_time(FINISH_MORE_US):
            self.drain(slot)
        else:  # in the next turn, when the outcomes that are known in this one are known
            slot.draining = True
            asyncio.get_running_loop().call_soon(self.finish_later, slot)

    def drain(self, slot: Slot[S]) -> None:
        """Continue after writes whose outcome is known, as are the outcomes of all earlier writes.

        Shape: a write may begin another, whose outcome may be known at once. The call in progress then completes that
        one, too: thousands may follow each other, which are too many for calls within calls. What takes too long for
        this turn of the loop is done in turns: a follower may commit what thousands of requests have waited for.
        """
        if slot.draining:
            return
        slot.draining = True
        steps = self.finish_writes(slot)
        for _ in steps:
            if not self.turns.has_time(FINISH_MORE_US):
                self.turns.start(steps, self.writes)
                return

    def finish_later(self, slot: Slot[S]) -> None:
        self.turns.start(self.finish_writes(slot), self.writes)

    def finish_writes(self, slot: Slot[S]) -> Steps[None]:
        """Continue after the writes at the front of a slot whose outcome is known, in steps."""
        try:
            while slot.in_flight and slot.in_flight[0].outcome is not None:
                write = slot.in_flight.popleft()
                write.finished = True
                if write.marker is not None:
                    yield from slot.shard.replay_marker(write.producer_id, write.marker)
                else:
                    self.finish(slot, write)
                if slot.in_flight:
                    yield
        finally:
            slot.draining = False

    def finish(self, slot: Slot[S], write: Write) -> None:
        """Replay a write's records if it was committed, and let the machine continue."""
        now_ms = self.now_ms()
        error = write.outcome
        assert error is not None
        if error is ErrorCode.NONE:
            slot.position += 1
            for record in write.records:
                slot.shard.replay(record, slot.position, write.producer_id)
        before = CAUSE.set(write.owner)
        try:
            self.apply(slot, slot.shard.completed(write.ticket, error, now_ms), now_ms)
        finally:
            CAUSE.reset(before)

    def time_out_writes(self, slot: Slot[S]) -> Steps[None]:
        """Answer requests whose write takes too long, in steps; the writes continue."""
        for write in list(slot.in_flight):
            if write.finished:
                continue
            now_ms = self.now_ms()
            if write.due_ms > now_ms:
                self.set_timer(slot, Timer(WRITE_DUE, (), write.due_ms), now_ms)
                return
            if not write.timed_out and write.marker is None:
                write.timed_out = True
                with caused_by(write.owner):
                    result = slot.shard.completed(write.ticket, ErrorCode.REQUEST_TIMED_OUT, now_ms)
                    self.apply(slot, result, now_ms)
                yield

    # Loading

    async def load(self, slot: Slot[S]) -> None:
        """Replay a partition's log, then serve it."""
        began_ms = self.clock.monotonic_ms()
        await asyncio.sleep(0)
        latest: dict[bytes | None, Record] = {}
        try:
            for stored in self.coordinator_log.read_all(slot.partition):
                for batch in iter_batches(stored):
                    await self.turns.pause(self.owner)
                    slot.position += 1
                    await self.load_batch(slot, batch, latest)
                # Nothing may run between the end of the log and ACTIVE: `end_transaction` relies on the load to read
                # the markers that are committed before.
                await self.turns.pause(self.owner)
        except Exception:
            # As in Apache Kafka, the records that could be read are served, so that the groups of this partition do not
            # stay unavailable.
            log.exception("%s-%d: the rest could not be read", self.topic, slot.partition)
        # Topics with markers have none of these, so nothing runs before ACTIVE there.
        for record in latest.values():
            await self.turns.pause(self.owner)
            self.replay_record(slot, record)
        slot.loading = None
        slot.state = SlotState.ACTIVE
        now_ms = self.now_ms()
        self.apply(slot, slot.shard.loaded(now_ms), now_ms)
        took_ms = self.clock.monotonic_ms() - began_ms
        self.load_times_ms.append(took_ms)
        log.log(
            # a new topic has fifty empty partitions
            logging.INFO if slot.position else logging.DEBUG,
            "%s-%d: coordinator in epoch %d, %d batches loaded in %d ms",
            self.topic,
            slot.partition,
            slot.leader_epoch,
            slot.position,
            took_ms,
        )

    async def load_batch(
        self, slot: Slot[S], batch: RecordBatch, latest: dict[bytes | None, Record]
    ) -> None:
        """Replay a stored batch in steps; compressed batches are inflated off the loop, one at a time."""
        header = batch.header
        try:
            if header.codec and header.magic == MAGIC_2:
                async with self.inflating:
                    body = await self.coordinator_log.inflated(batch)
                    await self.replay(slot, header, batch.records(body=body), latest)
            else:
                batch.verify_crc()
                await self.replay(slot, header, batch.records(), latest)
        except WireError as error:
            log.error(
                "%s-%d: batch at offset %d cannot be read and is skipped: %s",
                self.topic,
                slot.partition,
                header.base_offset,
                error,
            )

    async def replay(
        self,
        slot: Slot[S],
        header: BatchHeader,
        records: Iterator[Record],
        latest: dict[bytes | None, Record],
    ) -> None:
        """Replay the records of a stored batch in steps, or keep them in `latest`. Errors: WireError."""
        shard = slot.shard
        if header.is_control:
            for record in records:
                kind = control_type(record.key)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    committed = kind is ControlType.COMMIT
                    for _ in shard.replay_marker(header.producer_id, committed):
                        await self.turns.pause(self.owner)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for number, record in enumerate(records, start=1):
            if not number % LOAD_STEP:
                await self.turns.pause(self.owner)
            if shard.keeps_latest:
                latest[record.key] = record
            else:
                self.replay_record(slot, record, producer_id)

    def replay_record(self, slot: Slot[S], record: Record, producer_id: int = -1) -> None:
        """Replay a stored record; one that cannot be read is logged and skipped, so that the others are not lost with it."""
        try:
            if record.key is None:
                raise CorruptRecord("record without key", offset=0)
            decoded = slot.shard.decode(record.key, record.value)
            if decoded is not None:
                slot.shard.replay(decoded, slot.position, producer_id)
        except Exception as error:  # noqa: BLE001
            self.lines.log(
                logging.ERROR,
                slot,
                "%s-%d: record at offset %d cannot be read and is skipped: %s: %.500s",
                self.topic,
                slot.partition,
                record.offset,
                type(error).__name__,
                error,
            )

    # Time

    def now_ms(self) -> int:
        """The machines' time: that of the wall clock.

        When the clock is set, all deadlines are shifted with it, so that no timer fires early or late.
        """
        now_ms = self.clock.now_ms()
        jump_ms = now_ms - self.clock.monotonic_ms() - self.clock_offset_ms
        if not -CLOCK_JUMP_MS <= jump_ms <= CLOCK_JUMP_MS:
            self.clock_offset_ms += jump_ms
            self.heap = [(at + jump_ms, *rest) for at, *rest in self.heap]  # type: ignore[misc]
            heapify(self.heap)
            for slot in self.slots.values():
                slot.shard.shift_time(jump_ms)
                for write in slot.in_flight:
                    write.due_ms += jump_ms
            self.handle_at_ms += jump_ms
        return now_ms

    def set_timer(self, slot: Slot[S], timer: Timer, now_ms: int) -> None:
        """Set a timer, replacing the one with the same name and key."""
        self.timer_number += 1
        slot.timers[timer.op_name, timer.key] = self.timer_number
        owner = CAUSE.get()
        client = getattr(owner, "client_host", None)
        connection = getattr(owner, "connection_id", None)
        heappush(self.heap, (timer.at_ms, self.timer_number, slot, timer, client, connection))
        if len(self.heap) > self.heap_limit:
            self.drop_old_timers()
        self.schedule(now_ms)

    def drop_old_timers(self) -> None:
        """Drop the timers that were replaced or cancelled; otherwise they would stay until they are due."""
        self.heap = [
            each
            for each in self.heap
            if each[2].timers.get((each[3].op_name, each[3].key)) == each[1]
        ]
        heapify(self.heap)
        self.heap_limit = max(HEAP_TIMERS, 2 * len(self.heap))

    def schedule(self, now_ms: int) -> None:
        """Schedule a callback of the loop for when the first timer is due."""
        if not self.heap:
            return
        at_ms = self.heap[0][0]
        if self.handle is not None:
            if self.handle_at_ms <= at_ms:
                return
            self.handle.cancel()
        delay_s = max(at_ms - now_ms, 0) / 1000
        self.handle_at_ms = at_ms
        self.handle = asyncio.get_running_loop().call_later(delay_s, self.fire_timers)

    def fire_timers(self) -> None:
        """Fire all due timers, in turns if they are many, and wait for the next."""
        self.handle = None
        now_ms = self.now_ms()
        due: dict[Concerned, deque[TimerEntry[S]]] = {}
        for _ in range(MAX_DUE):
            if not self.heap or self.heap[0][0] > now_ms:
                break
            each = heappop(self.heap)
            due.setdefault(each[-2:], deque()).append(each)
        for client, timers in due.items():
            waiting = self.due.get(client)
            if waiting is None:
                self.due[client] = timers
                self.turns.start(
                    self.fire_due(client, timers),
                    Own(self.topic, client[0] or "no client", client[1]),
                )
            else:
                waiting.extend(timers)
        self.schedule(now_ms)

    def fire_due(self, client: Concerned, due: deque[TimerEntry[S]]) -> Steps[None]:
        """Fire the due timers of a client. What they set off belongs to the client."""
        owner = None if client[0] is None else Address(client[0])
        try:
            while due:
                _, number, slot, timer, _, _ = due.popleft()
                yield
                name = timer.op_name, timer.key
                if slot.timers.get(name) != number:
                    continue
                del slot.timers[name]
                try:
                    if timer.op_name == WRITE_DUE:
                        yield from self.time_out_writes(slot)
                        continue
                    now_ms = self.now_ms()
                    with caused_by(owner):
                        self.apply(slot, slot.shard.fire(timer, now_ms), now_ms)
                except Exception:  # one failure must not stop the others
                    log.exception("%s-%d: %r failed", self.topic, slot.partition, timer)
        finally:
            del self.due[client]
