"""Moves of a partition's replicas: the assignments in between, and the test for completion; pure.

During a move, a partition has the replicas of both assignments: the target first, then the replicas to be removed;
`adding` and `removing` mark the differences (KIP-455). Source: ReplicaAssignment in ControllerContext.scala,
KafkaController.maybeBuildReassignment.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kwire.errors import ErrorCode

from ..coordination.paths import ReplicaAssignment
from ..metadata.image import PartitionImage
from .refusal import ControllerRefusal

#: More replicas than any cluster has brokers; longer lists are not checked one by one.
MAX_REPLICAS = 10_000

NOT_IN_PROGRESS = ControllerRefusal(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "No partition reassignment is in progress.",
)
UNKNOWN_PARTITION = ControllerRefusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)


def assignment_of(partition: PartitionImage) -> ReplicaAssignment:
    """A partition's assignment as stored."""
    return ReplicaAssignment(partition.replicas, partition.adding, partition.removing)


def is_reassigning(assignment: ReplicaAssignment) -> bool:
    """Whether replicas are being moved."""
    return bool(assignment.adding or assignment.removing)


def target_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas after the move."""
    return tuple(each for each in assignment.replicas if each not in assignment.removing)


def origin_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas before the move; their original order may be lost."""
    return tuple(each for each in assignment.replicas if each not in assignment.adding)


def reassigned(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """The assignment that moves to `target`, replacing an ongoing move."""
    origin = origin_of(assignment)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    before, after = frozenset(origin), frozenset(target)  # a request may list many thousands
    return ReplicaAssignment(
        replicas,
        tuple(each for each in replicas if each not in before),
        tuple(each for each in replicas if each not in after),
    )


def is_complete(assignment: ReplicaAssignment, isr: Collection[int]) -> bool:
    """Whether every target replica is in sync."""
    return set(target_of(assignment)) <= set(isr)


def plan_reassignment(
    partition: PartitionImage | None, target: Sequence[int] | None, live: Collection[int]
) -> ReplicaAssignment | ControllerRefusal:
    """The assignment that an administrator requests; `target` None cancels.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
    """
    if partition is None:
        if target is None:
            return NOT_IN_PROGRESS
        return _invalid_replicas(ReplicaAssignment(()), target, live) or UNKNOWN_PARTITION
    current = assignment_of(partition)
    if target is None:
        return (
            reassigned(current, origin_of(current)) if is_reassigning(current) else NOT_IN_PROGRESS
        )
    return _invalid_replicas(current, target, live) or reassigned(current, target)


def _invalid_replicas(
    current: ReplicaAssignment, target: Sequence[int], live: Collection[int]
) -> ControllerRefusal | None:
    if not target:
        return _invalid("Empty replica list specified in partition reassignment.")
    if len(target) > MAX_REPLICAS:
        return _invalid(f"More than {MAX_REPLICAS} replica ids in partition reassignment.")
    listed = ", ".join(map(str, target))
    if len(set(target)) != len(target):
        return _invalid(
            f"Duplicate replica ids in partition reassignment replica list: List({listed})"
        )
    if min(target) < 0:
        return _invalid(f"Invalid broker id in replica list: List({listed})")
    adding = reassigned(current, target).adding
    if not set(adding) <= set(live):
        return _invalid(
            "Replica assignment has brokers that are not alive. Replica list: "
            f"List({', '.join(map(str, adding))}), live broker list: "
            f"Set({', '.join(map(str, sorted(live)))})"
        )
    return None


def _invalid(message: str) -> ControllerRefusal:
    return ControllerRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
