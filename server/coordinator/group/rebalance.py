"""The transition of a group to its next generation: joining, timeouts, distribution of assignments.

Each function is a step of an operation and puts its actions into a Result.
Source: GroupCoordinator.scala, DelayedJoin.scala.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.join_group import JoinGroupResponse
from kwire.messages.sync_group import SyncGroupResponse

from ..common.result import Result, Timer
from .config import GroupConfig
from .records import group_record
from .state import Group, GroupState, Member

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
UNKNOWN_MEMBER_ID = ""

MEMBER_DUE = "member_due"
PENDING_MEMBER_DUE = "pending_member_due"
JOIN_DUE = "join_due"
SYNC_DUE = "sync_due"


class EmptyGroupStored(NamedTuple):
    """Ticket of the write that records a group without members."""

    group_id: str


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """A JoinGroup answer with only an error; its protocol name is null, or "" before version 7."""
    return JoinGroupResponse(
        error_code=error, generation_id=-1, protocol_name=None, leader="", member_id=member_id
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)


# Keeping members alive


def keep_alive(group: Group, member: Member, now_ms: int, out: Result[Any]) -> None:
    """Extend the member's deadline to one session timeout from now."""
    set_deadline(group, member, now_ms + member.session_timeout_ms, out)


def set_deadline(group: Group, member: Member, deadline_ms: int, out: Result[Any]) -> None:
    """Set the time at which the member counts as failed.

    A timer that is set for an earlier time stays, and is set again when it fires, so that a heartbeat needs no timer.
    """
    member.deadline_ms = deadline_ms
    if member.timer_at_ms is None or member.timer_at_ms > deadline_ms:
        member.timer_at_ms = deadline_ms
        out.timers.append(Timer(MEMBER_DUE, (group.group_id, member.member_id), deadline_ms))


def member_due(
    config: GroupConfig, group: Group, member_id: str, now_ms: int, out: Result[Any]
) -> None:
    """Remove a member that did not send a heartbeat in time."""
    member = group.members.get(member_id)
    if member is None or group.state is GroupState.DEAD:
        return
    member.timer_at_ms = None
    if now_ms < member.deadline_ms:
        set_deadline(group, member, member.deadline_ms, out)
    elif member.must_be_heard_of():
        log.info("group %s: member %s has failed and is removed", group.group_id, member_id)
        remove_member(config, group, member, now_ms, out, "a member has failed")


def add_pending_member(
    group: Group, member_id: str, timeout_ms: int, now_ms: int, out: Result[Any]
) -> None:
    """Expect a member to join with the id it was given, within its session timeout."""
    due_ms = now_ms + timeout_ms
    group.expect(member_id, due_ms)
    out.timers.append(Timer(PENDING_MEMBER_DUE, (group.group_id, member_id), due_ms))


def pending_member_due(
    config: GroupConfig, group: Group, member_id: str, now_ms: int, out: Result[Any]
) -> None:
    """Stop waiting for a pending member."""
    due_ms = group.pending_members.get(member_id)
    if due_ms is None or group.state is GroupState.DEAD:
        return
    if now_ms < due_ms:
        out.timers.append(Timer(PENDING_MEMBER_DUE, (group.group_id, member_id), due_ms))
        return
    remove_pending_member(config, group, member_id, now_ms, out)


def drop(group: Group, member_id: str, out: Result[Any]) -> Member | None:
    """Remove a member or pending member with its timer."""
    if member_id in group.pending_members:
        out.cancel(PENDING_MEMBER_DUE, (group.group_id, member_id))
    member = group.remove(member_id)
    if member is not None and member.timer_at_ms is not None:
        out.cancel(MEMBER_DUE, (group.group_id, member_id))
    return member


def rename_static(
    group: Group, instance_id: str, old_id: str, new_id: str, out: Result[Any]
) -> None:
    """Give a static member a new member id; its timer is set when the member is next kept alive."""
    out.cancel(MEMBER_DUE, (group.group_id, old_id))
    group.rename_static(instance_id, old_id, new_id)


def join_abandoned(
    config: GroupConfig,
    group: Group,
    token: int,
    knows_its_id: bool,
    now_ms: int,
    out: Result[Any],
) -> None:
    """The connection of a waiting JoinGroup has ended.

    Shape: a new member that never received its id cannot come back, and is removed. Any other member has its session
    timeout from now to join again, as after its last heartbeat. Apache Kafka waits five minutes for a new member, and
    until the end of the rebalance for a known one.
    """
    member = next((m for m in group.members.values() if m.join_token == token), None)
    if member is None or group.state is GroupState.DEAD:
        return
    if member.is_new and not knows_its_id and member.group_instance_id is None:
        remove_member(config, group, member, now_ms, out, "a new member's connection has ended")
        return
    member.is_gone = True
    due_ms = now_ms + member.session_timeout_ms
    set_deadline(group, member, min(due_ms, member.deadline_ms) if member.is_new else due_ms, out)


def remove_pending_member(
    config: GroupConfig, group: Group, member_id: str, now_ms: int, out: Result[Any]
) -> None:
    """Remove a pending member; the group may have waited only for it."""
    drop(group, member_id, out)
    try_complete_join(config, group, now_ms, out)


def remove_member(
    config: GroupConfig, group: Group, member: Member, now_ms: int, out: Result[Any], reason: str
) -> None:
    """Remove a member, and redistribute its share among the others."""
    take_out(group, member, out)
    go_on_without(config, group, now_ms, out, reason)


def take_out(group: Group, member: Member, out: Result[Any]) -> None:
    """Remove a member, and answer its waiting requests."""
    # A new member whose JoinGroup still waits has to join again, if its client is still there.
    token = group.await_join(member, None)
    out.reply(token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID))
    # Apache Kafka does not answer a waiting SyncGroup of a removed member.
    answer_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID), out)
    drop(group, member.member_id, out)


def go_on_without(
    config: GroupConfig, group: Group, now_ms: int, out: Result[Any], reason: str
) -> None:
    """Rebalance after a removal of members, or end a rebalance that waited only for them."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(config, group, now_ms, out, reason)
    elif group.state is GroupState.PREPARING_REBALANCE:
        try_complete_join(config, group, now_ms, out)


# Preparing a rebalance


def maybe_prepare_rebalance(
    config: GroupConfig, group: Group, now_ms: int, out: Result[Any], reason: str
) -> None:
    """Start a rebalance, unless one is being prepared."""
    if group.can_rebalance():
        prepare_rebalance(config, group, now_ms, out, reason)


def prepare_rebalance(
    config: GroupConfig, group: Group, now_ms: int, out: Result[Any], reason: str
) -> None:
    """Make all members join again.

    Shape: a group that was empty waits a fixed time for more members, and again as long as new ones join, up to the
    rebalance timeout (KIP-134); any other group waits only until all members have joined.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
    group.pending_sync.clear()
    group.sync_due_ms = None
    was_empty = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
    log.info(
        "group %s: preparing to rebalance generation %d: %s",
        group.group_id,
        group.generation_id,
        reason,
    )
    if was_empty:
        delay_ms = config.initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        set_join_timer(group, now_ms + delay_ms, out)
    else:
        group.initial_remaining_ms = None
        if group.has_all_members_joined():
            complete_join(config, group, now_ms, out)
        else:
            set_join_timer(group, now_ms + group.rebalance_timeout_ms(), out)


def set_join_timer(group: Group, due_ms: int, out: Result[Any]) -> None:
    group.join_due_ms = due_ms
    out.timers.append(Timer(JOIN_DUE, (group.group_id,), due_ms))


def join_due(config: GroupConfig, group: Group, now_ms: int, out: Result[Any]) -> None:
    """Continue with the members that have joined, because the time limit has passed."""
    if group.state is not GroupState.PREPARING_REBALANCE or group.join_due_ms is None:
        return
    if now_ms < group.join_due_ms:
        set_join_timer(group, group.join_due_ms, out)
        return
    remaining_ms = group.initial_remaining_ms
    if remaining_ms and group.new_member_added:
        group.new_member_added = False
        last_delay_ms = group.initial_delay_ms
        group.initial_delay_ms = min(config.initial_rebalance_delay_ms, remaining_ms)
        group.initial_remaining_ms = max(remaining_ms - last_delay_ms, 0)
        set_join_timer(group, now_ms + group.initial_delay_ms, out)
        return
    group.initial_remaining_ms = None
    complete_join(config, group, now_ms, out)


def try_complete_join(config: GroupConfig, group: Group, now_ms: int, out: Result[Any]) -> None:
    """Continue if no member is missing; the first delay of an empty group is never shortened."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_remaining_ms is None
        and group.has_all_members_joined()
    ):
        complete_join(config, group, now_ms, out)


def complete_join(config: GroupConfig, group: Group, now_ms: int, out: Result[Any]) -> None:
    """Begin the next generation with the members that have joined.

    Shape: dynamic members that have not joined are removed; static members stay until their session ends. If only such
    static members are left, the group continues to wait, since none of them can lead it.
    """
    absent = [m for m in group.members.values() if m.join_token is None]
    for member in absent:
        if member.group_instance_id is None:
            log.info("group %s: member %s did not join in time", group.group_id, member.member_id)
            drop(group, member.member_id, out)
    if not group.elect_joined_leader() and group.members:
        log.info("group %s: no member joined, waiting again", group.group_id)
        set_join_timer(group, now_ms + group.rebalance_timeout_ms(), out)
        return
    group.init_next_generation(now_ms)
    if group.state is GroupState.EMPTY:
        log.info("group %s: generation %d is empty", group.group_id, group.generation_id)
        out.write([group_record(group, {})], EmptyGroupStored(group.group_id))
        return
    log.info(
        "group %s: generation %d has %d members",
        group.group_id,
        group.generation_id,
        len(group.members),
    )
    for member in group.members.values():
        is_leader = member.member_id == group.leader_id
        response = group.join_response(member.member_id, with_members=is_leader)
        out.reply(group.await_join(member, None), response)
        keep_alive(group, member, now_ms, out)
        member.is_new = False
    group.pending_sync = set(group.members)
    group.sync_due_ms = now_ms + group.rebalance_timeout_ms()
    out.timers.append(Timer(SYNC_DUE, (group.group_id,), group.sync_due_ms))


def sync_due(config: GroupConfig, group: Group, now_ms: int, out: Result[Any]) -> None:
    """Remove the members that joined a generation but did not send their SyncGroup."""
    if group.sync_due_ms is None or group.state not in (
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    ):
        return
    if now_ms < group.sync_due_ms:
        out.timers.append(Timer(SYNC_DUE, (group.group_id,), group.sync_due_ms))
        return
    group.sync_due_ms = None
    if not group.pending_sync:
        return
    gone = list(group.pending_sync)
    for member_id in gone:
        drop(group, member_id, out)
    prepare_rebalance(config, group, now_ms, out, f"no SyncGroup from {len(gone)} members")


def sync_received(group: Group, member_id: str) -> None:
    """Note that a member has requested its assignment."""
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        group.sync_due_ms = None


# Assignments


def set_assignment(
    group: Group, assignment: dict[str, bytes], now_ms: int, out: Result[Any]
) -> None:
    """Store the members' assignments and answer the waiting SyncGroups."""
    for member in group.members.values():
        group.assign(member, assignment.get(member.member_id, b""))
        if member.sync_token is not None:
            answer_sync(member, group.sync_response(member), out)
            keep_alive(group, member, now_ms, out)


def reset_assignment(group: Group, error: ErrorCode, now_ms: int, out: Result[Any]) -> None:
    """Clear all assignments and refuse the waiting SyncGroups."""
    for member in group.members.values():
        group.assign(member, b"")
        if member.sync_token is not None:
            answer_sync(member, sync_error(error), out)
            keep_alive(group, member, now_ms, out)


def answer_sync(member: Member, response: SyncGroupResponse, out: Result[Any]) -> None:
    """Answer a member's waiting SyncGroup, if there is one."""
    token = member.sync_token
    member.sync_token = None
    out.reply(token, response)
