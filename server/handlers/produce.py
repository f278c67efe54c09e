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

from typing import TYPE_CHECKING, Any

from kwire.errors import ErrorCode
from kwire.messages.produce import ProduceRequest, ProduceResponse

from ..log.validator import AppendError
from ..metadata.internal_topics import INTERNAL_TOPICS
from .context import Later, NoReply, RequestContext
from .produce_answer import Place, answer_of
from .produce_form import TRANSACTIONAL, check_form
from .registry import handles
from .transaction_verification import BatchVerifier

if TYPE_CHECKING:
    from ..replication.append import AppendRow
    from ..replication.partition import Partition

#: Clients that may write to internal topics. Source: AdminUtils.ADMIN_CLIENT_ID.
ADMIN_CLIENT_ID = "__admin_client"

UNKNOWN_TOPIC = AppendError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = AppendError(ErrorCode.UNKNOWN_TOPIC_ID)
NO_TRANSACTIONAL_ID = AppendError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


@handles(ProduceRequest, versions="0-13", authorize=None, overlap=True)
def produce(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later[ProduceResponse] | NoReply:
    """Append records to partitions that this broker leads."""
    places, rows, transactional = _rows(ctx, request)
    acks = request.acks
    verifier = None
    if transactional:
        transactional_id = request.transactional_id
        if transactional_id is None:
            places = [(topic, number, None) for topic, number, _ in places]
            rows = [NO_TRANSACTIONAL_ID] * len(rows)
        else:
            verifier = BatchVerifier(ctx, transactional_id)
            verifier.add_partitions(rows)
    appended = ctx.services.replica_manager.appends.append_records(
        rows, acks, request.timeout_ms, ctx.now_ms, verifier=verifier
    )
    if isinstance(appended, list):
        return answer_of(ctx, acks, places, appended)
    return ctx.later(appended, lambda results: answer_of(ctx, acks, places, results))


def _rows(
    ctx: RequestContext, request: ProduceRequest
) -> tuple[list[Place], list[AppendRow], bool]:
    """Where each row belongs and what is to be appended there, and whether any is transactional.

    Shape: what must not live longer than the request, views of its records, is in the second only.
    """
    partitions: dict[Any, Partition] = ctx.services.replica_manager.partitions
    version = ctx.version
    valid_acks = -1 <= request.acks <= 1
    transactional = False
    places: list[Place] = []
    rows: list[AppendRow] = []
    for topic in request.topic_data:
        name: Any = topic.name
        if version >= 13:
            known = ctx.services.metadata().topic_by_id(topic.topic_id)
            name = topic.topic_id if known is None else known.name
        closed = name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID
        for data in topic.partition_data:
            number = data.index
            # A plain tuple hashes and compares as the TopicPartition, and costs less to make.
            partition = partitions.get((name, number))
            if partition is None or closed or not valid_acks:
                places.append((name, number, None))
                rows.append(_refusal(ctx, name, number, valid_acks, closed))
                continue
            records = data.records
            error = check_form(records, version)
            if error is None:
                rows.append((partition, records))
            elif error is TRANSACTIONAL:
                transactional = True
                rows.append((partition, records))
            else:
                places.append((name, number, None))
                rows.append(error)
                continue
            places.append((name, number, partition))
    return places, rows, transactional


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
