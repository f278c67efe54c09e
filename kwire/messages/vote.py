"""Vote (API key 52): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class VoteRequestPartitionData:
    partition_index: int = field(Int32)
    replica_epoch: int = field(Int32)
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, "1+", ignorable=True)
    voter_directory_id: bytes = field(Uuid, "1+", ignorable=True)
    last_offset_epoch: int = field(Int32)
    last_offset: int = field(Int64)
    pre_vote: bool = field(Bool, "2+")


@struct
class VoteRequestTopicData:
    topic_name: str = field(String)
    partitions: list[VoteRequestPartitionData] = field(Array(VoteRequestPartitionData))


@message(api_key=ApiKey.VOTE, kind="request", versions="0-2", flexible="0+")
class VoteRequest:
    """A KRaft candidate asks for a vote.

    Source: VoteRequest.json; KIP-595, KIP-853 (v1 directory ids), KIP-996 (v2 pre-vote).
    """

    cluster_id: str | None = field(String, nullable="0+", default=None)
    voter_id: int = field(Int32, "1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = field(Array(VoteRequestTopicData))


@struct
class VoteResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    vote_granted: bool = field(Bool)


@struct
class VoteResponseTopicData:
    topic_name: str = field(String)
    partitions: list[VoteResponsePartitionData] = field(Array(VoteResponsePartitionData))


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.VOTE, kind="response", versions="0-2", flexible="0+")
class VoteResponse:
    """Whether the vote was given. Source: VoteResponse.json."""

    error_code: int = field(Int16)
    topics: list[VoteResponseTopicData] = field(Array(VoteResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0)
