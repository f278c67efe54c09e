"""The steps that requests of both protocols have in common: subscription, target, and reconciliation of a member.

Source: GroupMetadataManager.updateSubscriptionMetadata, maybeReconcile.
"""

from __future__ import annotations

from ..modern.context import GroupContext
from ..modern.members import MemberState, Partitions
from . import deadlines
from .current_assignment import Owned, reconcile
from .draft import ConsumerDraft
from .group import ConsumerGroup, SubscriptionType
from .member import ConsumerGroupMember
from .records import CurrentRecord, EpochRecord, PartitionMetadataRecord
from .target import update_target


def count_subscription(
    context: GroupContext,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    bump: bool,
    draft: ConsumerDraft,
) -> tuple[int, SubscriptionType | None]:
    """Bump the group's epoch if the member's subscription or the topics have changed, and return the epoch.

    Shape: also returns whether all members read the same topics, if that was checked.
    """
    epoch = group.group_epoch
    if not bump and group.image_version == context.image.version:
        return epoch, None
    topics = group.topics_with(old, new)
    subscription_type = group.subscription_type(topics, old, new)
    metadata_hash = context.hashes.of_group(topics, context.image)
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        draft.write(EpochRecord(group.group_id, (epoch, metadata_hash)))
    group.image_version = context.image.version
    if group.has_partition_metadata:
        draft.write(PartitionMetadataRecord(group.group_id, None))
    return epoch, subscription_type


def apply_subscription(
    context: GroupContext,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    bump: bool,
    draft: ConsumerDraft,
) -> tuple[int, Partitions]:
    """Apply a member's subscription, and compute a new target if needed; return its epoch and the target of `new`."""
    epoch, subscription_type = count_subscription(context, group, old, new, bump, draft)
    if group.assignment_epoch >= epoch:
        return group.assignment_epoch, group.target_of(new)
    if subscription_type is None:
        subscription_type = group.subscription_type(group.topics, old, old)
    return update_target(context, group, epoch, old, new, subscription_type, draft)


def move(
    context: GroupContext,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    owned: Owned,
    *,
    subscription_changed: bool,
    draft: ConsumerDraft,
) -> ConsumerGroupMember:
    """Take a step toward the target of a member, and return the resulting member."""
    if not subscription_changed and member.is_reconciled_to(target_epoch):
        return member
    topics = context.image.topics
    subscribed = {topics[name].topic_id for name in group.subscription(member) if name in topics}
    moved = reconcile(
        member,
        target_epoch,
        target,
        subscribed,
        owned,
        group.partition_epoch,
        subscription_changed=subscription_changed,
    )
    if moved == member:
        return member
    draft.write(CurrentRecord(group.group_id, moved.member_id, moved))
    if moved.classic is None:
        revoking = moved.state is MemberState.UNREVOKED_PARTITIONS
        deadlines.expect_revocation(group.group_id, moved, revoking, draft)
    return moved
