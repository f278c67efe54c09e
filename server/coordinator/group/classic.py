"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Each operation works on a group that the shard has looked up, and puts its answer into a Result.
Source: GroupCoordinator.scala; KIP-62 (rebalance timeout), KIP-134 (first delay), KIP-345 (static members), KIP-394
(member id required), KIP-559 (protocol in SyncGroup), KIP-800 (reasons), KIP-814 (skip_assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from sys import getsizeof
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.join_group import JoinGroupRequest
from kwire.messages.leave_group import MemberIdentity, MemberResponse
from kwire.messages.sync_group import SyncGroupRequest

from ...shares import NOBODY
from ..common.result import Result
from .config import GroupConfig
from .memory import GROUP_BYTES, MEMBER_BYTES, PENDING_BYTES
from .rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBER_DUE,
    UNKNOWN_MEMBER_ID,
    add_pending_member,
    answer_sync,
    drop,
    go_on_without,
    join_error,
    keep_alive,
    maybe_prepare_rebalance,
    prepare_rebalance,
    remove_pending_member,
    rename_static,
    reset_assignment,
    set_assignment,
    set_deadline,
    sync_error,
    sync_received,
    take_out,
    try_complete_join,
)
from .records import group_record
from .state import Group, GroupState, Member, Protocols


class Joining(NamedTuple):
    """A JoinGroup request, with values from its connection and its version.

    Shape: `new_member_id` is the id that the member gets if it has none yet. `require_member_id`: a dynamic member
    without an id gets one and must join again with it (since version 4). `can_skip_assignment`: a static leader that
    returns to a stable group leads again but need not assign (since version 9). `may_describe` says which topics the
    sender may see, for a consumer group that resolves regular expressions during the request. `account` is the client
    for which the memory is counted.
    """

    request: JoinGroupRequest
    protocols: Protocols
    token: int
    client_id: str
    client_host: str
    new_member_id: str
    require_member_id: bool
    can_skip_assignment: bool
    may_describe: Callable[[str], bool]
    account: Hashable = NOBODY


class AssignmentStored(NamedTuple):
    """Ticket of the write that stores a generation's assignment."""

    group_id: str
    generation_id: int
    assignment: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """Ticket of the write that gives a static member a new member id, with the values needed to undo it."""

    group_id: str
    generation_id: int
    instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    token: int
    can_skip_assignment: bool


# JoinGroup


def more_bytes(group: Group | None, joining: Joining) -> int:
    """The additional memory that a group needs if a member joins; negative if it then needs less."""
    request = joining.request
    ids = getsizeof(joining.new_member_id or request.member_id)
    held = 0
    if group is not None:
        known = group.static_members.get(request.group_instance_id or "", request.member_id)
        member = group.members.get(known)
        if member is not None:
            if known == request.member_id and member.protocols == joining.protocols:
                return 0  # as in most rebalances
            held = member.held_bytes
    else:
        held = -GROUP_BYTES - getsizeof(request.group_id)
    if joining.new_member_id and joining.require_member_id and request.group_instance_id is None:
        return PENDING_BYTES + ids - held  # for now
    names = sum(getsizeof(name) + getsizeof(metadata) for name, metadata in joining.protocols)
    ids += getsizeof(joining.client_id) + getsizeof(request.group_instance_id)
    return MEMBER_BYTES + ids + names + getsizeof(b"") - held


def join_group(
    config: GroupConfig, group: Group, joining: Joining, now_ms: int, out: Result[Any]
) -> None:
    """Add a member to the group's next generation, or answer with the step that the member must take first."""
    request = joining.request
    token = joining.token
    member_id = request.member_id
    if not accepts(config, group, member_id):
        removed = drop(group, member_id, out)
        if removed is not None:
            out.reply(removed.join_token, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            answer_sync(removed, sync_error(ErrorCode.UNKNOWN_MEMBER_ID), out)
        out.reply(token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif group.state is GroupState.DEAD:
        # The group was removed or is moving; the member must look up the coordinator again.
        out.reply(token, join_error(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    elif not group.supports(request.protocol_type, joining.protocols):
        out.reply(token, join_error(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif member_id == UNKNOWN_MEMBER_ID:
        join_new_member(config, group, joining, now_ms, out)
    elif member_id in group.pending_members:
        # A static member does not have to join twice to get its member id.
        if request.group_instance_id is not None:
            out.reply(token, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            add_member(config, group, joining, member_id, now_ms, out)
    else:
        join_known_member(config, group, joining, now_ms, out)
    try_complete_join(config, group, now_ms, out)


def accepts(config: GroupConfig, group: Group, member_id: str) -> bool:
    """Check whether group.max.size leaves room for the member.

    Shape: while a rebalance is prepared, only members that have joined again are counted. The last members to join are
    turned away, even if the group was larger than the current limit.
    """
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.join_token is not None:
            return True
        return group.num_awaiting_join < config.max_size
    return member is not None or len(group.members) < config.max_size


def join_new_member(
    config: GroupConfig, group: Group, joining: Joining, now_ms: int, out: Result[Any]
) -> None:
    """Add a member that has no id yet."""
    instance_id = joining.request.group_instance_id
    member_id = joining.new_member_id
    if instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is not None:
            replace_static_member(config, group, joining, old_member_id, now_ms, out)
        else:
            add_member(config, group, joining, member_id, now_ms, out)
    elif joining.require_member_id:
        add_pending_member(group, member_id, joining.request.session_timeout_ms, now_ms, out)
        out.reply(joining.token, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    else:
        add_member(config, group, joining, member_id, now_ms, out)


def add_member(
    config: GroupConfig,
    group: Group,
    joining: Joining,
    member_id: str,
    now_ms: int,
    out: Result[Any],
) -> None:
    """Add a member and start a rebalance."""
    request = joining.request
    member = Member(
        member_id,
        group_instance_id=request.group_instance_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=joining.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
        group.new_member_added = True
    if member_id in group.pending_members:
        out.cancel(PENDING_MEMBER_DUE, (group.group_id, member_id))
    group.add(member, joining.token)
    # A new member cannot send heartbeats yet, and a lost client is not noticed while its JoinGroup waits. Therefore
    # this wait has its own limit; a client that is still there joins again.
    set_deadline(group, member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS, out)
    reason = f"adding {member_id}; client reason: {request.reason or 'not provided'}"
    maybe_prepare_rebalance(config, group, now_ms, out, reason)


def join_known_member(
    config: GroupConfig, group: Group, joining: Joining, now_ms: int, out: Result[Any]
) -> None:
    """Let a known member join again."""
    request = joining.request
    member_id = request.member_id
    error = group.validate_member(member_id, request.group_instance_id)
    if error is ErrorCode.NONE and group.state is GroupState.EMPTY:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        out.reply(joining.token, join_error(member_id, error))
        return
    member = group.members[member_id]
    is_leader = member_id == group.leader_id
    same = member.protocols == joining.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and same:
        # The first answer may have been lost; send this generation again.
        out.reply(joining.token, group.join_response(member_id, with_members=is_leader))
    elif group.state is GroupState.STABLE and same and not is_leader:
        # Nothing changed. A leader, however, may rejoin because the input of its assignment has changed.
        out.reply(joining.token, group.join_response(member_id))
    else:
        if member.is_gone:
            set_deadline(group, member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS, out)
        update_member(group, member, joining, out)
        reason = f"{member_id} joins again; client reason: {request.reason or 'not provided'}"
        maybe_prepare_rebalance(config, group, now_ms, out, reason)


def update_member(group: Group, member: Member, joining: Joining, out: Result[Any]) -> None:
    """Store the values of a request and let it wait; it replaces a request that already waits."""
    request = joining.request
    group.update(
        member, joining.protocols, request.rebalance_timeout_ms, request.session_timeout_ms
    )
    waited = group.await_join(member, joining.token)
    if waited is not None:
        # Apache Kafka forgets the earlier request; kwire answers both.
        out.reply(waited, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))


def replace_static_member(
    config: GroupConfig,
    group: Group,
    joining: Joining,
    old_member_id: str,
    now_ms: int,
    out: Result[Any],
) -> None:
    """Give a restarted static member its place back, with a new member id.

    Shape: a stable group that would choose the same protocol continues without a rebalance once the new id is stored. A
    process that still uses the old id is fenced.
    """
    instance_id = joining.request.group_instance_id
    assert instance_id is not None
    member = group.members[old_member_id]
    before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
    old_leader_id = group.leader_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    out.reply(group.await_join(member, None), join_error(old_member_id, fenced))
    answer_sync(member, sync_error(fenced), out)
    rename_static(group, instance_id, old_member_id, joining.new_member_id, out)
    update_member(group, member, joining, out)
    keep_alive(group, member, now_ms, out)
    reason = f"static member {instance_id} returned"
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id; the new one would get nothing.
        prepare_rebalance(config, group, now_ms, out, reason)
    elif group.state is GroupState.STABLE:
        if group.select_protocol() != group.protocol_name:
            maybe_prepare_rebalance(config, group, now_ms, out, reason + " and changes protocol")
            return
        assignment = {m.member_id: m.assignment for m in group.members.values()}
        ticket = StaticMemberStored(
            group.group_id,
            group.generation_id,
            instance_id,
            old_member_id,
            joining.new_member_id,
            old_leader_id,
            *before,
            joining.token,
            joining.can_skip_assignment,
        )
        out.write([group_record(group, assignment)], ticket)


def static_member_stored(
    group: Group, ticket: StaticMemberStored, error: ErrorCode, now_ms: int, out: Result[Any]
) -> None:
    """Answer the returned static member, or restore its old id if the new one was not stored."""
    member = group.members.get(ticket.new_member_id)
    if member is None or member.join_token != ticket.token:
        return  # replaced by another request of the same instance, or the member has left
    if error is not ErrorCode.NONE:
        group.await_join(member, None)
        group.update(
            member,
            ticket.old_protocols,
            ticket.old_rebalance_timeout_ms,
            ticket.old_session_timeout_ms,
        )
        rename_static(group, ticket.instance_id, ticket.new_member_id, ticket.old_member_id, out)
        keep_alive(group, member, now_ms, out)
        refusal = group.join_response(UNKNOWN_MEMBER_ID, leader_id=ticket.old_leader_id)
        refusal.error_code = error
        out.reply(ticket.token, refusal)
        return
    if group.state is not GroupState.STABLE or group.generation_id != ticket.generation_id:
        return  # a rebalance has begun in the meantime, and counts this member as joined
    group.await_join(member, None)
    if ticket.can_skip_assignment:
        # The leader continues to watch for changes, but the existing assignment stays.
        is_leader = group.leader_id == member.member_id
        answer = group.join_response(
            member.member_id, with_members=is_leader, skip_assignment=is_leader
        )
    else:
        # An older leader must not assign, so the answer names its old member id as leader.
        answer = group.join_response(member.member_id, leader_id=ticket.old_leader_id)
    out.reply(ticket.token, answer)


# SyncGroup


def sync_group(
    config: GroupConfig,
    group: Group,
    request: SyncGroupRequest,
    token: int,
    now_ms: int,
    out: Result[Any],
) -> None:
    """Give a member its assignment, or take all members' assignments from the leader."""
    error = validate_sync(group, request)
    if error is not ErrorCode.NONE:
        out.reply(token, sync_error(error))
        return
    member = group.members[request.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        out.reply(token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    elif group.state is GroupState.STABLE:
        sync_received(group, member.member_id)
        out.reply(token, group.sync_response(member))
        keep_alive(group, member, now_ms, out)
    else:
        if member.sync_token is not None:
            # As with JoinGroup, an earlier request that still waits gets an answer.
            answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), out)
        member.sync_token = token
        sync_received(group, member.member_id)
        if member.member_id == group.leader_id:
            assignment = {row.member_id: row.assignment for row in request.assignments}
            ticket = AssignmentStored(group.group_id, group.generation_id, assignment)
            error = refuses_assignment(config, group, assignment)
            if error is ErrorCode.NONE:
                out.write([group_record(group, assignment)], ticket)
            else:
                assignment_stored(config, group, ticket, error, now_ms, out)


def refuses_assignment(
    config: GroupConfig, group: Group, assignment: dict[str, bytes]
) -> ErrorCode:
    """The error if there is no memory for an assignment; otherwise NONE.

    Errors: those of GroupMemory.refuses_members, but COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS,
    which clients do not expect in answers to SyncGroup.
    """
    more = sum(
        getsizeof(assignment.get(member.member_id, b"")) - getsizeof(member.assignment)
        for member in group.members.values()
    )
    # Twice, since it is kept in the stored value of the group, too.
    error = group.memory.refuses_members(config, group.client, group.held_bytes, 2 * more)
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def validate_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.UNKNOWN_MEMBER_ID if group.state is GroupState.EMPTY else ErrorCode.NONE


def assignment_stored(
    config: GroupConfig,
    group: Group,
    ticket: AssignmentStored,
    error: ErrorCode,
    now_ms: int,
    out: Result[Any],
) -> None:
    """Distribute the assignment once it is stored; after a failure, make all members join again.

    If a member has joined or left since then, a rebalance has begun and the assignment is void.
    """
    if (
        group.state is not GroupState.COMPLETING_REBALANCE
        or group.generation_id != ticket.generation_id
    ):
        return
    if error is ErrorCode.NONE:
        group.transition_to(GroupState.STABLE, now_ms)
        set_assignment(group, ticket.assignment, now_ms, out)
    else:
        reset_assignment(group, error, now_ms, out)
        maybe_prepare_rebalance(config, group, now_ms, out, f"{error.name} storing the assignment")


# Heartbeat


def heartbeat(
    group: Group,
    member_id: str,
    generation_id: int,
    instance_id: str | None,
    now_ms: int,
    out: Result[Any],
) -> ErrorCode:
    """Note that a member is alive, and say whether it must join again."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    keep_alive(group, group.members[member_id], now_ms, out)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# LeaveGroup


def leave_group(
    config: GroupConfig,
    group: Group,
    leaving: Iterable[MemberIdentity],
    now_ms: int,
    out: Result[Any],
) -> list[MemberResponse]:
    """Remove members by member id, or static members by instance id alone.

    Shape: in Apache Kafka 3.9 the group continues after each of them, and a pending member changes nothing for the
    others; in 4.3 the group continues once, if any member was removed.
    """
    rows = []
    reasons = []
    for identity in leaving:
        member_id, error = find_leaving(group, identity)
        rows.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
        if error is not ErrorCode.NONE:
            continue
        reason = f"{member_id} leaves; client reason: {identity.reason or 'not provided'}"
        member = group.members.get(member_id)
        if config.leaves_together:
            reasons.append(reason)
        if member is not None:
            take_out(group, member, out)
            if not config.leaves_together:
                go_on_without(config, group, now_ms, out, reason)
        elif config.leaves_together:
            drop(group, member_id, out)
        else:
            remove_pending_member(config, group, member_id, now_ms, out)
    if reasons:
        go_on_without(config, group, now_ms, out, "; ".join(reasons))
    return rows


def find_leaving(group: Group, leaving: MemberIdentity) -> tuple[str, ErrorCode]:
    """The id of a member or of a pending member. Errors: those of validate_member."""
    member_id = leaving.member_id
    instance_id = leaving.group_instance_id
    if member_id == UNKNOWN_MEMBER_ID:
        current_id = None if instance_id is None else group.static_members.get(instance_id)
        if current_id is None:
            return member_id, ErrorCode.UNKNOWN_MEMBER_ID
        return current_id, ErrorCode.NONE
    if member_id in group.pending_members:
        return member_id, ErrorCode.NONE
    return member_id, group.validate_member(member_id, instance_id)
