"""DeleteRecords (API key 21): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition:
    partition_index: int = field(Int32)
    offset: int = field(Int64)  # -1 for the high watermark


@struct
class DeleteRecordsTopic:
    name: str = field(String)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


@message(api_key=ApiKey.DELETE_RECORDS, kind="request", versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Moves the log start of partitions forward.

    Source: DeleteRecordsRequest.json; KIP-107.
    """

    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(Int32)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = field(Int32)
    low_watermark: int = field(Int64)
    error_code: int = field(Int16)


@struct
class DeleteRecordsTopicResult:
    name: str = field(String)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


@message(api_key=ApiKey.DELETE_RECORDS, kind="response", versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The new log start offsets. Source: DeleteRecordsResponse.json."""

    throttle_time_ms: int = field(Int32)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))
