"""DescribeShareGroupOffsets (API key 90): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@message(api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, kind="request", versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Asks for the start offsets of share groups.

    Source: DescribeShareGroupOffsetsRequest.json; KIP-932.
    """

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        Array(DescribeShareGroupOffsetsRequestGroup)
    )


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)
    leader_epoch: int = field(Int32)
    lag: int = field(Int64, "1+", default=-1, ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        Array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(
    api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, kind="response", versions="0-1", flexible="0+"
)
class DescribeShareGroupOffsetsResponse:
    """The start offset of each partition. Source: DescribeShareGroupOffsetsResponse.json."""

    throttle_time_ms: int = field(Int32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        Array(DescribeShareGroupOffsetsResponseGroup)
    )
