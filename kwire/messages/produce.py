"""Produce (API key 0): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, Records, RecordsBytes, String, Uuid


@struct
class PartitionProduceData:
    index: int = field(Int32)
    records: RecordsBytes | None = field(Records, nullable="0+", default=None)


@struct
class TopicProduceData:
    name: str = field(String, "0-12", ignorable=True)
    topic_id: bytes = field(Uuid, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


@message(api_key=ApiKey.PRODUCE, kind="request", versions="0-13", flexible="9+")
class ProduceRequest:
    """Records to append.

    Source: ProduceRequest.json; KIP-98 (v3 transactional_id), KIP-467 (v8 record errors),
    KIP-951 (v10 leader hints), KIP-516 (v13 topic ids).
    """

    transactional_id: str | None = field(String, "3+", nullable="3+", default=None)
    acks: int = field(Int16)  # 0, 1 or -1 (all in-sync replicas)
    timeout_ms: int = field(Int32)
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = field(Int32)
    batch_index_error_message: str | None = field(String, nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)


@struct
class PartitionProduceResponse:
    index: int = field(Int32)
    error_code: int = field(Int16)
    base_offset: int = field(Int64)
    log_append_time_ms: int = field(Int64, "2+", default=-1, ignorable=True)  # -1 with CreateTime
    log_start_offset: int = field(Int64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = field(String, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse:
    name: str = field(String, "0-12", ignorable=True)
    topic_id: bytes = field(Uuid, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


@struct
class NodeEndpoint:
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="10+", default=None)


@message(api_key=ApiKey.PRODUCE, kind="response", versions="0-13", flexible="9+")
class ProduceResponse:
    """The offset of the records in each partition, or the error. Source: ProduceResponse.json."""

    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "10+", tag=0)
