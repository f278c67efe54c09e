"""ListPartitionReassignments (API key 46): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@struct
class ListPartitionReassignmentsTopics:
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@message(api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, kind="request", versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Asks for the reassignments in progress; null topics means all.

    Source: ListPartitionReassignmentsRequest.json; KIP-455.
    """

    timeout_ms: int = field(Int32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))


@struct
class OngoingTopicReassignment:
    name: str = field(String)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


@message(api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, kind="response", versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The replicas of each partition being moved.

    Source: ListPartitionReassignmentsResponse.json.
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))
