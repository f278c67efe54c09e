"""OffsetFetch (API key 9): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetFetchRequestTopic:
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@struct
class OffsetFetchRequestTopics:
    name: str = field(String, "8-9", ignorable=True)
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    partition_indexes: list[int] = field(Array(Int32))


@struct
class OffsetFetchRequestGroup:
    group_id: str = field(String)
    member_id: str | None = field(String, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(Int32, "9+", default=-1, ignorable=True)
    # Null for all.
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics), nullable="8+"
    )


@message(api_key=ApiKey.OFFSET_FETCH, kind="request", versions="0-10", flexible="6+")
class OffsetFetchRequest:
    """Asks for the committed offsets of a group, or since v8 of several groups.

    Source: OffsetFetchRequest.json; KIP-447 (v7 require_stable), KIP-709 (v8 several groups), KIP-848 (v9 member
    epoch).
    """

    group_id: str = field(String, "0-7")
    # Null for all.
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(Bool, "7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(String, nullable="0-7")
    error_code: int = field(Int16)


@struct
class OffsetFetchResponseTopic:
    name: str = field(String)
    partitions: list[OffsetFetchResponsePartition] = field(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, default=-1, ignorable=True)
    metadata: str | None = field(String, nullable="8+")
    error_code: int = field(Int16)


@struct
class OffsetFetchResponseTopics:
    name: str = field(String, "8-9", ignorable=True)
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(Array(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    group_id: str = field(String)
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics))
    error_code: int = field(Int16)


@message(api_key=ApiKey.OFFSET_FETCH, kind="response", versions="0-10", flexible="6+")
class OffsetFetchResponse:
    """The committed offsets, -1 for none. Source: OffsetFetchResponse.json."""

    throttle_time_ms: int = field(Int32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), "0-7")
    error_code: int = field(Int16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), "8+")
