"""WriteShareGroupState (API key 85): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String, Uuid


@struct
class StateBatch:
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


@struct
class PartitionData:
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, "1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(Array(StateBatch))


@struct
class WriteStateData:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api_key=ApiKey.WRITE_SHARE_GROUP_STATE, kind="request", versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """Writes the durable state of share partitions.

    Source: WriteShareGroupStateRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[WriteStateData] = field(Array(WriteStateData))


@struct
class PartitionResult:
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@struct
class WriteStateResult:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api_key=ApiKey.WRITE_SHARE_GROUP_STATE, kind="response", versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """The outcome for each partition. Source: WriteShareGroupStateResponse.json."""

    results: list[WriteStateResult] = field(Array(WriteStateResult))
