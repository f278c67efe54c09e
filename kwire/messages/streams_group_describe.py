"""StreamsGroupDescribe (API key 89): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String, UInt16


@message(api_key=ApiKey.STREAMS_GROUP_DESCRIBE, kind="request", versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    """Asks for state and members of Streams groups.

    Source: StreamsGroupDescribeRequest.json; KIP-1071.
    """

    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool)


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
class Subtopology:
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    repartition_sink_topics: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))


@struct
class Topology:
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] | None = field(Array(Subtopology), nullable="0+", default=None)


@struct
class Endpoint:
    host: str = field(String)
    port: int = field(UInt16)


@struct
class TaskOffset:
    subtopology_id: str = field(String)
    partition: int = field(Int32)
    offset: int = field(Int64)


@struct
class TaskIds:
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class Assignment:
    active_tasks: list[TaskIds] = field(Array(TaskIds))
    standby_tasks: list[TaskIds] = field(Array(TaskIds))
    warmup_tasks: list[TaskIds] = field(Array(TaskIds))


@struct
class Member:
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    client_id: str = field(String)
    client_host: str = field(String)
    topology_epoch: int = field(Int32)
    process_id: str = field(String)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(Array(KeyValue))
    task_offsets: list[TaskOffset] = field(Array(TaskOffset))
    task_end_offsets: list[TaskOffset] = field(Array(TaskOffset))
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    is_classic: bool = field(Bool)


@struct
class DescribedGroup:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(Int32, default=-2147483648)


@message(api_key=ApiKey.STREAMS_GROUP_DESCRIBE, kind="response", versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """State, topology and members of each group. Source: StreamsGroupDescribeResponse.json."""

    throttle_time_ms: int = field(Int32)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
