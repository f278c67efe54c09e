"""CreateTopics (API key 19): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int = field(Int32)
    broker_ids: list[int] = field(Array(Int32))


@struct
class CreatableTopicConfig:
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


@struct
class CreatableTopic:
    name: str = field(String)
    num_partitions: int = field(Int32)  # -1 for the broker's default, or with assignments
    replication_factor: int = field(Int16)  # -1 for the broker's default, or with assignments
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig))


@message(api_key=ApiKey.CREATE_TOPICS, kind="request", versions="0-7", flexible="5+")
class CreateTopicsRequest:
    """Creates topics.

    Source: CreateTopicsRequest.json; KIP-4, KIP-464 (v4 default partition counts), KIP-525 (v5
    configs), KIP-599 (v6 quota), KIP-516 (v7 topic ids).
    """

    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(Int32, default=60000)
    validate_only: bool = field(Bool, "1+")


@struct
class CreatableTopicConfigs:
    name: str = field(String)
    value: str | None = field(String, nullable="5+")
    read_only: bool = field(Bool)
    config_source: int = field(Int8, default=-1, ignorable=True)  # as in DescribeConfigs
    is_sensitive: bool = field(Bool)


@struct
class CreatableTopicResult:
    name: str = field(String)
    topic_id: bytes = field(Uuid, "7+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, "1+", nullable="1+", ignorable=True)
    topic_config_error_code: int = field(Int16, "5+", tag=0, ignorable=True)
    num_partitions: int = field(Int32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(Int16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@message(api_key=ApiKey.CREATE_TOPICS, kind="response", versions="0-7", flexible="5+")
class CreateTopicsResponse:
    """The outcome for each topic, with its configs since v5. Source: CreateTopicsResponse.json."""

    throttle_time_ms: int = field(Int32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))
