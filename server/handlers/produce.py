"""Produce (API key 0).

Behavior: each partition has its own row; refusing one does not affect the others, unless a row does
not begin with a batch at all, or begins with a transactional one without a transactional id: then
all are refused. With acks=0 nothing is answered, and an error closes the connection, which is the
only way to report it. acks=-1 waits for the high watermark. Records that must be read one by one (a
compacted topic, another compression.type, old magics, deep validation) are prepared before the
append; what is much work in a worker process, and then later batches of the client queue behind
them. A transactional batch is verified first: its partition must be part of the producer's
transaction. The transaction's coordinator knows, on this or another broker; from version 12 on the
batch itself adds the partition.
Versions: 0-1 magic 0, 2 magic 0 or 1, from 3 on exactly one batch of magic 2; zstd from 7 on; from
11 on TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE; from 12 on partitions are added to the
transaction (KIP-890); from 13 on topics by id (KIP-516).
Source: KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from kwire.errors import ErrorCode
from kwire.messages.produce import ProduceRequest, ProduceResponse

from ..log.validator import AppendError
from ..metadata.internal_topics import INTERNAL_TOPICS
from ..security.acl import AclOperation, ResourceType
from ..steps import exhaust
from .authorization import AllowAll
from .context import NO_REPLY, Later, NoReply, RequestContext
from .produce_answer import Place, add_part, answer_of
from .produce_form import TRANSACTIONAL, check_form, first_batch
from .produce_plain import plain_produce, plain_produce_frame
from .registry import handles
from .transaction_verification import BatchVerifier

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..replication.append import AppendResult, AppendRow, Granted
    from ..replication.partition import Partition

#: The number of rows of a long request that are handled in one step.
ROWS_IN_STEP = 64

#: Clients that may write to internal topics. Source: AdminUtils.ADMIN_CLIENT_ID.
ADMIN_CLIENT_ID = "__admin_client"

MAY_NOT_WRITE = AppendError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
UNKNOWN_TOPIC = AppendError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = AppendError(ErrorCode.UNKNOWN_TOPIC_ID)
NO_TRANSACTIONAL_ID = AppendError(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, before_append=True
)
INVALID_ACKS = AppendError(ErrorCode.INVALID_REQUIRED_ACKS, before_append=True)


@handles(ProduceRequest, versions="0-13", authorize=None, overlap=True)
def produce(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later[ProduceResponse] | NoReply:
    """Append records to partitions that this broker leads."""
    return exhaust(_in_parts(ctx, request, (request,)))


produce.plain = plain_produce
produce.plain_frame = plain_produce_frame


@produce.many_rows
def produce_in_steps(
    ctx: RequestContext, request: ProduceRequest
) -> Generator[None, None, ProduceResponse | Later[ProduceResponse] | NoReply]:
    """Do the same for a request of many rows, a few at a time."""
    return _in_parts(ctx, request, _parts(request))


def _in_parts(
    ctx: RequestContext, request: ProduceRequest, rows_of: Iterable[ProduceRequest]
) -> Generator[None, None, ProduceResponse | Later[ProduceResponse] | NoReply]:
    """Append the rows of a request part by part. Shape: `rows_of` is the request, with a part of its rows each time."""
    acks, timeout_ms, transactional_id = request.acks, request.timeout_ms, request.transactional_id
    parts: list[tuple[list[Place], list[AppendRow]]] = []
    transactional = is_suspect = False
    for part in rows_of:
        yield
        places, rows, any_transactional, any_suspect = _rows(ctx, part)
        parts.append((places, rows))
        transactional = transactional or any_transactional
        is_suspect = is_suspect or any_suspect
    refused: AppendError | None = None
    if is_suspect or (transactional and not _may_use(ctx, transactional_id)):
        refused = yield from _refusal_of_all(ctx, request, transactional)
    verifier = None
    if transactional and transactional_id is not None and refused is None:
        verifier = BatchVerifier(ctx, transactional_id)
        verifier.add_partitions([row for _, rows in parts for row in rows])
    appended: list[list[AppendResult] | Awaitable[list[AppendResult]]] = []
    appends = ctx.services.replica_manager.appends
    for _, rows in parts:
        yield
        if refused is not None:
            appended.append([refused] * len(rows))
        elif not -1 <= acks <= 1:
            appended.append(_refuse_acks(rows, verifier))
        else:
            appended.append(
                appends.append_records(
                    rows, acks, timeout_ms, ctx.now_ms, verifier=verifier, client=ctx
                )
            )
    all_places = [places for places, _ in parts]
    if len(parts) == 1:
        (places,), (whole,) = all_places, appended
        if isinstance(whole, list):
            return answer_of(ctx, acks, places, whole)
        return ctx.later(whole, lambda results: answer_of(ctx, acks, places, results))

    def answer(
        results: list[list[AppendResult]],
    ) -> Generator[None, None, ProduceResponse | NoReply]:
        whole = ProduceResponse(responses=[])
        for places, found in zip(all_places, results, strict=True):
            yield
            some = answer_of(ctx, acks, places, found)
            if isinstance(some, NoReply):
                if some.close_reason is not None:
                    return some
            else:
                add_part(whole, some)
        return NO_REPLY if acks == 0 else whole

    done = [each for each in appended if isinstance(each, list)]
    if len(done) == len(appended):
        return (yield from answer(done))

    async def all_appended() -> list[list[AppendResult]]:
        return [each if isinstance(each, list) else await each for each in appended]

    return ctx.later(all_appended(), answer)


def _parts(request: ProduceRequest) -> Iterator[ProduceRequest]:
    """The rows of a request in parts of ROWS_IN_STEP at most."""
    part, room = copy(request), ROWS_IN_STEP
    part.topic_data = []
    for topic in request.topic_data:
        rows, first = topic.partition_data, 0
        while first < len(rows):
            some = copy(topic)
            some.partition_data = rows[first : first + room]
            part.topic_data.append(some)
            first += len(some.partition_data)
            room -= len(some.partition_data)
            if not room:
                yield part
                part, room = copy(request), ROWS_IN_STEP
                part.topic_data = []
    yield part


def _rows(
    ctx: RequestContext, request: ProduceRequest
) -> tuple[list[Place], list[AppendRow], bool, bool]:
    """The place of each row in the response, and what is to be appended for it.

    Shape: then whether any row is transactional, and whether the whole request may have to be
    refused, see `_refusal_of_all`. Only the second list holds views of the request's records, which
    must not outlive the request.
    """
    partitions: dict[Any, Partition] = ctx.services.replica_manager.partitions
    version = ctx.version
    transactional = False
    is_suspect = version < 3
    checks = type(ctx.services.authorizer) is not AllowAll
    places: list[Place] = []
    rows: list[AppendRow] = []
    for topic in request.topic_data:
        name: Any = topic.name
        if version >= 13:
            known = ctx.services.metadata().topic_by_id(topic.topic_id)
            name = topic.topic_id if known is None else known.name
        closed = name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID
        if checks and not _may_write(ctx, name):
            is_suspect = True
            for data in topic.partition_data:
                places.append((name, data.index, None))
                rows.append(MAY_NOT_WRITE)
            continue
        for data in topic.partition_data:
            number = data.index
            # A plain tuple hashes and compares like a TopicPartition, and costs less to make.
            partition = partitions.get((name, number))
            records = data.records
            error: AppendError | None
            if partition is None or closed:
                error = _refusal(ctx, request, name, number, records)
            else:
                error = check_form(records, version)
                if error is None or error is TRANSACTIONAL:
                    transactional = transactional or error is TRANSACTIONAL
                    places.append((name, number, partition))
                    rows.append((partition, records))
                    continue
            is_suspect = True
            places.append((name, number, None))
            rows.append(error)
    return places, rows, transactional, is_suspect


def _may_write(ctx: RequestContext, topic: str | bytes) -> bool:
    """Whether the client may write to a topic; an id that is unknown is another error's matter."""
    if isinstance(topic, bytes):
        return True
    return ctx.allows(AclOperation.WRITE, ResourceType.TOPIC, topic)


def _may_use(ctx: RequestContext, transactional_id: str | None) -> bool:
    if transactional_id is None:
        return False
    return ctx.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _refusal(
    ctx: RequestContext,
    request: ProduceRequest,
    topic: str | bytes,
    number: int,
    records: RecordsBytes,
) -> AppendError:
    """Why records cannot go to a partition here, in the order of Apache Kafka's checks."""
    services = ctx.services
    if isinstance(topic, bytes):
        return UNKNOWN_ID
    image = services.metadata()
    if image.partition(topic, number) is None:
        return UNKNOWN_TOPIC
    error = check_form(records, ctx.version)
    if error is not None and error is not TRANSACTIONAL:
        return error
    if not -1 <= request.acks <= 1:
        return INVALID_ACKS
    if topic in INTERNAL_TOPICS:
        return AppendError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}."
        )
    return AppendError(services.replica_manager.why_missing(image, topic, number))


def _refusal_of_all(
    ctx: RequestContext, request: ProduceRequest, transactional: bool
) -> Generator[None, None, AppendError | None]:
    """The errors for which Apache Kafka refuses a whole request, with the same error in all rows.

    Shape: in steps; decided by the first batch of each partition, known or not, in their order.
    Errors: CORRUPT_MESSAGE; TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id, or with
    one that the client may not use.
    """
    refused = None if _may_use(ctx, request.transactional_id) else NO_TRANSACTIONAL_ID
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield
            found = first_batch(data.records)
            if found is TRANSACTIONAL:
                return refused
            if found is not None:
                return found
    return refused if transactional else None


def _refuse_acks(
    rows: list[AppendRow], verifier: BatchVerifier | None
) -> list[AppendResult] | Awaitable[list[AppendResult]]:
    """Refuse rows that have no other error; an error of verification takes precedence over acks."""
    asked: list[AppendError | Awaitable[AppendError | Granted]] = []
    for row in rows:
        if isinstance(row, AppendError):
            asked.append(row)
        else:
            asked.append((None if verifier is None else verifier.verify(*row)) or INVALID_ACKS)

    async def results() -> list[AppendResult]:
        told = [each if isinstance(each, AppendError) else await each for each in asked]
        return [each if isinstance(each, AppendError) else INVALID_ACKS for each in told]

    known: list[AppendResult] = [each for each in asked if isinstance(each, AppendError)]
    return known if len(known) == len(asked) else results()
