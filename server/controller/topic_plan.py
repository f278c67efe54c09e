"""Converts a request to create or extend a topic into the values that the controller writes; pure.

Source: ZkAdminManager.createTopics, createPartitions (3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.create_partitions import CreatePartitionsTopic
from kwire.messages.create_topics import CreatableTopic

from ..config.definitions import ConfigError
from ..coordination.paths import NewTopic, ReplicaAssignment
from .assignment import UsableBroker, assign_replicas
from .refusal import ControllerRefusal
from .topics import (
    refuse_unknown_brokers,
    refuse_unusable,
    validate_assignment,
    validate_partition_growth,
    validate_topic_name,
)

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..metadata.image import MetadataImage

#: Requests the broker's default.
DEFAULT = -1

#: The limit for one request; without it, a few bytes could cause unlimited work. Source:
#: ReplicationControlManager.MAX_PARTITIONS_PER_BATCH (KRaft).
MAX_PARTITIONS_PER_REQUEST = 10_000
TOO_MANY_PARTITIONS = ControllerRefusal(
    ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
)

#: KRaft's own metadata topic; a second topic of this name would confuse its tools.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"


def asks_for_too_many(topics: Iterable[CreatableTopic], default: int) -> bool:
    """Whether the topics together have more partitions than one request may create.

    Shape: `default` is num.partitions.
    """
    total = 0
    for topic in topics:
        asked = len(topic.assignments) or _or_default(topic.num_partitions, default)
        total += max(asked, 0)
    return total > MAX_PARTITIONS_PER_REQUEST


def plan_topic(
    topic: CreatableTopic,
    image: MetadataImage,
    config: BrokerConfig,
    taken: Collection[str] | None = None,
    *,
    topic_id: bytes,
    any_broker: bool = False,
) -> NewTopic | ControllerRefusal:
    """Check a topic to be created and assign its replicas.

    Shape: `taken` are the names with which it must not collide: those in the image and those of the topics created in
    the same request. With `any_broker`, a manual assignment may name brokers that are not alive; the partition gets a
    leader when one of them starts.
    Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG.
    """
    if topic.name == CLUSTER_METADATA_TOPIC:
        return ControllerRefusal(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
        )
    if topic.name in image.topics:
        return validate_topic_name(topic.name, image.topics) or _never()
    nulls = [entry.name for entry in topic.configs if entry.value is None]
    if nulls:
        return ControllerRefusal(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    if topic.assignments and (
        topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT
    ):
        return ControllerRefusal(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot "
            "be used at the same time.",
        )
    assigned: Mapping[int, Sequence[int]] | ControllerRefusal
    if topic.assignments:
        assigned = {row.partition_index: row.broker_ids for row in topic.assignments}
    else:
        assigned = assign_replicas(
            places(image),
            _or_default(topic.num_partitions, config.get_int("num.partitions")),
            _or_default(topic.replication_factor, config.get_int("default.replication.factor")),
        )
        if isinstance(assigned, ControllerRefusal):
            return assigned
    refused = validate_topic_name(topic.name, image.topics if taken is None else taken)
    if refused is None:
        refused = validate_assignment(assigned)
    if refused is not None:
        return refused
    overrides = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    try:
        config.check_topic(overrides)
    except ConfigError as error:
        return ControllerRefusal(ErrorCode.INVALID_CONFIG, error.wire_message)
    # Apache Kafka checks neither, and can create a topic without leaders.
    refused = refuse_unusable(assigned)
    if refused is None and not any_broker:
        refused = refuse_unknown_brokers(assigned.values(), image.brokers)
    if refused is not None:
        return refused
    return NewTopic(
        topic.name,
        topic_id,
        {number: ReplicaAssignment(tuple(row)) for number, row in sorted(assigned.items())},
        overrides,
    )


def plan_partitions(
    request: CreatePartitionsTopic, image: MetadataImage, room: int = MAX_PARTITIONS_PER_REQUEST
) -> dict[int, tuple[int, ...]] | ControllerRefusal:
    """Check a topic's growth and assign the replicas of its new partitions.

    Shape: returns the replicas of each added partition; more than `room` partitions are refused. Errors:
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION.
    """
    topic = image.topics.get(request.name)
    if topic is None:
        return ControllerRefusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{request.name}' does not exist."
        )
    if any(partition.adding or partition.removing for partition in topic.partitions.values()):
        return ControllerRefusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{request.name}'.",
        )
    existing = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    given = None
    if request.assignments is not None:
        given = [row.broker_ids for row in request.assignments]
    refused = validate_partition_growth(existing, request.count, factor, given, image.brokers)
    if refused is not None:
        return refused
    if request.count - existing > room:
        return TOO_MANY_PARTITIONS
    if given is not None:
        return {existing + index: tuple(row) for index, row in enumerate(given)}
    # Start at the first partition's preferred leader, or at the next broker if that one is gone.
    leader = topic.partitions[0].replicas[0]
    alive = sorted(image.brokers)
    first = next((index for index, broker in enumerate(alive) if broker >= leader), 0)
    return assign_replicas(
        places(image),
        request.count - existing,
        factor,
        start_index=first,
        start_partition=existing,
    )


def places(image: MetadataImage) -> list[UsableBroker]:
    """The live brokers with their racks, as `assign_replicas` takes them."""
    return [UsableBroker(broker.id, broker.rack) for broker in image.brokers.values()]


def _or_default(asked: int, default: int) -> int:
    return default if asked == DEFAULT else asked


def _never() -> ControllerRefusal:
    raise AssertionError("a topic that exists was not refused")
