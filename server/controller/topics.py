"""Rules for topic names and partition assignments, with Kafka's error messages; pure.

Source: org.apache.kafka.common.internals.Topic, AdminZkClient, ZkAdminManager.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kwire.errors import ErrorCode

from .refusal import ControllerRefusal

#: Leaves room for "-<partition>" and for the suffix of a deleted directory in 255 bytes.
MAX_NAME_LENGTH = 249
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


NOT_CONSECUTIVE = "partitions should be a consecutive 0-based integer sequence"


def invalid_topic_name(name: str) -> str | None:
    """The fault of a topic name, in Kafka's words; None if it is valid."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif LEGAL_NAME.fullmatch(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than"
            " ASCII alphanumerics, '.', '_' and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


class TakenNames(Collection[str]):
    """The names of all topics, collected once for the comparison with many new names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)
        self._unified = {unified_name(name) for name in self._names}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> None:
        """Add a name."""
        self._names.add(name)
        self._unified.add(unified_name(name))

    def has_similar(self, name: str) -> bool:
        """Whether this name or a colliding name exists."""
        return unified_name(name) in self._unified


def unified_name(name: str) -> str:
    """A topic's name in metrics, which do not distinguish '.' and '_'."""
    return name.replace(".", "_")


def colliding_topics(name: str, topics: Iterable[str]) -> list[str]:
    """Topics that would have the same name in metrics, because they differ only in '.' and '_'."""
    if "." not in name and "_" not in name:
        return []
    if isinstance(topics, TakenNames) and not topics.has_similar(name):
        return []
    unified = unified_name(name)
    return sorted(topic for topic in topics if unified_name(topic) == unified)


def validate_topic_name(name: str, topics: Collection[str] = ()) -> ControllerRefusal | None:
    """Check the name of a topic to be created in addition to `topics`.

    Errors: INVALID_TOPIC_EXCEPTION, also for a name that collides; TOPIC_ALREADY_EXISTS.
    """
    reason = invalid_topic_name(name)
    if reason is not None:
        return ControllerRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in topics:
        return ControllerRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = colliding_topics(name, topics)
    if colliding:
        return ControllerRefusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
        )
    return None


def validate_assignment(assignment: Mapping[int, Sequence[int]]) -> ControllerRefusal | None:
    """Check the form of a new topic's assignment. Errors: INVALID_REPLICA_ASSIGNMENT."""
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        return refuse_assignment("All partitions should have the same number of replicas")
    for replicas in assignment.values():
        if len(set(replicas)) != len(replicas):
            return refuse_assignment(
                f"Duplicate replica assignment found: {dict(sorted(assignment.items()))}"
            )
    count = len(assignment)
    if sum(number for number in assignment if number > 0) != count * (count - 1) // 2:
        return refuse_assignment(NOT_CONSECUTIVE)
    return None


def validate_partition_growth(
    existing: int,
    count: int,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Collection[int],
) -> ControllerRefusal | None:
    """Check a topic's new number of partitions and their manual assignment, if any.

    Errors: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT.
    """
    if count < existing:
        return ControllerRefusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {existing} partitions, which is higher than the requested"
            f" {count}.",
        )
    if count == existing:
        return ControllerRefusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partitions."
        )
    if assignments is None:
        return None
    refused = refuse_unknown_brokers(assignments, brokers)
    if refused is not None:
        return refused
    if len(assignments) != count - existing:
        return refuse_assignment(
            f"Increasing the number of partitions by {count - existing} but {len(assignments)}"
            " assignments provided."
        )
    for partition, replicas in enumerate(assignments, existing):
        if not replicas:
            return refuse_assignment(
                f"Cannot have replication factor of 0 for partition id {partition}."
            )
        if len(set(replicas)) != len(replicas):
            return refuse_assignment(
                f"Duplicate brokers not allowed in replica assignment: {join(replicas)} for"
                f" partition id {partition}."
            )
    odd = {
        partition: len(replicas)
        for partition, replicas in enumerate(assignments, existing)
        if len(replicas) != replication_factor
    }
    if odd:
        return refuse_assignment(
            "Inconsistent replication factor between partitions, partition 0 has"
            f" {replication_factor} while partitions [{join(odd)}] have replication factors"
            f" [{join(odd.values())}], respectively."
        )
    return None


def refuse_unusable(assignment: Mapping[int, Sequence[int]]) -> ControllerRefusal | None:
    """Refuse partitions without replicas or with negative numbers.

    Apache Kafka creates such topics and cannot use them afterwards.
    Errors: INVALID_REPLICA_ASSIGNMENT.
    """
    if sorted(assignment) != list(range(len(assignment))):
        return refuse_assignment(NOT_CONSECUTIVE)
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            return refuse_assignment(
                f"Cannot have replication factor of 0 for partition id {partition}."
            )
    return None


def refuse_unknown_brokers(
    assignments: Iterable[Sequence[int]], brokers: Collection[int]
) -> ControllerRefusal | None:
    """Refuse replicas on brokers that are not alive. Errors: INVALID_REPLICA_ASSIGNMENT."""
    unknown = sorted({replica for replicas in assignments for replica in replicas} - set(brokers))
    if not unknown:
        return None
    return refuse_assignment(f"Unknown broker(s) in replica assignment: {join(unknown)}.")


def refuse_assignment(message: str) -> ControllerRefusal:
    """A refusal with INVALID_REPLICA_ASSIGNMENT."""
    return ControllerRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def join(numbers: Iterable[int]) -> str:
    """A list of numbers in Kafka's format."""
    return ", ".join(map(str, numbers))
