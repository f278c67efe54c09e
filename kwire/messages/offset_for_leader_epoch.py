"""OffsetForLeaderEpoch (API key 23): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(Int32)


@struct
class OffsetForLeaderTopic:
    topic: str = field(String)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition))


@message(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, kind="request", versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Asks where a leader epoch ended in the log.

    Source: OffsetForLeaderEpochRequest.json; KIP-101, KIP-279 (v1), KIP-320 (v2 current leader
    epoch).
    """

    replica_id: int = field(Int32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic))


@struct
class EpochEndOffset:
    error_code: int = field(Int16)
    partition: int = field(Int32)
    leader_epoch: int = field(Int32, "1+", default=-1, ignorable=True)
    end_offset: int = field(Int64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = field(String)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


@message(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, kind="response", versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The end offset of each epoch. Source: OffsetForLeaderEpochResponse.json."""

    throttle_time_ms: int = field(Int32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))
