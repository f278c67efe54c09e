"""CreatePartitions (API key 37): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(Array(Int32))


@struct
class CreatePartitionsTopic:
    name: str = field(String)
    count: int = field(Int32)
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment), nullable="0+"
    )


@message(api_key=ApiKey.CREATE_PARTITIONS, kind="request", versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Increases the number of partitions of topics.

    Source: CreatePartitionsRequest.json; KIP-195, KIP-599 (v3 quota).
    """

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(Int32)
    validate_only: bool = field(Bool)


@struct
class CreatePartitionsTopicResult:
    name: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(api_key=ApiKey.CREATE_PARTITIONS, kind="response", versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """The outcome for each topic. Source: CreatePartitionsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))
