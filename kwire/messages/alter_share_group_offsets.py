"""AlterShareGroupOffsets (API key 91): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = field(String)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        Array(AlterShareGroupOffsetsRequestPartition)
    )


@message(api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, kind="request", versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Sets start offsets of a share group.

    Source: AlterShareGroupOffsetsRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        Array(AlterShareGroupOffsetsRequestTopic)
    )


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        Array(AlterShareGroupOffsetsResponsePartition)
    )


@message(api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, kind="response", versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """The outcome for each partition. Source: AlterShareGroupOffsetsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        Array(AlterShareGroupOffsetsResponseTopic)
    )
