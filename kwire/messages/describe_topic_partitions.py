"""DescribeTopicPartitions (API key 75): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String, Uuid


@struct
class TopicRequest:
    name: str = field(String)


@struct
class Cursor:
    topic_name: str = field(String)
    partition_index: int = field(Int32)


@message(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, kind="request", versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Asks for topics page by page.

    Source: DescribeTopicPartitionsRequest.json; KIP-966.
    """

    topics: list[TopicRequest] = field(Array(TopicRequest))
    response_partition_limit: int = field(Int32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    eligible_leader_replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    last_known_elr: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    offline_replicas: list[int] = field(Array(Int32), ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="0+")
    topic_id: bytes = field(Uuid, ignorable=True)
    is_internal: bool = field(Bool, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(Int32, default=-2147483648)


@message(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, kind="response", versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page of topics, with eligible leader replicas.

    Source: DescribeTopicPartitionsResponse.json.
    """

    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        Array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
