"""A member of a share group; immutable. Source: ShareGroupMember."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..modern.members import MemberState, Partitions


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """One member.

    Shape: `assigned` are the partitions that it may consume, possibly together with other members.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has its complete target assignment at that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch
