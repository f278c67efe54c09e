"""AssignReplicasToDirs (API key 73): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, Uuid


@struct
class AssignReplicasToDirsRequestPartitionData:
    partition_index: int = field(Int32)


@struct
class AssignReplicasToDirsRequestTopicData:
    topic_id: bytes = field(Uuid)
    partitions: list[AssignReplicasToDirsRequestPartitionData] = field(
        Array(AssignReplicasToDirsRequestPartitionData)
    )


@struct
class AssignReplicasToDirsRequestDirectoryData:
    id: bytes = field(Uuid)
    topics: list[AssignReplicasToDirsRequestTopicData] = field(
        Array(AssignReplicasToDirsRequestTopicData)
    )


@message(api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, kind="request", versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    """A broker reports the directories of its replicas to the KRaft controller.

    Source: AssignReplicasToDirsRequest.json; KIP-858.
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData] = field(
        Array(AssignReplicasToDirsRequestDirectoryData)
    )


@struct
class AssignReplicasToDirsResponsePartitionData:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class AssignReplicasToDirsResponseTopicData:
    topic_id: bytes = field(Uuid)
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field(
        Array(AssignReplicasToDirsResponsePartitionData)
    )


@struct
class AssignReplicasToDirsResponseDirectoryData:
    id: bytes = field(Uuid)
    topics: list[AssignReplicasToDirsResponseTopicData] = field(
        Array(AssignReplicasToDirsResponseTopicData)
    )


@message(api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, kind="response", versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    """The outcome for each partition. Source: AssignReplicasToDirsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field(
        Array(AssignReplicasToDirsResponseDirectoryData)
    )
