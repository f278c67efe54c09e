"""ReadShareGroupStateSummary (API key 87): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class ReadStateSummaryData:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(
    api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, kind="request", versions="0-1", flexible="0+"
)
class ReadShareGroupStateSummaryRequest:
    """Reads epoch and start offset of share partitions.

    Source: ReadShareGroupStateSummaryRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[ReadStateSummaryData] = field(Array(ReadStateSummaryData))


@struct
class PartitionResult:
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, "1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(
    api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, kind="response", versions="0-1", flexible="0+"
)
class ReadShareGroupStateSummaryResponse:
    """Epoch and start offset of each partition. Source: ReadShareGroupStateSummaryResponse.json."""

    results: list[ReadStateSummaryResult] = field(Array(ReadStateSummaryResult))
