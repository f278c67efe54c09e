"""The consumer groups of one shard. Source: GroupMetadataManager."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.messages.sync_group import SyncGroupRequest

from ....metadata.image import MetadataImage
from ...common.result import Result, Timer
from ..classic_groups import ClassicGroups
from ..kinds import GroupHome
from ..modern.context import GroupClient, GroupContext, Metadata
from ..modern.deadlines import SetDeadline
from ..modern.draft import AssignTarget
from ..modern.machine import GO_ON, NO_ANSWER, GroupMachine, GroupOperation, GroupWrites, nobody
from ..modern.members import JOIN_EPOCH, MemberState
from ..modern.refusal import GroupRefusal
from ..rebalance import join_error, sync_error
from ..records import GroupRecord, OffsetRecord
from ..state import Group
from . import classic_members, deadlines, heartbeat
from .conversion import remove_members, upgrade
from .draft import ConsumerDraft, ResolveRegexes
from .group import ConsumerGroup
from .membership import check_size
from .records import TargetRecord, tombstones
from .regexes import regexes_resolved
from .target import write_target

if TYPE_CHECKING:
    from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    from ..classic import Joining

log = logging.getLogger(__name__)

#: The timer after which a group without members and offsets is removed.
UNUSED_DUE = "consumer_group_unused"


class ConsumerGroups(GroupMachine[ConsumerDraft]):
    """The groups of the consumer protocol of a shard."""

    kind = "consumer"
    new_draft = ConsumerDraft

    def __init__(
        self, shard: GroupHome, classic: ClassicGroups, metadata: Metadata, writes: GroupWrites
    ) -> None:
        super().__init__(shard, metadata, writes)
        self.classic = classic
        self.fired = {
            **dict.fromkeys(deadlines.NAMES, self.deadline_due),
            UNUSED_DUE: self.unused_due,
            GO_ON: self.go_on,
        }

    # Requests

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: GroupClient, token: int, now_ms: int
    ) -> Result[Any]:
        """Add, keep or remove a member."""
        out: Result[Any] = Result()
        group_id = request.group_id
        known = self.shard.groups.get(group_id)
        if isinstance(known, ConsumerGroup) and self.writes.may_answer(group_id, now_ms):
            member = heartbeat.unchanged(known, request, client, self.metadata.image())
            if member is not None:
                settings = self.metadata.settings(group_id, self.kind)
                session = SetDeadline(
                    deadlines.SESSION_DUE, group_id, member.member_id, settings.session_timeout_ms
                )
                self.deadlines.set(session, now_ms, out)
                out.reply(token, heartbeat.answer_to(member, settings))
                return out

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            if request.member_epoch < JOIN_EPOCH:
                heartbeat.leave(context, self.existing(request.group_id), request, draft)
                return
            group = self.group_for(context, request, draft)
            group.used_by(client.account)
            check_size(context, group, request.member_id)
            heartbeat.heartbeat(context, group, request, client, draft)
            if request.member_epoch == JOIN_EPOCH:
                draft.afterwards.append(self.belongs_to(group.group_id, client.account))

        stays = request.member_epoch >= JOIN_EPOCH
        operation = GroupOperation(
            group_id, token, run, heartbeat.refused, reads=True, is_paced=stays
        )
        self.perform(operation, now_ms, out)
        return out

    def existing(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Errors: GROUP_ID_NOT_FOUND."""
        group = self.shard.groups.get(group_id)
        if group is None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise GroupRefusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        return group

    def group_for(
        self, context: GroupContext, request: ConsumerGroupHeartbeatRequest, draft: ConsumerDraft
    ) -> ConsumerGroup:
        """Return the group that a member joins or is in; joining creates the group if needed.

        Errors: GROUP_ID_NOT_FOUND.
        """
        group_id = request.group_id
        group = self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            if group is None:
                raise GroupRefusal(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
                )
            return self.existing(group_id)
        if group is None:
            return ConsumerGroup(group_id)
        if not isinstance(group, Group):
            return self.existing(group_id)
        if group.is_dead:
            raise GroupRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group.is_empty:
            draft.records.append(GroupRecord(group_id, None))
            draft.upgraded = group
            return ConsumerGroup(group_id)
        return upgrade(context, group, draft)

    # Requests of the classic protocol

    def join_group(self, joining: Joining, now_ms: int) -> Result[Any]:
        """Add a member; a group without members is converted to a classic group for it."""
        out: Result[Any] = Result()
        request = joining.request
        group_id = request.group_id

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup) and not group.is_empty:
                group.used_by(joining.account)
                classic_members.join(context, group, joining, draft)
                return
            if isinstance(group, ConsumerGroup):
                draft.records += tombstones(group, ())
            draft.answer = NO_ANSWER
            draft.afterwards.append(lambda now_ms, out: self.classic.join(joining, now_ms, out))

        def refuse(refusal: GroupRefusal) -> Any:
            return join_error("", refusal.error)  # without an id, like Apache Kafka

        operation = GroupOperation(group_id, joining.token, run, refuse, is_paced=True)
        self.perform(operation, now_ms, out)
        return out

    def sync_group(self, request: SyncGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Return the member's assignment."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                raise GroupRefusal(ErrorCode.REBALANCE_IN_PROGRESS)  # the group is being converted
            if group.is_empty:
                raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
            classic_members.sync(context, group, request, draft)

        operation = GroupOperation(
            request.group_id, token, run, lambda refusal: sync_error(refusal.error), reads=True
        )
        self.perform(operation, now_ms, out)
        return out

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> Result[Any]:
        """Keep a member alive."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                raise GroupRefusal(ErrorCode.REBALANCE_IN_PROGRESS)  # the group is being converted
            classic_members.heartbeat(group, request, draft)

        def refuse(refusal: GroupRefusal) -> HeartbeatResponse:
            return HeartbeatResponse(error_code=refusal.error)

        self.perform(GroupOperation(request.group_id, token, run, refuse, reads=True), now_ms, out)
        return out

    def leave_group(self, request: LeaveGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Remove members."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.shard.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                classic_members.leave(context, group, request, draft)
                return
            draft.answer = NO_ANSWER
            draft.afterwards.append(
                lambda now_ms, out: self.classic.leave(request, token, now_ms, out)
            )

        def refuse(refusal: GroupRefusal) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=refusal.error)

        self.perform(GroupOperation(request.group_id, token, run, refuse), now_ms, out)
        return out

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group without members, with its offsets."""
        out: Result[ErrorCode] = Result()

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.existing(group_id)
            if not group.is_empty:
                raise GroupRefusal(ErrorCode.NON_EMPTY_GROUP)
            store = group.offsets
            tps = dict.fromkeys((*store.committed, *store.pending))
            draft.records += (OffsetRecord(group_id, tp, None) for tp in tps)
            draft.records += tombstones(group, ())
            draft.answer = ErrorCode.NONE
            draft.afterwards.append(lambda now_ms, out: self.drop_if_unused(group_id, out))

        self.perform(
            GroupOperation(group_id, token, run, lambda refusal: refusal.error), now_ms, out
        )
        return out

    def unused_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove a group that has neither members nor offsets."""
        (group_id,) = timer.key

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.existing(group_id)
            if group.is_empty and not group.offsets:
                draft.records += tombstones(group, ())
                draft.afterwards.append(lambda now_ms, out: self.drop_if_unused(group_id, out))

        self.perform(GroupOperation(group_id, None, run, nobody), now_ms, out)

    def drop_if_unused(self, group_id: str, out: Result[Any]) -> None:
        """Drop what remains of a group after its tombstones."""
        group = self.shard.groups.get(group_id)
        if group is not None:
            self.shard.drop_if_unused(group, out)

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""
        topic = self.metadata.image().topics.get(name)
        return None if topic is None else topic.topic_id

    # Hooks of writes

    def write_begins(self, draft: ConsumerDraft, now_ms: int, out: Result[Any]) -> None:
        """Notify the members of a group that is being upgraded."""
        if draft.upgraded is not None:
            self.classic.retire(draft.upgraded, now_ms, out)

    def write_failed(
        self,
        operation: GroupOperation[ConsumerDraft],
        draft: ConsumerDraft,
        error: ErrorCode,
        now_ms: int,
        out: Result[Any],
    ) -> None:
        """Restore a group whose upgrade failed."""
        if draft.upgraded is not None:
            self.shard.removed((operation.group_id,), error, now_ms, out)

    def committed(
        self,
        operation: GroupOperation[ConsumerDraft],
        draft: ConsumerDraft,
        now_ms: int,
        out: Result[Any],
    ) -> None:
        """Continue with a group that was converted to the other kind."""
        if draft.upgraded is not None:
            self.begin_sessions(draft.upgraded, now_ms, out)
        if draft.downgraded is not None:
            self.classic.take_over(operation.group_id, draft.downgraded, now_ms, out)

    def begin_sessions(self, classic: Group, now_ms: int, out: Result[Any]) -> None:
        """Start the sessions of classic members after their group became a consumer group."""
        group_id = classic.group_id
        for member in classic.members.values():
            session = SetDeadline(
                deadlines.SESSION_DUE, group_id, member.member_id, member.session_timeout_ms
            )
            self.deadlines.set(session, now_ms, out)

    def begin(self, effect: AssignTarget | ResolveRegexes, out: Result[Any]) -> None:
        """Start work outside the machine, unless it is already in progress."""
        if isinstance(effect, ResolveRegexes):
            group = self.shard.groups.get(effect.group_id)
            if not isinstance(group, ConsumerGroup) or group.is_resolving:
                return
            group.is_resolving = True
        super().begin(effect, out)

    # Work outside the machine

    def target_assigned(
        self,
        effect: AssignTarget,
        found: Iterable[TargetRecord] | None,
        now_ms: int,
    ) -> Result[Any]:
        """Store a target that was computed in steps; it is None if that failed."""
        out: Result[Any] = Result()
        group = self.shard.groups.get(effect.group_id)
        if not isinstance(group, ConsumerGroup):
            return out

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            if self.existing(effect.group_id) is not group:
                return
            if not group.is_assigning or effect.epoch > group.group_epoch:
                return  # it was computed for a deleted group with the same name
            group.is_assigning = False
            if found is None or effect.epoch <= group.assignment_epoch:
                return
            changed: list[TargetRecord] = []
            for record in found:
                member_id = record.member_id
                heir = group.static_members.get(effect.instances.get(member_id, ""), member_id)
                if heir != member_id:
                    record = TargetRecord(group.group_id, heir, record.value)
                if heir in group.members and group.target.get(heir) != record.value:
                    changed.append(record)
            write_target(group, changed, effect.epoch, now_ms, draft)

        self.perform(self.assigned(group, run), now_ms, out)
        return out

    def regexes_resolved(
        self,
        effect: ResolveRegexes,
        found: Mapping[str, frozenset[str]] | None,
        image: MetadataImage,
        began_ms: int,
        now_ms: int,
    ) -> Result[Any]:
        """Store which topics of an image match the expressions of a group; None if matching failed."""
        out: Result[Any] = Result()

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.existing(effect.group_id)
            group.is_resolving = False
            if found is not None:
                group.resolved_generation = context.hashes.generation(image)
                regexes_resolved(context, group, found, image.version, began_ms, draft)

        self.perform(GroupOperation(effect.group_id, None, run, nobody), now_ms, out)
        return out

    # Deadlines

    def deadline_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove a member that missed a deadline."""
        epoch = self.deadlines.fired(timer, now_ms, out)
        if epoch is None:
            return
        group_id, member_id = timer.key

        def run(context: GroupContext, draft: ConsumerDraft) -> None:
            group = self.existing(group_id)
            member = group.members.get(member_id)
            if member is None:
                return
            if timer.op_name == deadlines.REVOCATION_DUE and member.member_epoch != epoch:
                return
            log.info(
                "group %s: member %s is removed: %s", group_id, member_id, REASONS[timer.op_name]
            )
            self.remove(context, group, [member_id], draft)

        self.perform(self.missed(timer, epoch, run), now_ms, out)

    def remove(
        self,
        context: GroupContext,
        group: ConsumerGroup,
        member_ids: Iterable[str],
        draft: ConsumerDraft,
    ) -> None:
        """Remove members."""
        remove_members(context, group, [group.members[each] for each in member_ids], draft)

    # Loading and unloading

    def restore(self, group: ConsumerGroup, now_ms: int, out: Result[Any]) -> None:
        """Start the sessions of a group that was loaded."""
        settings = self.metadata.settings(group.group_id, self.kind)
        for member in group.members.values():
            session = SetDeadline(
                deadlines.SESSION_DUE, group.group_id, member.member_id, settings.session_timeout_ms
            )
            self.deadlines.set(session, now_ms, out)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                revocation = SetDeadline(
                    deadlines.REVOCATION_DUE,
                    group.group_id,
                    member.member_id,
                    member.rebalance_timeout_ms,
                    member.member_epoch,
                )
                self.deadlines.set(revocation, now_ms, out)


REASONS = {
    deadlines.SESSION_DUE: "its session has expired",
    deadlines.REVOCATION_DUE: "it did not give up partitions in time",
    deadlines.REJOIN_DUE: "it did not join again in time",
    deadlines.SYNC_DUE: "it did not fetch its assignment in time",
}
