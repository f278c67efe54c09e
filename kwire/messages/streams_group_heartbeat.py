"""StreamsGroupHeartbeat (API key 88): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String, UInt16


@struct
class KeyValue:
    key: str = field(String)
    value: str = field(String)


@struct
class TopicInfo:
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[KeyValue] = field(Array(KeyValue))


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


@struct
class Topology:
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] = field(Array(Subtopology))


@struct
class TaskIds:
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class Endpoint:
    host: str = field(String)
    port: int = field(UInt16)


@struct
class TaskOffset:
    subtopology_id: str = field(String)
    partition: int = field(Int32)
    offset: int = field(Int64)


@message(api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, kind="request", versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """A member of a Streams group reports that it is alive, its topology and its tasks.

    Source: StreamsGroupHeartbeatRequest.json; KIP-1071.
    """

    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    endpoint_information_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    process_id: str | None = field(String, nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(Array(KeyValue), nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(Array(TaskOffset), nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(
        Array(TaskOffset), nullable="0+", default=None
    )
    shutdown_application: bool = field(Bool)


@struct
class Status:
    status_code: int = field(Int8)
    status_detail: str = field(String)


@struct
class TopicPartition:
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = field(Endpoint)
    active_partitions: list[TopicPartition] = field(Array(TopicPartition))
    standby_partitions: list[TopicPartition] = field(Array(TopicPartition))


@message(api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, kind="response", versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """The member's epoch and tasks. Source: StreamsGroupHeartbeatResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    acceptable_recovery_lag: int = field(Int32)
    task_offset_interval_ms: int = field(Int32)
    status: list[Status] | None = field(Array(Status), nullable="0+")
    active_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    endpoint_information_epoch: int = field(Int32)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        Array(EndpointToPartitions), nullable="0+", default=None
    )
