"""A member of a consumer group; immutable. Source: ConsumerGroupMember, MemberState."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..modern.members import MemberState, Partitions

#: The epoch that a static member sends when it leaves temporarily.
LEAVE_STATIC_EPOCH = -2

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""The epoch at which each partition was assigned to its member, by topic id."""

NO_EPOCHS: PartitionEpochs = {}


class ClassicMember(NamedTuple):
    """The JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMember(NamedTuple):
    """One member.

    Shape: `assigned` are the partitions that it may consume, `revoking` those that it still has to give up. `classic`
    is set for a member that uses the classic protocol.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: PartitionEpochs = NO_EPOCHS
    revoking: PartitionEpochs = NO_EPOCHS
    classic: ClassicMember | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has its complete target assignment at that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch since which the member has a partition, even if it is giving it up; None if it does not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


def with_epoch(partitions: Partitions, epoch: int) -> PartitionEpochs:
    """Partitions that were all assigned at the same epoch."""
    return {topic_id: dict.fromkeys(sorted(some), epoch) for topic_id, some in partitions.items()}


def without_epochs(partitions: PartitionEpochs) -> Partitions:
    """The partitions without their epochs."""
    return {topic_id: frozenset(some) for topic_id, some in partitions.items()}
