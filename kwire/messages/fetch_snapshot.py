"""FetchSnapshot (API key 59): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, Records, RecordsBytes, String, UInt16, Uuid


@struct
class SnapshotId:
    end_offset: int = field(Int64)
    epoch: int = field(Int32)


@struct
class FetchSnapshotRequestPartitionSnapshot:
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(Int64)
    replica_directory_id: bytes = field(Uuid, "1+", tag=0, ignorable=True)


@struct
class FetchSnapshotRequestTopicSnapshot:
    name: str = field(String)
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = field(
        Array(FetchSnapshotRequestPartitionSnapshot)
    )


@message(api_key=ApiKey.FETCH_SNAPSHOT, kind="request", versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    """Asks for a piece of a KRaft snapshot.

    Source: FetchSnapshotRequest.json; KIP-630, KIP-853 (v1 directory ids).
    """

    cluster_id: str | None = field(String, nullable="0+", tag=0, default=None)
    replica_id: int = field(Int32, default=-1)
    max_bytes: int = field(Int32, default=2147483647)
    topics: list[FetchSnapshotRequestTopicSnapshot] = field(
        Array(FetchSnapshotRequestTopicSnapshot)
    )


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class FetchSnapshotResponsePartitionSnapshot:
    index: int = field(Int32)
    error_code: int = field(Int16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, tag=0)
    size: int = field(Int64)
    position: int = field(Int64)
    unaligned_records: RecordsBytes = field(Records)


@struct
class FetchSnapshotResponseTopicSnapshot:
    name: str = field(String)
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field(
        Array(FetchSnapshotResponsePartitionSnapshot)
    )


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.FETCH_SNAPSHOT, kind="response", versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    """A piece of the snapshot. Source: FetchSnapshotResponse.json."""

    throttle_time_ms: int = field(Int32, ignorable=True)
    error_code: int = field(Int16)
    topics: list[FetchSnapshotResponseTopicSnapshot] = field(
        Array(FetchSnapshotResponseTopicSnapshot)
    )
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0)
