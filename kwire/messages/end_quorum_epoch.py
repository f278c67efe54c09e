"""EndQuorumEpoch (API key 54): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, UInt16, Uuid


@struct
class ReplicaInfo:
    candidate_id: int = field(Int32)
    candidate_directory_id: bytes = field(Uuid)


@struct
class EndQuorumEpochRequestPartitionData:
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    preferred_successors: list[int] = field(Array(Int32), "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(Array(ReplicaInfo), "1+", ignorable=True)


@struct
class EndQuorumEpochRequestTopicData:
    topic_name: str = field(String)
    partitions: list[EndQuorumEpochRequestPartitionData] = field(
        Array(EndQuorumEpochRequestPartitionData)
    )


@struct
class LeaderEndpoint:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.END_QUORUM_EPOCH, kind="request", versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    """A KRaft leader resigns.

    Source: EndQuorumEpochRequest.json; KIP-595, KIP-853 (v1 endpoints).
    """

    cluster_id: str | None = field(String, nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = field(Array(EndQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(Array(LeaderEndpoint), "1+", ignorable=True)


@struct
class EndQuorumEpochResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class EndQuorumEpochResponseTopicData:
    topic_name: str = field(String)
    partitions: list[EndQuorumEpochResponsePartitionData] = field(
        Array(EndQuorumEpochResponsePartitionData)
    )


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.END_QUORUM_EPOCH, kind="response", versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    """Whether the end is recognised. Source: EndQuorumEpochResponse.json."""

    error_code: int = field(Int16)
    topics: list[EndQuorumEpochResponseTopicData] = field(Array(EndQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0)
