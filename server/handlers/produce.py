"""Produce (API key 0).

Behavior: each partition is its own row; one that is refused does not touch its neighbours. With
    acks=0 nothing is answered, and an error closes the connection, as the only way to be heard.
    acks=-1 waits for the high watermark. Records that must be read one by one (a compacted topic,
    another compression.type, old magics, deep validation) are prepared before the append; large
    ones in the worker process, and then later requests to that partition queue behind them.
    A transactional batch is verified first: its partition is part of the producer's transaction,
    which its coordinator knows, here or on another broker; from version 12 on the batch itself
    makes it so.
Versions: 0-1 magic 0, 2 magic 0 or 1, from 3 on exactly one batch of magic 2; zstd from 7 on;
    from 11 on TRANSACTION_ABORTABLE where it is INVALID_TXN_STATE before; from 12 on partitions
    are added to the transaction (KIP-890); from 13 on topics by id (KIP-516).
Source: KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ReplicaManager.appendRecords.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from kwire.errors import ErrorCode
from kwire.messages.produce import ProduceRequest, ProduceResponse

from ..controller.topics import INTERNAL_TOPICS
from ..log.append import AppendInfo
from ..log.validator import AppendError, needs_rewrite, prepare
from ..replication.partition import Partition
from ..replication.purgatory import CommitWaiter
from .context import Later, NoReply, RequestContext
from .produce_answer import Row, answer_of
from .produce_form import NOT_IN_TRANSACTION, check_form, is_much_work
from .registry import handles
from .transaction_verification import (
    ADDING_VERSION,
    Granted,
    add_to_transaction,
    needs_verification,
    refusal_for,
    refuse_unverified,
    verify_batch,
)

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

logger = logging.getLogger(__name__)

#: Clients that may write to internal topics. Source: AdminUtils.ADMIN_CLIENT_ID.
ADMIN_CLIENT_ID = "__admin_client"

NOTHING_GRANTED: Mapping[int, Granted] = {}

#: By row: what a coordinator on another broker says of its partition.
Asked = dict[int, Awaitable[AppendError | Granted]]
UNKNOWN_TOPIC = AppendError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = AppendError(ErrorCode.UNKNOWN_TOPIC_ID)


@handles(ProduceRequest, versions="0-13", overlap=True)
def produce(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later[ProduceResponse] | NoReply:
    """Append records to partitions that this broker leads."""
    rows, must_wait, to_add, asked = _rows(ctx, request)
    acks = request.acks
    if to_add:
        transactional_id = request.transactional_id
        assert transactional_id is not None
        added = add_to_transaction(ctx, transactional_id, _batches(rows, to_add))
        if not isinstance(added, ErrorCode):
            kept = [row._replace(records=bytearray(row.records or b"")) for row in rows]
            return ctx.later(
                _add_and_append(
                    ctx, acks, request.timeout_ms, transactional_id, kept, to_add, added
                )
            )
        rows = _with_added(ctx, transactional_id, rows, to_add, added)
    if asked:
        kept = [row._replace(records=bytearray(row.records or b"")) for row in rows]
        transactional_id = request.transactional_id
        return ctx.later(
            _verify_and_append(ctx, acks, request.timeout_ms, transactional_id, kept, asked)
        )
    if must_wait:
        # The views die with this call; what waits keeps copies.
        kept = [row._replace(records=bytearray(row.records or b"")) for row in rows]
        previous = [row.partition.writing for row in kept if row.partition is not None]
        task = asyncio.get_running_loop().create_task(
            _prepare_and_append(
                ctx, acks, request.timeout_ms, request.transactional_id, kept, previous
            )
        )
        for row in kept:
            if row.partition is not None:
                row.partition.writing = task
        return ctx.later(task)
    results: list[AppendInfo | AppendError] = []
    now_ms = ctx.now_ms
    all_committed = True
    for row in rows:
        partition = row[2]
        if partition is None:
            results.append(row[4] or UNKNOWN_TOPIC)
            continue
        result = partition.append_as_leader(row[3], acks=acks, now_ms=now_ms)
        results.append(result)
        if type(result) is AppendInfo and (
            acks == -1 or (acks and partition.log.awaits_flush and not partition.followers)
        ):
            all_committed = all_committed and partition.log.high_watermark > result.last_offset
    if all_committed:
        return answer_of(ctx, acks, rows, results)
    waiter = _commit_waiter(acks, request.timeout_ms, rows, results)
    kept = [row._replace(records=b"") for row in rows]
    return ctx.later(
        waiter.future, lambda failed: answer_of(ctx, acks, kept, _with_failed(results, failed))
    )


# -- stage 0: what must be looked at before it can be appended ------------------------------------


def _rows(ctx: RequestContext, request: ProduceRequest) -> tuple[list[Row], bool, list[int], Asked]:
    """Find each partition's replica or why it is refused, whether the request has to wait, which
    rows are to be added to a transaction first, and which other brokers were asked for.
    """
    partitions: dict[Any, Partition] = ctx.services.replica_manager.partitions
    version = ctx.version
    valid_acks = -1 <= request.acks <= 1
    must_wait = False
    transactional = False
    transactional_id = request.transactional_id
    rows = []
    to_add = []
    asked: Asked = {}
    for topic in request.topic_data:
        name: Any = topic.name
        if version >= 13:
            known = ctx.services.metadata().topic_by_id(topic.topic_id)
            name = topic.topic_id if known is None else known.name
        closed = name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID
        for data in topic.partition_data:
            records = data.records
            number = data.index
            # A plain tuple hashes and compares as the TopicPartition, and costs less to make.
            partition = partitions.get((name, number))
            error: AppendError | None
            if partition is None or closed or not valid_acks:
                error = _refusal(ctx, name, number, valid_acks, closed)
            else:
                error = check_form(records, version)
                if error is None:
                    log = partition.log
                    if partition.writing is not None or (
                        (log.may_rewrite or version < 3)
                        and records is not None
                        and is_much_work(records)
                        and log.needs_rewrite(records)
                    ):
                        must_wait = True
            if error is None:
                rows.append(Row(name, number, partition, records, None))
                continue
            if error is NOT_IN_TRANSACTION:
                transactional = True
                if partition is not None and transactional_id is not None:
                    if version < ADDING_VERSION:
                        found = verify_batch(ctx, transactional_id, partition, records)
                        if found is None or isinstance(found, AppendError):
                            error = found
                        else:
                            error = None
                            asked[len(rows)] = found
                    else:
                        needed = needs_verification(ctx, partition, records)
                        error = needed if isinstance(needed, AppendError) else None
                        if needed is True:
                            to_add.append(len(rows))
                    must_wait = must_wait or (error is None and _must_wait(partition, records))
            if error is None:
                rows.append(Row(name, number, partition, records, None))
            else:
                rows.append(Row(name, number, None, b"", error))
    if transactional and transactional_id is None:
        refused = AppendError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        refused_rows = [row._replace(partition=None, records=b"", error=refused) for row in rows]
        return refused_rows, False, [], {}
    return rows, must_wait, to_add, asked


def _batches(rows: list[Row], to_add: list[int]) -> Iterator[tuple[Partition, RecordsBytes]]:
    for index in to_add:
        row = rows[index]
        assert row.partition is not None
        yield row.partition, row.records


def _with_added(
    ctx: RequestContext, transactional_id: str, rows: list[Row], to_add: list[int], error: ErrorCode
) -> list[Row]:
    """Refuse the rows that could not be added to their transaction, or may not begin it."""
    rows = list(rows)
    for index, (partition, records) in zip(to_add, list(_batches(rows, to_add)), strict=True):
        if error is ErrorCode.NONE:
            refused = verify_batch(ctx, transactional_id, partition, records)
            # Only with the embedded store do batches add partitions, and then nobody is elsewhere.
            assert refused is None or isinstance(refused, AppendError)
        else:
            refused = refusal_for(ctx, error)
        if refused is not None:
            rows[index] = rows[index]._replace(partition=None, records=b"", error=refused)
    return rows


async def _add_and_append(
    ctx: RequestContext,
    acks: int,
    timeout_ms: int,
    transactional_id: str,
    rows: list[Row],
    to_add: list[int],
    added: Awaitable[ErrorCode],
) -> ProduceResponse | NoReply:
    """Append what waited for its partitions to be added; the partitions are free until then."""
    rows = _with_added(ctx, transactional_id, rows, to_add, await added)
    previous = [row.partition.writing for row in rows if row.partition is not None]
    for row in rows:
        if row.partition is not None:
            row.partition.writing = asyncio.current_task()
    return await _prepare_and_append(ctx, acks, timeout_ms, transactional_id, rows, previous)


async def _verify_and_append(
    ctx: RequestContext,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    rows: list[Row],
    asked: Asked,
) -> ProduceResponse | NoReply:
    """Append what waited for another broker's answer; the partitions are free until then."""
    granted: dict[int, Granted] = {}
    for index, awaited in asked.items():
        found = await awaited
        if isinstance(found, AppendError):
            rows[index] = rows[index]._replace(partition=None, records=b"", error=found)
        else:
            granted[index] = found
    previous = [row.partition.writing for row in rows if row.partition is not None]
    for row in rows:
        if row.partition is not None:
            row.partition.writing = asyncio.current_task()
    return await _prepare_and_append(
        ctx, acks, timeout_ms, transactional_id, rows, previous, granted
    )


def _must_wait(partition: Partition, records: RecordsBytes) -> bool:
    """Whether a batch has to be prepared first, or to queue behind one that has."""
    if partition.writing is not None:
        return True
    log = partition.log
    return log.may_rewrite and is_much_work(records) and log.needs_rewrite(records)


def _refusal(
    ctx: RequestContext, topic: str | bytes, partition: int, valid_acks: bool, closed: bool
) -> AppendError:
    services = ctx.services
    if isinstance(topic, bytes):
        return UNKNOWN_ID
    image = services.metadata()
    if image.partition(topic, partition) is None:
        return UNKNOWN_TOPIC
    if not valid_acks:
        return AppendError(ErrorCode.INVALID_REQUIRED_ACKS)
    if closed:
        return AppendError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}."
        )
    return AppendError(services.replica_manager.why_missing(image, topic, partition))


async def _prepare_and_append(
    ctx: RequestContext,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    rows: list[Row],
    previous: list[object | None],
    granted: Mapping[int, Granted] = NOTHING_GRANTED,
) -> ProduceResponse | NoReply:
    this = asyncio.current_task()
    earlier = {task for task in previous if isinstance(task, asyncio.Task)}
    try:
        try:
            prepared = [await _prepare(ctx, row) for row in rows]
        finally:
            # Also when this request fails: those behind it must not overtake those before it.
            if earlier:
                await asyncio.wait(earlier)
        results = [
            await _append_prepared(ctx, acks, transactional_id, row, done, granted.get(index))
            for index, (row, done) in enumerate(zip(rows, prepared, strict=True))
        ]
    finally:
        for row in rows:
            if row.partition is not None and row.partition.writing is this:
                row.partition.writing = None
    if acks:
        waiter = _commit_waiter(acks, timeout_ms, rows, results)
        results = _with_failed(results, await waiter.future)
    return answer_of(ctx, acks, rows, results)


async def _prepare(ctx: RequestContext, row: Row) -> bytes | memoryview | AppendError | None:
    partition = row.partition
    if partition is None or row.records is None:
        return None
    config = partition.log.config
    view = memoryview(row.records)
    if not needs_rewrite(view, config):
        return None
    name = str(partition.tp)
    if not is_much_work(view):
        return prepare(view, config, name, ctx.now_ms)
    try:
        return await ctx.services.executor.in_process(
            _prepare_in_worker, row.records, config, name, ctx.now_ms
        )
    except BrokenExecutor:
        logger.exception("the worker process ended while it rewrote records for %s", name)
        return AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records could not be rewritten.")


def _prepare_in_worker(
    records: bytes | bytearray, config: object, name: str, now_ms: int
) -> bytes | AppendError:
    """`prepare` for the worker process, whose results must be picklable."""
    done = prepare(memoryview(records), config, name, now_ms)  # type: ignore[arg-type]
    return done if isinstance(done, AppendError) else bytes(done)


async def _append_prepared(
    ctx: RequestContext,
    acks: int,
    transactional_id: str | None,
    row: Row,
    prepared: bytes | memoryview | AppendError | None,
    granted: Granted | None,
) -> AppendInfo | AppendError:
    if row.partition is None:
        assert row.error is not None
        return row.error
    if isinstance(prepared, AppendError):
        return prepared
    if transactional_id is not None:
        # The transaction may have ended while this waited.
        refused = await refuse_unverified(
            ctx, transactional_id, row.partition, row.records, granted
        )
        if refused is not None:
            return refused
    return row.partition.append_as_leader(
        memoryview(row.records if prepared is None else prepared),
        acks=acks,
        now_ms=ctx.now_ms,
        prepared=prepared is not None,
    )


# -- stage 2: waiting and the answer -------------------------------------------------------------


def _waits_for_disk(partition: Partition) -> bool:
    # flush.messages. With followers the watermark says more than acks=1 asks for.
    return partition.log.awaits_flush and not partition.followers


def _commit_waiter(
    acks: int, timeout_ms: int, rows: list[Row], results: list[AppendInfo | AppendError]
) -> CommitWaiter:
    missing = [
        (index, row.partition, result.last_offset + 1)
        for index, (row, result) in enumerate(zip(rows, results, strict=True))
        if row.partition is not None
        and isinstance(result, AppendInfo)
        and (acks == -1 or _waits_for_disk(row.partition))
        and not row.partition.is_committed(result.last_offset + 1)
    ]
    return CommitWaiter(asyncio.get_running_loop(), missing, timeout_ms=timeout_ms)


def _with_failed(
    results: list[AppendInfo | AppendError], failed: dict[int, ErrorCode]
) -> list[AppendInfo | AppendError]:
    return [
        AppendError(failed[index]) if index in failed else result
        for index, result in enumerate(results)
    ]
