"""AlterReplicaLogDirs (API key 34): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@struct
class AlterReplicaLogDirTopic:
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class AlterReplicaLogDir:
    path: str = field(String)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


@message(api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, kind="request", versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Moves replicas to other log directories of their broker.

    Source: AlterReplicaLogDirsRequest.json; KIP-113.
    """

    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = field(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        Array(AlterReplicaLogDirPartitionResult)
    )


@message(api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, kind="response", versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """The outcome for each partition. Source: AlterReplicaLogDirsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))
