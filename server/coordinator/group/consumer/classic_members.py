"""Members of a consumer group that use the classic protocol, while a group migrates from one protocol to the other.

JoinGroup reports the partitions that a member owns and takes a step toward its target, SyncGroup returns the resulting
assignment, and Heartbeat tells the member to rejoin when there is another step to take. Source:
GroupMetadataManager.classicGroupJoinToConsumerGroup, -Sync-, -Heartbeat-, -Leave-; KIP-848.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import JoinGroupResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from ..classic import Joining
from ..modern.context import GroupClient, GroupContext
from ..modern.deadlines import SetDeadline
from ..modern.members import MemberState
from ..modern.refusal import GroupRefusal
from ..state import CONSUMER_PROTOCOL_TYPE
from . import deadlines
from .classic_protocol import Malformed, assignment_bytes, by_id, subscription_of
from .conversion import can_downgrade_for, downgrade, remove_members
from .draft import ConsumerDraft
from .group import ConsumerGroup
from .heartbeat_steps import apply_subscription, move
from .member import ClassicMember, ConsumerGroupMember, without_epochs
from .membership import (
    check_instance,
    check_memory,
    check_size,
    known_member,
    member_to_join,
    member_to_stay,
)
from .regexes import RegexChange, update_regexes


def join(
    context: GroupContext, group: ConsumerGroup, joining: Joining, draft: ConsumerDraft
) -> None:
    """Add or update a member, and take a step toward its target.

    Errors: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED (with the id in the answer),
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; those of check_memory.
    """
    request = joining.request
    instance_id = request.group_instance_id
    member_id = request.member_id or joining.new_member_id
    check_size(context, group, member_id)
    names = [name for name, _ in joining.protocols]
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        group.classic_protocols[name] == group.classic_members for name in names
    ):
        raise GroupRefusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )
    if not request.member_id and instance_id is None and joining.require_member_id:
        draft.answer = JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            generation_id=-1,
            protocol_name=None,
            member_id=member_id,
        )
        return
    if instance_id is None or not request.member_id:
        old = member_to_join(context, group, member_id, instance_id, draft, classic=True)
    else:
        old = member_to_stay(context, group, member_id, instance_id, None, None)
    holder = group.static_member(instance_id)
    is_downgrade = holder is not None and can_downgrade_for(context, group, holder)
    subscription = subscription_of(joining.protocols)
    new = old._replace(
        instance_id=old.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMember(request.session_timeout_ms, tuple(joining.protocols)),
    )
    check_memory(context, group, old, new)
    if new != old:
        draft.write_member(group, new)
    names_changed = new.subscribed_topic_names != old.subscribed_topic_names
    client = GroupClient(new.client_id, new.client_host, 0, joining.may_describe)
    regex_change = update_regexes(context, group, old, new, client, draft)
    changed = names_changed or regex_change is not RegexChange.NONE
    owned = [
        (t, sorted(some)) for t, some in by_id(subscription.owned_partitions, context.image).items()
    ]
    if is_downgrade:
        member = downgrade(context, group, old, new, owned, changed, draft)
    else:
        target_epoch, target = apply_subscription(context, group, old, new, changed, draft)
        member = move(
            context,
            group,
            new,
            target_epoch,
            target,
            owned,
            subscription_changed=changed,
            draft=draft,
        )
        group_id, member_id = group.group_id, member.member_id
        deadlines.keep_alive(group_id, member_id, request.session_timeout_ms, draft)
        draft.deadlines += [
            SetDeadline(deadlines.REJOIN_DUE, group_id, member_id, None),
            SetDeadline(deadlines.SYNC_DUE, group_id, member_id, request.rebalance_timeout_ms),
        ]
    draft.answer = JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=names[0],
        member_id=member.member_id,
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerGroupMember, ClassicMember]:
    """Return the member that sends a request of the classic protocol.

    Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if instance_id is None:
        member = known_member(group, member_id)
    else:
        holder = group.static_member(instance_id)
        if holder is None:
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
        member = holder
        check_instance(member, member_id, instance_id)
    if member.classic is None:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_epoch != generation_id:
        raise GroupRefusal(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def sync(
    context: GroupContext, group: ConsumerGroup, request: SyncGroupRequest, draft: ConsumerDraft
) -> None:
    """Return the member's assignment.

    Errors: those of _classic_member, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
    """
    group_id = group.group_id
    member, classic = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, name):
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if (
        group.assignment_epoch > member.member_epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        draft.deadlines.append(_rejoin(group_id, member))
        draft.answer = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return
    try:
        assignment = assignment_bytes(without_epochs(member.assigned), metadata, context.image)
    except Malformed:
        raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    draft.deadlines.append(SetDeadline(deadlines.SYNC_DUE, group_id, member.member_id, None))
    deadlines.keep_alive(group_id, member.member_id, classic.session_timeout_ms, draft)
    draft.answer = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment,
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, draft: ConsumerDraft) -> None:
    """Keep the member alive, and tell it whether it must rejoin.

    Errors: those of _classic_member.
    """
    member, classic = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    deadlines.keep_alive(group.group_id, member.member_id, classic.session_timeout_ms, draft)
    error = ErrorCode.NONE
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not group.is_waiting_for_partitions(member)
        )
    ):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        draft.deadlines.append(_rejoin(group.group_id, member))
    draft.answer = HeartbeatResponse(error_code=error)


def _rejoin(group_id: str, member: ConsumerGroupMember) -> SetDeadline:
    """The deadline for a member to rejoin, measured from when it was first told to."""
    return SetDeadline(
        deadlines.REJOIN_DUE,
        group_id,
        member.member_id,
        member.rebalance_timeout_ms,
        only_new=True,
    )


def leave(
    context: GroupContext, group: ConsumerGroup, request: LeaveGroupRequest, draft: ConsumerDraft
) -> None:
    """Remove members, by member id or instance id; each has a row with its own error."""
    rows = []
    leaving: dict[str, ConsumerGroupMember] = {}
    for each in request.members:
        row = MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
        rows.append(row)
        try:
            if each.group_instance_id is None:
                member = known_member(group, each.member_id)
            else:
                holder = group.static_member(each.group_instance_id)
                if holder is None:
                    raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
                member = holder
                if each.member_id:
                    check_instance(member, each.member_id, each.group_instance_id)
        except GroupRefusal as refusal:
            row.error_code = refusal.error
        else:
            leaving[member.member_id] = member
    remove_members(context, group, list(leaving.values()), draft)
    draft.answer = LeaveGroupResponse(members=rows)
