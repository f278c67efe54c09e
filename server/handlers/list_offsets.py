"""ListOffsets (API key 2) and OffsetForLeaderEpoch (API key 23).

Behavior: the offset for a time is that of the first record at or after it, found through the time
index; only offsets below the high watermark (read_committed: the last stable offset) are returned.
A search that takes long is carried out in a worker process; after half the time that it may take
(kwire.worker.max.ms), it takes headers at their word.
An epoch ends where the next known epoch begins.
Versions: ListOffsets 0 answers several offsets of segments, newest first; later versions refuse a
partition that is named twice. -3 (largest timestamp) from 7 on, -4 (earliest local) from 8 on, -5
(latest tiered) from 9 on, -6 (earliest not yet tiered) from 11 on; in older versions these get
UNSUPPORTED_VERSION in the row. The timeout of version 10 (KIP-1075) is for lookups in tiered storage.
Omitted: tiered storage. The earliest local offset is the start of the log; there is neither a latest
tiered offset nor an earliest one that is still to be tiered.
Source: KafkaApis.handleListOffsetRequest, ReplicaManager.lastOffsetForLeaderEpoch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Generator
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from ..log.reader import search_files
from ..log.time_search import Effort, Found, TimeSearch
from ..replication.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
    OffsetQuery,
    TimeSearchResult,
    end_of_epoch,
    fetch_offset,
    old_style_offsets,
)
from ..replication.partition import Partition
from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ..workers import TookTooLong, TookTooMuch
from .context import RequestContext
from .registry import handles

if TYPE_CHECKING:
    from .context import Later

logger = logging.getLogger(__name__)

#: The first version that supports each special timestamp.
SPECIAL_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

#: The first version in which clients know OFFSET_NOT_AVAILABLE.
OFFSET_NOT_AVAILABLE_SINCE = 5

#: The effort of a search in the loop, a millisecond or two; longer searches go to a worker process.
EFFORT = {"headers": 500, "records": 1000, "bytes": 64 * 1024}
#: How often a search is retried if the log changes in the meantime.
ATTEMPTS = 3


def find_partition(
    ctx: RequestContext, topic: str, partition: int
) -> tuple[Partition | None, ErrorCode]:
    """The replica on this broker, or why there is none."""
    replica = ctx.services.replica_manager.get(topic, partition)
    if replica is not None:
        return replica, ErrorCode.NONE
    services = ctx.services
    return None, services.replica_manager.why_missing(services.metadata(), topic, partition)


@handles(ListOffsetsRequest, versions="0-11", authorize=None)
def list_offsets(
    ctx: RequestContext, request: ListOffsetsRequest
) -> Generator[None, None, ListOffsetsResponse | Later[ListOffsetsResponse]]:
    """Look up offsets by time, or the log's ends."""
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        yield
        for row in topic.partitions:
            yield
            asked[(topic.name, row.partition_index)] += 1
    topics = []
    searches: list[Coroutine[Any, Any, None]] = []
    for topic in request.topics:
        yield
        rows: list[ListOffsetsPartitionResponse] = []
        for row in topic.partitions:
            yield
            if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                rows.append(_row(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            if asked[(topic.name, row.partition_index)] > 1 and ctx.version > 0:
                rows.append(_row(row, ErrorCode.INVALID_REQUEST))
                continue
            answer = _partition(ctx, request, topic.name, row)
            if isinstance(answer, _Search):
                searches.append(_search(ctx, answer, rows, len(rows)))
                answer = _row(row, ErrorCode.NONE)  # until it is known
            rows.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    response = ListOffsetsResponse(topics=topics)
    if not searches:
        return response
    return ctx.later(asyncio.gather(*searches), lambda _: response)


def _row(row: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=error)


def _partition(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, row: ListOffsetsPartition
) -> ListOffsetsPartitionResponse | _Search:
    timestamp = row.timestamp
    if timestamp < 0:
        since = SPECIAL_SINCE.get(timestamp)
        if since is None or ctx.version < since:
            return _row(row, ErrorCode.UNSUPPORTED_VERSION)
    partition, error = find_partition(ctx, topic, row.partition_index)
    if partition is None:
        return _row(row, error)
    asked = OffsetQuery(
        timestamp, row.current_leader_epoch, request.replica_id, request.isolation_level == 1
    )
    if ctx.version == 0:
        offsets = old_style_offsets(partition, asked, row.max_num_offsets, ctx.now_ms)
        if isinstance(offsets, ErrorCode):
            return _row(row, offsets)
        answer = _row(row, ErrorCode.NONE)
        answer.old_style_offsets = offsets
        return answer
    found = fetch_offset(partition, asked, Effort(**EFFORT))
    if isinstance(found, TimeSearch):
        return _Search(topic, row, asked, partition, found)
    return _answer(ctx, row, found)


def _answer(
    ctx: RequestContext, row: ListOffsetsPartition, found: FoundOffset | ErrorCode
) -> ListOffsetsPartitionResponse:
    if isinstance(found, ErrorCode):
        if found is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < OFFSET_NOT_AVAILABLE_SINCE:
            found = ErrorCode.LEADER_NOT_AVAILABLE
        return _row(row, found)
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if ctx.version >= 4 else -1,
    )


# -- searches that take long -----------------------------------------------------------------------


class _Search(NamedTuple):
    """A row whose answer has to be searched in a worker process."""

    topic: str
    row: ListOffsetsPartition
    asked: OffsetQuery
    partition: Partition
    search: TimeSearch


async def _search(
    ctx: RequestContext,
    wanted: _Search,
    rows: list[ListOffsetsPartitionResponse],
    place: int,
) -> None:
    """Put the answer of a search into its place among the rows."""
    rows[place] = _answer(ctx, wanted.row, await _search_elsewhere(ctx, wanted))


async def _search_elsewhere(ctx: RequestContext, wanted: _Search) -> FoundOffset | ErrorCode:
    """Run a search in a worker process, and retry it if the log has changed in the meantime."""
    topic, row, asked, partition, search = wanted
    executor = ctx.services.executor
    for _ in range(ATTEMPTS):
        epoch = partition.state.leader_epoch
        searched = None
        try:
            searched = TimeSearchResult(
                await executor.in_worker(
                    ctx.connection, search_in_files, search, executor.limits.cpu_s / 2
                )
            )
        except FileNotFoundError:
            pass
        except OSError:
            logger.exception("a segment of %s cannot be read", partition.tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except (BrokenExecutor, TookTooLong, TookTooMuch) as error:
            logger.warning(
                "the offset of %s at time %d is not looked up for client %r at %s: %s",
                partition.tp,
                asked.timestamp,
                ctx.client_id,
                ctx.connection.peer,
                error,
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR
        found_partition, error_code = find_partition(ctx, topic, row.partition_index)
        if found_partition is None:
            return error_code
        if found_partition is not partition or partition.state.leader_epoch != epoch:
            partition, searched = found_partition, None
        found = fetch_offset(partition, asked, Effort(**EFFORT), searched)
        if not isinstance(found, TimeSearch):
            return found
        search = found
    return ErrorCode.UNKNOWN_SERVER_ERROR


def search_in_files(search: TimeSearch, cpu_s: float) -> Found | None:
    """Run a search that trusts headers after the given CPU time; for a worker process."""
    end = time.process_time() + cpu_s
    return search_files(search, lambda: time.process_time() > end)


@handles(
    OffsetForLeaderEpochRequest,
    versions="0-4",
    authorize=None,
)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    """Return where an epoch ended, so that a client or follower can find where its log diverged."""
    # Consumers may ask too, for topics that they may describe (KIP-320).
    is_broker = ctx.allows(
        AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    topics = []
    for topic in request.topics:
        yield
        rows = []
        may_ask = is_broker or ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        for row in topic.partitions:
            yield
            partition, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if may_ask:
                partition, error = find_partition(ctx, topic.topic, row.partition)
            epoch = end = -1
            if partition is not None:
                error, epoch, end = end_of_epoch(
                    partition, row.current_leader_epoch, row.leader_epoch
                )
            rows.append(
                EpochEndOffset(
                    error_code=error, partition=row.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)
