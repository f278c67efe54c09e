"""ElectLeaders (API key 43): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@struct
class TopicPartitions:
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(api_key=ApiKey.ELECT_LEADERS, kind="request", versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Starts leader elections for partitions; null partitions means all.

    Source: ElectLeadersRequest.json; KIP-183, KIP-460 (v1 election type).
    """

    election_type: int = field(Int8, "1+")  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(Int32, default=60000)


@struct
class PartitionResult:
    partition_id: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = field(String)
    partition_result: list[PartitionResult] = field(Array(PartitionResult))


@message(api_key=ApiKey.ELECT_LEADERS, kind="response", versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The outcome for each partition. Source: ElectLeadersResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, "1+")
    replica_election_results: list[ReplicaElectionResult] = field(Array(ReplicaElectionResult))
