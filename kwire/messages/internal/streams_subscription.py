"""The user data that Kafka Streams puts into its members' subscriptions."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int8, Int32, Int64, String, Uuid


@struct
class TaskId:
    topic_group_id: int = field(Int32)
    partition: int = field(Int32)


@struct
class PartitionToOffsetSum:
    partition: int = field(Int32)
    offset_sum: int = field(Int64)


@struct
class TaskOffsetSum:
    topic_group_id: int = field(Int32)
    partition: int = field(Int32, "10+")
    offset_sum: int = field(Int64, "10+")
    named_topology: str | None = field(String, "10+", nullable="10+")
    partition_to_offset_sum: list[PartitionToOffsetSum] = field(Array(PartitionToOffsetSum), "7-9")


@struct
class ClientTag:
    key: bytes = field(Bytes)
    value: bytes = field(Bytes)


@message(kind="data", versions="1-11")
class SubscriptionInfoData:
    """The data that a Kafka Streams client sends to its assignor, as user data of its subscription.

    Source: SubscriptionInfoData.json.
    """

    version: int = field(Int32)
    latest_supported_version: int = field(Int32, "3+", default=-1)
    process_id: bytes = field(Uuid)
    prev_tasks: list[TaskId] = field(Array(TaskId), "1-6")
    standby_tasks: list[TaskId] = field(Array(TaskId), "1-6")
    user_end_point: bytes = field(Bytes, "2+")
    task_offset_sums: list[TaskOffsetSum] = field(Array(TaskOffsetSum), "7+")
    unique_field: int = field(Int8, "8+")
    error_code: int = field(Int32, "9+")
    client_tags: list[ClientTag] = field(Array(ClientTag), "11+")
