"""Records of __cluster_metadata about topics, configs, features and transactions (KRaft)."""

from __future__ import annotations

from kwire.schema import field, message
from kwire.types import Array, Int8, Int16, Int32, Int64, String, Uuid


@message(kind="metadata", api_key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic was created; its partitions follow. Source: TopicRecord.json."""

    name: str = field(String)
    topic_id: bytes = field(Uuid)


@message(kind="metadata", api_key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition was created, with all of its state. Source: PartitionRecord.json."""

    partition_id: int = field(Int32, default=-1)
    topic_id: bytes = field(Uuid)
    replicas: list[int] = field(Array(Int32))
    isr: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    leader: int = field(Int32, default=-1)
    leader_recovery_state: int = field(Int8, tag=0)
    leader_epoch: int = field(Int32, default=-1)
    partition_epoch: int = field(Int32, default=-1)
    directories: list[bytes] = field(Array(Uuid), "1+")
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32), "2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: list[int] | None = field(Array(Int32), "2+", nullable="2+", tag=2, default=None)


@message(kind="metadata", api_key=4, versions="0", flexible="0+")
class ConfigRecord:
    """A config of a resource was set or, with null, removed. Source: ConfigRecord.json."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


@message(kind="metadata", api_key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Parts of a partition's state changed; unchanged parts are absent.

    Source: PartitionChangeRecord.json.
    """

    partition_id: int = field(Int32, default=-1)
    topic_id: bytes = field(Uuid)
    isr: list[int] | None = field(Array(Int32), nullable="0+", tag=0, default=None)
    leader: int = field(Int32, tag=1, default=-2)
    replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=3, default=None)
    adding_replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=4, default=None)
    leader_recovery_state: int = field(Int8, tag=5, default=-1)
    directories: list[bytes] | None = field(Array(Uuid), "1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32), "2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: list[int] | None = field(Array(Int32), "2+", nullable="2+", tag=7, default=None)


@message(kind="metadata", api_key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic was deleted, with its partitions. Source: RemoveTopicRecord.json."""

    topic_id: bytes = field(Uuid)


@message(kind="metadata", api_key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """A feature was finalized at a level; 0 removes it. Source: FeatureLevelRecord.json."""

    name: str = field(String)
    feature_level: int = field(Int16)


@message(kind="metadata", api_key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids was assigned to a broker. Source: ProducerIdsRecord.json."""

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    next_producer_id: int = field(Int64)


@message(kind="metadata", api_key=20, versions="0", flexible="0+")
class NoOpRecord:
    """No content; advances the log's end. Source: NoOpRecord.json."""


@message(kind="metadata", api_key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The progress of the migration from ZooKeeper. Source: ZkMigrationStateRecord.json."""

    zk_migration_state: int = field(Int8)


@message(kind="metadata", api_key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """A metadata transaction begins, to be applied as a whole.

    Source: BeginTransactionRecord.json.
    """

    name: str | None = field(String, nullable="0+", tag=0, default=None)


@message(kind="metadata", api_key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    """The metadata transaction is complete. Source: EndTransactionRecord.json."""


@message(kind="metadata", api_key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    """The metadata transaction was aborted; its records do not count.

    Source: AbortTransactionRecord.json.
    """

    reason: str | None = field(String, nullable="0+", tag=0, default=None)


@message(kind="metadata", api_key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all, are forgotten.

    Source: ClearElrRecord.json.
    """

    topic_name: str = field(String)
