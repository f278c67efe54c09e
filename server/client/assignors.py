"""How a classic consumer group divides partitions, and the opaque bytes in which its members say it. Pure.

Source: RangeAssignor, RoundRobinAssignor, ConsumerProtocol (Java).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from kwire.codec import decode, encode
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

from .requests import Partition, by_topic

#: The version that is written into the opaque bytes of JoinGroup and SyncGroup; later versions begin with the same
#: fields.
PROTOCOL_VERSION = 0


def assign_range(
    partitions: Mapping[str, int], members: Mapping[str, Sequence[str]]
) -> dict[str, list[Partition]]:
    """Partitions by member: a range of each topic, one longer for the first members if necessary.

    Shape: numbers of partitions by topic; topics by member, in the order of assignment.
    """
    result: dict[str, list[Partition]] = {member: [] for member in members}
    for topic, count in sorted(partitions.items()):
        wanting = [member for member, topics in members.items() if topic in topics]
        first = 0
        for place, member in enumerate(wanting):
            size = count // len(wanting) + (place < count % len(wanting))
            result[member] += [(topic, number) for number in range(first, first + size)]
            first += size
    return result


def assign_round_robin(
    partitions: Mapping[str, int], members: Mapping[str, Sequence[str]]
) -> dict[str, list[Partition]]:
    """Partitions by member, assigned in rotation. Shape: as for `assign_range`."""
    result: dict[str, list[Partition]] = {member: [] for member in members}
    turns = itertools.cycle(members.items())
    for topic, count in sorted(partitions.items()):
        if not any(topic in topics for topics in members.values()):
            continue
        for number in range(count):
            member = next(member for member, topics in turns if topic in topics)
            result[member].append((topic, number))
    return result


ASSIGNORS = {"range": assign_range, "roundrobin": assign_round_robin}


def packed(message: object) -> bytes:
    """A message of the consumer protocol, preceded by its version."""
    return PROTOCOL_VERSION.to_bytes(2, "big") + encode(message, PROTOCOL_VERSION)


def subscription(topics: Sequence[str]) -> bytes:
    return packed(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=[]))


def assignment(tps: Iterable[Partition]) -> bytes:
    topics = by_topic(tps, lambda tp: tp[1])
    rows = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return packed(ConsumerProtocolAssignment(assigned_partitions=rows))


def topics_in(metadata: bytes) -> list[str]:
    """The topics of a subscription. Errors: WireError."""
    version = min(int.from_bytes(metadata[:2], "big"), 3)
    topics: list[str] = decode(ConsumerProtocolSubscription, bytes(metadata), version, 2).topics
    return topics


def partitions_in(data: bytes) -> list[Partition]:
    """The partitions of an assignment. Errors: WireError."""
    if not data:
        return []
    version = min(int.from_bytes(data[:2], "big"), 3)
    message = decode(ConsumerProtocolAssignment, bytes(data), version, 2)
    return [(row.topic, number) for row in message.assigned_partitions for number in row.partitions]
