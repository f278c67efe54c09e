"""The consumer groups of one shard: runs operations one write at a time, and what follows from them.

An operation is computed from the committed state alone. While a write of its group is under way, it is
answered if it needs none, and waits otherwise; so the state changes only by replay, as everywhere in
this folder. Source: GroupMetadataManager, CoordinatorRuntime.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.messages.sync_group import SyncGroupRequest

from ....metadata.image import MetadataImage
from ...result import Result, Timer
from ..classic_groups import ClassicGroups
from ..kinds import GroupHome
from ..offsets import group_error_for
from ..rebalance import join_error, sync_error
from ..records import GroupRecord, OffsetRecord
from ..state import Group
from . import classic_members, deadlines, heartbeat
from .conversion import remove_members, upgrade
from .deadlines import Deadlines, SetDeadline
from .draft import AssignTarget, Client, Draft, GroupSettings, ResolveRegexes, Surroundings
from .group import ConsumerGroup
from .member import JOIN_EPOCH, MemberState, Partitions
from .membership import check_size
from .records import tombstones
from .refusal import Refusal
from .regexes import regexes_resolved
from .target import write_target
from .topic_hash import TopicHashes

if TYPE_CHECKING:
    from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    from ..classic import Joining

log = logging.getLogger(__name__)

#: How many requests wait for a group's write at most; more are told to try again.
MOST_WAITING = 10_000


#: The timer after which a group without members and offsets is removed.
UNUSED_DUE = "consumer_group_unused"

#: Stands for the answer to a request that something else answers.
NO_ANSWER = object()


class Metadata(NamedTuple):
    """What the groups of a broker see of its topics, and the settings of single groups."""

    image: Callable[[], MetadataImage]
    hashes: TopicHashes
    settings: Callable[[str], GroupSettings]


class Operation(NamedTuple):
    """A request or a timer that concerns one group.

    Shape: `run` fills the draft; `refuse` makes the answer for an error; a token of None stands for nobody who
    waits. `reads`: it may be answered while a write is under way.
    """

    group_id: str
    token: int | None
    run: Callable[[Surroundings, Draft], None]
    refuse: Callable[[Refusal], Any]
    reads: bool = False


class ConsumerGroupStored(NamedTuple):
    """Ticket of an operation's records."""

    operation: Operation
    draft: Draft


def _nobody(refusal: Refusal) -> None:
    return None


class ConsumerGroups:
    """What a shard does with groups of the consumer protocol.

    Shape: `writing` maps a group with a write under way to the operations that wait for it.
    """

    def __init__(self, shard: GroupHome, classic: ClassicGroups, metadata: Metadata) -> None:
        self.shard = shard
        self.classic = classic
        self.metadata = metadata
        self.deadlines = Deadlines()
        self.writing: dict[str, deque[Operation]] = {}
        #: Tickets that were answered although their outcome is not known.
        self.timed_out: set[int] = set()
        self.fired = {
            **dict.fromkeys(deadlines.NAMES, self.deadline_due),
            UNUSED_DUE: self.unused_due,
        }

    # Requests

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, token: int, now_ms: int
    ) -> Result[Any]:
        """Take a member in, keep it, or let it go."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            if request.member_epoch < JOIN_EPOCH:
                heartbeat.leave(near, self.existing(request.group_id), request, draft)
                return
            group = self.group_for(near, request, draft)
            check_size(near, group, request.member_id)
            heartbeat.heartbeat(near, group, request, client, draft)

        self.perform(
            Operation(request.group_id, token, run, heartbeat.refused, reads=True), now_ms, out
        )
        return out

    def existing(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Errors: GROUP_ID_NOT_FOUND."""
        group = self.shard.groups.get(group_id)
        if group is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        return group

    def group_for(
        self, near: Surroundings, request: ConsumerGroupHeartbeatRequest, draft: Draft
    ) -> ConsumerGroup:
        """Return the group that a member joins or is in; a new one is made if it joins.

        Errors: GROUP_ID_NOT_FOUND.
        """
        group_id = request.group_id
        group = self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            if group is None:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return self.existing(group_id)
        if group is None:
            return ConsumerGroup(group_id)
        assert isinstance(group, Group)
        if group.is_dead:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group.is_empty:
            draft.records.append(GroupRecord(group_id, None))
            draft.upgraded = group
            return ConsumerGroup(group_id)
        return upgrade(near, group, draft)

    # Requests of the classic protocol

    def join_group(self, joining: Joining, now_ms: int) -> Result[Any]:
        """Take a member in; a group without members becomes a classic one for it."""
        out: Result[Any] = Result()
        request = joining.request
        group_id = request.group_id

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup) and not group.is_empty:
                classic_members.join(near, group, joining, draft)
                return
            if isinstance(group, ConsumerGroup):
                draft.records += tombstones(group, ())
            draft.answer = NO_ANSWER
            draft.afterwards.append(lambda now_ms, out: self.classic.join(joining, now_ms, out))

        def refuse(refusal: Refusal) -> Any:
            return join_error("", refusal.error)  # without an id, as by Apache Kafka

        self.perform(Operation(group_id, joining.token, run, refuse), now_ms, out)
        return out

    def sync_group(self, request: SyncGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Answer with what a member has."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)  # it is becoming one
            if group.is_empty:
                raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
            classic_members.sync(near, group, request, draft)

        operation = Operation(
            request.group_id, token, run, lambda refusal: sync_error(refusal.error), reads=True
        )
        self.perform(operation, now_ms, out)
        return out

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> Result[Any]:
        """Note that a member is alive."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)  # it is becoming one
            classic_members.heartbeat(group, request, draft)

        def refuse(refusal: Refusal) -> HeartbeatResponse:
            return HeartbeatResponse(error_code=refusal.error)

        self.perform(Operation(request.group_id, token, run, refuse, reads=True), now_ms, out)
        return out

    def leave_group(self, request: LeaveGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Remove members."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.shard.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                classic_members.leave(near, group, request, draft)
                return
            draft.answer = NO_ANSWER
            draft.afterwards.append(
                lambda now_ms, out: self.classic.leave(request, token, now_ms, out)
            )

        def refuse(refusal: Refusal) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=refusal.error)

        self.perform(Operation(request.group_id, token, run, refuse), now_ms, out)
        return out

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group without members, with its offsets."""
        out: Result[ErrorCode] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.existing(group_id)
            if not group.is_empty:
                raise Refusal(ErrorCode.NON_EMPTY_GROUP)
            store = group.offsets
            tps = dict.fromkeys((*store.committed, *store.pending))
            draft.records += (OffsetRecord(group_id, tp, None) for tp in tps)
            draft.records += tombstones(group, ())
            draft.answer = ErrorCode.NONE
            draft.afterwards.append(lambda now_ms, out: self.drop_if_unused(group_id, out))

        self.perform(Operation(group_id, token, run, lambda refusal: refusal.error), now_ms, out)
        return out

    def unused_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove a group that has neither members nor offsets."""
        (group_id,) = timer.key

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.existing(group_id)
            if group.is_empty and not group.offsets:
                draft.records += tombstones(group, ())
                draft.afterwards.append(lambda now_ms, out: self.drop_if_unused(group_id, out))

        self.perform(Operation(group_id, None, run, _nobody), now_ms, out)

    def drop_if_unused(self, group_id: str, out: Result[Any]) -> None:
        """Forget what is left of a group after its tombstones."""
        group = self.shard.groups.get(group_id)
        if group is not None:
            self.shard.drop_if_unused(group, out)

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""
        topic = self.metadata.image().topics.get(name)
        return None if topic is None else topic.topic_id

    # Running operations

    def near(self, group_id: str, now_ms: int) -> Surroundings:
        metadata = self.metadata
        return Surroundings(
            self.shard.config,
            metadata.settings(group_id),
            metadata.image(),
            metadata.hashes,
            now_ms,
            self.shard.memory,
        )

    def perform(self, operation: Operation, now_ms: int, out: Result[Any]) -> None:
        """Run an operation, or let it wait for the write of its group."""
        waiting = self.writing.get(operation.group_id)
        if waiting is not None and (not operation.reads or len(waiting) >= MOST_WAITING):
            self.wait(operation, waiting, out)
            return
        draft = Draft()
        try:
            operation.run(self.near(operation.group_id, now_ms), draft)
        except Refusal as refusal:
            out.reply(operation.token, operation.refuse(refusal))
            return
        if not draft.records:
            self.follow(operation, draft, now_ms, out)
        elif waiting is not None:
            self.look_again(operation.group_id)
            self.wait(operation, waiting, out)
        else:
            self.writing[operation.group_id] = deque()
            if draft.upgraded is not None:
                self.classic.retire(draft.upgraded, now_ms, out)
            out.write(draft.records, ConsumerGroupStored(operation, draft))

    def wait(self, operation: Operation, waiting: deque[Operation], out: Result[Any]) -> None:
        if len(waiting) >= MOST_WAITING:
            busy = Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            out.reply(operation.token, operation.refuse(busy))
        else:
            waiting.append(operation)

    def follow(self, operation: Operation, draft: Draft, now_ms: int, out: Result[Any]) -> None:
        """Answer, and do what follows, once an operation's records are committed."""
        if draft.answer is not NO_ANSWER:
            out.reply(operation.token, draft.answer)
        if draft.upgraded is not None:
            self.begin_sessions(draft.upgraded, now_ms, out)
        if draft.downgraded is not None:
            self.classic.take_over(operation.group_id, draft.downgraded, now_ms, out)
        for wanted in draft.deadlines:
            self.deadlines.set(wanted, now_ms, out)
        for effect in draft.effects:
            self.begin(effect, out)
        for step in draft.afterwards:
            step(now_ms, out)

    def begin_sessions(self, classic: Group, now_ms: int, out: Result[Any]) -> None:
        """Begin the sessions of members that speak the classic protocol, now that theirs is a consumer group."""
        group_id = classic.group_id
        for member in classic.members.values():
            session = SetDeadline(
                deadlines.SESSION_DUE, group_id, member.member_id, member.session_timeout_ms
            )
            self.deadlines.set(session, now_ms, out)

    def begin(self, effect: AssignTarget | ResolveRegexes, out: Result[Any]) -> None:
        """Have work done outside of the machine, unless it is being done."""
        group = self.shard.groups.get(effect.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if isinstance(effect, AssignTarget):
            if group.is_assigning:
                return
            group.is_assigning = True
        else:
            if group.is_resolving:
                return
            group.is_resolving = True
        out.effects.append(effect)

    def look_again(self, group_id: str) -> None:
        """Note that what a group saw of the topics was not stored."""
        group = self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.image_version = -1

    def stored(
        self, ticket: ConsumerGroupStored, error: ErrorCode, now_ms: int, out: Result[Any]
    ) -> None:
        """Continue after a write: answer, and let those that waited for it run."""
        operation, draft = ticket
        group_id = operation.group_id
        waiting = self.writing.get(group_id, deque())
        known = id(draft)
        if error is not ErrorCode.NONE:
            self.look_again(group_id)
            mapped = (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
                if error is ErrorCode.REQUEST_TIMED_OUT
                else group_error_for(error)
            )
            if known not in self.timed_out:
                out.reply(operation.token, operation.refuse(Refusal(mapped)))
            while waiting:
                each = waiting.popleft()
                out.reply(each.token, each.refuse(Refusal(mapped)))
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.timed_out.add(known)
                return
            self.timed_out.discard(known)
            self.writing.pop(group_id, None)
            if draft.upgraded is not None:
                self.shard.removed((group_id,), error, now_ms, out)
            return
        self.writing.pop(group_id, None)
        if known in self.timed_out:
            self.timed_out.discard(known)
            operation = operation._replace(token=None)
        self.follow(operation, draft, now_ms, out)
        while waiting:
            self.perform(waiting.popleft(), now_ms, out)
            again = self.writing.get(group_id)
            if again is not None:
                again.extend(waiting)
                return

    # Work done outside

    def target_assigned(
        self,
        effect: AssignTarget,
        found: Mapping[str, Partitions] | None,
        now_ms: int,
    ) -> Result[Any]:
        """Store a target that was computed in steps; None if that failed."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.existing(effect.group_id)
            if not group.is_assigning or effect.epoch > group.group_epoch:
                return  # it was computed for a group of that name that has been deleted since
            group.is_assigning = False
            if found is None or effect.epoch <= group.assignment_epoch:
                return
            present = [each for each in effect.member_ids if each in group.members]
            write_target(group, present, found, effect.epoch, now_ms, draft)

        self.perform(Operation(effect.group_id, None, run, _nobody), now_ms, out)
        return out

    def regexes_resolved(
        self,
        effect: ResolveRegexes,
        found: Mapping[str, frozenset[str]] | None,
        image: MetadataImage,
        began_ms: int,
        now_ms: int,
    ) -> Result[Any]:
        """Store which topics of an image the expressions of a group match; None if that failed."""
        out: Result[Any] = Result()

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.existing(effect.group_id)
            group.is_resolving = False
            if found is not None:
                group.resolved_generation = near.hashes.generation(image)
                regexes_resolved(near, group, found, image.version, began_ms, draft)

        self.perform(Operation(effect.group_id, None, run, _nobody), now_ms, out)
        return out

    # Deadlines

    def deadline_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove a member that did not do in time what it had to."""
        epoch = self.deadlines.fired(timer, now_ms, out)
        if epoch is None:
            return
        group_id, member_id = timer.key

        def run(near: Surroundings, draft: Draft) -> None:
            group = self.existing(group_id)
            member = group.members.get(member_id)
            if member is None:
                return
            if timer.op_name == deadlines.REVOCATION_DUE and member.member_epoch != epoch:
                return
            log.info(
                "group %s: member %s is removed: %s", group_id, member_id, REASONS[timer.op_name]
            )
            self.remove(near, group, [member_id], draft)

        self.perform(Operation(group_id, None, run, _nobody), now_ms, out)

    def remove(
        self, near: Surroundings, group: ConsumerGroup, member_ids: Iterable[str], draft: Draft
    ) -> None:
        """Remove members."""
        remove_members(near, group, [group.members[each] for each in member_ids], draft)

    # Loading and unloading

    def restore(self, group: ConsumerGroup, now_ms: int, out: Result[Any]) -> None:
        """Begin the sessions of a group that was loaded."""
        settings = self.metadata.settings(group.group_id)
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

    def shift_time(self, delta_ms: int) -> None:
        """Move all deadlines, because the clock behind `now_ms` was set."""
        self.deadlines.shift(delta_ms)

    def unload(self) -> Result[Any]:
        """Refuse what waits, since another broker will coordinate these groups."""
        out: Result[Any] = Result()
        moved = Refusal(ErrorCode.NOT_COORDINATOR)
        for waiting in self.writing.values():
            for operation in waiting:
                out.reply(operation.token, operation.refuse(moved))
        self.writing.clear()
        self.deadlines.clear()
        return out


REASONS = {
    deadlines.SESSION_DUE: "its session has expired",
    deadlines.REVOCATION_DUE: "it did not give up partitions in time",
    deadlines.REJOIN_DUE: "it did not join again in time",
    deadlines.SYNC_DUE: "it did not ask for its assignment in time",
}
