"""Topics: how they are made, who leads their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire.server.client.answers import addresses_in, leaders_of
from kwire.server.client.requests import metadata_of

from ..nearest import nearest
from .connections import METADATA, Address, Client, KafkaError

# Versions that Apache Kafka 2.4 and later all serve.
CREATE_TOPICS, DELETE_TOPICS, ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS = 5, 4, 0, 1


def create(
    client: Client, name: str, partitions: int, replication_factor: int, configs: Mapping[str, Any]
) -> None:
    """Create a topic, and return when its partitions can be used."""
    rows = [CreatableTopicConfig(name=key, value=_text(value)) for key, value in configs.items()]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=rows,
    )
    answer = client.ask_controller(
        CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CREATE_TOPICS
    )
    row = answer.topics[0]
    if row.error_code:
        said = row.error_message
        if row.error_code == ErrorCode.INVALID_CONFIG:
            said = f"{said}{nearest_config(configs)}"
        raise KafkaError(f"cannot create topic {name!r}", row.error_code, said)
    leaders(client, name)


def delete(client: Client, names: Sequence[str]) -> None:
    """Delete topics; topics that do not exist are no error."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
    client.ask_controller(request, DELETE_TOPICS)


def names(client: Client) -> list[str]:
    """The names of all topics but internal ones."""
    answer = client.ask(metadata_of(None), METADATA)
    return sorted(each.name for each in answer.topics if not each.is_internal)


def partitions(client: Client, topic: str) -> list[Any]:
    """The partitions of a topic as Metadata has them; none if there is no such topic."""
    return list(client.ask(metadata_of([topic]), METADATA).topics[0].partitions)


def leaders(client: Client, topic: str) -> dict[int, Address]:
    """The addresses of the leaders of a topic's partitions, once all have one."""

    def look() -> dict[int, Address]:
        answer = client.ask(metadata_of([topic]), METADATA)
        row, brokers = answer.topics[0], addresses_in(answer)
        codes = [row.error_code, *(each.error_code for each in row.partitions)]
        for code in codes:
            if code:
                raise KafkaError(f"metadata of topic {topic!r}", code)
        return {partition: brokers[leader] for partition, leader in leaders_of(row).items()}

    try:
        return client.patiently(look)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        absent = f"there is no topic {topic!r}{nearest(topic, names(client))}"
        raise KafkaError(absent, error.code) from None


def leader(client: Client, topic: str, partition: int) -> Address:
    """The address of a partition's leader. Errors: ValueError if there is no such partition."""
    found = leaders(client, topic)
    if partition not in found:
        raise ValueError(f"topic {topic!r} has no partition {partition}; it has {len(found)}")
    return found[partition]


def prefer(client: Client, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Put a partition's replicas in another order: the first one is the preferred leader."""
    row = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[row])]
    )
    answer = client.ask_controller(request, ALTER_PARTITION_REASSIGNMENTS)
    rows = [each for answered in answer.responses for each in answered.partitions]
    for code in (answer.error_code, *(each.error_code for each in rows)):
        if code:
            raise KafkaError(f"replicas of {topic}-{partition}", code)


def elect_preferred(client: Client, topic: str, partition: int) -> None:
    """Let the preferred leader lead, if it can."""
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
    )
    client.ask_controller(request, ELECT_LEADERS)


def nearest_config(names: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the first of these names that no topic setting has, or ""."""
    from kwire.server.config.tables import TOPIC

    for name in names:
        if name not in TOPIC:
            return nearest(name, TOPIC)
    return ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
