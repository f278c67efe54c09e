"""Fetch (API key 1): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, Records, RecordsBytes, String, Uuid


@struct
class ReplicaState:
    replica_id: int = field(Int32, default=-1)
    replica_epoch: int = field(Int64, default=-1)


@struct
class FetchPartition:
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(Int64)
    last_fetched_epoch: int = field(Int32, "12+", default=-1)  # -1 for none
    log_start_offset: int = field(Int64, "5+", default=-1, ignorable=True)  # of the follower
    partition_max_bytes: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, "17+", tag=0, ignorable=True)
    high_watermark: int = field(Int64, "18+", tag=1, default=9223372036854775807, ignorable=True)


@struct
class FetchTopic:
    topic: str = field(String, "0-12", ignorable=True)
    topic_id: bytes = field(Uuid, "13+", ignorable=True)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic: str = field(String, "7-12", ignorable=True)
    topic_id: bytes = field(Uuid, "13+", ignorable=True)
    partitions: list[int] = field(Array(Int32))


@message(api_key=ApiKey.FETCH, kind="request", versions="0-18", flexible="12+")
class FetchRequest:
    """Asks for records from given offsets on; followers also use it to copy the leader's log.

    Source: FetchRequest.json; KIP-98 (v4 isolation level), KIP-227 (v7 sessions), KIP-320 (v9 leader epochs), KIP-392
    (v11 rack), KIP-516 (v13 topic ids), KIP-903 (v15 replica state).
    """

    cluster_id: str | None = field(
        String, "12+", nullable="12+", tag=0, default=None, ignorable=True
    )
    replica_id: int = field(Int32, "0-14", default=-1)  # -1 for a consumer
    replica_state: ReplicaState | None = field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = field(Int8, "4+", ignorable=True)  # 0 read_uncommitted, 1 read_committed
    session_id: int = field(Int32, "7+", ignorable=True)  # 0 for none
    # 0 begins a session, -1 uses none.
    session_epoch: int = field(Int32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), "7+")
    rack_id: str = field(String, "11+", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = field(Int32, default=-1)
    end_offset: int = field(Int64, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)


@struct
class SnapshotId:
    end_offset: int = field(Int64, default=-1)
    epoch: int = field(Int32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = field(Int64)
    first_offset: int = field(Int64)


@struct
class PartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    high_watermark: int = field(Int64)
    last_stable_offset: int = field(Int64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(Int64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = field(SnapshotId, "12+", tag=2)
    # Null with read_uncommitted.
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(Int32, "11+", default=-1)  # -1 for the leader
    records: RecordsBytes | None = field(Records, nullable="0+", default=None)


@struct
class FetchableTopicResponse:
    topic: str = field(String, "0-12", ignorable=True)
    topic_id: bytes = field(Uuid, "13+", ignorable=True)
    partitions: list[PartitionData] = field(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="16+", default=None)


@message(api_key=ApiKey.FETCH, kind="response", versions="0-18", flexible="12+")
class FetchResponse:
    """Whole batches of each partition, as they are stored in the log.

    Source: FetchResponse.json.
    """

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16, "7+", ignorable=True)
    session_id: int = field(Int32, "7+")
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "16+", tag=0)
