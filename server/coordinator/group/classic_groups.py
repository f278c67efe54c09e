"""Classic groups of one partition of __consumer_offsets: requests, timers and writes of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from ...cause import account_of, cause
from ..common.result import Result, Timer
from . import classic, offsets, rebalance
from .kinds import GroupHome
from .records import ClassicRecord, GroupRecord, OffsetRecord, restore_group
from .state import Group, GroupState

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import GroupConfig


class GroupRemoved(NamedTuple):
    """Ticket of a DeleteGroups."""

    group_id: str
    token: int


class ClassicGroups:
    """The operations of a shard on groups of the classic protocol. Shape: `fired` maps timers to their operations."""

    def __init__(self, shard: GroupHome) -> None:
        self.shard = shard
        self.fired: dict[str, Callable[[Timer, int, Result[Any]], None]] = {
            rebalance.MEMBER_DUE: self.member_due,
            rebalance.PENDING_MEMBER_DUE: self.pending_member_due,
            rebalance.JOIN_DUE: self.join_due,
            rebalance.SYNC_DUE: self.sync_due,
        }

    @property
    def config(self) -> GroupConfig:
        return self.shard.config

    def get(self, group_id: str) -> Group | None:
        """Return a group if it is a classic one."""
        group = self.shard.groups.get(group_id)
        return group if isinstance(group, Group) else None

    def join_group(self, joining: classic.Joining, now_ms: int) -> Result[JoinGroupResponse]:
        """Add a member; the answer comes when the group's next generation begins."""
        out: Result[JoinGroupResponse] = Result()
        self.join(joining, now_ms, out)
        return out

    def join(self, joining: classic.Joining, now_ms: int, out: Result[JoinGroupResponse]) -> None:
        """Add a member.

        Errors: INVALID_SESSION_TIMEOUT outside group.min/max.session.timeout.ms; UNKNOWN_MEMBER_ID for a member id in a
        group that does not exist; INCONSISTENT_GROUP_PROTOCOL for a group of another kind, such as a share group; those
        of GroupMemory.refuses_members.
        """
        config, request = self.config, joining.request
        group = self.get(request.group_id)
        if group is None and request.group_id in self.shard.groups:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            out.reply(joining.token, rebalance.join_error(rebalance.UNKNOWN_MEMBER_ID, error))
            return
        timeout_ms = request.session_timeout_ms
        if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif group is None and request.member_id != rebalance.UNKNOWN_MEMBER_ID:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            more = classic.more_bytes(group, joining)
            held = 0
            client = joining.account
            if group is not None:
                held, client = group.held_bytes, group.user_after(client)
            error = self.shard.memory.refuses_members(config, client, held, more)
            if self._is_too_fast(group, request, now_ms):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is ErrorCode.NONE:
            made = group is None
            if group is None:
                group = self.shard.create(request.group_id, now_ms, joining.account)
            group.used_by(joining.account)
            classic.join_group(config, group, joining, now_ms, out)
            if type(out.ticket) is classic.StaticMemberStored:
                account = account_of(cause())
                out.on_appended = lambda size: self.shard.memory.pace.wrote(account, size, now_ms)
            if made and group.is_empty and not group.pending_members:  # refused
                self.shard.drop_if_unused(group, out)
        else:
            out.reply(joining.token, rebalance.join_error(request.member_id, error))

    def _is_too_fast(self, group: Group | None, request: JoinGroupRequest, now_ms: int) -> bool:
        """Whether a returned static member would have its whole group written, while much was written for its client."""
        return (
            group is not None
            and group.state is GroupState.STABLE
            and not request.member_id
            and request.group_instance_id in group.static_members
            and not self.shard.memory.pace.may_write(account_of(cause()), now_ms)
        )

    def join_abandoned(
        self, group_id: str, token: int, knows_its_id: bool, now_ms: int
    ) -> Result[Any]:
        """The connection of a waiting JoinGroup has ended; see rebalance.join_abandoned."""
        out: Result[Any] = Result()
        group = self.get(group_id)
        if group is not None:
            rebalance.join_abandoned(self.config, group, token, knows_its_id, now_ms, out)
        return out

    def sync_group(
        self, request: SyncGroupRequest, token: int, now_ms: int
    ) -> Result[SyncGroupResponse]:
        """Answer with the member's assignment, once the leader has made it."""
        out: Result[SyncGroupResponse] = Result()
        group = self.get(request.group_id)
        if group is None:
            out.reply(token, rebalance.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            classic.sync_group(self.config, group, request, token, now_ms, out)
        return out

    def heartbeat(
        self, request: HeartbeatRequest, token: int, now_ms: int
    ) -> Result[HeartbeatResponse]:
        """Note that a member is alive."""
        out: Result[HeartbeatResponse] = Result()
        group = self.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = classic.heartbeat(
                group,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
                now_ms,
                out,
            )
        out.reply(token, HeartbeatResponse(error_code=error))
        return out

    def leave_group(
        self, request: LeaveGroupRequest, token: int, now_ms: int
    ) -> Result[LeaveGroupResponse]:
        """Remove the members named in `request.members`; each has a row with its own error."""
        out: Result[LeaveGroupResponse] = Result()
        self.leave(request, token, now_ms, out)
        return out

    def leave(
        self,
        request: LeaveGroupRequest,
        token: int,
        now_ms: int,
        out: Result[LeaveGroupResponse],
    ) -> None:
        """Remove members."""
        group = self.get(request.group_id)
        if group is None:
            rows = [
                MemberResponse(
                    member_id=leaving.member_id,
                    group_instance_id=leaving.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for leaving in request.members
            ]
        elif group.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            out.reply(token, LeaveGroupResponse(error_code=error))
            return
        else:
            rows = classic.leave_group(self.config, group, request.members, now_ms, out)
        out.reply(token, LeaveGroupResponse(members=rows))

    # Groups

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group that has no members, and its offsets; the answer is an ErrorCode."""
        out: Result[ErrorCode] = Result()
        group = self.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            out.reply(token, ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not GroupState.EMPTY:
            out.reply(token, ErrorCode.NON_EMPTY_GROUP)
        else:
            for member_id in list(group.pending_members):
                rebalance.drop(group, member_id, out)
            store = group.offsets
            tps = dict.fromkeys((*store.committed, *store.pending))
            records: list[ClassicRecord] = [OffsetRecord(group_id, tp, None) for tp in tps]
            if group.is_stored():
                records.append(GroupRecord(group_id, None))
            if records:
                group.transition_to(GroupState.DEAD, now_ms)
                out.write(records, GroupRemoved(group_id, token))
            else:
                if not store:  # otherwise it stays for a transaction that has offsets for it
                    self.shard.forget(group_id)
                out.reply(token, ErrorCode.NONE)
        return out

    # Timers

    def member_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.get(timer.key[0])
        if group is not None:
            rebalance.member_due(self.config, group, timer.key[1], now_ms, out)

    def pending_member_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.get(timer.key[0])
        if group is not None:
            rebalance.pending_member_due(self.config, group, timer.key[1], now_ms, out)

    def join_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.get(timer.key[0])
        if group is not None:
            rebalance.join_due(self.config, group, now_ms, out)

    def sync_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.get(timer.key[0])
        if group is not None:
            rebalance.sync_due(self.config, group, now_ms, out)

    # Writes

    def completed(self, ticket: Any, error: ErrorCode, now_ms: int, out: Result[Any]) -> bool:
        """Continue after a write of classic groups; False for other writes."""
        if isinstance(ticket, GroupRemoved):
            out.reply(ticket.token, offsets.group_error_for(error))
            self.shard.removed((ticket.group_id,), error, now_ms, out)
            return True
        if not isinstance(ticket, classic.AssignmentStored | classic.StaticMemberStored):
            return False
        group = self.get(ticket.group_id)
        if group is not None:
            mapped = offsets.group_error_for(error)
            if isinstance(ticket, classic.AssignmentStored):
                classic.assignment_stored(self.config, group, ticket, mapped, now_ms, out)
            else:
                classic.static_member_stored(group, ticket, mapped, now_ms, out)
        return True

    # Loading and unloading

    def restore(self, group: Group, now_ms: int, out: Result[Any]) -> None:
        """Set a group's soft state from its hard state; its members' sessions begin now."""
        group.state_timestamp_ms = now_ms
        if group.persisted is not None:
            restore_group(group, group.persisted)
        for member in group.members.values():
            rebalance.keep_alive(group, member, now_ms, out)
        if len(group.members) > self.config.max_size:
            # Members beyond the limit are removed because they join too late, after they had time to commit.
            rebalance.prepare_rebalance(self.config, group, now_ms, out, "too many members")

    # Changes of a group's kind

    def retire(self, group: Group, now_ms: int, out: Result[Any]) -> None:
        """Make all waiting members join again, since the group becomes a consumer group."""
        for member_id in list(group.pending_members):
            rebalance.drop(group, member_id, out)
        again = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            out.reply(group.await_join(member, None), rebalance.join_error(member.member_id, again))
            rebalance.answer_sync(member, rebalance.sync_error(again), out)
            out.cancel(rebalance.MEMBER_DUE, (group.group_id, member.member_id))
        group.transition_to(GroupState.DEAD, now_ms)

    def take_over(
        self, group_id: str, rebalance_reason: str, now_ms: int, out: Result[Any]
    ) -> None:
        """Begin with a group that was a consumer group; `rebalance_reason` is "" if its members can keep their
        assignments.
        """
        group = self.get(group_id)
        if group is None:
            return
        self.restore(group, now_ms, out)
        if rebalance_reason and group.can_rebalance():
            rebalance.prepare_rebalance(self.config, group, now_ms, out, rebalance_reason)

    def unload(self, group: Group, now_ms: int) -> Result[Any]:
        """Refuse all waiting requests of a group, since another broker will coordinate it."""
        out: Result[Any] = Result()
        for member in group.members.values():
            moved = rebalance.join_error(member.member_id, ErrorCode.NOT_COORDINATOR)
            out.reply(group.await_join(member, None), moved)
            rebalance.answer_sync(member, rebalance.sync_error(ErrorCode.NOT_COORDINATOR), out)
        group.transition_to(GroupState.DEAD, now_ms)
        return out

    def shift_time(self, delta_ms: int) -> None:
        """Shift all deadlines, because the clock behind `now_ms` was set."""
        for group in self.shard.groups.values():
            if isinstance(group, Group):
                self.shift_group(group, delta_ms)

    def shift_group(self, group: Group, delta_ms: int) -> None:
        if group.join_due_ms is not None:
            group.join_due_ms += delta_ms
        if group.sync_due_ms is not None:
            group.sync_due_ms += delta_ms
        for member_id in group.pending_members:
            group.pending_members[member_id] += delta_ms
        for member in group.members.values():
            member.deadline_ms += delta_ms
            if member.timer_at_ms is not None:
                member.timer_at_ms += delta_ms
