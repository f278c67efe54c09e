"""The share groups of one shard: requests, timers, and what share coordinators have to do.

Source: GroupMetadataManager (share parts).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import ErrorCode

from ...common.result import Result, Timer
from ...share_state.rows import StateOutcome
from ..kinds import GroupHome
from ..modern.context import GroupClient, GroupContext, Metadata
from ..modern.deadlines import SetDeadline
from ..modern.draft import AssignTarget, Draft
from ..modern.machine import GroupMachine, GroupOperation, GroupWrites, nobody
from ..modern.members import JOIN_EPOCH, Partitions
from ..modern.refusal import GroupRefusal
from . import heartbeat, states
from .group import ShareGroup
from .records import StatePartitionsRecord, tombstones
from .sentences import sentence
from .states import Deletion
from .target import write_target

if TYPE_CHECKING:
    from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

log = logging.getLogger(__name__)


class Alteration(NamedTuple):
    """Whether the offsets of a group may be altered, and the state epoch for the share coordinators."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0


class ShareGroups(GroupMachine[Draft]):
    """The share groups of a shard."""

    kind = "share"
    new_draft = Draft

    def __init__(self, shard: GroupHome, metadata: Metadata, writes: GroupWrites) -> None:
        super().__init__(shard, metadata, writes)
        self.fired = {heartbeat.SESSION_DUE: self.session_due}

    # Members

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: GroupClient, token: int, now_ms: int
    ) -> Result[Any]:
        """Add, keep or remove a member."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            if request.member_epoch < JOIN_EPOCH:
                heartbeat.leave(context, self.existing(request.group_id), request, draft)
                return
            joins = request.member_epoch == JOIN_EPOCH
            group = self.group_for(request.group_id, make=joins)
            group.used_by(client.account)
            heartbeat.heartbeat(context, group, request, client, draft)
            if joins:
                draft.afterwards.append(self.belongs_to(group.group_id, client.account))

        stays = request.member_epoch >= JOIN_EPOCH
        operation = GroupOperation(
            request.group_id, token, run, heartbeat.refused, reads=True, is_paced=stays
        )
        self.perform(operation, now_ms, out)
        return out

    def existing(self, group_id: str) -> ShareGroup:
        """Return a share group. Errors: GROUP_ID_NOT_FOUND."""
        group = self.shard.groups.get(group_id)
        if group is None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise GroupRefusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )
        return group

    def group_for(self, group_id: str, *, make: bool) -> ShareGroup:
        """Return a share group, creating it if there is none and that is allowed.

        Errors: GROUP_ID_NOT_FOUND.
        """
        if group_id in self.shard.groups:
            return self.existing(group_id)
        if not make:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def session_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove a member whose session has expired."""
        epoch = self.deadlines.fired(timer, now_ms, out)
        if epoch is None:
            return
        group_id, member_id = timer.key

        def run(context: GroupContext, draft: Draft) -> None:
            group = self.existing(group_id)
            member = group.members.get(member_id)
            if member is None:
                return
            log.info("share group %s: the session of member %s has expired", group_id, member_id)
            heartbeat.remove_member(context, group, member, draft)

        self.perform(self.missed(timer, epoch, run), now_ms, out)

    def target_assigned(
        self, effect: AssignTarget, found: Mapping[str, Partitions] | None, now_ms: int
    ) -> Result[Any]:
        """Store a target that was computed in steps; it is None if that failed."""
        out: Result[Any] = Result()
        group = self.shard.groups.get(effect.group_id)
        if not isinstance(group, ShareGroup):
            return out

        def run(context: GroupContext, draft: Draft) -> None:
            if self.existing(effect.group_id) is not group:
                return
            if not group.is_assigning or effect.epoch > group.group_epoch:
                return  # it was computed for a deleted group with the same name
            group.is_assigning = False
            if found is None or effect.epoch <= group.assignment_epoch:
                return
            present = [each for each in effect.member_ids if each in group.members]
            write_target(group, present, found, effect.epoch, now_ms, draft)

        self.perform(self.assigned(group, run), now_ms, out)
        return out

    def committed(
        self, operation: GroupOperation[Draft], draft: Draft, now_ms: int, out: Result[Any]
    ) -> None:
        """Note when the share coordinators were last asked."""
        if any(isinstance(record, StatePartitionsRecord) for record in draft.records):
            group = self.shard.groups.get(operation.group_id)
            if isinstance(group, ShareGroup):
                group.states_ms = now_ms

    # Answers of share coordinators

    def states_made(
        self,
        group_id: str,
        outcomes: Sequence[StateOutcome],
        now_ms: int,
        token: int | None = None,
    ) -> Result[ErrorCode]:
        """Record which share partitions have a state now; if one of them failed, none is recorded."""
        out: Result[ErrorCode] = Result()
        partitions: dict[bytes, set[int]] = {}
        for row in outcomes:
            partitions.setdefault(row.topic_id, set()).add(row.partition)
        failed = next((row for row in outcomes if row.error_code is not ErrorCode.NONE), None)

        def run(context: GroupContext, draft: Draft) -> None:
            draft.answer = ErrorCode.NONE
            group = self.existing(group_id)
            if failed is None:
                states.initialized(context, group, partitions, draft)
                return
            log.warning(
                "share group %s: no state of share partitions was made: %s %s",
                group_id,
                failed.error_code.name,
                failed.error_message or "",
            )
            states.not_initialized(context, group, partitions, draft)

        if partitions:
            answer = GroupOperation(group_id, token, run, lambda refusal: refusal.error)
            self.perform(answer, now_ms, out)
        return out

    # Offsets

    def alter_offsets(
        self, group_id: str, topics: states.Topics, account: Hashable, token: int, now_ms: int
    ) -> Result[Alteration]:
        """Prepare to alter the offsets of an empty group, for a client.

        Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; those of GroupMemory.refuses_members.
        """
        out: Result[Alteration] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            group = self.group_for(group_id, make=True)
            _check_empty(group)
            group.used_by(account)
            more = 0 if group_id in self.shard.groups else group.held_bytes
            error = states.refuses_states(context, group, topics, more)
            if error is not ErrorCode.NONE:
                raise GroupRefusal(error)
            states.note_initializing(context, group, topics, draft)
            draft.afterwards.append(self.belongs_to(group_id, account))
            draft.answer = Alteration(state_epoch=group.group_epoch)

        def refuse(refusal: GroupRefusal) -> Alteration:
            return Alteration(refusal.error, refusal.message)

        self.perform(GroupOperation(group_id, token, run, refuse), now_ms, out)
        return out

    def begin_deleting_offsets(
        self, group_id: str, names: Sequence[str], token: int, now_ms: int
    ) -> Result[Deletion]:
        """Prepare to delete the offsets of topics. Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""

        def begin(context: GroupContext, group: ShareGroup, draft: Draft) -> Deletion:
            return states.begin_deletion_of_topics(context, group, names, draft)

        return self._begin_deleting(group_id, begin, token, now_ms)

    def begin_deleting_group(self, group_id: str, token: int, now_ms: int) -> Result[Deletion]:
        """Prepare to delete a group. Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        return self._begin_deleting(group_id, states.begin_deletion, token, now_ms)

    def _begin_deleting(
        self, group_id: str, begin: Any, token: int, now_ms: int
    ) -> Result[Deletion]:
        out: Result[Deletion] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            group = self.existing(group_id)
            _check_empty(group)
            draft.answer = begin(context, group, draft)

        def refuse(refusal: GroupRefusal) -> Deletion:
            return Deletion(refusal.error, refusal.message)

        self.perform(GroupOperation(group_id, token, run, refuse), now_ms, out)
        return out

    def offsets_deleted(
        self, group_id: str, topic_ids: Collection[bytes], token: int, now_ms: int
    ) -> Result[ErrorCode]:
        """Record that the states of topics have been deleted."""
        out: Result[ErrorCode] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            draft.answer = ErrorCode.NONE
            group = self.shard.groups.get(group_id)
            if isinstance(group, ShareGroup):
                states.deleted(context, group, topic_ids, draft)

        self.perform(
            GroupOperation(group_id, token, run, lambda refusal: refusal.error), now_ms, out
        )
        return out

    def topics_deleted(
        self, group_id: str, topic_ids: Collection[bytes], now_ms: int
    ) -> Result[Any]:
        """Forget topics that no longer exist."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            states.forget_topics(context, self.existing(group_id), topic_ids, draft)

        self.perform(GroupOperation(group_id, None, run, nobody), now_ms, out)
        return out

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group without members, whose states have been deleted already."""
        out: Result[ErrorCode] = Result()

        def run(context: GroupContext, draft: Draft) -> None:
            group = self.existing(group_id)
            _check_empty(group)
            draft.records += tombstones(group_id, ())
            draft.answer = ErrorCode.NONE
            draft.afterwards.append(lambda now_ms, out: self.drop(group_id, out))

        self.perform(
            GroupOperation(group_id, token, run, lambda refusal: refusal.error), now_ms, out
        )
        return out

    def drop(self, group_id: str, out: Result[Any]) -> None:
        """Drop what remains of a group after its tombstones."""
        group = self.shard.groups.get(group_id)
        if group is not None:
            self.shard.drop_if_unused(group, out)

    # Loading, and time

    def keep_members(self, group: ShareGroup, now_ms: int) -> None:
        """Restart the sessions of all members, as if each had just sent a heartbeat."""
        timeout_ms = self.metadata.settings(group.group_id, self.kind).session_timeout_ms
        for member_id in group.members:
            self.deadlines.postpone(
                heartbeat.SESSION_DUE, group.group_id, member_id, now_ms + timeout_ms
            )

    def restore(self, group: ShareGroup, now_ms: int, out: Result[Any]) -> None:
        """Start the sessions of a group that was loaded."""
        group.states_ms = now_ms
        timeout_ms = self.metadata.settings(group.group_id, self.kind).session_timeout_ms
        for member_id in group.members:
            session = SetDeadline(heartbeat.SESSION_DUE, group.group_id, member_id, timeout_ms)
            self.deadlines.set(session, now_ms, out)

    def shift_time(self, delta_ms: int) -> None:
        """Move the times at which share coordinators were asked, because the clock behind `now_ms` was set."""
        for group in self.shard.groups.values():
            if isinstance(group, ShareGroup):
                group.states_ms += delta_ms


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        error = ErrorCode.NON_EMPTY_GROUP
        raise GroupRefusal(error, sentence(error))
