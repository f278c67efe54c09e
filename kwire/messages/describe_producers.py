"""DescribeProducers (API key 61): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@struct
class TopicRequest:
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@message(api_key=ApiKey.DESCRIBE_PRODUCERS, kind="request", versions="0", flexible="0+")
class DescribeProducersRequest:
    """Asks for the producers with state in partitions.

    Source: DescribeProducersRequest.json; KIP-664.
    """

    topics: list[TopicRequest] = field(Array(TopicRequest))


@struct
class ProducerState:
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int32)
    last_sequence: int = field(Int32, default=-1)
    last_timestamp: int = field(Int64, default=-1)
    coordinator_epoch: int = field(Int32)
    current_txn_start_offset: int = field(Int64, default=-1)


@struct
class PartitionResponse:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(Array(ProducerState))


@struct
class TopicResponse:
    name: str = field(String)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


@message(api_key=ApiKey.DESCRIBE_PRODUCERS, kind="response", versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition. Source: DescribeProducersResponse.json."""

    throttle_time_ms: int = field(Int32)
    topics: list[TopicResponse] = field(Array(TopicResponse))
