"""ConsumerGroupHeartbeat (API key 68): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, Uuid


@struct
class TopicPartitions:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A member of a consumer group reports that it is alive, its subscription and its partitions.

    Source: ConsumerGroupHeartbeatRequest.json; KIP-848.
    """

    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)  # 0 joins, -1 leaves, -2 leaves as a static member
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    subscribed_topic_names: list[str] | None = field(Array(String), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(String, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(String, nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(
        Array(TopicPartitions), nullable="0+", default=None
    )


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@message(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and target assignment. Source: ConsumerGroupHeartbeatResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
