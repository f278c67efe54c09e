"""Records of __remote_log_metadata about segments in tiered storage (KIP-405)."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Bytes, Int8, Int32, Int64, String, Uuid


@struct
class TopicIdPartitionEntry:
    name: str = field(String)
    id: bytes = field(Uuid)
    partition: int = field(Int32)


@struct
class RemoteLogSegmentIdEntry:
    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry)
    id: bytes = field(Uuid)


@struct
class SegmentLeaderEpochEntry:
    leader_epoch: int = field(Int32)
    offset: int = field(Int64)


@message(kind="metadata", api_key=0, versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    """A segment is being copied to tiered storage. Source: RemoteLogSegmentMetadataRecord.json."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry)
    start_offset: int = field(Int64)
    end_offset: int = field(Int64)
    broker_id: int = field(Int32)
    max_timestamp_ms: int = field(Int64)
    event_timestamp_ms: int = field(Int64)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(Array(SegmentLeaderEpochEntry))
    segment_size_in_bytes: int = field(Int32)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)
    txn_index_empty: bool = field(Bool, tag=0)


@message(kind="metadata", api_key=1, versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The state of a segment in tiered storage changed.

    Source: RemoteLogSegmentMetadataUpdateRecord.json.
    """

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry)
    broker_id: int = field(Int32)
    event_timestamp_ms: int = field(Int64)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)


@message(kind="metadata", api_key=2, versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    """The state of a partition's deletion from tiered storage changed.

    Source: RemotePartitionDeleteMetadataRecord.json.
    """

    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry)
    broker_id: int = field(Int32)
    event_timestamp_ms: int = field(Int64)
    remote_partition_delete_state: int = field(Int8)


@message(kind="metadata", api_key=3, versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    """One segment in the snapshot of a partition's tiered storage.

    Source: RemoteLogSegmentMetadataSnapshotRecord.json.
    """

    segment_id: bytes = field(Uuid)
    start_offset: int = field(Int64)
    end_offset: int = field(Int64)
    broker_id: int = field(Int32)
    max_timestamp_ms: int = field(Int64)
    event_timestamp_ms: int = field(Int64)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(Array(SegmentLeaderEpochEntry))
    segment_size_in_bytes: int = field(Int32)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)
    txn_index_empty: bool = field(Bool, tag=0)
