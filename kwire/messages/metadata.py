"""Metadata (API key 3): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String, Uuid


@struct
class MetadataRequestTopic:
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    name: str | None = field(String, nullable="10+")


@message(api_key=ApiKey.METADATA, kind="request", versions="0-13", flexible="9+")
class MetadataRequest:
    """Asks for brokers, topics and leaders; null topics means all.

    Source: MetadataRequest.json; KIP-4 (v4 auto creation), KIP-430 (v8 authorized operations),
    KIP-516 (v10 topic ids).
    """

    # Null for all; before v1 an empty list means all.
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(Bool, "4+", default=True)
    include_cluster_authorized_operations: bool = field(Bool, "8-10")
    include_topic_authorized_operations: bool = field(Bool, "8+")


@struct
class MetadataResponseBroker:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, "1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), "5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="12+")
    topic_id: bytes = field(Uuid, "10+", ignorable=True)
    is_internal: bool = field(Bool, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(Int32, "8+", default=-2147483648)


@message(api_key=ApiKey.METADATA, kind="response", versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker sees it. Source: MetadataResponse.json."""

    throttle_time_ms: int = field(Int32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(String, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(Int32, "1+", default=-1, ignorable=True)  # -1 for none
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(Int32, "8-10", default=-2147483648)
    error_code: int = field(Int16, "13+", ignorable=True)
