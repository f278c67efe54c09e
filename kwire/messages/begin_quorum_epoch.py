"""BeginQuorumEpoch (API key 53): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, UInt16, Uuid


@struct
class BeginQuorumEpochRequestPartitionData:
    partition_index: int = field(Int32)
    voter_directory_id: bytes = field(Uuid, "1+", ignorable=True)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class BeginQuorumEpochRequestTopicData:
    topic_name: str = field(String)
    partitions: list[BeginQuorumEpochRequestPartitionData] = field(
        Array(BeginQuorumEpochRequestPartitionData)
    )


@struct
class LeaderEndpoint:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.BEGIN_QUORUM_EPOCH, kind="request", versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    """A new KRaft leader announces itself.

    Source: BeginQuorumEpochRequest.json; KIP-595, KIP-853 (v1 endpoints).
    """

    cluster_id: str | None = field(String, nullable="0+", default=None)
    voter_id: int = field(Int32, "1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = field(Array(BeginQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(Array(LeaderEndpoint), "1+", ignorable=True)


@struct
class BeginQuorumEpochResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class BeginQuorumEpochResponseTopicData:
    topic_name: str = field(String)
    partitions: list[BeginQuorumEpochResponsePartitionData] = field(
        Array(BeginQuorumEpochResponsePartitionData)
    )


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.BEGIN_QUORUM_EPOCH, kind="response", versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    """Whether the leader is recognised. Source: BeginQuorumEpochResponse.json."""

    error_code: int = field(Int16)
    topics: list[BeginQuorumEpochResponseTopicData] = field(
        Array(BeginQuorumEpochResponseTopicData)
    )
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0)
