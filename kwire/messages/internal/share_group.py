"""Keys and values of share groups (KIP-932) in __consumer_offsets."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int32, Int64, String, Uuid


@message(kind="coordinator-key", key_type=9, versions="9")
class ShareGroupPartitionMetadataKey:
    """Key of the partition counts of a share group's topics, in the format of 3.9.2.

    Source: ShareGroupPartitionMetadataKey.json.
    """

    group_id: str = field(String)


@struct
class TopicPartitionsInfo:
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class TopicInfo:
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)


@message(kind="coordinator-value", key_type=9, versions="0", flexible="0+")
class ShareGroupPartitionMetadataValue:
    """The partition counts of a share group's topics, in the format of 3.9.2.

    Source: ShareGroupPartitionMetadataValue.json.
    """

    initialized_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(Array(TopicInfo))


@message(kind="coordinator-key", key_type=10, versions="0")
class ShareGroupMemberMetadataKey:
    """Key of the data that a member of a share group last reported about itself.

    Source: ShareGroupMemberMetadataKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@message(kind="coordinator-value", key_type=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """The data that a member of a share group last reported about itself.

    Source: ShareGroupMemberMetadataValue.json.
    """

    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))


@message(kind="coordinator-key", key_type=11, versions="0")
class ShareGroupMetadataKey:
    """Key of the epoch of a share group. Source: ShareGroupMetadataKey.json."""

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a share group. Source: ShareGroupMetadataValue.json."""

    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)


@message(kind="coordinator-key", key_type=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a share group's target assignment.

    Source: ShareGroupTargetAssignmentMetadataKey.json.
    """

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a share group's target assignment.

    Source: ShareGroupTargetAssignmentMetadataValue.json.
    """

    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, tag=0, ignorable=True)


@message(kind="coordinator-key", key_type=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    """Key of the target partitions of a member of a share group.

    Source: ShareGroupTargetAssignmentMemberKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class TopicPartition:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(kind="coordinator-value", key_type=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The target partitions of a member of a share group.

    Source: ShareGroupTargetAssignmentMemberValue.json.
    """

    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))


@message(kind="coordinator-key", key_type=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    """Key of the partitions that a member of a share group has at its epoch.

    Source: ShareGroupCurrentMemberAssignmentKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class TopicPartitions:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(kind="coordinator-value", key_type=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions that a member of a share group has at its epoch.

    Source: ShareGroupCurrentMemberAssignmentValue.json.
    """

    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@message(kind="coordinator-key", key_type=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Key of the partitions whose share state is being initialized, is initialized or is being deleted.

    Source: ShareGroupStatePartitionMetadataKey.json.
    """

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose share state is being initialized, is initialized or is being deleted.

    Source: ShareGroupStatePartitionMetadataValue.json.
    """

    initializing_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(Array(TopicInfo))
