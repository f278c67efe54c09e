"""AlterPartition (API key 56): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String, Uuid


@struct
class BrokerState:
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)


@struct
class AlterPartitionRequestPartitionData:
    partition_index: int = field(Int32)
    leader_epoch: int = field(Int32)
    new_isr: list[int] = field(Array(Int32), "0-2")
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), "3+")
    leader_recovery_state: int = field(Int8, "1+")
    partition_epoch: int = field(Int32)


@struct
class AlterPartitionRequestTopicData:
    topic_name: str = field(String, "0-1", ignorable=True)
    topic_id: bytes = field(Uuid, "2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = field(
        Array(AlterPartitionRequestPartitionData)
    )


@message(api_key=ApiKey.ALTER_PARTITION, kind="request", versions="0-3", flexible="0+")
class AlterPartitionRequest:
    """A partition's leader asks the controller to change the in-sync replicas.

    Source: AlterPartitionRequest.json; KIP-497, KIP-704 (v1 leader recovery), KIP-841 (v3
    broker epochs).
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    topics: list[AlterPartitionRequestTopicData] = field(Array(AlterPartitionRequestTopicData))


@struct
class AlterPartitionResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    leader_recovery_state: int = field(Int8, "1+", ignorable=True)
    partition_epoch: int = field(Int32)


@struct
class AlterPartitionResponseTopicData:
    topic_name: str = field(String, "0-1", ignorable=True)
    topic_id: bytes = field(Uuid, "2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field(
        Array(AlterPartitionResponsePartitionData)
    )


@message(api_key=ApiKey.ALTER_PARTITION, kind="response", versions="0-3", flexible="0+")
class AlterPartitionResponse:
    """The partition states after the change. Source: AlterPartitionResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    topics: list[AlterPartitionResponseTopicData] = field(Array(AlterPartitionResponseTopicData))
