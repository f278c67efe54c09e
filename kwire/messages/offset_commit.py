"""OffsetCommit (API key 8): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(Int64, "1", default=-1)
    committed_metadata: str | None = field(String, nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = field(String, "0-9", ignorable=True)
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


@message(api_key=ApiKey.OFFSET_COMMIT, kind="request", versions="0-10", flexible="8+")
class OffsetCommitRequest:
    """Stores the positions of a group.

    Source: OffsetCommitRequest.json; KIP-211 (v5 no retention time), KIP-320 (v6 leader epochs), KIP-345 (v7 static
    members), KIP-848 (v9), KIP-848 (v10 topic ids).
    """

    group_id: str = field(String)
    # -1 outside a group.
    generation_id_or_member_epoch: int = field(Int32, "1+", default=-1, ignorable=True)
    member_id: str = field(String, "1+", ignorable=True)
    group_instance_id: str | None = field(String, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(Int64, "2-4", default=-1, ignorable=True)  # -1 for the broker's
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class OffsetCommitResponseTopic:
    name: str = field(String, "0-9", ignorable=True)
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


@message(api_key=ApiKey.OFFSET_COMMIT, kind="response", versions="0-10", flexible="8+")
class OffsetCommitResponse:
    """Whether each partition's offset was stored. Source: OffsetCommitResponse.json."""

    throttle_time_ms: int = field(Int32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))
