"""TxnOffsetCommit (API key 28): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(String, nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = field(String)
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        Array(TxnOffsetCommitRequestPartition)
    )


@message(api_key=ApiKey.TXN_OFFSET_COMMIT, kind="request", versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Stores a group's offsets as part of a transaction.

    Source: TxnOffsetCommitRequest.json; KIP-98, KIP-447 (v3 group generation).
    """

    transactional_id: str = field(String)
    group_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    generation_id: int = field(Int32, "3+", default=-1)
    member_id: str = field(String, "3+")
    group_instance_id: str | None = field(String, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = field(String)
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        Array(TxnOffsetCommitResponsePartition)
    )


@message(api_key=ApiKey.TXN_OFFSET_COMMIT, kind="response", versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """Whether each partition's offset was stored. Source: TxnOffsetCommitResponse.json."""

    throttle_time_ms: int = field(Int32)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))
