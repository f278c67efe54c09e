"""A member of a consumer group; immutable. Source: ConsumerGroupMember, MemberState."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..modern.members import MemberState, Partitions

#: The epoch that a static member sends to leave for a while.
LEAVE_STATIC_EPOCH = -2

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""The epoch at which each partition was assigned to its member, by topic id."""

NO_EPOCHS: PartitionEpochs = {}


class ClassicMember(NamedTuple):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMember(NamedTuple):
    """One member.

    Shape: `assigned` is what it may consume, `revoking` what it still has to give up. `classic` is set for
    a member that speaks the classic protocol.
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
        """Whether it has all that it is to have at that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Since which epoch the member has a partition, also one that it has to give up; None if it has not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


def with_epoch(partitions: Partitions, epoch: int) -> PartitionEpochs:
    """Partitions that are all assigned at one epoch."""
    return {topic_id: dict.fromkeys(sorted(some), epoch) for topic_id, some in partitions.items()}


def without_epochs(partitions: PartitionEpochs) -> Partitions:
    """The partitions alone."""
    return {topic_id: frozenset(some) for topic_id, some in partitions.items()}
