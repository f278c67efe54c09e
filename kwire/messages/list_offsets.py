"""ListOffsets (API key 2): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    partition_index: int = field(Int32)
    current_leader_epoch: int = field(Int32, "4+", default=-1, ignorable=True)
    # -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 latest tiered.
    timestamp: int = field(Int64)
    max_num_offsets: int = field(Int32, "0", default=1)  # v0 asks for several offsets


@struct
class ListOffsetsTopic:
    name: str = field(String)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition))


@message(api_key=ApiKey.LIST_OFFSETS, kind="request", versions="0-11", flexible="6+")
class ListOffsetsRequest:
    """Asks for the first or last offset of partitions, or the offset at a time.

    Source: ListOffsetsRequest.json; KIP-79 (v1 one offset per time), KIP-320 (v4 leader
    epochs), KIP-734 (v7 max timestamp), KIP-405 (v8 local log start).
    """

    replica_id: int = field(Int32)
    isolation_level: int = field(Int8, "2+")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic))
    timeout_ms: int = field(Int32, "10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    old_style_offsets: list[int] = field(Array(Int64), "0")  # v0 returns several offsets
    timestamp: int = field(Int64, "1+", default=-1)
    offset: int = field(Int64, "1+", default=-1)
    leader_epoch: int = field(Int32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = field(String)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


@message(api_key=ApiKey.LIST_OFFSETS, kind="response", versions="0-11", flexible="6+")
class ListOffsetsResponse:
    """The offset found for each partition. Source: ListOffsetsResponse.json."""

    throttle_time_ms: int = field(Int32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))
