"""LeaderAndIsr (API key 4): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class LeaderAndIsrPartitionState:
    topic_name: str = field(String, "0-1", ignorable=True)
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    partition_epoch: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32), "3+", ignorable=True)
    removing_replicas: list[int] = field(Array(Int32), "3+", ignorable=True)
    is_new: bool = field(Bool, "1+", ignorable=True)
    leader_recovery_state: int = field(Int8, "6+")


@struct
class LeaderAndIsrTopicState:
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid, "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field(Array(LeaderAndIsrPartitionState))


@struct
class LeaderAndIsrLiveLeader:
    broker_id: int = field(Int32)
    host_name: str = field(String)
    port: int = field(Int32)


@message(api_key=ApiKey.LEADER_AND_ISR, kind="request", versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    """The controller tells a broker which partitions to lead and follow (ZooKeeper mode).

    Source: LeaderAndIsrRequest.json; KIP-497, KIP-516 (v5 topic ids).
    """

    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, "7+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, "2+", default=-1, ignorable=True)
    type: int = field(Int8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = field(Array(LeaderAndIsrTopicState), "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field(Array(LeaderAndIsrLiveLeader))


@struct
class LeaderAndIsrPartitionError:
    topic_name: str = field(String, "0-4", ignorable=True)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class LeaderAndIsrTopicError:
    topic_id: bytes = field(Uuid)
    partition_errors: list[LeaderAndIsrPartitionError] = field(Array(LeaderAndIsrPartitionError))


@message(api_key=ApiKey.LEADER_AND_ISR, kind="response", versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    """The outcome for each partition. Source: LeaderAndIsrResponse.json."""

    error_code: int = field(Int16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrPartitionError), "0-4"
    )
    topics: list[LeaderAndIsrTopicError] = field(Array(LeaderAndIsrTopicError), "5+")
