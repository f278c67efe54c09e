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
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import CorruptRecord, ErrorCode
from kwire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire.records.batch import iter_batch_headers

from ..controller.topics import INTERNAL_TOPICS
from ..log.append import AppendInfo
from ..log.validator import AppendError, needs_rewrite, prepare
from ..replication.partition import Partition
from ..replication.purgatory import CommitWaiter
from .context import NO_REPLY, Later, NoReply, RequestContext
from .endpoints import leader_of
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

#: Rewriting fewer bytes than this stalls the loop less than sending them to the worker process does.
INLINE_REWRITE_BYTES = 64 * 1024
INLINE_REWRITE_RECORDS = 2000

#: Clients that may write to internal topics. Source: AdminUtils.ADMIN_CLIENT_ID.
ADMIN_CLIENT_ID = "__admin_client"

#: Batch length, magic and attributes of a batch, wherever the rest of it is wrong.
_FORM = Struct(">8xi4xb4xh").unpack_from
_COUNT = Struct(">57xi").unpack_from
_HEADER_SIZE = 61
ZERO_ID = bytes(16)

NOTHING_GRANTED: Mapping[int, Granted] = {}

#: By row: what a coordinator on another broker says of its partition.
Asked = dict[int, Awaitable[AppendError | Granted]]
_MAGIC_AT = 16
_MIN_BATCH_LENGTH = 14
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
_ZSTD = 4
_ZSTD_OR_TRANSACTIONAL = _ZSTD | _TRANSACTIONAL

#: Refusals that do not say where the log begins. Source: ReplicaManager.appendToLocalLog.
WITHOUT_START_OFFSET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

UNKNOWN_TOPIC = AppendError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = AppendError(ErrorCode.UNKNOWN_TOPIC_ID)
NOT_IN_TRANSACTION = AppendError(
    ErrorCode.INVALID_TXN_STATE, "This partition was not added to a transaction"
)
OLD_MAGIC = (
    "Produce requests with version %d are only allowed to contain record batches with magic "
    "version 2, not %d"
)
NO_BATCH = "Produce requests with version %d must have exactly one record batch per partition"


class Row(NamedTuple):
    """One partition of the request, with the replica that it is for or the reason it is refused.

    Shape: `topic` is the topic's id as bytes where it was asked for by an id that nobody has.
    """

    topic: str | bytes
    number: int
    partition: Partition | None
    records: RecordsBytes
    error: AppendError | None


@handles(ProduceRequest, versions="0-13", overlap=True)
def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Later[Any] | NoReply:
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
        return _finish(ctx, acks, rows, results)
    waiter = _commit_waiter(acks, request.timeout_ms, rows, results)
    kept = [row._replace(records=b"") for row in rows]
    return ctx.later(
        waiter.future, lambda failed: _finish(ctx, acks, kept, _with_failed(results, failed))
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
                error = _check_form(records, version)
                if error is None:
                    log = partition.log
                    if partition.writing is not None or (
                        (log.may_rewrite or version < 3)
                        and records is not None
                        and _is_much_work(records)
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
    return log.may_rewrite and _is_much_work(records) and log.needs_rewrite(records)


def _is_much_work(records: RecordsBytes) -> bool:
    """Whether rewriting would stall the loop longer than a trip to the worker process takes."""
    size = len(records)
    return size > INLINE_REWRITE_BYTES or (
        size >= _HEADER_SIZE
        and records[_MAGIC_AT] == 2
        and _COUNT(records)[0] > INLINE_REWRITE_RECORDS
    )


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


def _check_form(records: RecordsBytes, version: int) -> AppendError | None:
    """Check what the request's version says of the form; the log checks the content."""
    if version < 3:
        if not records:
            return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
        return NOT_IN_TRANSACTION if _has_transactional(records) else None
    size = len(records) if records is not None else 0
    if size < _HEADER_SIZE:
        if size <= _MAGIC_AT or records[_MAGIC_AT] == 2:
            return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
        return AppendError(ErrorCode.INVALID_RECORD, OLD_MAGIC % (version, records[_MAGIC_AT]))
    length, magic, attributes = _FORM(records)
    if magic != 2 or length + 12 != size:
        return _misshapen(version, length, magic, size)
    if attributes & _ZSTD_OR_TRANSACTIONAL:
        if version < 7 and attributes & _CODEC_MASK == _ZSTD:
            return AppendError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use ZStandard "
                "compression",
            )
        if attributes & _TRANSACTIONAL:
            return NOT_IN_TRANSACTION  # until it has been verified that it is
    return None


def _has_transactional(records: RecordsBytes) -> bool:
    """Whether any batch is transactional, in a request that can name no transactional id."""
    try:
        return any(header.is_transactional for _, header in iter_batch_headers(records))
    except CorruptRecord:
        return False  # the log says what is wrong


def _misshapen(version: int, length: int, magic: int, size: int) -> AppendError:
    """Say what is wrong with records that are not one batch of magic 2 from end to end."""
    if length < _MIN_BATCH_LENGTH:
        return AppendError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_MIN_BATCH_LENGTH})",
        )
    if not 0 <= magic <= 2:
        return AppendError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if magic < 2:
        return AppendError(ErrorCode.INVALID_RECORD, OLD_MAGIC % (version, magic))
    if length + 12 > size:
        return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
    return AppendError(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} are only allowed to contain exactly one record "
        "batch per partition",
    )


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
    return _finish(ctx, acks, rows, results)


async def _prepare(ctx: RequestContext, row: Row) -> bytes | memoryview | AppendError | None:
    partition = row.partition
    if partition is None or row.records is None:
        return None
    config = partition.log.config
    view = memoryview(row.records)
    if not needs_rewrite(view, config):
        return None
    name = str(partition.tp)
    if not _is_much_work(view):
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


def _finish(
    ctx: RequestContext, acks: int, rows: list[Row], results: list[AppendInfo | AppendError]
) -> ProduceResponse | NoReply:
    if acks == 0:
        for row, result in zip(rows, results, strict=True):
            if type(result) is AppendError:
                return NoReply(
                    f"produce with acks=0 to {_name(row)}-{row.number} failed with "
                    f"{result.error.name}" + (f": {result.message}" if result.message else "")
                )
        return NO_REPLY
    response = ProduceResponse(responses=[])
    topic: TopicProduceResponse | None = None
    name: str | bytes | None = None
    for row, result in zip(rows, results, strict=True):
        if topic is None or name != row.topic:
            name = row.topic
            topic = _topic_response(ctx, name)
            response.responses.append(topic)
        answer = _response_row(row, result)
        topic.partition_responses.append(answer)
        if answer.error_code:
            _explain(ctx, response, row, answer)
    return response


def _explain(
    ctx: RequestContext, response: ProduceResponse, row: Row, answer: PartitionProduceResponse
) -> None:
    """Say with an error who the leader is, or where the log begins, as far as that belongs to it."""
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.version >= 10:
        _add_leader(ctx, response, row, answer)
    elif answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and row.partition is None:
        replica = ctx.services.replica_manager.get(_name(row), row.number)
        if replica is not None:  # refused before the append, but for what the log knows
            answer.log_start_offset = replica.log.log_start_offset


def _name(row: Row) -> str:
    return row.topic if isinstance(row.topic, str) else row.topic.hex()


def _topic_response(ctx: RequestContext, name: str | bytes) -> TopicProduceResponse:
    if isinstance(name, bytes):
        return TopicProduceResponse(name="", topic_id=name, partition_responses=[])
    if ctx.version < 13:
        return TopicProduceResponse(name=name, partition_responses=[])
    known = ctx.services.metadata().topic(name)
    topic_id = ZERO_ID if known is None else known.topic_id
    return TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[])


def _response_row(row: Row, result: AppendInfo | AppendError) -> PartitionProduceResponse:
    if isinstance(result, AppendInfo):
        return PartitionProduceResponse(
            index=row.number,
            error_code=0,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
    start_offset = -1
    if row.partition is not None and result.error not in WITHOUT_START_OFFSET:
        start_offset = row.partition.log.log_start_offset
    return PartitionProduceResponse(
        index=row.number,
        error_code=result.error,
        base_offset=-1,
        log_start_offset=start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        error_message=result.message,
    )


def _add_leader(
    ctx: RequestContext, response: ProduceResponse, row: Row, answer: PartitionProduceResponse
) -> None:
    leader = leader_of(ctx, ctx.services.metadata(), _name(row), row.number)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    known = {node.node_id for node in response.node_endpoints}
    if leader.address is not None and leader.id not in known:
        host, port = leader.address
        response.node_endpoints.append(
            NodeEndpoint(node_id=leader.id, host=host, port=port, rack=leader.rack)
        )
