"""Verifies that the partition of a transactional batch is part of the open transaction.

Without this check, a batch that arrives after its transaction has ended would open a new
transaction that nobody ends, and hold back the last stable offset for good. If the producer has an
open transaction in the partition's own log, nothing has to be asked. Older producers add their
partitions themselves and are verified; with transaction version 2 the batch adds its partition. If
the coordinator is another broker, its answer takes time, during which the transaction may end. So
each answer comes with a guard, which a marker replaces in the partition; if the guard has changed,
the coordinator is asked again.
Source: KIP-890, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from struct import Struct
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..coordinator.transaction.state import BUMPS_EPOCHS
from ..log.validator import AppendError
from ..metadata.topic_partition import TopicPartition
from ..replication.append import Granted
from .ceilings import CEILING_3_9

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..replication.append import AppendRow
    from ..replication.partition import Partition
    from .context import RequestContext

#: Attributes, producer id, producer epoch and first sequence of a batch.
_PRODUCER = Struct(">21xh20xqhi").unpack_from
_TRANSACTIONAL = 0x10

#: The first Produce version whose producers know TRANSACTION_ABORTABLE.
ABORTABLE_VERSION = 11

#: The Produce version since which batches add their partition to the transaction.
ADDING_VERSION = 12

#: Errors that a producer would not retry, so it gets another one.
_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def error_for_client(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Translate an error of verification for clients of the request's version."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def needs_verification(
    ctx: RequestContext, partition: Partition, records: RecordsBytes
) -> bool | AppendError:
    """Whether a batch with a whole header belongs to a transaction that this partition does not know.

    Errors: INVALID_PRODUCER_EPOCH for an epoch older than the one that the partition knows, as in 4.3. Under 3.9, the
    coordinator is asked, and its error comes first; if it has none, the log refuses the batch.
    """
    attributes, producer_id, producer_epoch, _ = _PRODUCER(records)
    # If this broker does not lead the partition, that is the only error to give: the producer must
    # look for the leader, which it would not do on an error about the coordinator.
    if not attributes & _TRANSACTIONAL or not partition.is_leader:
        return False
    if producer_id < 0:
        return False  # it belongs to no transaction, and is appended like any other
    if not ctx.services.transaction_coordinator.config.partition_verification:
        return False
    entry = partition.log.producers.producers.get(producer_id)
    if entry is None or producer_epoch > entry.producer_epoch:
        return True
    if producer_epoch < entry.producer_epoch:
        if ctx.services.ceiling != CEILING_3_9.name:
            return AppendError(ErrorCode.INVALID_PRODUCER_EPOCH, before_append=True)
        # With an open transaction, the log refuses it, after everything else.
        return entry.current_txn_first_offset < 0
    return entry.current_txn_first_offset < 0


class BatchVerifier:
    """Verifies the batches of one Produce request, all with one transactional id; a Verifier.

    Shape: each batch has a whole header of magic 2; one that is not transactional may always be
    appended.
    """

    def __init__(self, ctx: RequestContext, transactional_id: str) -> None:
        self._ctx = ctx
        self._transactional_id = transactional_id
        self._adding: frozenset[TopicPartition] = frozenset()
        self._added: ErrorCode | asyncio.Future[ErrorCode] = ErrorCode.NONE

    def add_partitions(self, rows: Iterable[AppendRow]) -> None:
        """Add the partitions of batches that begin a transaction there to it, all or none.

        Shape: only in versions in which batches do so (KIP-890); the producer is that of the first
        batch. While the previous transaction is still ending, this retries for a moment, so that
        the producer need not. `verify` reports the result.
        """
        ctx = self._ctx
        if ctx.version < ADDING_VERSION:
            return
        producer = -1, -1
        tps: list[TopicPartition] = []
        for row in rows:
            if not isinstance(row, AppendError) and needs_verification(ctx, *row) is True:
                partition, records = row
                if not tps:
                    producer = _PRODUCER(records)[1:3]
                tps.append(partition.tp)
        if tps:
            self._adding = frozenset(tps)
            added = add_partitions(ctx, self._transactional_id, producer, self._adding)
            self._added = added if isinstance(added, ErrorCode) else asyncio.ensure_future(added)

    def verify(
        self, partition: Partition, records: RecordsBytes, granted: Granted | None = None
    ) -> AppendError | Awaitable[AppendError | Granted] | None:
        """Return why a batch may not be appended now, or None if it may; see Verifier.

        Shape: an awaitable asks another broker, or waits until the partition has been added. The
        log refuses a batch that has overtaken the first one of its transaction.
        Errors: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE (for
        older producers INVALID_TXN_STATE); NOT_ENOUGH_REPLICAS if a retry may succeed; from version
        12 on those of add_partitions.
        """
        ctx = self._ctx
        if granted is None and partition.tp in self._adding:
            added = self._added
            self._begin(partition, records)  # also if it is not added
            if not isinstance(added, ErrorCode):
                # The batch is verified once the partition is added; this guard equals no
                # partition's guard.
                return _told_later(ctx, added, Granted(object()))
            if added is not ErrorCode.NONE:
                return refusal_for(ctx, added)
        needed = needs_verification(ctx, partition, records)
        if isinstance(needed, AppendError):
            return needed
        if not needed:
            return None
        producer_id, producer_epoch = self._begin(partition, records)
        tried = partition.log.producers.verifying.get(producer_id)
        guard = None if tried is None else tried.guard
        if granted is None or granted.guard is not guard:
            verifier = ctx.services.partition_verifier
            found = verifier.verify(
                self._transactional_id, producer_id, producer_epoch, partition.tp
            )
            if not isinstance(found, ErrorCode):
                return _told_later(ctx, found, Granted(guard))
            if found is not ErrorCode.NONE:
                return refusal_for(ctx, found)
        return None

    def _begin(self, partition: Partition, records: RecordsBytes) -> tuple[int, int]:
        """Note that a batch is being verified; return its producer's id and epoch."""
        _, producer_id, producer_epoch, sequence = _PRODUCER(records)
        partition.log.producers.begin_verification(
            producer_id,
            producer_epoch,
            sequence,
            self._ctx.now_ms,
            is_added=self._ctx.version >= ADDING_VERSION,
        )
        return producer_id, producer_epoch


async def _told_later(
    ctx: RequestContext, asked: Awaitable[ErrorCode], granted: Granted
) -> AppendError | Granted:
    found = await asked
    return granted if found is ErrorCode.NONE else refusal_for(ctx, found)


def verify_offsets_partition(
    ctx: RequestContext, transactional_id: str, producer: tuple[int, int], tp: TopicPartition
) -> ErrorCode | Awaitable[ErrorCode]:
    """Check by its partition that a group's offsets are part of a transaction.

    Shape: if this was awaited, the answer holds until the caller awaits something else.
    """
    replica = ctx.services.replica_manager.get(*tp)
    if replica is None or not replica.is_leader:
        return ErrorCode.NOT_COORDINATOR
    producers = replica.log.producers
    verify = ctx.services.partition_verifier.verify

    def guard() -> object:
        tried = producers.verifying.get(producer[0])
        return None if tried is None else tried.guard

    def is_open() -> bool:
        entry = producers.producers.get(producer[0])
        return (
            entry is not None
            and entry.producer_epoch == producer[1]
            and entry.current_txn_first_offset >= 0
        )

    def ask() -> ErrorCode | Awaitable[ErrorCode]:
        producers.begin_verification(*producer, 0, ctx.now_ms, is_added=False)
        found: ErrorCode | Awaitable[ErrorCode] = verify(transactional_id, *producer, tp)
        return found

    async def later(found: ErrorCode | Awaitable[ErrorCode]) -> ErrorCode:
        while not isinstance(found, ErrorCode):
            asked_with = guard()
            error = await found
            if error is not ErrorCode.NONE or is_open() or guard() is asked_with:
                return error
            found = ask()  # a marker was written in the meantime
        return found

    if is_open():
        return ErrorCode.NONE
    found = ask()
    return found if isinstance(found, ErrorCode) else later(found)


def refusal_for(ctx: RequestContext, found: ErrorCode) -> AppendError:
    """The error for a producer whose partition is not part of a transaction."""
    # From version 12 on producers can handle that their previous transaction is still ending.
    is_ending = found is ErrorCode.CONCURRENT_TRANSACTIONS and ctx.version < ADDING_VERSION
    if is_ending or found in _RETRIABLE:
        return AppendError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            + found.name,
            before_append=True,
        )
    error = error_for_client(found, knows_abortable=ctx.version >= ABORTABLE_VERSION)
    if error is ErrorCode.INVALID_TXN_STATE:
        return AppendError(error, "Partition was not added to the transaction", before_append=True)
    return AppendError(error, before_append=True)


def add_partitions(
    ctx: RequestContext,
    transactional_id: str,
    producer: tuple[int, int],
    tps: frozenset[TopicPartition],
) -> ErrorCode | Awaitable[ErrorCode]:
    """Add partitions on behalf of another request, in transaction version 2."""
    coordinator = ctx.services.transaction_coordinator

    def add() -> ErrorCode | Awaitable[ErrorCode]:
        added: ErrorCode | Awaitable[ErrorCode] = coordinator.add_partitions(
            transactional_id, *producer, tps, client_version=BUMPS_EPOCHS
        )
        return added

    async def add_later(answer: ErrorCode | Awaitable[ErrorCode]) -> ErrorCode:
        loop = asyncio.get_running_loop()
        end = loop.time() + coordinator.config.add_retry_max_ms / 1000
        while True:
            error = answer if isinstance(answer, ErrorCode) else await answer
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or loop.time() >= end:
                return error
            await asyncio.sleep(coordinator.config.add_retry_ms / 1000)
            answer = add()

    answer = add()
    if isinstance(answer, ErrorCode) and answer is not ErrorCode.CONCURRENT_TRANSACTIONS:
        return answer
    return add_later(answer)
