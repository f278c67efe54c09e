"""StopReplica (API key 5): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String


@struct
class StopReplicaPartitionV0:
    topic_name: str = field(String)
    partition_index: int = field(Int32)


@struct
class StopReplicaTopicV1:
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@struct
class StopReplicaPartitionState:
    partition_index: int = field(Int32)
    leader_epoch: int = field(Int32, default=-1)
    delete_partition: bool = field(Bool)


@struct
class StopReplicaTopicState:
    topic_name: str = field(String)
    partition_states: list[StopReplicaPartitionState] = field(Array(StopReplicaPartitionState))


@message(api_key=ApiKey.STOP_REPLICA, kind="request", versions="0-4", flexible="2+")
class StopReplicaRequest:
    """The controller tells a broker to stop, and maybe delete, replicas (ZooKeeper mode).

    Source: StopReplicaRequest.json; KIP-570 (v3 leader epochs).
    """

    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, "4+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = field(Bool, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(Array(StopReplicaPartitionV0), "0")
    topics: list[StopReplicaTopicV1] = field(Array(StopReplicaTopicV1), "1-2")
    topic_states: list[StopReplicaTopicState] = field(Array(StopReplicaTopicState), "3+")


@struct
class StopReplicaPartitionError:
    topic_name: str = field(String)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@message(api_key=ApiKey.STOP_REPLICA, kind="response", versions="0-4", flexible="2+")
class StopReplicaResponse:
    """The outcome for each partition. Source: StopReplicaResponse.json."""

    error_code: int = field(Int16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))
