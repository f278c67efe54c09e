"""ShareFetch (API key 78): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, Records, RecordsBytes, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    acknowledge_types: list[int] = field(Array(Int8))


@struct
class FetchPartition:
    partition_index: int = field(Int32)
    partition_max_bytes: int = field(Int32, "0")
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


@struct
class FetchTopic:
    topic_id: bytes = field(Uuid)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(api_key=ApiKey.SHARE_FETCH, kind="request", versions="0-2", flexible="0+")
class ShareFetchRequest:
    """Asks for records of a share group and acknowledges earlier ones.

    Source: ShareFetchRequest.json; KIP-932.
    """

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, default=2147483647)
    max_records: int = field(Int32, "1+")
    batch_size: int = field(Int32, "1+")
    share_acquire_mode: int = field(Int8, "2+", ignorable=True)
    is_renew_ack: bool = field(Bool, "2+")
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic))


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class AcquiredRecords:
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_count: int = field(Int16)


@struct
class PartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acknowledge_error_code: int = field(Int16)
    acknowledge_error_message: str | None = field(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: RecordsBytes | None = field(Records, nullable="0", default=None)
    acquired_records: list[AcquiredRecords] = field(Array(AcquiredRecords))


@struct
class ShareFetchableTopicResponse:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)


@message(api_key=ApiKey.SHARE_FETCH, kind="response", versions="0-2", flexible="0+")
class ShareFetchResponse:
    """Records that the member has acquired. Source: ShareFetchResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, "1+")
    responses: list[ShareFetchableTopicResponse] = field(Array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))
