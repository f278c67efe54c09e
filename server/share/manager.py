"""The share partitions that this broker leads: loading, reading, writing their state, and fetches that wait.

The only room of share groups with I/O and a loop. A share partition is loaded from the share coordinator when it is first
fetched, and forgotten when this broker no longer leads it, when it is fenced, and when no member of its group is
connected. A fetch that finds nothing waits with its partitions; what makes records available there, an append, an
acknowledgement, or a lock that ends, serves those that wait, in the order in which they came.
Source: SharePartitionManager, DelayedShareFetch, ShareFetchUtils.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kwire.errors import ErrorCode, RecordError
from kwire.messages.share_fetch import PartitionData

from ..coordinator.share.rows import (
    UNINITIALIZED_START_OFFSET,
    ReadState,
    StateOutcome,
    StateRead,
    WriteState,
)
from ..log.time_search import Effort, Found, TimeSearch
from ..replication.offsets import (
    CONSUMER,
    EARLIEST,
    LATEST,
    OffsetQuery,
    Searched,
)
from ..replication.offsets import (
    fetch_offset as find_offset,
)
from ..replication.read_result import LaterRead, ReadResult, refused
from ..turns import Steps, exhaust
from .fetched import fetched
from .in_flight import StateWrite
from .partition import (
    Acknowledged,
    AcquireLimits,
    Refusal,
    SharePartition,
)
from .sessions import PartitionKey, SessionKey, ShareSessionCache
from .settings import ShareSettings

if TYPE_CHECKING:
    from ..clock import Clock
    from ..coordinator.share_persister import SharePersister
    from ..metadata.image import MetadataImage
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from ..turns import Turns

logger = logging.getLogger(__name__)

#: The least time between two looks at the locks of a share partition: locks that end soon after each other are released together.
LOCK_TICK_MS = 20
#: What is written of more runs than this ends in steps.
MANY_RUNS = 256
#: How many share partitions are held at once, at about a kilobyte each, and how many are loaded at once.
MAX_LED = 100_000
MOST_LOADING = 100
#: What a search by time may take in the loop; more of it is done elsewhere. How often it is tried if the log changes.
EFFORT = {"headers": 500, "records": 1000, "bytes": 64 * 1024}
ATTEMPTS = 3

#: Errors that fence a share partition: the state is at another leader, or gone.
FENCING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
#: What members are told when the share coordinator refuses. Source: SharePartition.fetchPersisterError.
TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}

UNKNOWN_PARTITION = "This server does not host this topic-partition."

Outcome = Refusal | None
T = TypeVar("T")


class SharePartitionKey(NamedTuple):
    """Which share partition. Shape: `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareFetchParams(NamedTuple):
    """What a ShareFetch asks of all its partitions. Unit: bytes and milliseconds."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    limits: AcquireLimits


#: The answer to a fetch: a row for each partition of which there is anything to say.
Rows = dict[PartitionKey, PartitionData]


class Led:
    """A share partition of a partition that this broker leads.

    Shape: `machine` is None until it is loaded; `gone` says that it is no longer used.
    """

    __slots__ = (
        "gone",
        "key",
        "leader_epoch",
        "machine",
        "partition",
        "serving",
        "timer",
        "waiting",
        "watch",
    )

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.state.leader_epoch
        self.machine: SharePartition | None = None
        self.gone = False
        self.waiting: dict[WaitingShareFetch, None] = {}
        #: Whether those that wait are being served.
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None
        self.watch: _Watch | None = None

    @property
    def row_key(self) -> PartitionKey:
        return self.key.topic_id, self.key.partition


class _Watch:
    """Waits with a partition for records, as a fetch does, for all fetches of a share partition.

    Shape: as `FetchWaiter`; any record ends the wait.
    """

    __slots__ = ("_partition", "_woken", "alone", "missing_bytes", "of_replica", "read_committed")

    def __init__(
        self, partition: Partition, offset: int, woken: Callable[[], None], *, read_committed: bool
    ) -> None:
        self.alone = False
        self.missing_bytes = 1
        self.of_replica = False
        self.read_committed = read_committed
        self._woken: Callable[[], None] | None = woken
        self._partition = partition
        partition.waiters.fetches[self] = offset

    def on_readable(self, size: int) -> None:
        """More can be read."""
        self.end()

    def end(self) -> None:
        """Something has happened; safe to call twice."""
        woken, self._woken = self._woken, None
        self._partition.waiters.fetches.pop(self, None)
        if woken is not None:
            asyncio.get_running_loop().call_soon(woken)

    def cancel(self) -> None:
        """Watch no more."""
        self._woken = None
        self._partition.waiters.fetches.pop(self, None)


class WaitingShareFetch:
    """A fetch that is answered when `future` is done, with its rows.

    Shape: `errors` has the rows of partitions that cannot be fetched; `end` ends the wait if nobody wants the answer.
    """

    __slots__ = ("errors", "future", "group_id", "held", "left", "params", "settings", "timer")

    def __init__(self, group_id: str, params: ShareFetchParams, settings: ShareSettings) -> None:
        self.group_id = group_id
        self.params = params
        self.settings = settings
        self.held: list[Led] = []
        #: With how many share partitions it waits.
        self.left = 0
        self.errors: Rows = {}
        self.future: asyncio.Future[Rows] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_done(self) -> bool:
        return self.future is None or self.future.done()

    def answer(self, rows: Rows) -> None:
        """Answer, and wait no more."""
        self.leave()
        assert self.future is not None
        if not self.future.done():
            self.future.set_result({**rows, **self.errors})

    def end(self) -> None:
        """Nobody wants the answer."""
        self.leave()
        if self.future is not None and not self.future.done():
            self.future.cancel()

    def leave(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for led in self.held:
            led.waiting.pop(self, None)


@dataclass(frozen=True, slots=True)
class ShareRooms:
    """What share partitions need of the broker.

    Shape: `settings_of` has the settings of a group by its id; `search` carries out a search by time elsewhere.
    """

    replicas: ReplicaManager
    metadata: Callable[[], MetadataImage]
    persister: SharePersister
    clock: Clock
    turns: Turns
    settings_of: Callable[[str], ShareSettings]
    search: Callable[[TimeSearch], Awaitable[Found | None]]


class SharePartitionManager:
    """All share partitions of this broker, and the sessions of those who fetch them."""

    def __init__(self, rooms: ShareRooms, sessions: ShareSessionCache) -> None:
        self.sessions = sessions
        self.led: dict[SharePartitionKey, Led] = {}
        self._rooms = rooms
        self._groups: dict[str, dict[SharePartitionKey, None]] = {}
        self._of_partition: dict[Partition, dict[SharePartitionKey, None]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._to_load: deque[Led] = deque()

    def settings_of(self, group_id: str) -> ShareSettings:
        """The settings of a group, now."""
        return self._rooms.settings_of(group_id)

    # -- fetching ----------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        params: ShareFetchParams,
        asked: Iterable[tuple[PartitionKey, str]],
    ) -> Steps[Rows | WaitingShareFetch]:
        """Acquire records of partitions, named by their key and topic: now, or when there are any.

        Errors, in the rows: those of `ReplicaManager.why_missing`, and of loading.
        """
        waiting = WaitingShareFetch(group_id, params, self.settings_of(group_id))
        limits = params.limits
        if limits.max_records == 0 or params.max_bytes == 0:
            return {}
        for row_key, topic in asked:
            yield
            found = self._find(SharePartitionKey(group_id, *row_key), topic)
            if isinstance(found, Led):
                waiting.held.append(found)
            else:
                waiting.errors[row_key] = error_row(row_key[1], found)
        if not waiting.held:
            return waiting.errors
        rows = yield from self._try(waiting)
        if rows is None and params.max_wait_ms <= 0:
            rows = yield from self._try(waiting, at_last=True)
        if rows is not None:
            return {**rows, **waiting.errors}
        yield from self._wait(waiting)
        return waiting

    def _find(self, key: SharePartitionKey, topic: str) -> Led | ErrorCode:
        """The share partition, which may have to be loaded first; or why it is not here."""
        led = self.led.get(key)
        if led is not None:
            return led
        replicas = self._rooms.replicas
        partition = replicas.get(topic, key.partition)
        if partition is None:
            return replicas.why_missing(self._rooms.metadata(), topic, key.partition)
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if len(self.led) >= MAX_LED:
            logger.warning("%s is not fetched by share group %s: too many are", topic, key.group_id)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        led = self.led[key] = Led(key, partition)
        self._groups.setdefault(key.group_id, {})[key] = None
        self._of_partition.setdefault(partition, {})[key] = None
        self._to_load.append(led)
        self._load_next()
        return led

    def _load_next(self) -> None:
        """Load what waits to be loaded, some at a time."""
        while self._to_load and len(self._loading) < MOST_LOADING:
            led = self._to_load.popleft()
            if not led.gone:
                task = asyncio.get_running_loop().create_task(self._load(led))
                self._loading.add(task)
                task.add_done_callback(self._loaded)

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loading.discard(task)
        if not task.cancelled():
            self._load_next()

    def _try(self, waiting: WaitingShareFetch, *, at_last: bool = False) -> Steps[Rows | None]:
        """Acquire what there is; None if that is too little, unless it is the last attempt.

        Source: DelayedShareFetch.tryComplete, onComplete.
        """
        params, settings = waiting.params, waiting.settings
        fetchable: list[tuple[Led, SharePartition, int]] = []
        for led in waiting.held:
            yield
            machine = led.machine
            if machine is not None and not led.gone and machine.can_acquire(settings):
                fetchable.append((led, machine, machine.next_fetch_offset()))
        if not fetchable:
            return {} if at_last else None
        share, rest = divmod(params.max_bytes, len(fetchable))
        reads: list[tuple[Led, SharePartition, int, ReadResult]] = []
        size, answer_now = 0, at_last
        try:
            for led, machine, offset in fetchable:
                yield
                most = share + (rest if not reads else 0)
                result = _read(led.partition, offset, most, settings, min_one_batch=not size)
                reads.append((led, machine, offset, result))
                size += len(result.data)
                answer_now = answer_now or result.error != ErrorCode.NONE
            if not (answer_now or size >= params.min_bytes):
                return None
            rows: Rows = {}
            acquired = 0
            while reads:
                yield
                led, machine, offset, result = reads.pop(0)
                row, count = self._acquire(waiting, led, machine, offset, result, acquired)
                rows[led.row_key] = row
                acquired += count
            return rows
        finally:
            for _, _, _, result in reads:
                result.close()

    def _acquire(
        self,
        waiting: WaitingShareFetch,
        led: Led,
        machine: SharePartition,
        offset: int,
        result: ReadResult,
        acquired: int,
    ) -> tuple[PartitionData, int]:
        """Acquire what was read of one partition, beside what the fetch has acquired already."""
        params, settings = waiting.params, waiting.settings
        number = led.key.partition
        if led.gone or offset != machine.next_fetch_offset():
            result.close()  # others have been here since
            return empty_row(number), 0
        if result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log begins later now; the client asks again.
            machine.move_start(led.partition.log.log_start_offset)
            return empty_row(number), 0
        if result.error:
            return error_row(number, result.error), 0
        limits = params.limits._replace(max_records=params.limits.max_records - acquired)
        until = max(machine.end_offset, offset) + min(limits.max_records, settings.max_record_locks)
        try:
            found = fetched(result.data, offset, until, result.aborted)
            if found is None:
                return empty_row(number), 0
            now_ms = self._rooms.clock.monotonic_ms()
            rows, count = machine.acquire(params.member_id, found, offset, limits, settings, now_ms)
        except (OSError, RecordError) as error:
            logger.error(
                "records of %s from offset %d on cannot be read: %s",
                led.partition.tp,
                offset,
                error,
            )
            result.close()
            is_storage = isinstance(error, OSError)
            code = ErrorCode.KAFKA_STORAGE_ERROR if is_storage else ErrorCode.CORRUPT_MESSAGE
            return error_row(number, code), 0
        self._watch_locks(led)
        if not rows:
            result.close()
            return empty_row(number), 0
        data = found.cut(rows[0].first_offset, rows[-1].last_offset)
        return PartitionData(partition_index=number, records=data, acquired_records=rows), count

    # -- waiting -----------------------------------------------------------------------------------

    def _wait(self, waiting: WaitingShareFetch) -> Steps[None]:
        """Let a fetch wait with all of its share partitions; it may be answered before this ends."""
        loop = asyncio.get_running_loop()
        waiting.future = loop.create_future()
        waiting.timer = loop.call_later(waiting.params.max_wait_ms / 1000, self._time_out, waiting)
        waiting.left = len(waiting.held)
        try:
            for led in waiting.held:
                yield
                if waiting.is_done:
                    return
                if led.gone:
                    self._has_lost(waiting)
                    continue
                led.waiting[waiting] = None
                self._watch(led)
        except GeneratorExit:
            waiting.end()
            raise

    def _has_lost(self, waiting: WaitingShareFetch) -> None:
        """A share partition that a fetch waits with is gone."""
        waiting.left -= 1
        if not waiting.left and not waiting.is_done:
            waiting.answer({})

    def _watch(self, led: Led) -> None:
        """See to it that those that wait are served when there are records."""
        machine = led.machine
        if machine is None or led.gone or not led.waiting or led.watch is not None:
            return
        settings = self.settings_of(led.key.group_id)
        if machine.can_acquire(settings):
            offset = machine.next_fetch_offset()
            if offset < _readable_end(led.partition, settings):
                offset = _readable_end(led.partition, settings)
            led.watch = _Watch(
                led.partition,
                offset,
                lambda: self._woken(led),
                read_committed=settings.read_committed,
            )

    def _woken(self, led: Led) -> None:
        led.watch = None
        self.serve(led)

    def serve(self, led: Led) -> None:
        """Answer the fetches that wait for a share partition, as far as there is anything for them."""
        if led.waiting and not led.serving and not led.gone:
            led.serving = True
            self._rooms.turns.run(self._serve(led))

    def _serve(self, led: Led) -> Steps[None]:
        try:
            for waiting in list(led.waiting):
                yield
                machine = led.machine
                if machine is None or led.gone:
                    break
                settings = waiting.settings
                if not machine.can_acquire(settings) or (
                    waiting.params.min_bytes > 0
                    and machine.next_fetch_offset() >= _readable_end(led.partition, settings)
                ):
                    break
                if waiting.is_done:
                    continue
                rows = yield from self._try(waiting)
                if rows is not None:
                    waiting.answer(rows)
        finally:
            led.serving = False
        self._watch(led)

    def _time_out(self, waiting: WaitingShareFetch) -> None:
        def last() -> Steps[None]:
            if not waiting.is_done:
                rows = yield from self._try(waiting, at_last=True)
                if not waiting.is_done:
                    waiting.answer(rows or {})

        self._rooms.turns.run(last())

    # -- loading -----------------------------------------------------------------------------------

    async def _load(self, led: Led) -> None:
        """Read the state of a share partition. Source: SharePartition.maybeInitialize."""
        try:
            error = await self._read_state(led)
        except Exception:
            logger.exception(
                "share partition %s of group %s cannot be loaded",
                led.partition.tp,
                led.key.group_id,
            )
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if led.gone:
            return
        if not error:
            self.serve(led)
            return
        for each in led.waiting:
            each.errors[led.row_key] = error_row(led.key.partition, error)
        self._drop(led)

    async def _read_state(self, led: Led) -> ErrorCode:
        group_id, topic_id, number = led.key
        asked = ReadState(topic_id, number, led.leader_epoch)
        (row,) = await self._rooms.persister.read_state(group_id, [asked])
        if row.error_code:
            return self._told(led, "read", row.error_code, row.error_message)
        start = row.start_offset
        if start == UNINITIALIZED_START_OFFSET:
            found = await self._first_offset(led)
            if isinstance(found, ErrorCode):
                return found
            start = found
        try:
            led.machine = _machine(row, start)
        except ValueError as error:
            logger.error("the stored state of group %s cannot be used: %s", group_id, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def _first_offset(self, led: Led) -> int | ErrorCode:
        """Where a group begins that has no start offset. Source: startOffsetDuringInitialization."""
        reset = self.settings_of(led.key.group_id).offset_reset
        if isinstance(reset, int):
            timestamp = max(self._rooms.clock.now_ms() - reset, 0)
        else:
            timestamp = EARLIEST if reset == "earliest" else LATEST
        asked = OffsetQuery(timestamp, led.leader_epoch, CONSUMER, False)
        searched: Searched | None = None
        for _ in range(ATTEMPTS):
            found = find_offset(led.partition, asked, Effort(**EFFORT), searched)
            if isinstance(found, ErrorCode):
                return found
            if not isinstance(found, TimeSearch):
                return found.offset if found.offset >= 0 else ErrorCode.OFFSET_NOT_AVAILABLE
            searched = None
            try:
                searched = Searched(await self._rooms.search(found))
            except FileNotFoundError:
                pass  # the log has changed
        return ErrorCode.OFFSET_NOT_AVAILABLE

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        row_key: PartitionKey,
        batches: Sequence[Acknowledged],
    ) -> Steps[Outcome | asyncio.Future[Outcome]]:
        """Take acknowledgements for one partition: what is wrong with them; None when they are stored."""
        led = self.led.get(SharePartitionKey(group_id, *row_key))
        if led is None or led.machine is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)
        settings, now_ms = self.settings_of(group_id), self._rooms.clock.monotonic_ms()
        write = yield from led.machine.acknowledge(member_id, batches, settings, now_ms)
        self._watch_locks(led)
        if isinstance(write, Refusal):
            self.serve(led)  # what was given up on the way may be available
            return write
        return self._write(led, led.machine, write)

    def release(self, group_id: str, member_id: str, keys: Iterable[PartitionKey]) -> None:
        """Make available again what a member has acquired, because its session has ended."""
        self._rooms.turns.run(self._release(group_id, member_id, keys))

    def _release(self, group_id: str, member_id: str, keys: Iterable[PartitionKey]) -> Steps[None]:
        settings = self.settings_of(group_id)
        for key in keys:
            yield
            led = self.led.get(SharePartitionKey(group_id, *key))
            if led is not None and led.machine is not None:
                write = yield from led.machine.release(member_id, settings)
                self._write(led, led.machine, write)

    def end_session(self, key: SessionKey) -> bool:
        """End a member's session, and release what it has acquired; False if there is none."""
        session = self.sessions.remove(key)
        if session is None:
            return False
        self.release(*key, list(session.partitions))
        return True

    def disconnected(self, connection: object) -> None:
        """A connection has ended, and with it its sessions. Source: ShareSessionCache's listener."""
        ended, groups = self.sessions.disconnected(connection)
        for session in ended:
            self.end_session(session.key)
        for group_id in groups:
            self.forget_group(group_id)

    def forget_group(self, group_id: str) -> None:
        """Forget the share partitions of a group without members here. Source: onGroupEmpty."""
        self._rooms.turns.run(self._forget(group_id))

    def _forget(self, group_id: str) -> Steps[None]:
        for key in list(self._groups.get(group_id, ())):
            yield
            if self.sessions.has_members(group_id):
                return
            if key in self.led:
                self._drop(self.led[key])

    # -- writing -----------------------------------------------------------------------------------

    def _write(
        self, led: Led, machine: SharePartition, write: StateWrite
    ) -> Outcome | asyncio.Future[Outcome]:
        """Have states stored, and complete them then. Source: rollbackOrProcessStateUpdates."""
        if not write.batches:
            return None
        group_id, topic_id, number = led.key
        row = WriteState(
            topic_id,
            number,
            machine.state_epoch,
            led.leader_epoch,
            machine.start_offset,
            tuple(write.batches),
            machine.delivery_complete_count,
        )
        stored = self._rooms.persister.write_state(group_id, [row])
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def complete(stored: asyncio.Future[list[StateOutcome]]) -> None:
            outcome = self._outcome(led, stored)
            now_ms = self._rooms.clock.monotonic_ms()
            steps = self._complete(led, machine, write, outcome, now_ms, done)
            if len(write.batches) <= MANY_RUNS:
                exhaust(steps)
            else:
                self._rooms.turns.run(steps)

        stored.add_done_callback(complete)
        return done

    def _complete(
        self,
        led: Led,
        machine: SharePartition,
        write: StateWrite,
        outcome: Outcome,
        now_ms: int,
        done: asyncio.Future[Outcome],
    ) -> Steps[None]:
        changed = yield from machine.complete(write, outcome is None, now_ms)
        if not done.done():
            done.set_result(outcome)
        if outcome is not None and outcome.error in FENCING:
            logger.info(
                "share partition %s of group %s is fenced: %s",
                led.partition.tp,
                led.key.group_id,
                outcome.message or outcome.error.name,
            )
            self._drop(led)
        self._watch_locks(led)
        if changed:
            self.serve(led)

    def _outcome(self, led: Led, stored: asyncio.Future[list[StateOutcome]]) -> Outcome:
        if stored.cancelled():  # the broker is stopping
            return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        failure = stored.exception()
        if failure is not None:
            logger.error("the state of %s cannot be written", led.partition.tp, exc_info=failure)
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        (row,) = stored.result()
        if not row.error_code:
            return None
        code, message = row.error_code, row.error_message
        return Refusal(self._told(led, "written", code, message), message or "")

    def _told(self, led: Led, done: str, error: ErrorCode, message: str | None) -> ErrorCode:
        logger.log(
            logging.DEBUG if error is ErrorCode.NETWORK_EXCEPTION else logging.ERROR,
            "the state of %s for share group %s cannot be %s: %s %s",
            led.partition.tp,
            led.key.group_id,
            done,
            error.name,
            message or "",
        )
        return TOLD.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)

    # -- locks -------------------------------------------------------------------------------------

    def _watch_locks(self, led: Led) -> None:
        """See to it that locks end in time."""
        machine = led.machine
        if machine is None or led.gone or machine.lock_end_ms is None:
            return
        loop = asyncio.get_running_loop()
        delay_ms = max(machine.lock_end_ms - self._rooms.clock.monotonic_ms(), LOCK_TICK_MS)
        when = loop.time() + delay_ms / 1000
        if led.timer is not None:
            if led.timer.when() <= when + LOCK_TICK_MS / 1000:
                return
            led.timer.cancel()
        led.timer = loop.call_at(when, self._expire, led)

    def _expire(self, led: Led) -> None:
        led.timer = None
        self._rooms.turns.run(self._expire_steps(led))

    def _expire_steps(self, led: Led) -> Steps[None]:
        machine = led.machine
        if machine is None or led.gone:
            return
        settings = self.settings_of(led.key.group_id)
        write = yield from machine.expire(settings, self._rooms.clock.monotonic_ms())
        self._watch_locks(led)
        self._write(led, machine, write)
        if write.batches:
            self.serve(led)

    # -- the end of leaderships --------------------------------------------------------------------

    def on_leadership(self, partition: Partition, leads: bool) -> None:
        """This broker has begun or ceased to lead a partition. Source: SharePartitionListener."""
        if leads:
            return
        for key in list(self._of_partition.get(partition, ())):
            self._drop(self.led[key])

    def _drop(self, led: Led) -> None:
        """Use a share partition no more; fetches that wait for nothing else are answered."""
        if led.gone:
            return
        led.gone = True
        del self.led[led.key]
        _remove(self._groups, led.key.group_id, led.key)
        _remove(self._of_partition, led.partition, led.key)
        if led.timer is not None:
            led.timer.cancel()
        if led.watch is not None:
            led.watch.cancel()
        waiting, led.waiting = list(led.waiting), {}
        for each in waiting:
            self._has_lost(each)

    def close(self) -> None:
        """Answer nothing more."""
        self._to_load.clear()
        for task in self._loading:
            task.cancel()
        for led in list(self.led.values()):
            for waiting in list(led.waiting):
                waiting.end()
            self._drop(led)


def _remove(index: dict[T, dict[SharePartitionKey, None]], of: T, key: SharePartitionKey) -> None:
    """Take a key out of an index."""
    keys = index[of]
    del keys[key]
    if not keys:
        del index[of]


def empty_row(number: int) -> PartitionData:
    """A partition of which nothing was acquired."""
    return PartitionData(partition_index=number, records=b"", acquired_records=[])


def error_row(number: int, error: ErrorCode) -> PartitionData:
    """A partition that cannot be fetched."""
    return PartitionData(partition_index=number, error_code=error, records=b"", acquired_records=[])


def _machine(row: StateRead, start_offset: int) -> SharePartition:
    return SharePartition(row.state_epoch, start_offset, row.state_batches)


def _readable_end(partition: Partition, settings: ShareSettings) -> int:
    log = partition.log
    return log.last_stable_offset if settings.read_committed else log.high_watermark


def _read(
    partition: Partition,
    offset: int,
    max_bytes: int,
    settings: ShareSettings,
    *,
    min_one_batch: bool,
) -> ReadResult:
    result = partition.read(
        offset, max_bytes, read_committed=settings.read_committed, min_one_batch=min_one_batch
    )
    if isinstance(result, LaterRead):  # share groups read what is at hand
        result.later.cancel()
        return refused(ErrorCode.OFFSET_NOT_AVAILABLE)
    return result
