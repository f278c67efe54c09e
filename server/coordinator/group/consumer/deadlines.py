"""The deadlines of members: sessions, revocations, and rejoins of classic members.

Source: GroupMetadataManager.schedule...Timeout.
"""

from __future__ import annotations

from ..modern.deadlines import SetDeadline
from .draft import ConsumerDraft
from .member import ConsumerGroupMember

SESSION_DUE = "consumer_session_due"
REVOCATION_DUE = "consumer_revocation_due"
REJOIN_DUE = "consumer_rejoin_due"
SYNC_DUE = "consumer_sync_due"

NAMES = (SESSION_DUE, REVOCATION_DUE, REJOIN_DUE, SYNC_DUE)


def keep_alive(group_id: str, member_id: str, timeout_ms: int, draft: ConsumerDraft) -> None:
    """Restart a member's session."""
    draft.deadlines.append(SetDeadline(SESSION_DUE, group_id, member_id, timeout_ms))


def expect_revocation(
    group_id: str, member: ConsumerGroupMember, revoking: bool, draft: ConsumerDraft
) -> None:
    """Set the deadline for a member to give up partitions, or cancel it."""
    timeout_ms = member.rebalance_timeout_ms if revoking else None
    draft.deadlines.append(
        SetDeadline(REVOCATION_DUE, group_id, member.member_id, timeout_ms, member.member_epoch)
    )


def cancel_all(group_id: str, member_id: str, draft: ConsumerDraft) -> None:
    """Cancel all deadlines of a member."""
    draft.deadlines += [SetDeadline(name, group_id, member_id, None) for name in NAMES]
