"""OffsetDelete (API key 47): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = field(Int32)


@struct
class OffsetDeleteRequestTopic:
    name: str = field(String)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


@message(api_key=ApiKey.OFFSET_DELETE, kind="request", versions="0")
class OffsetDeleteRequest:
    """Deletes committed offsets of a group.

    Source: OffsetDeleteRequest.json; KIP-496.
    """

    group_id: str = field(String)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class OffsetDeleteResponseTopic:
    name: str = field(String)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


@message(api_key=ApiKey.OFFSET_DELETE, kind="response", versions="0")
class OffsetDeleteResponse:
    """The outcome for each partition. Source: OffsetDeleteResponse.json."""

    error_code: int = field(Int16)
    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
