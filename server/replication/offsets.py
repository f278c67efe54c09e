"""Offsets of a partition by time, where its log begins and ends, and where its leader epochs end.

Pure. Source: Partition.fetchOffsetForTimestamp, lastOffsetForLeaderEpoch, UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode

from ..log.time_search import Effort, Found, TimeSearch

if TYPE_CHECKING:
    from ..log.log import Log
    from .partition import Partition

# Timestamps with a special meaning; source: ListOffsetsRequest.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

CONSUMER = -1
#: A replica id that may query any replica, not only the leader.
DEBUGGING = -2


class OffsetQuery(NamedTuple):
    """A lookup, and who asks: a replica id or one of the constants above."""

    timestamp: int
    current_leader_epoch: int
    replica_id: int
    read_committed: bool


class FoundOffset(NamedTuple):
    """An offset with the timestamp and leader epoch of its record, each -1 if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


class TimeSearchResult(NamedTuple):
    """The result of a search outside the loop."""

    found: Found | None


NOT_FOUND = FoundOffset(-1, -1, -1)


def fetch_offset(
    partition: Partition,
    asked: OffsetQuery,
    effort: Effort | None = None,
    searched: TimeSearchResult | None = None,
) -> FoundOffset | TimeSearch | ErrorCode:
    """Look up an offset; only offsets that the client may read are returned.

    Shape: returns a search to run outside the loop if it takes more than the permitted effort; call again with its
    result.
    Errors: those of check_epoch; KAFKA_STORAGE_ERROR; OFFSET_NOT_AVAILABLE from a leader that does not know yet how
    much was committed before its election (KIP-207).
    """
    end = _readable_end(partition, asked)
    if isinstance(end, ErrorCode):
        return end
    timestamp = asked.timestamp
    found = find_offset(partition.log, timestamp, end, effort, searched)
    if isinstance(found, TimeSearch):
        return found
    if (
        asked.replica_id == CONSUMER
        and partition.epoch_start_offset > partition.log.high_watermark
        and (timestamp == LATEST or (found.offset < 0 and timestamp >= 0))
    ):
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return found


def old_style_offsets(
    partition: Partition, asked: OffsetQuery, max_offsets: int, now_ms: int
) -> list[int] | ErrorCode:
    """Several offsets, as before KIP-79; see segment_offsets. Errors: check_epoch; KAFKA_STORAGE_ERROR."""
    end = _readable_end(partition, asked)
    if isinstance(end, ErrorCode):
        return end
    return segment_offsets(partition.log, asked.timestamp, max_offsets, end, now_ms)


def end_of_epoch(
    partition: Partition, current_leader_epoch: int, leader_epoch: int
) -> tuple[ErrorCode, int, int]:
    """The largest known epoch up to `leader_epoch` and where it ended; with an error, -1 and -1.

    Errors: those of check_epoch; KAFKA_STORAGE_ERROR.
    """
    error = partition.check_epoch(current_leader_epoch)
    if not error and partition.log.offline:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    if error:
        return error, -1, -1
    return ErrorCode.NONE, *partition.log.end_offset_for_epoch(leader_epoch)


def _readable_end(partition: Partition, asked: OffsetQuery) -> int | ErrorCode:
    """The end (exclusive) of the offsets that the client may read."""
    is_debugging = asked.replica_id == DEBUGGING
    error = partition.check_epoch(asked.current_leader_epoch, leader_only=not is_debugging)
    if error:
        return error
    log = partition.log
    if log.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if asked.read_committed:
        return log.last_stable_offset
    return log.high_watermark if asked.replica_id == CONSUMER else log.log_end_offset


def find_offset(
    log: Log,
    timestamp: int,
    end: int,
    effort: Effort | None = None,
    searched: TimeSearchResult | None = None,
) -> FoundOffset | TimeSearch:
    """Look up a timestamp, or a special one, in a log; only offsets below `end` may be returned.

    Shape: (offset, timestamp, leader_epoch), each -1 if there is none; the ends of the log have no
    timestamp.
    """
    if timestamp == LATEST:
        return FoundOffset(end, -1, log.leader_epoch_cache.latest)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return FoundOffset(start, -1, log.leader_epoch_cache.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    found: Found | TimeSearch | None
    if searched is not None:
        found = searched.found
    elif timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(effort)
    else:
        found = log.offset_for_timestamp(timestamp, effort)
    if isinstance(found, TimeSearch):
        return found
    if found is None or found[0] >= end:
        return NOT_FOUND
    return FoundOffset(*found)


def segment_offsets(log: Log, timestamp: int, max_offsets: int, end: int, now_ms: int) -> list[int]:
    """Answer as before KIP-79: the base offsets of segments not newer than a time, newest first.

    Shape: the end of the log counts as written at `now_ms`. Unit: `timestamp` is compared with the time of the last
    write to a segment's file; -1 is latest, -2 earliest. Source: UnifiedLog.legacyFetchOffsetsBefore.
    """
    points = [
        (max(segment.base_offset, log.log_start_offset), log.layer.modified_ms(segment.log.path))
        for segment in log.segments
    ]
    if log.segments[-1].size > 0:
        points.append((log.log_end_offset, now_ms))
    if timestamp == LATEST:
        chosen = points
    elif timestamp == EARLIEST:
        chosen = points[:1]
    else:
        newest = max((i for i, point in enumerate(points) if point[1] <= timestamp), default=-1)
        chosen = points[: newest + 1]
    offsets = sorted((min(offset, end) for offset, _ in chosen), reverse=True)
    return offsets[: max(max_offsets, 0)]
