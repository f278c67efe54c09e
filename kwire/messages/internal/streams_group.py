"""Keys and values of Streams groups (KIP-1071) in __consumer_offsets."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String, UInt16


@message(kind="coordinator-key", key_type=17, versions="0")
class StreamsGroupMetadataKey:
    """Key of the epoch of a Streams group. Source: StreamsGroupMetadataKey.json."""

    group_id: str = field(String)


@struct
class LastAssignmentConfig:
    key: str = field(String)
    value: str = field(String)


@message(kind="coordinator-value", key_type=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of a Streams group. Source: StreamsGroupMetadataValue.json."""

    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)
    validated_topology_epoch: int = field(Int32, tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        Array(LastAssignmentConfig), nullable="0+", tag=1
    )


@message(kind="coordinator-key", key_type=19, versions="0")
class StreamsGroupMemberMetadataKey:
    """Key of the data that a member of a Streams group last reported about itself.

    Source: StreamsGroupMemberMetadataKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class Endpoint:
    host: str = field(String)
    port: int = field(UInt16)


@struct
class KeyValue:
    key: str = field(String)
    value: str = field(String)


@message(kind="coordinator-value", key_type=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """The data that a member of a Streams group last reported about itself.

    Source: StreamsGroupMemberMetadataValue.json.
    """

    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    topology_epoch: int = field(Int32)
    process_id: str = field(String)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(Array(KeyValue))


@message(kind="coordinator-key", key_type=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a Streams group's target assignment.

    Source: StreamsGroupTargetAssignmentMetadataKey.json.
    """

    group_id: str = field(String)


@message(kind="coordinator-value", key_type=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of a Streams group's target assignment.

    Source: StreamsGroupTargetAssignmentMetadataValue.json.
    """

    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, tag=0, ignorable=True)


@message(kind="coordinator-key", key_type=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    """Key of the target tasks of a member of a Streams group.

    Source: StreamsGroupTargetAssignmentMemberKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class StreamsGroupTargetAssignmentMemberValueTaskIds:
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(kind="coordinator-value", key_type=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The target tasks of a member of a Streams group.

    Source: StreamsGroupTargetAssignmentMemberValue.json.
    """

    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        Array(StreamsGroupTargetAssignmentMemberValueTaskIds)
    )
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        Array(StreamsGroupTargetAssignmentMemberValueTaskIds)
    )
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        Array(StreamsGroupTargetAssignmentMemberValueTaskIds)
    )


@message(kind="coordinator-key", key_type=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of the tasks that a member of a Streams group has at its epoch.

    Source: StreamsGroupCurrentMemberAssignmentKey.json.
    """

    group_id: str = field(String)
    member_id: str = field(String)


@struct
class StreamsGroupCurrentMemberAssignmentValueTaskIds:
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))
    # Kafka's definition says `"default": null`, which its generator interprets as "no default": an empty list is not
    # sent, and null is.
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0)


@message(kind="coordinator-value", key_type=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The tasks that a member of a Streams group has at its epoch.

    Source: StreamsGroupCurrentMemberAssignmentValue.json.
    """

    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        Array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )


@message(kind="coordinator-key", key_type=23, versions="0")
class StreamsGroupTopologyKey:
    """Key of the topology of a Streams group. Source: StreamsGroupTopologyKey.json."""

    group_id: str = field(String)


@struct
class TopicConfig:
    key: str = field(String)
    value: str = field(String)


@struct
class TopicInfo:
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[TopicConfig] = field(Array(TopicConfig))


@struct
class CopartitionGroup:
    source_topics: list[int] = field(Array(Int16))
    source_topic_regex: list[int] = field(Array(Int16))
    repartition_source_topics: list[int] = field(Array(Int16))


@struct
class Subtopology:
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    source_topic_regex: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_sink_topics: list[str] = field(Array(String))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))
    copartition_groups: list[CopartitionGroup] = field(Array(CopartitionGroup))


@message(kind="coordinator-value", key_type=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of a Streams group. Source: StreamsGroupTopologyValue.json."""

    epoch: int = field(Int32)
    subtopologies: list[Subtopology] = field(Array(Subtopology))
