"""Drives a GroupShard: requests of classic groups and for offsets, and shortcuts to states."""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from server.coordinator.common.result import Result
from server.coordinator.group.classic import Joining
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.shard import GroupShard
from server.coordinator.group.state import Group, GroupState
from server.coordinator.group.stored import decode_record, encode_record
from tests.support.driven_shard import DrivenShard, Stored
from tests.support.requests import commit_request, txn_commit_request

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 3_000
RANGE = ("range", b"range-metadata")
PROTOCOLS = (RANGE,)


class Batch(NamedTuple):
    """One batch of the log: encoded records, or a marker."""

    stored: list[Stored]
    producer_id: int = -1
    marker: bool | None = None


class GroupMachine(DrivenShard):
    """A shard of the group coordinator."""

    def __init__(self, **config: Any) -> None:
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": DELAY_MS, **config})
        self.last_id = 0
        super().__init__()

    def new_shard(self) -> GroupShard:
        return GroupShard(0, self.config)

    def encode(self, record: Any) -> Stored:
        return encode_record(record)

    def entries(self, stored: list[Stored], result: Result) -> list[Batch]:
        return [Batch(stored, -1 if result.producer is None else result.producer[0])]

    def replay(self, shard: GroupShard, entry: Batch, position: int) -> None:
        if entry.marker is not None:
            list(shard.replay_marker(entry.producer_id, entry.marker))
        for key, value in entry.stored:
            shard.replay(decode_record(key, value), position, entry.producer_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.store([Batch([], producer_id, committed)])

    # Requests: each returns its token

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: Any = PROTOCOLS,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        require_member_id: bool = False,
        can_skip: bool = False,
        denied: str = "",
    ) -> int:
        token = self.token()
        self.last_id += 1
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        joining = Joining(
            request,
            list(protocols),
            token,
            "client",
            "/127.0.0.1",
            "" if member_id else f"{instance or 'client'}-{self.last_id}",
            require_member_id,
            can_skip,
            lambda name: name != denied,
            self.account,
        )
        self.apply(self.shard.join_group(joining, self.now))
        return token

    def abandon(self, token: int, *, group: str = GROUP, knows_its_id: bool = False) -> None:
        """Close the connection on which a JoinGroup waits."""
        self.apply(self.shard.join_abandoned(group, token, knows_its_id, self.now))

    def sync(
        self,
        member_id: str,
        generation: int = 1,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        self.apply(self.shard.sync_group(request, token, self.now))
        return token

    def heartbeat(
        self,
        member_id: str,
        generation: int = 1,
        *,
        group: str = GROUP,
        instance: str | None = None,
    ) -> ErrorCode:
        token = self.token()
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        self.apply(self.shard.heartbeat(request, token, self.now))
        return ErrorCode(self.answers[token].error_code)

    def leave(self, *members: str | tuple[str, str | None], group: str = GROUP) -> list[ErrorCode]:
        """Remove members by member id or by (member id, instance id); return their errors."""
        token = self.token()
        rows = [(m, None) if isinstance(m, str) else m for m in members]
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in rows],
        )
        self.apply(self.shard.leave_group(request, token, self.now))
        answer = self.answers[token]
        if answer.error_code:
            return [ErrorCode(answer.error_code)]
        return [ErrorCode(row.error_code) for row in answer.members]

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        commit_timestamp: int = -1,
    ) -> int:
        token = self.token()
        request = commit_request(
            *((topic, partition, offset) for (topic, partition), offset in offsets.items()),
            row={
                "committed_leader_epoch": 5,
                "committed_metadata": metadata,
                "commit_timestamp": commit_timestamp,
            },
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
        )
        self.apply(self.shard.commit_offsets(request, token, self.now, account=self.account))
        return token

    def commit_in_transaction(
        self,
        producer_id: int,
        offsets: dict[tuple[str, int], int],
        group: str = GROUP,
        metadata: str = "",
        **member: Any,
    ) -> int:
        token = self.token()
        request = txn_commit_request(
            *((topic, partition, offset) for (topic, partition), offset in offsets.items()),
            metadata=metadata,
            transactional_id="transactional",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            **member,
        )
        self.apply(self.shard.commit_transactional_offsets(request, token, self.now))
        return token

    def delete_offsets(self, *tps: tuple[str, int], group: str = GROUP) -> int:
        token = self.token()
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=partition)],
                )
                for topic, partition in tps
            ],
        )
        self.apply(self.shard.delete_offsets(request, token, self.now))
        return token

    def delete_group(self, group: str = GROUP) -> int:
        token = self.token()
        self.apply(self.shard.delete_group(group, token, self.now))
        return token

    # Results

    def error(self, token: int) -> ErrorCode:
        return ErrorCode(self.answers[token].error_code)

    def row_errors(self, token: int) -> list[ErrorCode]:
        """The errors of a commit's or delete's rows, in order."""
        return [
            ErrorCode(row.error_code)
            for topic in self.answers[token].topics
            for row in topic.partitions
        ]

    def fetch(self, topic: str, partition: int, *, stable: bool = False, group: str = GROUP) -> Any:
        """One partition's FetchedOffset."""
        return self.shard.fetch_offsets(group, [(topic, [partition])], stable)[0][1][0]

    def group(self, group: str = GROUP) -> Group:
        return self.shard.groups[group]

    @property
    def state(self) -> GroupState:
        return self.group().state

    # Shortcuts to a state

    def form(self, count: int = 1, **joining: Any) -> list[str]:
        """Join `count` dynamic members and return their ids, the leader's first; not yet synced."""
        tokens = [self.join(**joining) for _ in range(count)]
        self.advance(DELAY_MS)
        while any(token not in self.answers for token in tokens):
            self.advance(DELAY_MS)
        return [self.answers[token].member_id for token in tokens]

    def stable(self, count: int = 1, **joining: Any) -> list[str]:
        """Like `form`, followed by SyncGroup of all: member n is assigned b"n"."""
        members = self.form(count, **joining)
        generation = self.group().generation_id
        assignments = {m: str(n).encode() for n, m in enumerate(members)}
        for member in members:
            self.sync(member, generation, assignments)
        assert self.state is GroupState.STABLE
        return members

    def stable_static(self, *instances: str, **joining: Any) -> list[str]:
        """Make a stable group of static members; returns their member ids."""
        tokens = [self.join(instance=instance, **joining) for instance in instances]
        while tokens[-1] not in self.answers:
            self.advance(DELAY_MS)
        members = [self.answers[token].member_id for token in tokens]
        generation = self.group().generation_id
        assignments = {m: i.encode() for m, i in zip(members, instances, strict=True)}
        for member, instance in zip(members, instances, strict=True):
            self.sync(member, generation, assignments, instance=instance)
        assert self.state is GroupState.STABLE
        return members


def hard_state(shard: GroupShard) -> dict[str, Any]:
    """The state of a shard that must survive: per group, its persisted, committed and transactional state."""
    state = {}
    for group_id, group in shard.groups.items():
        store = group.offsets
        committed = {tp: stored.value for tp, stored in store.committed.items()}
        transactional = {
            producer_id: {tp: stored.value for tp, stored in offsets.items()}
            for producer_id, offsets in store.transactional.items()
            if offsets
        }
        if group.persisted is not None or committed or transactional:
            state[group_id] = (group.persisted, committed, transactional)
    return state
