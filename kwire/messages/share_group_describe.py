"""ShareGroupDescribe (API key 77): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String, Uuid


@message(api_key=ApiKey.SHARE_GROUP_DESCRIBE, kind="request", versions="0-1", flexible="0+")
class ShareGroupDescribeRequest:
    """Asks for state and members of share groups.

    Source: ShareGroupDescribeRequest.json; KIP-932.
    """

    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool)


@struct
class TopicPartitions:
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@struct
class Member:
    member_id: str = field(String)
    rack_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    assignment: Assignment = field(Assignment)


@struct
class DescribedGroup:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    assignor_name: str = field(String)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(Int32, default=-2147483648)


@message(api_key=ApiKey.SHARE_GROUP_DESCRIBE, kind="response", versions="0-1", flexible="0+")
class ShareGroupDescribeResponse:
    """State and members of each group. Source: ShareGroupDescribeResponse.json."""

    throttle_time_ms: int = field(Int32)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
