"""ShareAcknowledge (API key 79): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    acknowledge_types: list[int] = field(Array(Int8))


@struct
class AcknowledgePartition:
    partition_index: int = field(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


@struct
class AcknowledgeTopic:
    topic_id: bytes = field(Uuid)
    partitions: list[AcknowledgePartition] = field(Array(AcknowledgePartition))


@message(api_key=ApiKey.SHARE_ACKNOWLEDGE, kind="request", versions="0-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Acknowledges records of a share group.

    Source: ShareAcknowledgeRequest.json; KIP-932.
    """

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    is_renew_ack: bool = field(Bool, "2+")
    topics: list[AcknowledgeTopic] = field(Array(AcknowledgeTopic))


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


@struct
class PartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)


@message(api_key=ApiKey.SHARE_ACKNOWLEDGE, kind="response", versions="0-2", flexible="0+")
class ShareAcknowledgeResponse:
    """The outcome for each partition. Source: ShareAcknowledgeResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))
