"""Whether a transactional batch may be appended: its partition is part of the open transaction.

Without this a batch that comes late, after its transaction has ended, would open one that nobody
ends, and hold back the last stable offset for good. Once a producer has an open transaction in the
partition's own log there is nothing to ask. Older producers add their partitions themselves and are
verified; those of transaction version 2 have them added by the batch. Where the coordinator is
another broker its answer takes time, in which the transaction may have ended: each answer comes with
a guard that is no longer the partition's once it has a marker, and then it is asked again.
Source: KIP-890, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode

from ..coordinator.transaction.state import BUMPS_EPOCHS
from ..log.validator import AppendError
from ..metadata.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..replication.partition import Partition
    from .context import RequestContext

#: Attributes, producer id, producer epoch and first sequence of a batch.
_PRODUCER = Struct(">21xh20xqhi").unpack_from
_TRANSACTIONAL = 0x10

#: Produce version from which producers know TRANSACTION_ABORTABLE.
ABORTABLE_VERSION = 11

#: Produce version from which batches add their partition to the transaction.
ADDING_VERSION = 12

#: What a producer would not take for a reason to try again, so that it is told another one.
_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Granted(NamedTuple):
    """That a coordinator elsewhere knows a partition, as long as the guard is the partition's."""

    guard: object


def error_for_client(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Name what verification found as clients of the request's version know it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def needs_verification(
    ctx: RequestContext, partition: Partition, records: RecordsBytes
) -> bool | AppendError:
    """Whether a batch with a whole header is of a transaction that this partition does not know.

    Errors: INVALID_PRODUCER_EPOCH for an epoch before the one that the partition knows, which the
    coordinator need not be asked for.
    """
    attributes, producer_id, producer_epoch, _ = _PRODUCER(records)
    # What is not led is refused for that reason alone: the producer is to look for the leader, which
    # it would not do if the coordinator could not be asked.
    if not attributes & _TRANSACTIONAL or not partition.is_leader:
        return False
    if not ctx.services.transaction_coordinator.config.partition_verification:
        return False
    entry = partition.log.producers.producers.get(producer_id)
    if entry is None or producer_epoch > entry.producer_epoch:
        return True
    if producer_epoch < entry.producer_epoch:
        return AppendError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the last "
            f"seen epoch {entry.producer_epoch}",
        )
    return entry.current_txn_first_offset < 0


def verify_batch(
    ctx: RequestContext,
    transactional_id: str,
    partition: Partition,
    records: RecordsBytes,
    granted: Granted | None = None,
) -> AppendError | Awaitable[AppendError | Granted] | None:
    """Say why a batch with a whole header may not be appended now, None if it may.

    Shape: a batch that is not transactional may always. An awaitable asks another broker; what is
    granted by it is handed in when this is called again, right before the append.
    Errors: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE (older
    producers: INVALID_TXN_STATE); NOT_ENOUGH_REPLICAS where it may be so in a moment;
    OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that has overtaken the first of its transaction.
    """
    needed = needs_verification(ctx, partition, records)
    if isinstance(needed, AppendError):
        return needed
    if not needed:
        return None
    _, producer_id, producer_epoch, sequence = _PRODUCER(records)
    overtaking = partition.log.producers.check_verified(
        producer_id,
        producer_epoch,
        sequence,
        ctx.now_ms,
        is_added=ctx.version >= ADDING_VERSION,
    )
    tried = partition.log.producers.verifying.get(producer_id)
    guard = None if tried is None else tried.guard
    if granted is None or granted.guard is not guard:
        verifier = ctx.services.partition_verifier
        found = verifier.verify(transactional_id, producer_id, producer_epoch, partition.tp)
        if not isinstance(found, ErrorCode):
            return _told_later(ctx, found, Granted(guard))
        if found is not ErrorCode.NONE:
            return refusal_for(ctx, found)
    return None if overtaking is None else AppendError(overtaking.error, overtaking.message)


async def _told_later(
    ctx: RequestContext, asked: Awaitable[ErrorCode], granted: Granted
) -> AppendError | Granted:
    found = await asked
    return granted if found is ErrorCode.NONE else refusal_for(ctx, found)


async def refuse_unverified(
    ctx: RequestContext,
    transactional_id: str,
    partition: Partition,
    records: RecordsBytes,
    granted: Granted | None = None,
) -> AppendError | None:
    """As verify_batch, and ask again as long as markers make answers outdated.

    Shape: nothing is awaited where what was granted still holds, so that the append may follow.
    """
    while True:
        found = verify_batch(ctx, transactional_id, partition, records, granted)
        if found is None or isinstance(found, AppendError):
            return found
        told = await found
        if isinstance(told, AppendError):
            return told
        granted = told


def verify_offsets_partition(
    ctx: RequestContext, transactional_id: str, producer: tuple[int, int], tp: TopicPartition
) -> ErrorCode | Awaitable[ErrorCode]:
    """Tell whether a group's offsets are part of a transaction, by their partition.

    Shape: where this was awaited, the answer holds until the caller awaits something else.
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
        producers.check_verified(*producer, 0, ctx.now_ms, is_added=False)
        found: ErrorCode | Awaitable[ErrorCode] = verify(transactional_id, *producer, tp)
        return found

    async def later(found: ErrorCode | Awaitable[ErrorCode]) -> ErrorCode:
        while not isinstance(found, ErrorCode):
            asked_with = guard()
            error = await found
            if error is not ErrorCode.NONE or is_open() or guard() is asked_with:
                return error
            found = ask()  # a marker came meanwhile
        return found

    if is_open():
        return ErrorCode.NONE
    found = ask()
    return found if isinstance(found, ErrorCode) else later(found)


def refusal_for(ctx: RequestContext, found: ErrorCode) -> AppendError:
    """Say to a producer why its partition is not part of a transaction."""
    # From version 12 on producers expect a transaction before theirs that is still ending.
    is_ending = found is ErrorCode.CONCURRENT_TRANSACTIONS and ctx.version < ADDING_VERSION
    if is_ending or found in _RETRIABLE:
        return AppendError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            + found.name,
        )
    error = error_for_client(found, knows_abortable=ctx.version >= ABORTABLE_VERSION)
    if error is ErrorCode.INVALID_TXN_STATE:
        return AppendError(error, "Partition was not added to the transaction")
    return AppendError(error)


def add_to_transaction(
    ctx: RequestContext,
    transactional_id: str,
    batches: Iterable[tuple[Partition, RecordsBytes]],
) -> ErrorCode | Awaitable[ErrorCode]:
    """Add the partitions of batches to their producer's transaction, all or none.

    Shape: the producer is that of the first batch. While the transaction before is still ending,
    this tries again for a moment, so that the producer need not. Errors: those of add_partitions.
    """
    tps: list[TopicPartition] = []
    producer = -1, -1
    for partition, records in batches:
        if not tps:
            producer = _PRODUCER(records)[1:3]
        tps.append(partition.tp)
    return add_partitions(ctx, transactional_id, producer, frozenset(tps))


def add_partitions(
    ctx: RequestContext,
    transactional_id: str,
    producer: tuple[int, int],
    tps: frozenset[TopicPartition],
) -> ErrorCode | Awaitable[ErrorCode]:
    """Add partitions as part of another request, in transaction version 2."""
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
