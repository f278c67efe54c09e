"""A group and its members in memory. Source: GroupMetadata.scala, MemberMetadata.scala.

Everything here except `Group.persisted` and the committed part of `Group.offsets` is soft state: it is lost when the
coordinator moves, and is rebuilt from those two.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from enum import Enum
from sys import getsizeof

from kwire.errors import ErrorCode
from kwire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kwire.messages.sync_group import SyncGroupResponse

from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ..common.transition import IllegalTransition
from .counted import CountedGroup
from .kinds import CommitSender, PartitionCheck
from .memory import GROUP_BYTES, MEMBER_BYTES, PENDING_BYTES, GroupMemory
from .offset_store import OffsetStore

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = list[tuple[str, bytes]]
"""(name, metadata) of each protocol that a member supports, in order of preference."""


class GroupState(Enum):
    """The state of a classic group; the value is Kafka's name on the wire.

    EMPTY: no members; there may be offsets. Groups that only store offsets are always EMPTY. PREPARING_REBALANCE:
    JoinGroup requests wait until all members have joined, or the time limit has passed. COMPLETING_REBALANCE: a
    generation has begun; SyncGroup requests wait for the leader's.
    STABLE: every member has its assignment or can fetch it.
    DEAD: being removed, or its coordinator has moved; a final state.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__  # Enum's own __hash__ is Python code; there is one object per state


#: The states from which each state may be reached.
VALID_PREVIOUS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Member:
    """One member of a group.

    Shape: `join_token` and `sync_token` identify its waiting requests, or are None. `deadline_ms` is the time at which
    the member counts as failed without a heartbeat. `timer_at_ms` is the time at which its timer fires; it may be
    earlier, since a heartbeat moves only the deadline. `is_gone`: the connection of its waiting request has ended.
    `held_bytes` is the memory that the group counts for it.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "held_bytes",
        "is_gone",
        "is_new",
        "join_token",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
        "timer_at_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        group_instance_id: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.is_gone = False
        self.held_bytes = 0
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.deadline_ms = 0
        self.timer_at_ms: int | None = None

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for a protocol. Errors: KeyError if there is none."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: set[str]) -> str:
        """Return the candidate that this member prefers. Errors: KeyError if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(self.member_id)

    def must_be_heard_of(self) -> bool:
        """Whether silence until the deadline counts as failure.

        A member whose request waits here is not failed because it is silent. There are two exceptions: a new member,
        whose client may be gone and would return as another new member; and a member whose connection has ended.
        """
        return (self.is_new or self.is_gone) or (
            self.join_token is None and self.sync_token is None
        )

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r})"


def member_bytes(member: Member) -> int:
    """The memory that a member takes."""
    return (
        MEMBER_BYTES
        + getsizeof(member.member_id)
        + getsizeof(member.client_id)
        + getsizeof(member.group_instance_id)
        + getsizeof(member.assignment)
        + sum(getsizeof(name) + getsizeof(metadata) for name, metadata in member.protocols)
    )


class Group(CountedGroup):
    """A classic group, or one that only stores offsets.

    Shape: `persisted` is the last committed GroupMetadataValue, as stored, or None. `members` keeps joining order;
    `static_members` maps instance id to member id; `pending_members` maps the ids of members that were given an id and
    have not come back with it to their deadlines. `join_due_ms` is set while a rebalance is prepared, and also
    `initial_remaining_ms` during its first, fixed delay; `sync_due_ms` is set while members have not sent their
    SyncGroup.
    """

    __slots__ = (
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "join_due_ms",
        "leader_id",
        "members",
        "new_member_added",
        "num_awaiting_join",
        "pending_members",
        "pending_sync",
        "persisted",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "supported_protocols",
        "sync_due_ms",
    )

    kind = "classic"
    keeps_offsets = True

    def __init__(
        self,
        group_id: str,
        now_ms: int,
        state: GroupState = GroupState.EMPTY,
        memory: GroupMemory | None = None,
        client: Hashable = NOBODY,
    ) -> None:
        super().__init__(memory, client)
        self.group_id = group_id
        self.hold(GROUP_BYTES + getsizeof(group_id))
        self.state = state
        self.state_timestamp_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        self.pending_sync: set[str] = set()
        self.num_awaiting_join = 0
        self.supported_protocols: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.join_due_ms: int | None = None
        self.initial_delay_ms = 0
        self.initial_remaining_ms: int | None = None
        self.sync_due_ms: int | None = None
        self.offsets = OffsetStore()
        self.persisted: bytes | None = None

    # The interface of all kinds of groups (kinds.py)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that a member id is known, and still belongs to its instance id."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def validate_commit(self, sender: CommitSender) -> ErrorCode:
        """Check whether the sender may commit.

        Shape: generation -1 without a member means a simple consumer or an administrator. They may commit while the
        group has no members, and in a transaction at any time, since older producers do not send a generation.
        Source: GroupCoordinator.validateOffsetCommit.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if sender.generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if sender.generation_id >= 0 or sender.member_id != "" or sender.instance_id is not None:
            error = self.validate_member(sender.member_id, sender.instance_id)
            if error is not ErrorCode.NONE:
                return error
            if sender.generation_id != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not sender.transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not sender.transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # The member knows this generation but does not have its own assignment yet.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def partition_check(self, sender: CommitSender) -> PartitionCheck | None:
        """A member of this generation may commit for every partition."""
        return None

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Every client may fetch."""
        return ErrorCode.NONE

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired.

        Shape: an empty group's offsets expire together, counted from when it became empty. The offsets of a stable
        consumer group expire one by one, except those of topics that it reads; those of a simple consumer also expire
        one by one.
        """
        offsets = self.offsets
        if self.protocol_type is None:
            return offsets.expired(now_ms, retention_ms)
        if self.state is GroupState.EMPTY:
            # Before version 2, a group's value did not include when the group became empty.
            since_ms = self.state_timestamp_ms if self.state_timestamp_ms >= 0 else None
            return offsets.expired(now_ms, retention_ms, since_ms=since_ms)
        topics = self.subscribed_topics
        if (
            self.state is GroupState.STABLE
            and self.protocol_type == CONSUMER_PROTOCOL_TYPE
            and topics is not None
        ):
            return offsets.expired(now_ms, retention_ms, subscribed_topics=topics)
        return []

    # Memory

    def count(self, member: Member) -> None:
        """Update the memory that is counted for a member."""
        now = member_bytes(member)
        self.hold(now - member.held_bytes)
        member.held_bytes = now

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member its assignment; only the assignment is counted again, since a rebalance does this for every
        member.
        """
        more = getsizeof(assignment) - getsizeof(member.assignment)
        member.assignment = assignment
        if more:
            member.held_bytes += more
            self.hold(more)

    def persist(self, value: bytes | None) -> None:
        """Set the value that is stored for the group."""
        self.hold(getsizeof(value) - getsizeof(self.persisted))
        self.persisted = value

    # Members

    def expect(self, member_id: str, due_ms: int) -> None:
        """Note that a member was given an id with which it has to come back."""
        self.expect_no_more(member_id)
        self.pending_members[member_id] = due_ms
        self.hold(PENDING_BYTES + getsizeof(member_id))

    def expect_no_more(self, member_id: str) -> None:
        """Note that a member has come back, or will not."""
        if self.pending_members.pop(member_id, None) is not None:
            self.hold(-PENDING_BYTES - getsizeof(member_id))

    def add(self, member: Member, join_token: int | None) -> None:
        """Add a member; the first one leads. Errors: ValueError for a known instance id."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            if instance_id in self.static_members:
                raise ValueError(f"{instance_id!r} is already a member of {self.group_id!r}")
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.count_protocols(member, 1)
        member.join_token = join_token
        if join_token is not None:
            self.num_awaiting_join += 1
        self.expect_no_more(member.member_id)
        self.count(member)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or pending member; if it led, the earliest remaining member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.count_protocols(member, -1)
            if member.join_token is not None:
                self.num_awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
            self.hold(-member.held_bytes)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.expect_no_more(member_id)
        self.pending_sync.discard(member_id)
        return member

    def rename_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member a new member id and keep everything else about it."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        # Its running timer is for the old id, and will find no member.
        member.timer_at_ms = None
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)
        self.static_members[instance_id] = new_id
        self.count(member)
        return member

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Store the values of a known member's JoinGroup."""
        if member.protocols != protocols:
            self.count_protocols(member, -1)
            member.protocols = protocols
            self.count_protocols(member, 1)
            self.count(member)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: Member, token: int | None) -> int | None:
        """Set the member's waiting JoinGroup, and return the one that waited before."""
        before = member.join_token
        self.num_awaiting_join += (token is not None) - (before is not None)
        member.join_token = token
        member.is_gone = False
        return before

    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.num_awaiting_join and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; False if no member has."""
        if self.leader_id is None:
            return False
        leader = self.members.get(self.leader_id)
        if leader is not None and leader.join_token is not None:
            return True
        for member_id, member in self.members.items():
            if member.join_token is not None:
                self.leader_id = member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # Protocols

    def count_protocols(self, member: Member, change: int) -> None:
        counts = self.supported_protocols
        for name, _ in member.protocols:
            count = counts.get(name, 0) + change
            if count:
                counts[name] = count
            else:
                del counts[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols.get(name, 0) == size for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Let each member vote among the protocols that all members support, and return the winner."""
        size = len(self.members)
        candidates = {name for name, count in self.supported_protocols.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that any member subscribes to; None if they cannot be known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = read_subscription(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics.update(subscribed)
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic; True if that cannot be known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # States

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. Errors: IllegalTransition, and then nothing has changed."""
        if self.state not in VALID_PREVIOUS[state]:
            raise IllegalTransition(f"group {self.group_id!r}", self.state.value, state.value)
        self.state = state
        self.state_timestamp_ms = now_ms

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    def is_stored(self) -> bool:
        """Whether the log has, or will soon have, a record of this group's generation."""
        return self.persisted is not None or self.generation_id > 0

    def init_next_generation(self, now_ms: int) -> None:
        """Begin a generation with the current members, or become empty without members."""
        self.generation_id += 1
        self.join_due_ms = None
        self.initial_remaining_ms = None
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms)
        self.subscribed_topics = self.compute_subscribed_topics()

    # Answers to members

    def join_members(self) -> list[JoinGroupResponseMember]:
        """All members with their metadata for the chosen protocol, for the leader."""
        protocol_name = self.protocol_name
        assert protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in self.members.values()
        ]

    def join_response(
        self,
        member_id: str,
        *,
        with_members: bool = False,
        leader_id: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinGroupResponse:
        """The answer that announces this generation; `leader_id` overrides its leader."""
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id if leader_id is not None else self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self.join_members() if with_members else [],
        )

    def sync_response(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def __repr__(self) -> str:
        return (
            f"Group({self.group_id!r}, {self.state.value}, generation={self.generation_id}, "
            f"members={len(self.members)})"
        )


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_subscription(metadata: bytes) -> list[str] | None:
    """Return the topics of a consumer's subscription, or None if the bytes are not a subscription.

    Shape: int16 version, then topics as an array of strings; fields of later versions follow and are ignored. Source:
    ConsumerProtocol, GroupMetadata.computeSubscribedTopics.
    """
    topics = []
    try:
        (version,) = _INT16.unpack_from(metadata, 0)
        (count,) = _INT32.unpack_from(metadata, 2)
        position = 6
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (size,) = _INT16.unpack_from(metadata, position)
            position += 2
            topic = metadata[position : position + size]
            if size < 0 or len(topic) != size:
                return None
            topics.append(topic.decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
