"""ShareGroupHeartbeat (API key 76): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, Uuid


@message(api_key=ApiKey.SHARE_GROUP_HEARTBEAT, kind="request", versions="0-1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """A member of a share group reports that it is alive, and its subscription.

    Source: ShareGroupHeartbeatRequest.json; KIP-932.
    """

    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    rack_id: str | None = field(String, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(Array(String), nullable="0+", default=None)


@struct
class TopicPartitions:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@message(api_key=ApiKey.SHARE_GROUP_HEARTBEAT, kind="response", versions="0-1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's epoch and assignment. Source: ShareGroupHeartbeatResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
