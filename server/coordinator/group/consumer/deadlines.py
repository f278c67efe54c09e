"""The deadlines of members: sessions, revocations, and the steps of members that speak the classic protocol.

Source: GroupMetadataManager.schedule...Timeout.
"""

from __future__ import annotations

from ..modern.deadlines import SetDeadline
from .draft import Draft
from .member import ConsumerGroupMember

SESSION_DUE = "consumer_session_due"
REVOCATION_DUE = "consumer_revocation_due"
REJOIN_DUE = "consumer_rejoin_due"
SYNC_DUE = "consumer_sync_due"

NAMES = (SESSION_DUE, REVOCATION_DUE, REJOIN_DUE, SYNC_DUE)


def keep_alive(group_id: str, member_id: str, timeout_ms: int, draft: Draft) -> None:
    """Begin a member's session anew."""
    draft.deadlines.append(SetDeadline(SESSION_DUE, group_id, member_id, timeout_ms))


def expect_revocation(
    group_id: str, member: ConsumerGroupMember, revoking: bool, draft: Draft
) -> None:
    """Give a member time to give up partitions, or stop waiting for it."""
    timeout_ms = member.rebalance_timeout_ms if revoking else None
    draft.deadlines.append(
        SetDeadline(REVOCATION_DUE, group_id, member.member_id, timeout_ms, member.member_epoch)
    )


def cancel_all(group_id: str, member_id: str, draft: Draft) -> None:
    """Wait for nothing from a member any more."""
    draft.deadlines += [SetDeadline(name, group_id, member_id, None) for name in NAMES]
