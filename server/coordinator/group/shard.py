"""The groups of one partition of __consumer_offsets: the machine that the runtime runs.

Operations look up the group, do their step and return a Result. Committed offsets and `Group.persisted` change only in
`replay`; `completed` continues after a write. No function here waits, reads a clock or uses a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.leave_group import LeaveGroupRequest
from kwire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kwire.messages.sync_group import SyncGroupRequest
from kwire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from ...metadata.image import MetadataImage
from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ..common.result import Result, Timer
from . import offsets, rebalance
from .classic import Joining
from .classic_groups import ClassicGroups
from .config import GroupConfig
from .consumer.group import ConsumerGroup
from .consumer.machine import UNUSED_DUE, ConsumerGroups
from .consumer.records import ConsumerGroupRecord, EpochRecord
from .consumer.replay import replay as replay_consumer_group
from .kinds import AnyGroup, GroupRules
from .memory import GROUP_BYTES, GroupMemory
from .modern.context import GroupSettings, Metadata
from .modern.draft import AssignTarget
from .modern.machine import GroupWrites, OperationStored
from .modern.topic_hash import TopicHashes
from .records import GroupRecord, OffsetRecord
from .share.group import ShareGroup
from .share.machine import ShareGroups
from .share.records import ShareEpochRecord, ShareGroupRecord
from .share.replay import replay as replay_share_group
from .state import Group
from .stored import GroupCoordinatorRecord, decode_record, encode_record

log = logging.getLogger(__name__)

RETENTION_DUE = "retention_due"
RETENTION_BATCH = 256
"""The maximum number of tombstones in one batch of expired offsets, unless one group has more."""


RETENTION_GROUPS = 256
"""The number of groups that are checked for one batch."""


def no_metadata(config: GroupConfig) -> Metadata:
    """The metadata of a broker without topics."""
    return Metadata(
        MetadataImage, TopicHashes(), lambda group_id, kind: GroupSettings.of(config, kind)
    )


class GroupShard:
    """All groups of one partition.

    Shape: `groups` by id; `memory` is the account of all groups of the broker; `write_id` numbers commits.
    `groups_of_producer` maps a producer id to the ids of the groups that the end of its transaction affects.
    """

    keeps_latest = False

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        memory: GroupMemory | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        self.partition = partition
        self.config = config
        self.memory = memory or GroupMemory()
        self.groups: dict[str, AnyGroup] = {}
        self.classic = ClassicGroups(self)
        metadata = metadata or no_metadata(config)
        self.writes = GroupWrites()
        self.consumer = ConsumerGroups(self, self.classic, metadata, self.writes)
        self.share = ShareGroups(self, metadata, self.writes)
        self.groups_of_producer: dict[int, set[str]] = {}
        self.write_id = 0
        self.fired: dict[str, Callable[[Timer, int, Result[Any]], None]] = {
            **self.classic.fired,
            **self.consumer.fired,
            **self.share.fired,
            RETENTION_DUE: self.retention_due,
        }

    # Members of the classic protocol

    def rules(self, group_id: str) -> GroupRules:
        """The operations that members can request on an existing or new group.

        Shape: members of the classic protocol see a share group as a classic group that they cannot join.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) or (
            not isinstance(group, ShareGroup) and group_id in self.writes.writing
        ):
            return self.consumer
        return self.classic

    def join_group(self, joining: Joining, now_ms: int) -> Result[Any]:
        """Add a member; the answer may come later."""
        return self.rules(joining.request.group_id).join_group(joining, now_ms)

    def join_abandoned(
        self, group_id: str, token: int, knows_its_id: bool, now_ms: int
    ) -> Result[Any]:
        """The connection of a waiting JoinGroup has ended; see rebalance.join_abandoned."""
        return self.classic.join_abandoned(group_id, token, knows_its_id, now_ms)

    def sync_group(self, request: SyncGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Answer with the member's assignment, once there is one."""
        return self.rules(request.group_id).sync_group(request, token, now_ms)

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> Result[Any]:
        """Note that a member is alive."""
        return self.rules(request.group_id).heartbeat(request, token, now_ms)

    def leave_group(self, request: LeaveGroupRequest, token: int, now_ms: int) -> Result[Any]:
        """Remove the members named in `request.members`; each has a row with its own error."""
        return self.rules(request.group_id).leave_group(request, token, now_ms)

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]:
        """Remove a group that has no members, and its offsets; the answer is an ErrorCode."""
        if isinstance(self.groups.get(group_id), ShareGroup):
            return self.share.delete_group(group_id, token, now_ms)
        return self.rules(group_id).delete_group(group_id, token, now_ms)

    # Offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        token: int,
        now_ms: int,
        unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
        version: int = -1,
        account: Hashable = NOBODY,
    ) -> Result[OffsetCommitResponse]:
        """Store offsets; an unknown group is created for a simple consumer.

        Errors: `unknown_group` for a member of an unknown group.
        """
        out: Result[OffsetCommitResponse] = Result()
        group = self.groups.get(request.group_id)
        made = False
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                out.reply(token, offsets.commit_error(request, unknown_group))
                return out
            full = self.refuses_group(request.group_id, account)
            if full is not ErrorCode.NONE:
                out.reply(token, offsets.commit_error(request, full))
                return out
            group = self.create(request.group_id, now_ms, account)
            made = True
        elif group.client is NOBODY:
            group.give_to(account)
        self.write_id += 1
        offsets.commit_offsets(
            self.config,
            group,
            request,
            token,
            self.write_id,
            now_ms,
            out,
            version,
            self.consumer.topic_id,
        )
        if made and out.ticket is None:  # refused
            self.drop_if_unused(group, out)
        return out

    def commit_transactional_offsets(
        self,
        request: TxnOffsetCommitRequest,
        token: int,
        now_ms: int,
        account: Hashable = NOBODY,
    ) -> Result[TxnOffsetCommitResponse]:
        """Store offsets in a transaction that the caller has verified.

        Errors: as in Apache Kafka 4, ILLEGAL_GENERATION for a member of an unknown group.
        """
        out: Result[TxnOffsetCommitResponse] = Result()
        error = self.refuses_group(request.group_id, account)
        is_member = request.generation_id >= 0
        if self.config.verifies_first and is_member and request.group_id not in self.groups:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            out.reply(token, offsets.transactional_commit_error(request, error))
            return out
        made = request.group_id not in self.groups
        group = self.ensure(request.group_id, now_ms, account)
        if group.client is NOBODY:
            group.give_to(account)
        self.write_id += 1
        offsets.commit_transactional_offsets(
            self.config,
            group,
            request,
            token,
            self.write_id,
            now_ms,
            out,
            self.consumer.topic_id,
        )
        if made and out.ticket is None and self.config.verifies_first:  # refused
            self.drop_if_unused(group, out)
        return out

    def validate_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check whether a member may fetch offsets. Errors: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        group = self.groups.get(group_id)
        return ErrorCode.NONE if group is None else group.validate_fetch(member_id, member_epoch)

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
    ) -> list[tuple[str, list[offsets.FetchedOffset]]]:
        """Read committed offsets; see offsets.fetch_offsets."""
        return offsets.fetch_offsets(self.groups.get(group_id), topics, require_stable)

    def committed_partitions(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the partitions for which a group has offsets; see offsets.committed_partitions."""
        return offsets.committed_partitions(self.groups.get(group_id))

    def delete_offsets(
        self, request: OffsetDeleteRequest, token: int, now_ms: int
    ) -> Result[OffsetDeleteResponse]:
        """Remove offsets. Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; other errors are in the rows."""
        out: Result[OffsetDeleteResponse] = Result()
        group = self.groups.get(request.group_id)
        if group is None:
            out.reply(token, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            if offsets.delete_offsets(self.config, group, request, token, now_ms, out):
                self.drop_if_unused(group, out)
        return out

    def remove_partitions(
        self, group_id: str, tps: Iterable[TopicPartition], now_ms: int
    ) -> Result[Any]:
        """Remove a group's offsets for partitions that no longer exist.

        Shape: as in Apache Kafka 3.9, this also removes a group without members and offsets, whether or not it had
        offsets for these partitions; 4.3 leaves such groups to the check of retention.
        Source: GroupMetadataManager.cleanupGroupMetadata; OffsetMetadataManager.onPartitionsDeleted.
        """
        out: Result[Any] = Result()
        keep = self.config.keeps_unused
        group = self.groups.get(group_id)
        if group is not None and not group.is_dead:
            records = offsets.remove_offsets(group, tps, now_ms, keep=keep)
            if records:
                ticket = offsets.OffsetsRemoved(() if keep else (group_id,), None, None)
                out.write(records, ticket)
            if not keep:
                self.drop_if_unused(group, out)
        return out

    # Timers

    def fire(self, timer: Timer, now_ms: int) -> Result[Any]:
        """Run the operation that a timer was set for."""
        out: Result[Any] = Result()
        self.fired[timer.op_name](timer, now_ms, out)
        return out

    def retention_due(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Remove expired offsets and groups without offsets, one batch at a time.

        Shape: the timer's key lists the groups left over from the last batch; () starts a new round.
        """
        names = list(timer.key) or list(self.groups)
        records: list[GroupCoordinatorRecord] = []
        touched = []
        looked_at = 0
        while names and len(records) < RETENTION_BATCH and looked_at < RETENTION_GROUPS:
            looked_at += 1
            group = self.groups.get(names.pop())
            if group is None or group.is_dead:
                continue
            due = group.expired_offsets(now_ms, self.config.offsets_retention_ms)
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
        """Apply a committed record; hard state changes only here.

        Shape: in log order; `position` increases by batch. `producer_id` is -1 outside transactions.
        """
        if isinstance(record, ShareGroupRecord):
            self.replay_share_group(record)
            return
        if not isinstance(record, GroupRecord | OffsetRecord):
            self.replay_consumer_group(record)
            return
        group = self.groups.get(record.group_id)
        if group is None:
            group = self.create(record.group_id, -1)
        if isinstance(record, GroupRecord):
            if not isinstance(group, Group):
                if record.value is None:
                    return
                group = self.replace(group)
            group.persist(record.value)
            return
        before = group.offsets.held_bytes
        group.offsets.apply(record.tp, record.value, position, producer_id)
        group.hold_offsets(before)
        if producer_id >= 0:
            self.groups_of_producer.setdefault(producer_id, set()).add(record.group_id)

    def replay_consumer_group(self, record: ConsumerGroupRecord) -> None:
        """Apply a record of a consumer group; the first creates the group, its tombstone leaves only its offsets."""
        group = self.groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = ConsumerGroup(record.group_id, self.memory)
            self.put(group)
        if isinstance(record, EpochRecord) and record.value is None:
            self.replace(group)
        else:
            replay_consumer_group(group, record)

    def replay_share_group(self, record: ShareGroupRecord) -> None:
        """Apply a record of a share group; the first creates the group, its tombstone removes it."""
        group = self.groups.get(record.group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            group = ShareGroup(record.group_id, self.memory)
            self.put(group)
        if isinstance(record, ShareEpochRecord) and record.value is None:
            self.replace(group)
        else:
            replay_share_group(group, record)

    def put(self, made: AnyGroup) -> None:
        """Replace the group with the same id, if there is one, and keep its offsets."""
        group = self.groups.get(made.group_id)
        if group is not None:
            made.give_to(group.client)
            made.offsets = group.offsets
            group.forget()
            made.hold_offsets(0)
        self.groups[made.group_id] = made

    def replace(self, group: AnyGroup) -> Group:
        """Replace a group by a classic group with the same offsets."""
        made = Group(group.group_id, -1, memory=self.memory)
        self.put(made)
        return made

    def replay_marker(self, producer_id: int, committed: bool) -> Iterator[None]:
        """Apply the marker that ends a producer's transaction in this partition, to one group in each step."""
        for group_id in self.groups_of_producer.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                before = group.offsets.held_bytes
                group.offsets.apply_marker(producer_id, committed)
                group.hold_offsets(before)
            yield

    def completed(self, ticket: Any, error: ErrorCode, now_ms: int) -> Result[Any]:
        """Continue after a write was committed and replayed, or failed with an error of the log.

        Shape: REQUEST_TIMED_OUT may be followed by a second call, with the final outcome.
        """
        out: Result[Any] = Result()
        if isinstance(ticket, offsets.OffsetsStored):
            offsets.offsets_stored(self.groups.get(ticket.group_id), ticket, error, out)
        elif isinstance(ticket, OperationStored):
            ticket.machine.stored(ticket, error, now_ms, out)
        elif self.classic.completed(ticket, error, now_ms, out):
            pass
        elif isinstance(ticket, offsets.OffsetsRemoved):
            if ticket.response is not None:
                if error is not ErrorCode.NONE:
                    mapped = offsets.commit_error_for(error)
                    out.reply(ticket.token, OffsetDeleteResponse(error_code=mapped))
                else:
                    out.reply(ticket.token, ticket.response)
            self.removed(ticket.group_ids, error, now_ms, out)
        elif error is not ErrorCode.NONE:
            # No request waits for the record of an empty group. If the coordinator moves now, the previous generation
            # comes back, and its members soon time out.
            log.warning("%s storing %r", error.name, ticket)
        return out

    def removed(
        self, group_ids: Iterable[str], error: ErrorCode, now_ms: int, out: Result[Any]
    ) -> None:
        """Forget dead groups whose tombstones are now stored.

        Shape: a group that still has stored state is restored from the log's state, because the tombstones failed, or
        because a transaction has offsets for it.
        """
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self.drop_if_unused(group, out)
            if not isinstance(group, Group) or not group.is_dead:
                continue
            self.forget(group_id)
            if group.persisted is not None or group.offsets:
                restored = self.create(group_id, now_ms, group.client)
                restored.offsets = group.offsets
                restored.hold_offsets(0)
                restored.persist(group.persisted)
                self.classic.restore(restored, now_ms, out)

    def drop_if_unused(self, group: AnyGroup, out: Result[Any]) -> None:
        """Forget a group that has no members and nothing in the log.

        Shape: pending members do not count; they will get UNKNOWN_MEMBER_ID and ask for another id.
        """
        if not group.is_empty or group.offsets or not group.keeps_offsets:
            return
        if not isinstance(group, Group):
            out.timers.append(Timer(UNUSED_DUE, (group.group_id,), 0))
        elif not group.is_stored():
            for member_id in list(group.pending_members):
                rebalance.drop(group, member_id, out)
            self.forget(group.group_id)

    # Loading and unloading the partition

    def loaded(self, now_ms: int) -> Result[Any]:
        """Restore groups from the replayed records, and start to serve them."""
        out: Result[Any] = Result()
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                self.consumer.restore(group, now_ms, out)
            elif isinstance(group, ShareGroup):
                self.share.restore(group, now_ms, out)
            elif isinstance(group, Group):
                if group.persisted is None and not group.offsets:
                    self.forget(group.group_id)
                else:
                    self.restore(group, now_ms, out)
        interval_ms = self.config.offsets_retention_check_interval_ms
        out.timers.append(Timer(RETENTION_DUE, (), now_ms + interval_ms))
        return out

    def restore(self, group: Group, now_ms: int, out: Result[Any]) -> None:
        """Restore a classic group; one whose generation cannot be read keeps its offsets and has no members."""
        try:
            self.classic.restore(group, now_ms, out)
        except Exception as error:  # noqa: BLE001 - the others are not lost with it
            log.error(
                "group %.200s: its members cannot be read and have to join again: %s: %.500s",
                group.group_id,
                type(error).__name__,
                error,
            )
            made = self.replace(group)
            made.state_timestamp_ms = now_ms
            made.persist(group.persisted)

    def unload(self, now_ms: int) -> Iterator[Result[Any]]:
        """Refuse all waiting requests, since another broker will coordinate these groups; one group per step."""
        self.groups_of_producer.clear()
        yield self.writes.unload()
        while self.groups:
            _, group = self.groups.popitem()
            out: Result[Any] = Result()
            if isinstance(group, Group):
                out = self.classic.unload(group, now_ms)
            group.forget()
            yield out

    def shift_time(self, delta_ms: int) -> None:
        """Shift all deadlines, because the clock behind `now_ms` was set."""
        self.classic.shift_time(delta_ms)
        self.writes.shift_time(delta_ms)
        self.share.shift_time(delta_ms)

    def target_assigned(self, effect: AssignTarget, found: Any, now_ms: int) -> Result[Any]:
        """Store a target that was computed in steps; None if the computation failed."""
        if isinstance(self.groups.get(effect.group_id), ShareGroup):
            return self.share.target_assigned(effect, found, now_ms)
        return self.consumer.target_assigned(effect, found, now_ms)

    def ensure(self, group_id: str, now_ms: int, account: Hashable) -> AnyGroup:
        """Return a group; create an empty one if it is unknown."""
        return self.groups.get(group_id) or self.create(group_id, now_ms, account)

    def refuses_group(self, group_id: str, account: Hashable) -> ErrorCode:
        """The error if a group is unknown and may not be created. Errors: those of GroupMemory."""
        if group_id in self.groups:
            return ErrorCode.NONE
        return self.memory.refuses_members(self.config, account, 0, GROUP_BYTES + len(group_id))

    def create(self, group_id: str, now_ms: int, account: Hashable = NOBODY) -> Group:
        group = Group(group_id, now_ms, memory=self.memory, client=account)
        self.groups[group_id] = group
        return group

    def forget(self, group_id: str) -> None:
        """Remove a group from memory."""
        self.groups.pop(group_id).forget()

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)
