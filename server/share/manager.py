"""The share partitions that this broker leads: reads their logs, writes their states, and holds waiting fetches.

A share partition is loaded from the share coordinator when it is first fetched. It is dropped when this broker no
longer leads it, when it is fenced, and when no member of its group is connected. A fetch that finds no records waits on
its partitions. Anything that makes records available there (an append, an acknowledgement, or a lock that expires)
serves the waiting fetches in order of arrival.
Source: SharePartitionManager, DelayedShareFetch, ShareFetchUtils.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kwire.errors import ErrorCode, RecordError
from kwire.messages.share_fetch import PartitionData

from ..cause import Own
from ..coordinator.share_state.operations import WRITE_STATE
from ..coordinator.share_state.rows import StateOutcome, WriteState
from ..net.log_limit import LineLimiter
from ..replication.read_result import LaterRead, ReadResult, refused
from ..shares import SMALL, Shares
from ..turns import Steps, exhaust
from .acknowledgement import RELEASE, Acknowledged, ShareRefusal, acknowledge
from .acquisition import acquire
from .fetched import fetched
from .in_flight import StateWrite
from .led import (
    Led,
    Rows,
    ShareFetchParams,
    SharePartitionKey,
    ShareRooms,
    WaitingShareFetch,
    Watch,
    empty_row,
    error_row,
)
from .loading import Loaded, Loading
from .locks import expire, release
from .partition import BATCH_BYTES, RUN_BYTES, SharePartition
from .sessions import PartitionKey, SessionKey, ShareSessionCache
from .settings import ShareSettings
from .state_errors import FENCING, told
from .writes import complete_write

if TYPE_CHECKING:
    from ..replication.partition import Partition

logger = logging.getLogger(__name__)

#: The minimum time between two checks of the locks of a share partition; locks that expire close together are released
#: together.
LOCK_TICK_MS = 20
#: A write of more runs than this completes in steps.
MANY_RUNS = 256
#: The memory of a share partition without records in flight. Unit: bytes.
LED_BYTES = 1000
#: The maximum memory of all share partitions with their records in flight.
MAX_BYTES = 96 * 1024 * 1024

#: The owners of what must be done when members leave, and when locks expire.
SESSIONS = Own("share sessions")
LOCKS = Own("locks of records")

#: The number of partitions that are named in the log line of a failed fetch.
SHOWN_PARTITIONS = 3

UNKNOWN_PARTITION = "This server does not host this topic-partition."

Outcome = ShareRefusal | None
T = TypeVar("T")


class SharePartitionManager:
    """All share partitions of this broker, and the sessions of the members that fetch them."""

    def __init__(
        self, rooms: ShareRooms, sessions: ShareSessionCache, max_bytes: int = MAX_BYTES
    ) -> None:
        self.sessions = sessions
        self.max_bytes = max_bytes
        #: The memory of share partitions, by the client that fetched each one first.
        self.memory = Shares()
        self.led: dict[SharePartitionKey, Led] = {}
        self._rooms = rooms
        self._groups: dict[str, dict[SharePartitionKey, None]] = {}
        self._of_partition: dict[Partition, dict[SharePartitionKey, None]] = {}
        self._lines = LineLimiter(logger, rooms.clock.monotonic_ms)
        self._loading = Loading(rooms, self._loaded)

    def settings_of(self, group_id: str) -> ShareSettings:
        """The current settings of a group."""
        return self._rooms.settings_of(group_id)

    # -- fetching ----------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        params: ShareFetchParams,
        asked: Iterable[tuple[PartitionKey, str]],
    ) -> Steps[Rows | WaitingShareFetch]:
        """Acquire records of partitions, given by their key and topic, now or as soon as there are any.

        Errors, in the rows: those of `ReplicaManager.why_missing`, and of loading.
        """
        waiting = WaitingShareFetch(group_id, params, self.settings_of(group_id))
        limits = params.limits
        if limits.max_records == 0 or params.max_bytes == 0:
            return {}
        for row_key, topic in asked:
            yield
            found = self._find(SharePartitionKey(group_id, *row_key), topic, params.account)
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

    def _find(self, key: SharePartitionKey, topic: str, account: Hashable) -> Led | ErrorCode:
        """The share partition, which may still have to be loaded, or the reason why it is not here."""
        led = self.led.get(key)
        if led is not None:
            return led
        replicas = self._rooms.replicas
        partition = replicas.get(topic, key.partition)
        if partition is None:
            return replicas.why_missing(self._rooms.metadata(), topic, key.partition)
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._refuses(account, LED_BYTES, key):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        led = self.led[key] = Led(key, partition, account)
        self._count(led)
        self._groups.setdefault(key.group_id, {})[key] = None
        self._of_partition.setdefault(partition, {})[key] = None
        self._loading.add(led)
        return led

    def _refuses(self, account: Hashable, size: int, key: SharePartitionKey) -> bool:
        """Whether there is no memory for a share partition with its stored state."""
        if not self.memory.refuses(account, size, self.max_bytes, SMALL):
            return False
        self._lines.log(
            logging.WARNING,
            account,
            "partition %d of a topic is not fetched by share group %.200s: %s has its share of"
            " kwire.share.records.max.bytes=%d",
            key.partition,
            key.group_id,
            account,
            self.max_bytes,
        )
        return True

    def _count(self, led: Led) -> None:
        """Count what a share partition holds now."""
        size = 0 if led.gone else LED_BYTES
        if size and led.machine is not None:
            size += led.machine.held_bytes
        self.memory.hold(led.account, size - led.held_bytes)
        led.held_bytes = size

    def _limited(self, led: Led, settings: ShareSettings) -> ShareSettings:
        """The settings for a fetch: records are not acquired for the first time while there is no memory for more.

        Shape: a fetch then waits as it does when group.share.partition.max.record.locks records are in flight.
        """
        if self.memory.refuses(led.account, BATCH_BYTES, self.max_bytes):
            return settings._replace(max_record_locks=0)
        return settings

    def _loaded(self, led: Led, loaded: Loaded) -> None:
        if isinstance(loaded, SharePartition) and self._refuses(
            led.account, loaded.held_bytes, led.key
        ):
            loaded = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(loaded, SharePartition):
            led.machine = loaded
            self._count(led)
            self.serve(led)
            return
        for each in led.waiting:
            each.errors[led.row_key] = error_row(led.key.partition, loaded)
        self._drop(led)

    def _try(self, waiting: WaitingShareFetch, *, at_last: bool = False) -> Steps[Rows | None]:
        """Acquire the available records; None if they are too few, unless this is the last attempt.

        Source: DelayedShareFetch.tryComplete, onComplete.
        """
        params, settings = waiting.params, waiting.settings
        fetchable: list[tuple[Led, SharePartition, int]] = []
        for led in waiting.held:
            yield
            machine = led.machine
            if (
                machine is not None
                and not led.gone
                and machine.can_acquire(self._limited(led, settings))
            ):
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
                result = self._read(led, offset, most, settings, min_one_batch=not size)
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

    def _read(
        self, led: Led, offset: int, max_bytes: int, settings: ShareSettings, *, min_one_batch: bool
    ) -> ReadResult:
        try:
            result = led.partition.read(
                offset,
                max_bytes,
                read_committed=settings.read_committed,
                min_one_batch=min_one_batch,
            )
        except Exception:  # noqa: BLE001 - a bug of ours must not cost the records of other partitions
            self._log_failure("%s cannot be read for share group %.200s", led)
            return refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(result, LaterRead):  # share groups read all available records
            result.later.cancel()
            return refused(ErrorCode.OFFSET_NOT_AVAILABLE)
        return result

    def _acquire(
        self,
        waiting: WaitingShareFetch,
        led: Led,
        machine: SharePartition,
        offset: int,
        result: ReadResult,
        acquired: int,
    ) -> tuple[PartitionData, int]:
        """Acquire records from one partition, in addition to those that the fetch has acquired already."""
        params, settings = waiting.params, self._limited(led, waiting.settings)
        number = led.key.partition
        if led.gone or offset != machine.next_fetch_offset():
            result.close()  # other fetches have run in the meantime
            return empty_row(number), 0
        if result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log start has moved; the client retries.
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
            rows, count = acquire(
                machine, params.member_id, found, offset, limits, settings, now_ms
            )
        except (OSError, RecordError) as error:
            self._lines.log(
                logging.ERROR,
                led.partition,
                "records of %s from offset %d on cannot be read: %s",
                led.partition.tp,
                offset,
                error,
            )
            result.close()
            is_storage = isinstance(error, OSError)
            code = ErrorCode.KAFKA_STORAGE_ERROR if is_storage else ErrorCode.CORRUPT_MESSAGE
            return error_row(number, code), 0
        except Exception:  # noqa: BLE001 - a bug of ours must not cost the records of other partitions
            self._log_failure("records of %s cannot be acquired for share group %.200s", led)
            result.close()
            return error_row(number, ErrorCode.UNKNOWN_SERVER_ERROR), 0
        finally:
            self._watch_locks(led)
        if not rows:
            result.close()
            return empty_row(number), 0
        data = found.cut(rows[0].first_offset, rows[-1].last_offset)
        return PartitionData(partition_index=number, records=data, acquired_records=rows), count

    # -- waiting -----------------------------------------------------------------------------------

    def _wait(self, waiting: WaitingShareFetch) -> Steps[None]:
        """Let a fetch wait on all of its share partitions; it may be answered before this returns."""
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
            # Watches report only later records; those that arrived since the fetch looked are there already.
            for led in waiting.held:
                yield
                if self._has_some(led):
                    yield from self._attempt(waiting)
                    return
        except BaseException:
            waiting.end()
            raise

    def _has_some(self, led: Led) -> bool:
        """Whether there is anything to acquire."""
        machine = led.machine
        if machine is None or led.gone:
            return False
        settings = self._limited(led, self.settings_of(led.key.group_id))
        return machine.can_acquire(settings) and machine.next_fetch_offset() < _readable_end(
            led.partition, settings
        )

    def _attempt(self, waiting: WaitingShareFetch) -> Steps[None]:
        """Try to answer a waiting fetch.

        Shape: one attempt at a time. Two attempts would both acquire records, and only those of one would be sent. An
        attempt in progress therefore looks again if another was requested meanwhile.
        """
        waiting.wanted = True
        if waiting.trying:
            return
        waiting.trying = True
        try:
            while waiting.wanted and not waiting.is_done:
                waiting.wanted = False
                at_last = waiting.late
                rows: Rows | None
                try:
                    rows = yield from self._try(waiting, at_last=at_last)
                except Exception:  # noqa: BLE001 - a bug of ours must not leave the fetch unanswered
                    self._log_failure("a fetch of %s by share group %.200s failed", *waiting.held)
                    failed = ErrorCode.UNKNOWN_SERVER_ERROR
                    rows = {
                        each.row_key: error_row(each.key.partition, failed) for each in waiting.held
                    }
                if (rows is not None or at_last) and not waiting.answer(rows or {}):
                    yield from self._give_back(waiting, rows or {})
        finally:
            waiting.trying = False

    def _log_failure(self, message: str, *leds: Led) -> None:
        """Log the exception being handled; `message` takes the partitions and the group."""
        self._lines.log(
            logging.ERROR,
            (message, leds[0].key),
            message + "\n%s",
            ", ".join(str(led.partition.tp) for led in leds[:SHOWN_PARTITIONS]),
            leds[0].key.group_id,
            traceback.format_exc(),
        )

    def _give_back(self, waiting: WaitingShareFetch, rows: Rows) -> Steps[None]:
        """Release the records acquired for a fetch whose member has left in the meantime."""
        for row_key, row in rows.items():
            if row.records and not isinstance(row.records, bytes):
                row.records.close()
            batches = [
                Acknowledged(each.first_offset, each.last_offset, (RELEASE,))
                for each in row.acquired_records
            ]
            if batches:
                member_id = waiting.params.member_id
                yield from self.acknowledge(waiting.group_id, member_id, row_key, batches)

    def _has_lost(self, waiting: WaitingShareFetch) -> None:
        """Handle the loss of a share partition that a fetch waits on."""
        waiting.left -= 1
        if not waiting.left and not waiting.is_done:
            waiting.answer({})

    def _watch(self, led: Led) -> None:
        """Make sure that waiting fetches are served when records arrive."""
        machine = led.machine
        if machine is None or led.gone or not led.waiting or led.watch is not None:
            return
        settings = self._limited(led, self.settings_of(led.key.group_id))
        if machine.can_acquire(settings):
            offset = machine.next_fetch_offset()
            if offset < _readable_end(led.partition, settings):
                offset = _readable_end(led.partition, settings)
            led.watch = Watch(
                led.partition,
                offset,
                lambda: self._woken(led),
                read_committed=settings.read_committed,
            )

    def _woken(self, led: Led) -> None:
        led.watch = None
        self.serve(led)

    def serve(self, led: Led) -> None:
        """Answer the fetches that wait on a share partition, as far as records are available."""
        led.unserved = True
        if led.waiting and not led.serving and not led.gone:
            led.serving = True
            self._rooms.turns.run(self._serve(led), next(iter(led.waiting)).owner)

    def _serve(self, led: Led) -> Steps[None]:
        try:
            while led.unserved and led.waiting and not led.gone:
                led.unserved = False
                settings = self.settings_of(led.key.group_id)
                end = _readable_end(led.partition, settings)
                yield from self._serve_once(led)
                if _readable_end(led.partition, settings) > end:
                    led.unserved = True  # the partition was not being watched
        finally:
            led.serving = False
        self._watch(led)

    def _serve_once(self, led: Led) -> Steps[None]:
        """Try to answer waiting fetches, in order, while there is something to acquire."""
        for waiting in list(led.waiting):
            yield
            machine = led.machine
            if machine is None or led.gone:
                return
            settings = self._limited(led, waiting.settings)
            if not machine.can_acquire(settings) or (
                waiting.params.min_bytes > 0
                and machine.next_fetch_offset() >= _readable_end(led.partition, settings)
            ):
                return
            yield from self._attempt(waiting)

    def _time_out(self, waiting: WaitingShareFetch) -> None:
        waiting.late = True
        self._rooms.turns.run(self._attempt(waiting), waiting.owner)

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        row_key: PartitionKey,
        batches: Sequence[Acknowledged],
    ) -> Steps[Outcome | asyncio.Future[Outcome]]:
        """Apply acknowledgements for one partition; return the error, or None once they are stored."""
        led = self.led.get(SharePartitionKey(group_id, *row_key))
        if led is None or led.machine is None:
            return ShareRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)
        settings, now_ms = self.settings_of(group_id), self._rooms.clock.monotonic_ms()
        if self.memory.refuses(led.account, RUN_BYTES, self.max_bytes, SMALL):
            settings = settings._replace(max_runs=0)  # batches are acknowledged as a whole only
        try:
            write = yield from acknowledge(led.machine, member_id, batches, settings, now_ms)
        except GeneratorExit:  # the member has left; its changes are undone
            self._watch_locks(led)
            self.serve(led)
            raise
        self._watch_locks(led)
        if isinstance(write, ShareRefusal):
            self.serve(led)  # records that were released on the way may be available
            return write
        return self._write(led, led.machine, write)

    def release(self, group_id: str, member_id: str, keys: Iterable[PartitionKey]) -> None:
        """Make the records that a member holds available again, because its session has ended."""
        self._rooms.turns.run(self._release(group_id, member_id, keys), SESSIONS)

    def _release(self, group_id: str, member_id: str, keys: Iterable[PartitionKey]) -> Steps[None]:
        settings = self.settings_of(group_id)
        for key in keys:
            yield
            led = self.led.get(SharePartitionKey(group_id, *key))
            if led is not None and led.machine is not None:
                write = yield from release(led.machine, member_id, settings)
                self._write(led, led.machine, write)

    def end_session(self, key: SessionKey) -> bool:
        """End a member's session, and release the records that it holds; False if there is no such session."""
        session = self.sessions.remove(key)
        if session is None:
            return False
        self.release(*key, list(session.partitions))
        return True

    def disconnected(self, connection: object) -> None:
        """End the sessions of a closed connection.

        Source: ShareSessionCache's listener.
        """
        ended, groups = self.sessions.disconnected(connection)
        for session in ended:
            self.end_session(session.key)
        for group_id in groups:
            self.forget_group(group_id)

    def forget_group(self, group_id: str) -> None:
        """Drop the share partitions of a group that has no members connected to this broker.

        Source: onGroupEmpty.
        """
        self._rooms.turns.run(self._forget(group_id), SESSIONS)

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
        """Have states stored, and complete the write when it succeeds or fails.

        Source: rollbackOrProcessStateUpdates.
        """
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
        stored = self._rooms.persister.ask(WRITE_STATE, group_id, [row])
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
        changed = False
        try:
            changed = yield from complete_write(machine, write, outcome is None, now_ms)
        except Exception:  # noqa: BLE001 - a bug of ours must not leave the acknowledgement unanswered
            self._log_failure("a stored state of %s in share group %.200s cannot be applied", led)
            outcome = ShareRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "")
            self._drop(led)  # it is loaded again, since its states may be half changed
        if not done.done():
            done.set_result(outcome)
        if outcome is not None and outcome.error in FENCING:
            self._lines.log(
                logging.INFO,
                "fenced",
                "share partition %s of group %.200s is fenced: %s",
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
            return ShareRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        failure = stored.exception()
        if failure is not None:
            logger.error("the state of %s cannot be written", led.partition.tp, exc_info=failure)
            return ShareRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        (row,) = stored.result()
        if not row.error_code:
            return None
        code, message = row.error_code, row.error_message
        return ShareRefusal(told(self._lines, led, "written", code, message), message or "")

    # -- locks -------------------------------------------------------------------------------------

    def _watch_locks(self, led: Led) -> None:
        """Make sure that locks expire in time, and count the memory; called after each change."""
        self._count(led)
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
        self._rooms.turns.run(self._expire_steps(led), LOCKS)

    def _expire_steps(self, led: Led) -> Steps[None]:
        machine = led.machine
        if machine is None or led.gone:
            return
        settings = self.settings_of(led.key.group_id)
        write = yield from expire(machine, settings, self._rooms.clock.monotonic_ms())
        self._watch_locks(led)
        self._write(led, machine, write)
        if write.batches:
            self.serve(led)

    # -- the end of leaderships --------------------------------------------------------------------

    def on_leadership(self, partition: Partition, leads: bool) -> None:
        """Handle that this broker has become, or is no longer, the leader of a partition.

        Source: SharePartitionListener.
        """
        if leads:
            return
        for key in list(self._of_partition.get(partition, ())):
            self._drop(self.led[key])

    def _drop(self, led: Led) -> None:
        """Stop using a share partition, and answer the fetches that wait on nothing else."""
        if led.gone:
            return
        led.gone = True
        del self.led[led.key]
        self._count(led)
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
        """Stop answering."""
        self._loading.close()
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


def _readable_end(partition: Partition, settings: ShareSettings) -> int:
    log = partition.log
    return log.last_stable_offset if settings.read_committed else log.high_watermark
