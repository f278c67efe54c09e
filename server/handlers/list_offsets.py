"""ListOffsets (API key 2) and OffsetForLeaderEpoch (API key 23).

Behavior: an offset by time is the first record at or after it, found through the time index; only
    offsets below the high watermark (read_committed: the last stable offset) are told. An epoch's
    end is where the next known epoch begins.
Versions: ListOffsets 0 answers several offsets of segments, newest first; later versions refuse a
    partition that is named twice. -3 (largest timestamp) from 7 on, -4 (earliest local) from 8 on, -5 (latest tiered) from 9 on; below that
    UNSUPPORTED_VERSION in the row.
Omitted: tiered storage: the earliest local offset is the log's start, the latest tiered is none.
Source: KafkaApis.handleListOffsetRequest, ReplicaManager.lastOffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections import Counter

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

from ..log.log import Log
from ..replication.partition import Partition
from . import refusals
from .context import RequestContext
from .registry import handles

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

#: The first version in which each special timestamp means something.
SPECIAL_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

#: From this version on a client knows OFFSET_NOT_AVAILABLE.
OFFSET_NOT_AVAILABLE_SINCE = 5

CONSUMER = -1
#: A replica id that may ask any replica, not only the leader.
DEBUGGING = -2

NOT_FOUND = (-1, -1, -1)


def find_partition(
    ctx: RequestContext, topic: str, partition: int
) -> tuple[Partition | None, ErrorCode]:
    """The replica on this broker, or why there is none."""
    replica = ctx.services.replica_manager.get(topic, partition)
    if replica is not None:
        return replica, ErrorCode.NONE
    services = ctx.services
    return None, services.replica_manager.why_missing(services.metadata(), topic, partition)


@handles(ListOffsetsRequest, versions="0-9", authorize=None, refusal=refusals.list_offsets)
def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look offsets up by time, or the log's ends."""
    asked = Counter(
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(ctx, request, topic.name, row)
                    if asked[(topic.name, row.partition_index)] == 1 or ctx.version == 0
                    else _row(row, ErrorCode.INVALID_REQUEST)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _row(row: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=error)


def _partition(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, row: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    timestamp = row.timestamp
    if timestamp < 0:
        since = SPECIAL_SINCE.get(timestamp)
        if since is None or ctx.version < since:
            return _row(row, ErrorCode.UNSUPPORTED_VERSION)
    partition, error = find_partition(ctx, topic, row.partition_index)
    if partition is None:
        return _row(row, error)
    error = partition.check_epoch(row.current_leader_epoch)
    if error and not (
        error == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.replica_id == DEBUGGING
    ):
        return _row(row, error)
    log = partition.log
    if log.offline:
        return _row(row, ErrorCode.KAFKA_STORAGE_ERROR)
    end = log.high_watermark if request.replica_id == CONSUMER else log.log_end_offset
    if request.isolation_level == 1:
        end = log.last_stable_offset
    if ctx.version == 0:
        answer = _row(row, ErrorCode.NONE)
        answer.old_style_offsets = segment_offsets(log, timestamp, row.max_num_offsets, end)
        return answer
    offset, found_timestamp, epoch = find_offset(log, timestamp, end)
    if (
        request.replica_id == CONSUMER
        and partition.epoch_start_offset > log.high_watermark
        and (timestamp == LATEST or (offset < 0 and timestamp not in SPECIAL_SINCE))
    ):
        # A leader that does not know yet how much was committed before its time (KIP-207).
        known = ctx.version >= OFFSET_NOT_AVAILABLE_SINCE
        return _row(
            row, ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index,
        error_code=0,
        timestamp=found_timestamp,
        offset=offset,
        leader_epoch=epoch if ctx.version >= 4 else -1,
    )


def find_offset(log: Log, timestamp: int, end: int) -> tuple[int, int, int]:
    """Look a timestamp, or a special one, up in a log of which only offsets below end may be told.

    Shape: (offset, timestamp, leader_epoch), each -1 where there is none; the ends of the log have
    no timestamp.
    """
    if timestamp == LATEST:
        return end, -1, log.leader_epoch_cache.latest
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return start, -1, log.leader_epoch_cache.epoch_for_offset(start)
    if timestamp == LATEST_TIERED:
        return NOT_FOUND
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset()
    else:
        found = log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= end:
        return NOT_FOUND
    return found


def segment_offsets(log: Log, timestamp: int, max_offsets: int, end: int) -> list[int]:
    """Answer as before KIP-79: where segments begin that are not newer than a time, newest first.

    Unit: `timestamp` is compared with the time a segment's file was last written; -1 latest, -2
    earliest. Source: UnifiedLog.legacyFetchOffsetsBefore.
    """
    points = [
        (max(segment.base_offset, log.log_start_offset), log.layer.modified_ms(segment.log.path))
        for segment in log.segments
    ]
    if log.segments[-1].size > 0:
        points.append((log.log_end_offset, 1 << 62))
    if timestamp == LATEST:
        chosen = points
    elif timestamp == EARLIEST:
        chosen = points[:1]
    else:
        newest = max((i for i, point in enumerate(points) if point[1] <= timestamp), default=-1)
        chosen = points[: newest + 1]
    offsets = sorted((min(offset, end) for offset, _ in chosen), reverse=True)
    return offsets[: max(max_offsets, 0)]


@handles(
    OffsetForLeaderEpochRequest,
    versions="0-4",
    authorize=None,
    refusal=refusals.offset_for_leader_epoch,
)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Tell where an epoch ended, so that a client or follower can find where its log diverged."""
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            partition, error = find_partition(ctx, topic.topic, row.partition)
            epoch = end = -1
            if partition is not None:
                error = partition.check_epoch(row.current_leader_epoch)
                if not error and partition.log.offline:
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                if not error:
                    epoch, end = partition.log.end_offset_for_epoch(row.leader_epoch)
            rows.append(
                EpochEndOffset(
                    error_code=error, partition=row.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)
