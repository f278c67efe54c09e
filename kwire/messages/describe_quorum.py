"""DescribeQuorum (API key 55): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: int = field(Int32)


@struct
class DescribeQuorumRequestTopicData:
    topic_name: str = field(String)
    partitions: list[DescribeQuorumRequestPartitionData] = field(
        Array(DescribeQuorumRequestPartitionData)
    )


@message(api_key=ApiKey.DESCRIBE_QUORUM, kind="request", versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Asks for the state of the KRaft quorum.

    Source: DescribeQuorumRequest.json; KIP-595, KIP-836 (v1 fetch times), KIP-853 (v2 directory
    ids).
    """

    topics: list[DescribeQuorumRequestTopicData] = field(Array(DescribeQuorumRequestTopicData))


@struct
class ReplicaState:
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, "2+")
    log_end_offset: int = field(Int64)
    last_fetch_timestamp: int = field(Int64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(Int64, "1+", default=-1, ignorable=True)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, "2+", nullable="2+", ignorable=True)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    high_watermark: int = field(Int64)
    current_voters: list[ReplicaState] = field(Array(ReplicaState))
    observers: list[ReplicaState] = field(Array(ReplicaState))


@struct
class DescribeQuorumResponseTopicData:
    topic_name: str = field(String)
    partitions: list[DescribeQuorumResponsePartitionData] = field(
        Array(DescribeQuorumResponsePartitionData)
    )


@struct
class Listener:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@struct
class Node:
    node_id: int = field(Int32)
    listeners: list[Listener] = field(Array(Listener))


@message(api_key=ApiKey.DESCRIBE_QUORUM, kind="response", versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """Leader, voters and observers. Source: DescribeQuorumResponse.json."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, "2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = field(Array(DescribeQuorumResponseTopicData))
    nodes: list[Node] = field(Array(Node), "2+")
