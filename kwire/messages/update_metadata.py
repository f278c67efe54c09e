"""UpdateMetadata (API key 6): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class UpdateMetadataPartitionState:
    topic_name: str = field(String, "0-4", ignorable=True)
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    zk_version: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), "4+", ignorable=True)


@struct
class UpdateMetadataTopicState:
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid, "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState)
    )


@struct
class UpdateMetadataEndpoint:
    port: int = field(Int32)
    host: str = field(String)
    listener: str = field(String, "3+", ignorable=True)
    security_protocol: int = field(Int16)


@struct
class UpdateMetadataBroker:
    id: int = field(Int32)
    v0_host: str = field(String, "0", ignorable=True)
    v0_port: int = field(Int32, "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(
        Array(UpdateMetadataEndpoint), "1+", ignorable=True
    )
    rack: str | None = field(String, "2+", nullable="0+", ignorable=True)


@message(api_key=ApiKey.UPDATE_METADATA, kind="request", versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    """The controller sends a broker all brokers and partition states (ZooKeeper mode).

    Source: UpdateMetadataRequest.json; KIP-516 (v7 topic ids).
    """

    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, "8+")
    type: int = field(Int8, "8+", tag=0)
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = field(Array(UpdateMetadataTopicState), "5+")
    live_brokers: list[UpdateMetadataBroker] = field(Array(UpdateMetadataBroker))


@message(api_key=ApiKey.UPDATE_METADATA, kind="response", versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    """Whether the broker accepted the metadata. Source: UpdateMetadataResponse.json."""

    error_code: int = field(Int16)
