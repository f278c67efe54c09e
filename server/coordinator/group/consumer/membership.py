"""The members of a consumer group, and how they are added, replaced and removed.

Source: GroupMetadataManager.getOrMaybeSubscribeDynamicConsumerGroupMember and -Static-,
throwIfConsumerGroupMemberEpochIsInvalid, replaceMember, consumerGroupFenceMembers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from kwire.errors import ErrorCode

from ..memory import GROUP_BYTES
from ..modern.context import GroupContext
from ..modern.members import JOIN_EPOCH, NO_PARTITIONS
from ..modern.refusal import GroupRefusal
from . import deadlines
from .current_assignment import Owned
from .draft import ConsumerDraft
from .group import ConsumerGroup, member_bytes
from .member import LEAVE_STATIC_EPOCH, ConsumerGroupMember
from .records import CurrentRecord, EpochRecord, MemberRecord, RegexRecord, TargetRecord

log = logging.getLogger(__name__)

#: The maximum number of topics that the members of a group name: each change of a subscription processes all of them in
#: one turn.
MAX_TOPICS = 50_000


def check_size(context: GroupContext, group: ConsumerGroup, member_id: str) -> None:
    """Refuse a new member of a full group. Errors: GROUP_MAX_SIZE_REACHED."""
    most = context.config.consumer_max_size
    if len(group.members) >= most and member_id not in group.members:
        raise GroupRefusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def check_memory(
    context: GroupContext, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> None:
    """Refuse a member for which there is no memory, even if it is in the group and asks for more.

    Errors: those of GroupMemory.refuses_members; GROUP_MAX_SIZE_REACHED if the members name too many topics.
    """
    if new == old:
        return
    is_known = old.member_id in group.members or old.instance_id in group.static_members
    more = member_bytes(new) - (member_bytes(old) if is_known else -GROUP_BYTES)
    error = context.memory.refuses_members(context.config, group.client, group.held_bytes, more)
    if error is not ErrorCode.NONE:
        raise GroupRefusal(error)
    if new.subscribed_topic_names == old.subscribed_topic_names:
        return
    topics = len(group.topics)
    if topics + len(new.subscribed_topic_names) > MAX_TOPICS:
        topics += sum(name not in group.topics for name in new.subscribed_topic_names)
        if topics > MAX_TOPICS:
            raise GroupRefusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the consumer group name {topics} topics; {MAX_TOPICS} are possible.",
            )


def member_to_join(
    context: GroupContext,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    draft: ConsumerDraft,
    *,
    classic: bool = False,
) -> ConsumerGroupMember:
    """Return the joining member: a new one, a returning one, or one that takes over an instance id.

    Errors: UNRELEASED_INSTANCE_ID if the holder of the instance id has not left and both use the consumer protocol.
    """
    holder = group.static_member(instance_id)
    if instance_id is None or holder is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if not classic and holder.classic is None and holder.member_epoch != LEAVE_STATIC_EPOCH:
        raise GroupRefusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because "
            f"the instance id is owned by {holder.member_id} member.",
        )
    joining = holder._replace(
        member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
    )
    _replace_member(group, holder, joining, draft)
    return joining


def _replace_member(
    group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember, draft: ConsumerDraft
) -> None:
    """Give a new member the state of the old one."""
    group_id = group.group_id
    _remove_member(group, old.member_id, draft)
    draft.write(MemberRecord(group_id, new.member_id, new))
    target = group.target.get(old.member_id, NO_PARTITIONS)
    draft.write(TargetRecord(group_id, new.member_id, target))
    draft.write(CurrentRecord(group_id, new.member_id, new))


def _remove_member(group: ConsumerGroup, member_id: str, draft: ConsumerDraft) -> None:
    draft.write(CurrentRecord(group.group_id, member_id, None))
    draft.write(TargetRecord(group.group_id, member_id, None))
    draft.write(MemberRecord(group.group_id, member_id, None))


def member_to_stay(
    context: GroupContext,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int | None,
    owned: Owned,
) -> ConsumerGroupMember:
    """Return the member that sends a request at an epoch; None if the epoch is not checked.

    Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH.
    """
    if instance_id is None:
        member = known_member(group, member_id)
    else:
        found = group.static_member(instance_id)
        if found is None:
            raise GroupRefusal(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        member = found
        check_instance(member, member_id, instance_id)
    if epoch is not None:
        _check_epoch(member, epoch, owned)
    return member


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    """Return a member by its id. Errors: UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise GroupRefusal(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def check_instance(holder: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    """Refuse a member whose instance id belongs to another member.

    Errors: FENCED_INSTANCE_ID.
    """
    if holder.member_id != member_id:
        raise GroupRefusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )


def _check_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned) -> None:
    """Accept the current epoch, or the previous one if the answer with the current one may have been lost."""
    known = member.member_epoch
    if epoch == known:
        return
    if epoch > known:
        raise _fenced("greater", epoch, known)
    if epoch != member.previous_member_epoch or not _has_only(owned, member):
        raise _fenced("smaller", epoch, known)


def _has_only(owned: Owned, member: ConsumerGroupMember) -> bool:
    """Whether a member reports its partitions, and all of them are assigned to it."""
    return owned is not None and all(
        topic_id in member.assigned
        and all(each in member.assigned[topic_id] for each in partitions)
        for topic_id, partitions in owned
    )


def _fenced(which: str, epoch: int, known: int) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def fence_members(
    context: GroupContext,
    group: ConsumerGroup,
    members: Sequence[ConsumerGroupMember],
    draft: ConsumerDraft,
) -> None:
    """Remove members, with the regular expressions that only they had, and bump the group's epoch."""
    if not members:
        return
    for member in members:
        _remove_member(group, member.member_id, draft)
    counts = Counter(each.subscribed_topic_regex for each in members if each.subscribed_topic_regex)
    unused = [regex for regex, count in counts.items() if group.regexes[regex] == count]
    for regex in unused:
        draft.write(RegexRecord(group.group_id, regex, None))
    topics = group.topics_without(members, unused)
    metadata_hash = context.hashes.of_group(topics, context.image)
    draft.write(EpochRecord(group.group_id, (group.group_epoch + 1, metadata_hash)))
    for member in members:
        deadlines.cancel_all(group.group_id, member.member_id, draft)
