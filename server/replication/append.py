"""The only way to append to partitions that this broker leads, for clients and coordinators alike.

Most batches are appended within the call. A batch is appended later if it must be verified (by asking its transaction's
coordinator) or prepared (rewritten, or read record by record; a worker process does this unless it takes only a
moment). Batches that the same client sends to the same partition in the meantime wait behind it: a client's batches
become visible in the order in which they arrived. A batch counts as arrived once it is verified. The rows of a request
do not wait for each other; the request's result is ready when all of them are appended and, as far as `acks` requires,
committed. A batch that waits longer than the request's timeout is not appended.

How much work a batch takes depends on its decompressed size, which is known only after decompression. The loop
therefore decompresses a limited amount, and hands larger batches over to a worker process.

A client whose batches use much of the memory for waiting batches is not read until some of them are appended, as in
Apache Kafka, whose request handlers do this work before they take the next request.

A waiting batch is meant for the leader epoch in which it was received. If the partition has another leader or another
epoch by its turn, the batch is refused, and the producer sends it again.
Source: ReplicaManager.appendRecords, handleProduceAppend.
"""

from __future__ import annotations

import asyncio
import copyreg
import logging
from collections.abc import Awaitable, Callable, Container, Hashable, Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kwire.errors import ErrorCode
from kwire.records.layout import ATTRIBUTES_AT, CODEC_MASK

from ..cause import cause
from ..log.validator import (
    INLINE_READ_BYTES,
    INLINE_REWRITE_BYTES,
    TOO_MUCH_HERE,
    AppendError,
    AppendInfo,
    AppendOrigin,
    is_much_work,
    needs_rewrite,
    prepare,
)
from ..workers import TookTooLong, TookTooMuch
from .append_memory import AppendMemory
from .append_queue import Turn
from .purgatory import CommitWaiter

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..clock import Clock
    from ..executor import Executor
    from ..log.log_config import LogConfig
    from ..metadata.topic_partition import TopicPartition
    from ..turns import Turns
    from .partition import Partition

logger = logging.getLogger(__name__)

#: The position of the codec in a batch of magic 2: the lower byte of the attributes.
CODEC_AT = ATTRIBUTES_AT + 1

#: How much longer than the slice of long work (turns.py) a turn may decompress batches, or read large ones, where they are
#: read natively. Unit: microseconds.
READ_MORE_US = 12_000

#: The minimum time that a batch may wait, regardless of the request: a timeout of 0 means not to wait for other
#: replicas, and must not refuse records that only have to be rewritten.
MIN_WAIT_MS = 1000

_CLIENT = AppendOrigin.CLIENT

NOT_LEADER = AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
OFFLINE = AppendError(ErrorCode.KAFKA_STORAGE_ERROR)
FAILED = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR)
NOT_REWRITTEN = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records could not be rewritten.")
TOO_COSTLY = AppendError(
    ErrorCode.MESSAGE_TOO_LARGE, "Decompressing and reading the records takes more than is allowed."
)
TIMED_OUT = AppendError(ErrorCode.REQUEST_TIMED_OUT)
#: The producer tries again, as after a timeout.
TOO_MUCH_WAITS = AppendError(
    ErrorCode.REQUEST_TIMED_OUT, "Too many bytes of records wait to be appended."
)

#: The placeholder result of a waiting row.
NOT_YET = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records were not appended yet.")

#: One partition's batches, or the error with which they were already refused; a plain tuple, because every request
#: makes some.
AppendRow = tuple["Partition", "RecordsBytes"] | AppendError
AppendResult = AppendInfo | AppendError


class BatchSender(Protocol):
    """The sender of batches: its name in log lines, and the key by which workers take turns."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def connection(self) -> SenderConnection: ...


class SenderConnection(Hashable, Protocol):
    """A connection; `peer` is the client's address as log lines give it."""

    @property
    def peer(self) -> str: ...

    def hold_requests(self, held: bool) -> None:
        """Accept no further requests of the client, or accept them again."""
        ...


class Granted(NamedTuple):
    """A successful verification; it holds while the verifier still finds the same `guard`."""

    guard: object


class AppendVerifier(Protocol):
    """Says whether the batches of one request may be appended."""

    def verify(
        self, partition: Partition, records: RecordsBytes, granted: Granted | None = None
    ) -> AppendError | Awaitable[AppendError | Granted] | None:
        """Return why a batch may not be appended now, or None if it may.

        Shape: called when the batch is received and, if it had to wait, again right before the
        append. The second call gets what the awaitable granted. No view of the records may be kept.
        """
        ...


class Waiting(NamedTuple):
    """A batch that cannot be appended immediately, and the leader epoch in which it was received.

    Shape: `row` is its place in the request; `records` is a copy of `counted` bytes, or the request itself and `counted`
    is 0. It has a `turn` from the beginning unless it must be verified first. After `give_up_at`, in the loop's time, it
    is no longer appended. `must_read` says that it is known to be work for a worker process.
    """

    row: int
    partition: Partition
    records: RecordsBytes
    counted: int
    acks: int
    origin: AppendOrigin
    leader_epoch: int
    verifier: AppendVerifier | None
    asked: Awaitable[AppendError | Granted] | None
    turn: Turn | None
    client: BatchSender | None
    give_up_at: float | None
    must_read: bool

    @property
    def queue(self) -> SenderConnection | None:
        """The client whose batches are appended in order of arrival."""
        return None if self.client is None else self.client.connection


class Appends:
    """Appends records to all partitions of a broker.

    Shape: `offline` has the partitions whose log directory has failed; `turns` limits the work per turn.
    `may_keep_requests` says whether a batch may wait in the memory of its request, so that the broker reads fewer
    requests until the batch is appended.
    """

    def __init__(
        self, executor: Executor, clock: Clock, offline: Container[TopicPartition], turns: Turns
    ) -> None:
        self.executor = executor
        self.memory = AppendMemory()
        self.may_keep_requests: Callable[[], bool] = lambda: False
        self._turns = turns
        self._clock = clock
        self._offline = offline
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: set[SenderConnection] = set()  # connections that accept no further requests

    def append_records(
        self,
        rows: Sequence[AppendRow],
        acks: int,
        timeout_ms: int | None,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
        verifier: AppendVerifier | None = None,
        client: BatchSender | None = None,
        done: Sequence[AppendResult] | None = None,
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Append batches to each of some partitions, and wait as long as `acks` requires.

        Shape: one result per row, in order; a list if nothing has to be waited for. Views of `rows` are kept only if
        `may_keep_requests`. acks is 0, 1 or -1 (all in-sync replicas). `timeout_ms` limits the wait for the append and
        then the wait for the replicas; None waits without limit. `done` are the results of rows that the native module
        has appended already.
        The future is cancelled only when the broker stops.
        Errors: earlier refusals, errors of the verifier, those of `Partition.append_as_leader`; NOT_LEADER_OR_FOLLOWER
        or KAFKA_STORAGE_ERROR if the partition was lost in the meantime; MESSAGE_TOO_LARGE for records that take too
        much time or memory to read; REQUEST_TIMED_OUT for a batch that could not be appended in time, or may not wait
        because too much is waiting; REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND for a batch that is appended
        but not committed.
        """
        results: list[AppendResult] = []
        waiting: list[Waiting] = []
        all_committed = True
        for row in rows:
            if type(row) is AppendError:
                results.append(row)
                continue
            partition, records = row
            log = partition.log
            result: AppendResult = TOO_MUCH_HERE if done is None else done[len(results)]
            max_bytes = 0
            try:
                if (
                    done is None
                    and verifier is None
                    and partition.append_queues is None
                    and (origin is not _CLIENT or not log.may_rewrite)
                ):
                    if log.reads_natively and (
                        len(records) > INLINE_REWRITE_BYTES
                        or (len(records) > CODEC_AT and records[CODEC_AT] & CODEC_MASK)
                    ):
                        max_bytes = self._bytes_here(partition)
                    result = partition.append_as_leader(
                        records, acks=acks, now_ms=now_ms, origin=origin, max_bytes=max_bytes
                    )
                if result is TOO_MUCH_HERE:
                    begun = self._begin(
                        len(results),
                        partition,
                        records,
                        acks,
                        timeout_ms,
                        now_ms,
                        origin,
                        verifier,
                        client,
                        max_bytes > 0,
                    )
                    if type(begun) is Waiting:
                        waiting.append(begun)
                        results.append(NOT_YET)
                        continue
                    result = begun  # type: ignore[assignment]
            except Exception:  # a bug of ours must not fail the other rows, of which some may wait
                logger.exception("records for %s could not be appended", partition.tp)
                result = FAILED
            results.append(result)
            if type(result) is AppendInfo and (
                # Records appended to a single replica are committed, unless a flush must come first.
                (acks and log.flush_state.awaited) if not partition.followers else acks == -1
            ):
                all_committed = all_committed and log.high_watermark > result.last_offset
        if all_committed and not waiting:
            return results
        loop = asyncio.get_running_loop()
        waiter = CommitWaiter(
            loop,
            results,
            acks,
            timeout_ms=timeout_ms,
            appending=len(waiting),
            in_turns=partial(self._turns.start, owner=cause()),
        )
        for each in waiting:
            task = loop.create_task(self._append_later(each, waiter))
            self._tasks.add(task)  # the loop itself keeps only a weak reference
            task.add_done_callback(self._tasks.discard)
        for index, row in enumerate(rows):
            if type(row) is not AppendError and results[index] is not NOT_YET:
                waiter.require(index, row[0])
        waiter.start()
        return waiter.future

    def close(self) -> None:
        """Append none of the waiting batches: the broker is stopping."""
        for task in self._tasks:
            task.cancel()

    # -- batches that cannot be appended immediately --------------------------------------------

    def _begin(
        self,
        row: int,
        partition: Partition,
        records: RecordsBytes,
        acks: int,
        timeout_ms: int | None,
        now_ms: int,
        origin: AppendOrigin,
        verifier: AppendVerifier | None,
        client: BatchSender | None,
        is_too_much: bool,
    ) -> AppendResult | Waiting:
        """Append a batch, or keep a copy and its place if it has to wait or may take too much work."""
        asked = None if verifier is None else verifier.verify(partition, records)
        if isinstance(asked, AppendError):
            return asked
        queue = None if client is None else client.connection
        queues = partition.append_queues
        if is_too_much:
            must_read = True
        elif asked is None and (
            (queues is None or queue not in queues)
            or partition.append_refusal(acks) is not None  # a refusal needs no turn
        ):
            max_bytes = self._bytes_here(partition)
            result = partition.append_as_leader(
                records, acks=acks, now_ms=now_ms, origin=origin, max_bytes=max_bytes
            )
            if result is not TOO_MUCH_HERE:
                return result
            # If there is no time left for reading natively, the batch waits for another turn.
            must_read = (
                max_bytes > 0
                or not partition.log.reads_natively
                or must_be_read(partition, records, origin)
            )
        else:
            must_read = is_much_work(records) and must_be_read(partition, records, origin)
        kept: RecordsBytes = records
        counted = 0
        try:
            if self.memory.take(queue, len(records), must=origin is not _CLIENT):
                counted = len(records)
                kept = bytearray(records)  # what was received can make room for the next requests
            elif not self.may_keep_requests():
                if asked is not None:
                    asyncio.ensure_future(asked).add_done_callback(_forget)
                return TOO_MUCH_WAITS
            if queue is not None and (not counted or self.memory.is_pressed_by(queue)):
                self._hold(queue)
            give_up_at = None
            if timeout_ms is not None:
                now_s = asyncio.get_running_loop().time()
                give_up_at = now_s + max(timeout_ms, MIN_WAIT_MS) / 1000
            return Waiting(
                row,
                partition,
                kept,
                counted,
                acks,
                origin,
                partition.state.leader_epoch,
                verifier,
                asked,
                Turn(partition, queue) if asked is None else None,
                client,
                give_up_at,
                must_read,
            )
        except BaseException:
            if asked is not None:
                asyncio.ensure_future(asked).add_done_callback(_forget)
            self._release(queue, counted)
            raise

    def _bytes_here(self, partition: Partition) -> int:
        """The number of bytes of records that may be decompressed in this turn of the loop."""
        more_us = READ_MORE_US if partition.log.reads_natively else 0
        return INLINE_READ_BYTES if self._turns.has_time(more_us) else 0

    async def _append_later(self, waiting: Waiting, waiter: CommitWaiter) -> None:
        """Append a batch once it is verified and prepared and its turn has come."""
        partition, turn, asked = waiting.partition, waiting.turn, waiting.asked
        asking: asyncio.Future[AppendError | Granted] | None = None
        granted: Granted | None = None
        prepared: bytes | AppendError | None = None
        must_read = waiting.must_read
        has_paused = not partition.log.reads_natively
        result: AppendResult = FAILED
        try:
            async with asyncio.timeout_at(waiting.give_up_at):
                while True:
                    if asked is not None:
                        asking = asyncio.ensure_future(asked)
                        await asyncio.wait([asking])  # others may also wait for it
                        told = asking.result()
                        if isinstance(told, AppendError):
                            result = told
                            return
                        granted = told
                        turn = Turn(partition, waiting.queue)
                    assert turn is not None
                    if must_read and prepared is None:
                        prepared = await self._prepare(waiting)
                    await turn.come
                    done = self._append_in_turn(waiting, prepared, granted)
                    if done is TOO_MUCH_HERE:
                        asked = None
                        must_read = has_paused or self._bytes_here(partition) > 0
                        if not must_read:  # others have used up the time of this turn
                            has_paused = True
                            await self._turns.pause(waiting.queue)
                        continue
                    if isinstance(done, AppendInfo | AppendError):
                        result = done
                        return
                    asked = done
                    turn.leave()  # others need not wait for that answer
                    turn = None
        except TimeoutError:
            if asking is not None:
                asking.add_done_callback(_forget)
            result = TIMED_OUT
        except asyncio.CancelledError:
            if asking is not None:
                asking.cancel()
            waiter.cancel()
            raise
        except Exception:  # a bug of ours must not fail the other rows
            logger.exception("records for %s could not be appended", partition.tp)
        finally:
            try:
                # Nothing may run between an append and this, because the leader may change.
                waiter.appended(waiting.row, partition, result)
            finally:
                if turn is not None:
                    turn.leave()
                self._release(waiting.queue, waiting.counted)

    def _hold(self, connection: SenderConnection) -> None:
        """Let the client send no more requests before some of its batches are appended."""
        if connection not in self._held:
            self._held.add(connection)
            connection.hold_requests(True)

    def _release(self, connection: SenderConnection | None, counted: int) -> None:
        """Return the memory of a batch that no longer waits; let its client send again if few of its batches wait.

        Shape: the client sends nothing within this call.
        """
        if counted:
            self.memory.give_back(connection, counted)
        if connection in self._held and self.memory.is_eased_by(connection):
            self._held.discard(connection)
            asyncio.get_running_loop().call_soon(connection.hold_requests, False)

    def _append_in_turn(
        self, waiting: Waiting, prepared: bytes | AppendError | None, granted: Granted | None
    ) -> AppendResult | Awaitable[AppendError | Granted]:
        """Append the batch whose turn it is; an awaitable if it must be verified again."""
        partition, records = waiting.partition, waiting.records
        if partition.state.leader_epoch != waiting.leader_epoch or not partition.is_leader:
            return OFFLINE if partition.tp in self._offline else NOT_LEADER
        if waiting.verifier is not None:
            # The batch's transaction may have ended while it waited.
            found = waiting.verifier.verify(partition, records, granted)
            if found is not None:
                return found
        if isinstance(prepared, AppendError):
            return prepared
        return partition.append_as_leader(
            memoryview(records if prepared is None else prepared),
            acks=waiting.acks,
            now_ms=self._clock.now_ms(),
            origin=waiting.origin,
            prepared=prepared is not None,
            max_bytes=self._bytes_here(partition),
        )

    async def _prepare(self, waiting: Waiting) -> bytes | AppendError:
        """Have a worker process read the records, and rewrite them where they must be."""
        partition, records, client = waiting.partition, waiting.records, waiting.client
        name = str(partition.tp)
        try:
            return await self.executor.in_worker(
                waiting.queue,
                _prepare_in_worker,
                records,
                partition.log.config,
                name,
                self._clock.now_ms(),
            )
        except BrokenExecutor:
            logger.exception("the worker process ended while it rewrote records for %s", name)
            return NOT_REWRITTEN
        except (TookTooLong, TookTooMuch) as error:
            logger.warning(
                "%d bytes of records for %s from %s are refused, as reading them costs too much: %s",
                len(records),
                name,
                "this broker"
                if client is None
                else f"client {client.client_id!r} at {client.connection.peer}",
                error,
            )
            return TOO_COSTLY


def _forget(asked: asyncio.Future[AppendError | Granted]) -> None:
    """Retrieve the outcome of an answer that is no longer awaited, even if it is an exception."""
    if not asked.cancelled():
        asked.exception()


def must_be_read(partition: Partition, records: RecordsBytes, origin: AppendOrigin) -> bool:
    """Whether a client's records must be read one by one in Python, or rewritten, before they are appended."""
    log = partition.log
    return origin is _CLIENT and needs_rewrite(
        memoryview(records), log.config, natively=log.reads_natively
    )


def _bytes_of(view: memoryview) -> tuple[Any, tuple[bytes]]:
    return bytes, (bytes(view),)


# A batch that waits in the memory of its request is copied when a worker process takes it, not before.
copyreg.pickle(memoryview, _bytes_of)


def _prepare_in_worker(
    records: RecordsBytes, config: LogConfig, name: str, now_ms: int
) -> bytes | AppendError:
    """`prepare` for the worker process, whose results must be picklable."""
    done = prepare(memoryview(records), config, name, now_ms)
    return done if isinstance(done, AppendError) else bytes(done)
