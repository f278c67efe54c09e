"""Applies the records of a share group to it. Source: GroupMetadataManager.replay."""

from __future__ import annotations

from dataclasses import replace

from ..modern.members import LEAVE_EPOCH
from .group import ShareGroup
from .member import ShareGroupMember
from .records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)

NO_TARGET_EPOCH = -1


def replay(group: ShareGroup, record: ShareGroupRecord) -> None:
    """Apply a committed record; the caller handles the tombstone of the group itself."""
    match record:
        case ShareEpochRecord(_, value):
            if value is not None:
                group.group_epoch, group.metadata_hash = value
        case ShareMemberRecord(_, member_id, member):
            known = group.members.get(member_id)
            if member is None:
                group.remove_member(member_id)
            else:
                group.put_member(member if known is None else _with_current(member, known))
        case ShareTargetEpochRecord(_, value):
            group.assignment_epoch, group.assignment_timestamp_ms = value or (NO_TARGET_EPOCH, 0)
        case ShareTargetRecord(_, member_id, target):
            group.put_target(member_id, target)
        case ShareCurrentRecord(_, member_id, current):
            known = group.members.get(member_id)
            if current is not None:
                said = known or ShareGroupMember(member_id)
                group.put_member(_with_current(said, current))
            elif known is not None:
                group.put_member(
                    replace(
                        known,
                        member_epoch=LEAVE_EPOCH,
                        previous_member_epoch=LEAVE_EPOCH,
                        assigned={},
                    )
                )
        case StatePartitionsRecord(_, states):
            group.put_states(states)


def _with_current(said: ShareGroupMember, current: ShareGroupMember) -> ShareGroupMember:
    """A member with the identity and subscription of one value, and the epochs and partitions of another."""
    return replace(
        said,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned=current.assigned,
    )
