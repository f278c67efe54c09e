"""Applies the records of a consumer group to it. Source: GroupMetadataManager.replay."""

from __future__ import annotations

from ..modern.members import LEAVE_EPOCH
from .group import ConsumerGroup
from .member import NO_EPOCHS, ConsumerGroupMember
from .records import (
    ConsumerGroupRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)

NO_TARGET_EPOCH = -1


def replay(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Apply a committed record; the caller handles the tombstone of the group itself."""
    match record:
        case EpochRecord(_, value):
            if value is not None:
                group.group_epoch, group.metadata_hash = value
        case PartitionMetadataRecord(_, metadata):
            group.has_partition_metadata = metadata is not None
        case MemberRecord(_, member_id, member):
            if member is None:
                group.remove_member(member_id)
            else:
                group.put_member(_with_current(member, group.members.get(member_id)))
        case TargetEpochRecord(_, value):
            group.assignment_epoch, group.assignment_timestamp_ms = value or (NO_TARGET_EPOCH, 0)
        case TargetRecord(_, member_id, target):
            group.put_target(member_id, target)
        case CurrentRecord(_, member_id, current):
            known = group.members.get(member_id)
            if current is not None:
                if known is None:
                    known = ConsumerGroupMember(member_id)
                    group.put_member(known)
                group.put_current(_with_current(known, current))
            elif known is not None:
                left = known._replace(
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NO_EPOCHS,
                    revoking=NO_EPOCHS,
                )
                group.put_current(left)
        case RegexRecord(_, regex, resolved):
            group.put_resolved(regex, resolved)


def _with_current(
    said: ConsumerGroupMember, current: ConsumerGroupMember | None
) -> ConsumerGroupMember:
    """A member with the identity and subscription of one value, and the epochs and partitions of another."""
    if current is None:
        return said
    return said._replace(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned=current.assigned,
        revoking=current.revoking,
    )
