"""AlterPartitionReassignments (API key 45): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String


@struct
class ReassignablePartition:
    partition_index: int = field(Int32)
    replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = field(String)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


@message(
    api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, kind="request", versions="0-1", flexible="0+"
)
class AlterPartitionReassignmentsRequest:
    """Starts or, with null replicas, cancels reassignments.

    Source: AlterPartitionReassignmentsRequest.json; KIP-455.
    """

    timeout_ms: int = field(Int32, default=60000)
    allow_replication_factor_change: bool = field(Bool, "1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


@struct
class ReassignablePartitionResponse:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@struct
class ReassignableTopicResponse:
    name: str = field(String)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


@message(
    api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, kind="response", versions="0-1", flexible="0+"
)
class AlterPartitionReassignmentsResponse:
    """The outcome for each partition. Source: AlterPartitionReassignmentsResponse.json."""

    throttle_time_ms: int = field(Int32)
    allow_replication_factor_change: bool = field(Bool, "1+", default=True, ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))
