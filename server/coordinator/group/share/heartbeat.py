"""ShareGroupHeartbeat: a member joins, stays, changes its subscription, or leaves.

Source: GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid, GroupMetadataManager.shareGroupHeartbeat,
shareGroupLeave and shareGroupFenceMember, ShareGroupAssignmentBuilder; KIP-932.
"""

from __future__ import annotations

from dataclasses import replace

from kwire.errors import ErrorCode
from kwire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from ..memory import GROUP_BYTES
from ..modern.context import GroupClient, GroupContext
from ..modern.deadlines import SetDeadline
from ..modern.draft import Draft
from ..modern.members import JOIN_EPOCH, LEAVE_EPOCH, MemberState, Partitions
from ..modern.refusal import GroupRefusal
from .group import ShareGroup, member_bytes
from .member import ShareGroupMember
from .records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareTargetRecord,
)
from .states import ask_for_states, missing_states, refuses_states
from .target import update_target

SESSION_DUE = "share_session_due"

#: A member id has at least one character, and at most as many as a UUID as text.
MEMBER_ID_LENGTH = 36

#: The maximum number of topics of a member: they are counted and stored in one turn.
MAX_NAMES = 10_000

#: The maximum number of topics, and of their partitions, that the members of a group read: they are in one record.
MAX_TOPICS = 10_000
MAX_PARTITIONS = 20_000


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a request that no group could accept.

    Errors: INVALID_REQUEST.
    """
    _not_empty(request.member_id, "MemberId can't be empty.")
    _not_empty(request.group_id, "GroupId can't be empty.")
    _not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = len(request.subscribed_topic_names or ())
    if names > MAX_NAMES:
        raise _invalid(f"SubscribedTopicNames has {names} names; {MAX_NAMES} are possible.")


def _not_empty(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> GroupRefusal:
    return GroupRefusal(ErrorCode.INVALID_REQUEST, message)


def refused(refusal: GroupRefusal) -> ShareGroupHeartbeatResponse:
    """The answer to a request that is refused."""
    return ShareGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)


def heartbeat(
    context: GroupContext,
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    client: GroupClient,
    draft: Draft,
) -> None:
    """Let a member join or stay.

    Errors: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, those of GroupMemory.refuses_members.
    """
    group_id = group.group_id
    _check_size(context, group, request.member_id)
    old = _member(group, request.member_id, request.member_epoch)
    names = request.subscribed_topic_names
    new = replace(
        old,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=old.subscribed_topic_names if names is None else frozenset(names),
        client_id=client.client_id,
        client_host=client.client_host,
    )
    _check_memory(context, group, old, new)
    bump = new.subscribed_topic_names != old.subscribed_topic_names
    if new != old:
        draft.records.append(ShareMemberRecord(group_id, new.member_id, new))
    epoch = group.group_epoch
    if group.assignment_epoch >= epoch:
        bump = bump or group.lacks_assignment
    topics = group.topics
    if bump or group.image_version != context.image.version:
        topics = group.topics_with(old, new)
        _check_topics(context, topics)
        metadata_hash = context.hashes.of_group(topics, context.image)
        bump = bump or metadata_hash != group.metadata_hash
        if bump:
            epoch += 1
            draft.records.append(ShareEpochRecord(group_id, (epoch, metadata_hash)))
        group.image_version = context.image.version
    target_epoch, target = update_target(context, group, epoch, new, topics, draft)
    member = _move(context, new, target_epoch, target, bump)
    if member != new:
        draft.records.append(ShareCurrentRecord(group_id, member.member_id, member))
    draft.deadlines.append(
        SetDeadline(SESSION_DUE, group_id, member.member_id, context.settings.session_timeout_ms)
    )
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
    )
    if request.member_epoch == JOIN_EPOCH or names is not None or old.assigned != member.assigned:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(some))
                for topic_id, some in member.assigned.items()
            ]
        )
    draft.answer = response
    missing = missing_states(context, group, topics)
    if missing:
        error = refuses_states(context, group, missing)
        if error is not ErrorCode.NONE:
            if not old.assigned:
                raise GroupRefusal(error)
            missing = {}  # it keeps what it has until there is room
    ask_for_states(context, group, epoch, missing, draft)


def _check_size(context: GroupContext, group: ShareGroup, member_id: str) -> None:
    most = context.config.share_max_size
    if len(group.members) >= most and member_id not in group.members:
        raise GroupRefusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {most} members.",
        )


def _check_memory(
    context: GroupContext, group: ShareGroup, old: ShareGroupMember, new: ShareGroupMember
) -> None:
    """Refuse a member for which there is no memory, even if it is in the group and asks for more."""
    if new == old:
        return
    known = member_bytes(old) if old.member_id in group.members else -GROUP_BYTES
    more = member_bytes(new) - known
    error = context.memory.refuses_members(context.config, group.client, group.held_bytes, more)
    if error is not ErrorCode.NONE:
        raise GroupRefusal(error)


def _check_topics(context: GroupContext, topics: dict[str, int]) -> None:
    """Refuse more partitions than fit into one record of initialized states.

    Errors: GROUP_MAX_SIZE_REACHED.
    """
    known = context.image.topics
    partitions = sum(len(known[name].partitions) for name in topics if name in known)
    if len(topics) > MAX_TOPICS or partitions > MAX_PARTITIONS:
        raise GroupRefusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the share group name {len(topics)} topics with {partitions} partitions; "
            f"{MAX_TOPICS} and {MAX_PARTITIONS} are possible.",
        )


def _member(group: ShareGroup, member_id: str, epoch: int) -> ShareGroupMember:
    """Return the member that sends a request at an epoch; if it joins, a new one.

    Shape: the previous epoch is accepted too, because the answer with the current epoch may have been lost.
    Errors: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    if epoch == JOIN_EPOCH:
        return group.members.get(member_id) or ShareGroupMember(member_id)
    member = known_member(group, member_id)
    known, before = member.member_epoch, member.previous_member_epoch
    abandon = "The member must abandon all its partitions and rejoin."
    if epoch > known:
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group "
            f"coordinator ({known}). {abandon}",
        )
    if epoch < known and epoch != before:
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group "
            f"coordinator ({known}), and it does not match the previous member epoch ({before}). {abandon}",
        )
    return member


def known_member(group: ShareGroup, member_id: str) -> ShareGroupMember:
    """Return a member by its id. Errors: UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise GroupRefusal(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def _move(
    context: GroupContext,
    member: ShareGroupMember,
    target_epoch: int,
    target: Partitions,
    subscription_changed: bool,
) -> ShareGroupMember:
    """Give a member its target, limited to the topics that it reads; no other member has to give up anything first."""
    if not subscription_changed and member.is_reconciled_to(target_epoch):
        return member
    if not subscription_changed and target_epoch == member.member_epoch:
        return member
    topics = context.image.topics
    subscribed = {topics[name].topic_id for name in member.subscribed_topic_names if name in topics}
    assigned = {topic_id: some for topic_id, some in target.items() if topic_id in subscribed}
    if target_epoch == member.member_epoch:
        return replace(member, assigned=assigned)
    return replace(
        member,
        state=MemberState.STABLE,
        assigned=assigned,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
    )


def leave(
    context: GroupContext, group: ShareGroup, request: ShareGroupHeartbeatRequest, draft: Draft
) -> None:
    """Remove a member that leaves. Errors: UNKNOWN_MEMBER_ID."""
    member = known_member(group, request.member_id)
    draft.answer = ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    remove_member(context, group, member, draft)


def remove_member(
    context: GroupContext, group: ShareGroup, member: ShareGroupMember, draft: Draft
) -> None:
    """Remove a member and bump the group's epoch; the other members get its partitions with their next heartbeats."""
    group_id, member_id = group.group_id, member.member_id
    metadata_hash = context.hashes.of_group(group.topics_with(member, None), context.image)
    draft.records += [
        ShareCurrentRecord(group_id, member_id, None),
        ShareTargetRecord(group_id, member_id, None),
        ShareMemberRecord(group_id, member_id, None),
        ShareEpochRecord(group_id, (group.group_epoch + 1, metadata_hash)),
    ]
    draft.deadlines.append(SetDeadline(SESSION_DUE, group_id, member_id, None))
