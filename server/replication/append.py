"""The only way to append to partitions that this broker leads, for clients and coordinators alike.

Most batches are appended within the call. A batch that must be verified (by asking its
transaction's coordinator) or prepared (rewritten or read record by record, in the worker process if
that is much work) is appended later. Batches that arrive for the same partition in the meantime
wait behind it: the batches of a partition become visible in the order in which they arrived. A
batch counts as arrived once it is verified, so a coordinator that does not answer delays nobody
else. The rows of a request do not wait for each other; the request's result is ready when all of
them are appended and, as far as `acks` requires, committed.

A waiting batch is meant for the leader epoch in which it was received. If the partition has another
leader or another epoch by its turn, the batch is refused, and the producer sends it again.
Source: ReplicaManager.appendRecords, handleProduceAppend.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Container, Sequence
from concurrent.futures import BrokenExecutor
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.errors import ErrorCode

from ..log.validator import AppendError, AppendInfo, AppendOrigin, needs_rewrite, prepare
from .append_queue import Turn
from .purgatory import CommitWaiter

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..clock import Clock
    from ..executor import Executor
    from ..log.log_config import LogConfig
    from ..metadata.topic_partition import TopicPartition
    from .partition import Partition

logger = logging.getLogger(__name__)

#: Rewriting fewer bytes than this in the loop stalls it less than sending them to the worker
#: process.
INLINE_REWRITE_BYTES = 64 * 1024
INLINE_REWRITE_RECORDS = 2000

_COUNT = Struct(">57xi").unpack_from
_HEADER_SIZE = 61
_MAGIC_AT = 16
_CLIENT = AppendOrigin.CLIENT

NOT_LEADER = AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
OFFLINE = AppendError(ErrorCode.KAFKA_STORAGE_ERROR)
FAILED = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR)
NOT_REWRITTEN = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records could not be rewritten.")

#: The placeholder result of a waiting row.
NOT_YET = AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records were not appended yet.")

#: One partition's batches, or why they were already refused; a plain tuple, since every request
#: makes some.
AppendRow = tuple["Partition", "RecordsBytes"] | AppendError
AppendResult = AppendInfo | AppendError


class Granted(NamedTuple):
    """A successful verification; it holds while the verifier still finds the same `guard`."""

    guard: object


class Verifier(Protocol):
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
    """A batch that cannot be appended at once, and the leader epoch in which it was received.

    Shape: `row` is its place in the request; `records` is a copy. It has a `turn` from the
    beginning unless it must be verified first.
    """

    row: int
    partition: Partition
    records: bytearray
    acks: int
    origin: AppendOrigin
    leader_epoch: int
    verifier: Verifier | None
    asked: Awaitable[AppendError | Granted] | None
    turn: Turn | None


class Appends:
    """Appends records to all partitions of a broker.

    Shape: `offline` holds the partitions whose log directory has failed.
    """

    def __init__(
        self, executor: Executor, clock: Clock, offline: Container[TopicPartition]
    ) -> None:
        self.executor = executor
        self._clock = clock
        self._offline = offline
        self._tasks: set[asyncio.Task[None]] = set()

    def append_records(
        self,
        rows: Sequence[AppendRow],
        acks: int,
        timeout_ms: int | None,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
        verifier: Verifier | None = None,
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Append batches to each of some partitions, and wait as long as `acks` requires.

        Shape: one result per row, in order; a list if nothing has to be waited for. No view of
        `rows` is kept. acks is 0, 1 or -1 (all in-sync replicas); `timeout_ms` limits the wait for
        them, None waits without limit. The future is cancelled only when the broker stops.
        Errors: earlier refusals, what the verifier returns, those of `Partition.append_as_leader`;
        NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR where the partition was lost in the meantime;
        REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND for what is appended but not
        committed.
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
            if (
                verifier is not None
                or partition.append_queue is not None
                or (
                    origin is _CLIENT
                    and (
                        log.may_rewrite
                        or (len(records) > INLINE_REWRITE_BYTES and records[_MAGIC_AT] < 2)
                    )
                )
            ):
                begun = self._begin(
                    len(results), partition, records, acks, now_ms, origin, verifier
                )
                if type(begun) is Waiting:
                    waiting.append(begun)
                    results.append(NOT_YET)
                    continue
                result: AppendResult = begun  # type: ignore[assignment]
            else:
                result = partition.append_as_leader(
                    records, acks=acks, now_ms=now_ms, origin=origin
                )
            results.append(result)
            if type(result) is AppendInfo and (
                acks == -1 or (acks and log.flush_state.awaited and not partition.followers)
            ):
                all_committed = all_committed and log.high_watermark > result.last_offset
        if all_committed and not waiting:
            return results
        loop = asyncio.get_running_loop()
        waiter = CommitWaiter(loop, results, acks, timeout_ms=timeout_ms, appending=len(waiting))
        for index, row in enumerate(rows):
            if type(row) is not AppendError and results[index] is not NOT_YET:
                waiter.require(index, row[0])
        for each in waiting:
            task = loop.create_task(self._append_later(each, waiter))
            self._tasks.add(task)  # the loop itself keeps only a weak reference
            task.add_done_callback(self._tasks.discard)
        waiter.start()
        return waiter.future

    def close(self) -> None:
        """Append none of the waiting batches: the broker is stopping."""
        for task in self._tasks:
            task.cancel()

    # -- what cannot be appended at once -----------------------------------------------------------

    def _begin(
        self,
        row: int,
        partition: Partition,
        records: RecordsBytes,
        acks: int,
        now_ms: int,
        origin: AppendOrigin,
        verifier: Verifier | None,
    ) -> AppendResult | Waiting:
        """Append a batch if it need not wait; otherwise keep a copy and its place."""
        asked = None if verifier is None else verifier.verify(partition, records)
        if isinstance(asked, AppendError):
            return asked
        if asked is None and (
            (partition.append_queue is None and not is_prepared_first(partition, records, origin))
            or partition.append_refusal(acks) is not None  # a refusal needs no turn
        ):
            return partition.append_as_leader(records, acks=acks, now_ms=now_ms, origin=origin)
        return Waiting(
            row,
            partition,
            bytearray(records),  # the view dies with the request
            acks,
            origin,
            partition.state.leader_epoch,
            verifier,
            asked,
            Turn(partition) if asked is None else None,
        )

    async def _append_later(self, waiting: Waiting, waiter: CommitWaiter) -> None:
        """Append a batch once it is verified and prepared and its turn has come."""
        partition, turn, asked = waiting.partition, waiting.turn, waiting.asked
        granted: Granted | None = None
        prepared: bytes | AppendError | None = None
        is_prepared = False
        result: AppendResult = FAILED
        try:
            while True:
                if asked is not None:
                    told = await asked
                    if isinstance(told, AppendError):
                        result = told
                        return
                    granted = told
                    turn = Turn(partition)
                assert turn is not None
                if not is_prepared:
                    prepared = await self._prepare(partition, waiting.records, waiting.origin)
                    is_prepared = True
                await turn.come
                done = self._append_in_turn(waiting, prepared, granted)
                if isinstance(done, AppendInfo | AppendError):
                    result = done
                    return
                asked = done
                turn.leave()  # others need not wait for that answer
                turn = None
        except asyncio.CancelledError:
            waiter.cancel()
            raise
        except Exception:  # a bug of ours must not fail the other rows
            logger.exception("records for %s could not be appended", partition.tp)
        finally:
            # Nothing may run between an append and this, because the leader may change.
            waiter.appended(waiting.row, partition, result)
            if turn is not None:
                turn.leave()

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
        )

    async def _prepare(
        self, partition: Partition, records: bytearray, origin: AppendOrigin
    ) -> bytes | AppendError | None:
        """Have the worker process do what would stall the loop; None if there is no such work."""
        if not is_prepared_first(partition, records, origin):
            return None
        name = str(partition.tp)
        try:
            return await self.executor.in_process(
                _prepare_in_worker, records, partition.log.config, name, self._clock.now_ms()
            )
        except BrokenExecutor:
            logger.exception("the worker process ended while it rewrote records for %s", name)
            return NOT_REWRITTEN


def is_prepared_first(partition: Partition, records: RecordsBytes, origin: AppendOrigin) -> bool:
    """Whether it is much work to prepare a client's batches (to rewrite or read each record)."""
    return (
        origin is _CLIENT
        and is_much_work(records)
        and needs_rewrite(memoryview(records), partition.log.config)
    )


def is_much_work(records: RecordsBytes) -> bool:
    """Whether rewriting would stall the loop longer than a trip to the worker process takes."""
    size = len(records)
    return size > INLINE_REWRITE_BYTES or (
        size >= _HEADER_SIZE
        and records[_MAGIC_AT] == 2
        and _COUNT(records)[0] > INLINE_REWRITE_RECORDS
    )


def _prepare_in_worker(
    records: bytearray, config: LogConfig, name: str, now_ms: int
) -> bytes | AppendError:
    """`prepare` for the worker process, whose results must be picklable."""
    done = prepare(memoryview(records), config, name, now_ms)
    return done if isinstance(done, AppendError) else bytes(done)
