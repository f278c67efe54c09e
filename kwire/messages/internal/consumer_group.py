"""Keys and values of consumer groups (KIP-848) in __consumer_offsets."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int8, Int32, Int64, String, Uuid


@message(kind="coordinator-key", key_type=3, versions="0")
class ConsumerGroupMetadataKey:
    """Key of the epoch of a consumer group. Source: ConsumerGroupMetadataKey.json."""

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group. Source: ConsumerGroupMetadataValue.json."""

    epoch: int = field(Int32)
    metadata_hash: int = field(Int64, tag=0)


@message(kind="coordinator-key", key_type=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Key of the partition counts of a consumer group's topics.

    Source: ConsumerGroupPartitionMetadataKey.json.
    """

    group_id: str = field(String)


@struct
class PartitionMetadata:
    partition: int = field(Int32)
    racks: list[str] = field(Array(String))


@struct
class TopicMetadata:
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    num_partitions: int = field(Int32)
    partition_metadata: list[PartitionMetadata] = field(Array(PartitionMetadata))


@message(kind="coordinator-value", key_type=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The partition counts of a consumer group's topics.

    Source: ConsumerGroupPartitionMetadataValue.json.
    """

    topics: list[TopicMetadata] = field(Array(TopicMetadata))


@message(kind="coordinator-key", key_type=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    """Key of the data that a member of a consumer group last reported about itself.

    Source: ConsumerGroupMemberMetadataKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class ClassicProtocol:
    name: str = field(String)
    metadata: bytes = field(Bytes)


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = field(Int32)
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol))


@message(kind="coordinator-value", key_type=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """The data that a member of a consumer group last reported about itself.

    Source: ConsumerGroupMemberMetadataValue.json.
    """

    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+")
    rebalance_timeout_ms: int = field(Int32, default=-1)
    server_assignor: str | None = field(String, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", tag=0
    )


@message(kind="coordinator-key", key_type=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a consumer group's target assignment.

    Source: ConsumerGroupTargetAssignmentMetadataKey.json.
    """

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a consumer group's target assignment.

    Source: ConsumerGroupTargetAssignmentMetadataValue.json.
    """

    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, tag=0, ignorable=True)


@message(kind="coordinator-key", key_type=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of the target partitions of a member of a consumer group.

    Source: ConsumerGroupTargetAssignmentMemberKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class TopicPartition:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(kind="coordinator-value", key_type=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target partitions of a member of a consumer group.

    Source: ConsumerGroupTargetAssignmentMemberValue.json.
    """

    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))


@message(kind="coordinator-key", key_type=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of the partitions that a member of a consumer group has at its epoch.

    Source: ConsumerGroupCurrentMemberAssignmentKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class TopicPartitions:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0)


@message(kind="coordinator-value", key_type=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member of a consumer group has at its epoch.

    Source: ConsumerGroupCurrentMemberAssignmentValue.json.
    """

    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(Array(TopicPartitions))


@message(kind="coordinator-key", key_type=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    """Key of the topics that a regular expression of a consumer group matches.

    Source: ConsumerGroupRegularExpressionKey.json.
    """

    group_id: str = field(String)
    regular_expression: str = field(String)


@message(kind="coordinator-value", key_type=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression of a consumer group matches.

    Source: ConsumerGroupRegularExpressionValue.json.
    """

    topics: list[str] = field(Array(String))
    version: int = field(Int64)
    timestamp: int = field(Int64)
