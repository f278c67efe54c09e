"""DeleteRecords (API key 21).

Behavior: raises a partition's log start offset; -1 stands for the high watermark. Records below it
are gone for consumers at once, also after a crash, and on disk with the next round of retention.
Answered when the logs of all live replicas begin there, or after timeout_ms with REQUEST_TIMED_OUT,
though followers still continue.
Source: ReplicaManager.deleteRecords, KIP-107.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from functools import partial

from kwire.errors import ErrorCode
from kwire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ..metadata.internal_topics import INTERNAL_TOPICS
from ..replication.partition import Partition
from ..replication.purgatory import LowWatermarkWaiter
from ..security.acl import AclOperation, ResourceType
from .context import Later, RequestContext
from .list_offsets import find_partition
from .registry import handles


@handles(DeleteRecordsRequest, versions="0-2", authorize=None)
def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> Generator[None, None, DeleteRecordsResponse | Later[DeleteRecordsResponse]]:
    """Raise log start offsets, each partition independently."""
    results: list[DeleteRecordsPartitionResult] = []
    waiting: list[tuple[int, Partition, int]] = []
    moved = False
    response = DeleteRecordsResponse(topics=[])
    for topic in request.topics:
        yield
        rows = []
        may_delete = ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for asked in topic.partitions:
            yield
            row = DeleteRecordsPartitionResult(partition_index=asked.partition_index)
            partition, row.error_code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if may_delete:
                partition, row.error_code = find_partition(ctx, topic.name, asked.partition_index)
            row.low_watermark = -1
            if partition is not None and topic.name in INTERNAL_TOPICS:
                row.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif partition is not None:
                row.error_code, offset = partition.delete_records_before(asked.offset)
                if not row.error_code:
                    moved = True
                    row.low_watermark = partition.low_watermark
                    if row.low_watermark < offset:
                        waiting.append((len(results), partition, offset))
            rows.append(row)
            results.append(row)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    if moved:
        # Apache Kafka leaves this to a timer, and a killed broker shows deleted records again.
        ctx.services.log_manager.checkpoint_log_start_offsets()
    if not waiting:
        return response

    def finish(found: Mapping[int, tuple[ErrorCode, int]]) -> DeleteRecordsResponse:
        for index, (error, low_watermark) in found.items():
            results[index].error_code = error
            results[index].low_watermark = low_watermark
        return response

    loop = asyncio.get_running_loop()
    waiter = LowWatermarkWaiter(
        loop,
        waiting,
        timeout_ms=request.timeout_ms,
        in_turns=partial(ctx.services.turns.start, owner=ctx.connection),
    )
    return ctx.later(waiter.future, finish)
