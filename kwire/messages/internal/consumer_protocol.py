"""The content of the opaque bytes that consumers put into JoinGroup and SyncGroup."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int32, String


@struct
class TopicPartition:
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(kind="data", versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions that the leader of a classic consumer group assigns to a member: the bytes in SyncGroup.

    Source: ConsumerProtocolAssignment.json.
    """

    assigned_partitions: list[TopicPartition] = field(Array(TopicPartition))
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)


@message(kind="data", versions="0-3")
class ConsumerProtocolSubscription:
    """The subscription and the current partitions of a member of a classic consumer group: the bytes in JoinGroup.

    Source: ConsumerProtocolSubscription.json.
    """

    topics: list[str] = field(Array(String))
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(Array(TopicPartition), "1+", ignorable=True)
    generation_id: int = field(Int32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(String, "3+", nullable="3+", default=None, ignorable=True)
