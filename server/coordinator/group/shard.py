"""The groups of one partition of __consumer_offsets: the machine that the runtime runs.

Operations look up the group, do their step and return a Result. Committed offsets and
`Group.persisted` change only in `replay`; `completed` continues after a write. Nothing here waits,
reads a clock or uses a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import JoinGroupResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kwire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from ...metadata.topic_partition import TopicPartition
from ..result import Result, Timer
from . import classic, offsets, rebalance
from .config import GroupConfig
from .memory import GROUP_BYTES, GroupMemory
from .records import (
    GroupCoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
    encode_record,
    restore_group,
)
from .state import Group, GroupState

log = logging.getLogger(__name__)

RETENTION_DUE = "retention_due"
RETENTION_BATCH = 1_000
"""How many tombstones one batch of expired offsets holds at most, unless one group has more."""


RETENTION_GROUPS = 256
"""How many groups are looked at for one batch."""


class GroupRemoved(NamedTuple):
    """Ticket of a DeleteGroups."""

    group_id: str
    token: int


class GroupShard:
    """All groups of one partition.

    Shape: `groups` by id; `memory` is the account of all groups of the broker; `write_id` numbers commits. `groups_of_producer` maps a producer id to
    the ids of the groups that the end of its transaction concerns.
    """

    def __init__(
        self, partition: int, config: GroupConfig, memory: GroupMemory | None = None
    ) -> None:
        self.partition = partition
        self.config = config
        self.memory = memory or GroupMemory()
        self.groups: dict[str, Group] = {}
        self.groups_of_producer: dict[int, set[str]] = {}
        self.write_id = 0
        self.fired: dict[str, Callable[[Timer, int, Result[Any]], None]] = {
            rebalance.MEMBER_DUE: self.member_due,
            rebalance.PENDING_MEMBER_DUE: self.pending_member_due,
            rebalance.JOIN_DUE: self.join_due,
            rebalance.SYNC_DUE: self.sync_due,
            RETENTION_DUE: self.retention_due,
        }

    # Members

    def join_group(self, joining: classic.Joining, now_ms: int) -> Result[JoinGroupResponse]:
        """Take a member in; the answer comes when the group's next generation begins.

        Errors: INVALID_SESSION_TIMEOUT outside group.min/max.session.timeout.ms;
        UNKNOWN_MEMBER_ID for a member id in a group that does not exist; those of
        GroupMemory.refuses_members.
        """
        out: Result[JoinGroupResponse] = Result()
        config, request = self.config, joining.request
        group = self.groups.get(request.group_id)
        timeout_ms = request.session_timeout_ms
        if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif group is None and request.member_id != rebalance.UNKNOWN_MEMBER_ID:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            more = classic.more_bytes(group, joining)
            held = 0 if group is None else group.held_bytes
            error = self.memory.refuses_members(config, held, more)
        if error is ErrorCode.NONE:
            if group is None:
                group = self.create(request.group_id, now_ms)
            classic.join_group(config, group, joining, now_ms, out)
        else:
            out.reply(joining.token, rebalance.join_error(request.member_id, error))
        return out

    def join_abandoned(
        self, group_id: str, token: int, knows_its_id: bool, now_ms: int
    ) -> Result[Any]:
        """The connection on which a JoinGroup waited has ended; see rebalance.join_abandoned."""
        out: Result[Any] = Result()
        group = self.groups.get(group_id)
        if group is not None:
            rebalance.join_abandoned(self.config, group, token, knows_its_id, now_ms, out)
        return out

    def sync_group(
        self, request: SyncGroupRequest, token: int, now_ms: int
    ) -> Result[SyncGroupResponse]:
        """Answer with the member's assignment, once the leader has made it."""
        out: Result[SyncGroupResponse] = Result()
        group = self.groups.get(request.group_id)
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
        group = self.groups.get(request.group_id)
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
        group = self.groups.get(request.group_id)
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
            return out
        else:
            rows = [
                classic.leave_group(self.config, group, leaving, now_ms, out)
                for leaving in request.members
            ]
        out.reply(token, LeaveGroupResponse(members=rows))
        return out

    # Offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        token: int,
        now_ms: int,
        unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
    ) -> Result[OffsetCommitResponse]:
        """Store offsets; an unknown group is created for a simple consumer.

        Errors: `unknown_group` for a member of a group that is not known.
        """
        out: Result[OffsetCommitResponse] = Result()
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                out.reply(token, offsets.commit_error(request, unknown_group))
                return out
            full = self.refuses_group(request.group_id)
            if full is not ErrorCode.NONE:
                out.reply(token, offsets.commit_error(request, full))
                return out
            group = self.create(request.group_id, now_ms)
        self.write_id += 1
        offsets.commit_offsets(self.config, group, request, token, self.write_id, now_ms, out)
        return out

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, token: int, now_ms: int
    ) -> Result[TxnOffsetCommitResponse]:
        """Store offsets in a transaction, which the caller has verified."""
        out: Result[TxnOffsetCommitResponse] = Result()
        full = self.refuses_group(request.group_id)
        if full is not ErrorCode.NONE:
            out.reply(token, offsets.transactional_commit_error(request, full))
            return out
        group = self.ensure(request.group_id, now_ms)
        self.write_id += 1
        offsets.commit_transactional_offsets(
            self.config, group, request, token, self.write_id, now_ms, out
        )
        return out

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
    ) -> list[tuple[str, list[offsets.FetchedOffset]]]:
        """Read committed offsets; see offsets.fetch_offsets."""
        return offsets.fetch_offsets(self.groups.get(group_id), topics, require_stable)

    def committed_partitions(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return what a group has offsets of; see offsets.committed_partitions."""
        return offsets.committed_partitions(self.groups.get(group_id))

    def delete_offsets(
        self, request: OffsetDeleteRequest, token: int, now_ms: int
    ) -> Result[OffsetDeleteResponse]:
        """Remove offsets. Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; others are in the rows."""
        out: Result[OffsetDeleteResponse] = Result()
        group = self.groups.get(request.group_id)
        if group is None:
            out.reply(token, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            if offsets.delete_offsets(group, request, token, now_ms, out):
                self.drop_if_unused(group, out)
        return out

    def remove_partitions(
        self, group_id: str, tps: Iterable[TopicPartition], now_ms: int
    ) -> Result[Any]:
        """Remove a group's offsets for partitions that do not exist any more.

        Shape: as in Apache Kafka, this is also when a group without members and offsets is removed,
        whether or not it had offsets for these partitions. Source:
        GroupMetadataManager.cleanupGroupMetadata.
        """
        out: Result[Any] = Result()
        group = self.groups.get(group_id)
        if group is not None and group.state is not GroupState.DEAD:
            records = offsets.remove_offsets(group, tps, now_ms)
            if records:
                out.write(records, offsets.OffsetsRemoved((group_id,), None, None))
            self.drop_if_unused(group, out)
        return out

    # Groups

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group that has no members, with its offsets; the answer is an ErrorCode."""
        out: Result[ErrorCode] = Result()
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            out.reply(token, ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not GroupState.EMPTY:
            out.reply(token, ErrorCode.NON_EMPTY_GROUP)
        else:
            for member_id in list(group.pending_members):
                rebalance.drop(group, member_id, out)
            store = group.offsets
            tps = dict.fromkeys((*store.committed, *store.pending))
            records: list[GroupCoordinatorRecord] = [OffsetRecord(group_id, tp, None) for tp in tps]
            if group.is_stored():
                records.append(GroupRecord(group_id, None))
            if records:
                group.transition_to(GroupState.DEAD, now_ms)
                out.write(records, GroupRemoved(group_id, token))
            else:
                if not store:  # else it stays for a transaction that has offsets for it
                    self.forget(group_id)
                out.reply(token, ErrorCode.NONE)
        return out

    # Timers

    def fire(self, timer: Timer, now_ms: int) -> Result[Any]:
        """Run the operation that a timer was set for."""
        out: Result[Any] = Result()
        self.fired[timer.op_name](timer, now_ms, out)
        return out

    def member_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.groups.get(timer.key[0])
        if group is not None:
            rebalance.member_due(self.config, group, timer.key[1], now_ms, out)

    def pending_member_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.groups.get(timer.key[0])
        if group is not None:
            rebalance.pending_member_due(self.config, group, timer.key[1], now_ms, out)

    def join_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.groups.get(timer.key[0])
        if group is not None:
            rebalance.join_due(self.config, group, now_ms, out)

    def sync_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        group = self.groups.get(timer.key[0])
        if group is not None:
            rebalance.sync_due(self.config, group, now_ms, out)

    def retention_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove expired offsets and groups without any, one batch at a time.

        Shape: the timer's key lists the groups left over from the last batch; () starts a new
        round.
        """
        names = list(timer.key) or list(self.groups)
        records: list[GroupCoordinatorRecord] = []
        touched = []
        looked_at = 0
        while names and len(records) < RETENTION_BATCH and looked_at < RETENTION_GROUPS:
            looked_at += 1
            group = self.groups.get(names.pop())
            if group is None or group.state is GroupState.DEAD:
                continue
            due = offsets.expired_offsets(self.config, group, now_ms)
            removed = offsets.remove_offsets(group, due, now_ms)
            if removed:
                touched.append(group.group_id)
                records += removed
            self.drop_if_unused(group, out)
        if records:
            out.write(records, offsets.OffsetsRemoved(tuple(touched), None, None))
        interval_ms = 0 if names else self.config.offsets_retention_check_interval_ms
        out.timers.append(Timer(RETENTION_DUE, tuple(names), now_ms + interval_ms))

    # Writes

    def replay(self, record: GroupCoordinatorRecord, position: int, producer_id: int = -1) -> None:
        """Apply a committed record: the only way hard state changes.

        Shape: in log order; `position` grows by batch. `producer_id` is -1 outside transactions.
        """
        group = self.groups.get(record.group_id)
        if group is None:
            group = self.create(record.group_id, -1)
        if isinstance(record, GroupRecord):
            group.persist(record.value)
            return
        before = group.offsets.held_bytes
        group.offsets.apply(record.tp, record.value, position, producer_id)
        self.memory.offsets += group.offsets.held_bytes - before
        if producer_id >= 0:
            self.groups_of_producer.setdefault(producer_id, set()).add(record.group_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction in this partition."""
        for group_id in self.groups_of_producer.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                before = group.offsets.held_bytes
                group.offsets.apply_marker(producer_id, committed)
                self.memory.offsets += group.offsets.held_bytes - before

    def completed(self, ticket: Any, error: ErrorCode, now_ms: int) -> Result[Any]:
        """Continue after a write was committed and replayed, or failed with an error of the log.

        Shape: REQUEST_TIMED_OUT may be followed by a second call, with the final outcome.
        """
        out: Result[Any] = Result()
        if isinstance(ticket, offsets.OffsetsStored):
            offsets.offsets_stored(self.groups.get(ticket.group_id), ticket, error, out)
        elif isinstance(ticket, classic.AssignmentStored):
            group = self.groups.get(ticket.group_id)
            if group is not None:
                mapped = offsets.group_error_for(error)
                classic.assignment_stored(self.config, group, ticket, mapped, now_ms, out)
        elif isinstance(ticket, classic.StaticMemberStored):
            group = self.groups.get(ticket.group_id)
            if group is not None:
                mapped = offsets.group_error_for(error)
                classic.static_member_stored(group, ticket, mapped, now_ms, out)
        elif isinstance(ticket, offsets.OffsetsRemoved):
            if ticket.response is not None:
                if error is not ErrorCode.NONE:
                    mapped = offsets.commit_error_for(error)
                    out.reply(ticket.token, OffsetDeleteResponse(error_code=mapped))
                else:
                    out.reply(ticket.token, ticket.response)
            self.removed(ticket.group_ids, error, now_ms, out)
        elif isinstance(ticket, GroupRemoved):
            out.reply(ticket.token, offsets.group_error_for(error))
            self.removed((ticket.group_id,), error, now_ms, out)
        elif error is not ErrorCode.NONE:
            # Nobody waits for the record of an empty group. If the coordinator moves now, the
            # previous generation comes back, and its members soon time out.
            log.warning("%s storing %r", error.name, ticket)
        return out

    def removed(
        self, group_ids: Iterable[str], error: ErrorCode, now_ms: int, out: Result[Any]
    ) -> None:
        """Forget dead groups now that their tombstones are stored.

        Shape: a group that still has something stored is restored from the log's state: because the
        tombstones failed, or because a transaction has offsets for it.
        """
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None or group.state is not GroupState.DEAD:
                continue
            self.forget(group_id)
            if group.persisted is not None or group.offsets:
                restored = self.create(group_id, now_ms)
                restored.offsets = group.offsets
                self.memory.offsets += group.offsets.held_bytes
                restored.persist(group.persisted)
                self.restore(restored, now_ms, out)

    def drop_if_unused(self, group: Group, out: Result[Any]) -> None:
        """Forget a group that has no members and nothing in the log.

        Shape: a member that was given an id and has not come back with it does not count; it will
        get UNKNOWN_MEMBER_ID and ask for another.
        """
        if group.state is GroupState.EMPTY and not group.is_stored() and not group.offsets:
            for member_id in list(group.pending_members):
                rebalance.drop(group, member_id, out)
            self.forget(group.group_id)

    # Loading and unloading the partition

    def loaded(self, now_ms: int) -> Result[Any]:
        """Restore groups from what was replayed, and start to serve them."""
        out: Result[Any] = Result()
        for group in list(self.groups.values()):
            if group.persisted is None and not group.offsets:
                self.forget(group.group_id)
            else:
                self.restore(group, now_ms, out)
        interval_ms = self.config.offsets_retention_check_interval_ms
        out.timers.append(Timer(RETENTION_DUE, (), now_ms + interval_ms))
        return out

    def restore(self, group: Group, now_ms: int, out: Result[Any]) -> None:
        """Set a group's soft state from its hard state; its members' sessions begin now."""
        group.state_timestamp_ms = now_ms
        if group.persisted is not None:
            restore_group(group, group.persisted)
        for member in group.members.values():
            rebalance.keep_alive(group, member, now_ms, out)
        if len(group.members) > self.config.max_size:
            # Members beyond the limit are removed because they join too late, after they could
            # commit.
            rebalance.prepare_rebalance(self.config, group, now_ms, out, "too many members")

    def unload(self, now_ms: int) -> Iterator[Result[Any]]:
        """Refuse all waiting requests, since another broker will coordinate these groups; one group at a time."""
        self.groups_of_producer.clear()
        while self.groups:
            _, group = self.groups.popitem()
            out: Result[Any] = Result()
            for member in group.members.values():
                moved = rebalance.join_error(member.member_id, ErrorCode.NOT_COORDINATOR)
                out.reply(group.await_join(member, None), moved)
                rebalance.answer_sync(member, rebalance.sync_error(ErrorCode.NOT_COORDINATOR), out)
            group.transition_to(GroupState.DEAD, now_ms)
            group.forget()
            yield out

    def shift_time(self, delta_ms: int) -> None:
        """Move all deadlines, because the clock behind `now_ms` was set."""
        for group in self.groups.values():
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

    def ensure(self, group_id: str, now_ms: int) -> Group:
        """Return a group, an empty one if it is not known yet."""
        return self.groups.get(group_id) or self.create(group_id, now_ms)

    def refuses_group(self, group_id: str) -> ErrorCode:
        """Whether a group, if it is not known yet, may not be made. Errors: those of GroupMemory."""
        if group_id in self.groups:
            return ErrorCode.NONE
        return self.memory.refuses_members(self.config, 0, GROUP_BYTES + len(group_id))

    def create(self, group_id: str, now_ms: int) -> Group:
        group = self.groups[group_id] = Group(group_id, now_ms, memory=self.memory)
        return group

    def forget(self, group_id: str) -> None:
        """Remove a group from memory."""
        self.groups.pop(group_id).forget()

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)
