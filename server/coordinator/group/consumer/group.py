"""The committed state of a consumer group. Source: ConsumerGroup.

The hard state changes only through `put_*` and `remove_*`, which the replay of records calls. Values derived from
members are updated along with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from sys import getsizeof
from typing import NamedTuple

from kwire.errors import ErrorCode

from ....metadata.topic_partition import TopicPartition
from ....shares import NOBODY
from ..kinds import CommitSender, PartitionCheck
from ..memory import MEMBER_BYTES, GroupMemory
from ..modern.group import NAME_BYTES, ModernGroup, partition_count
from ..modern.members import NO_PARTITIONS, Partitions
from .member import ConsumerGroupMember, PartitionEpochs

#: The first version of OffsetCommit with epochs of members.
FIRST_VERSION_WITH_EPOCHS = 9


class ConsumerGroupState(Enum):
    """The state of a consumer group; the value is Kafka's name on the wire.

    EMPTY: no members. ASSIGNING: the group epoch is newer than the target. RECONCILING: some members have not reached
    their targets. STABLE: all members have. DEAD: the group does not exist.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class SubscriptionType(Enum):
    """Whether all members read the same topics."""

    HOMOGENEOUS = 1
    HETEROGENEOUS = 2


class Subscribers(NamedTuple):
    """How many members read a topic by its name, and how many regular expressions match it."""

    by_name: int = 0
    by_regex: int = 0


NO_SUBSCRIBERS = Subscribers()


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched in an image of the given version, and the time in ms."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


Topics = Mapping[str, Subscribers]


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """The hard state of one consumer group.

    Shape: `owners` is the target by partition; `partition_epochs` maps a partition to the epoch of the member that has
    it now. `has_partition_metadata`: a record of releases before 4.1 has to be deleted. Soft state:
    `resolved_generation` is the generation of the topics that expressions were last matched against, and
    `resolved_ms` the time of that, also if it changed nothing; `is_resolving` says that a match is in progress. `refused_until_ms` is the time until which members with expressions are refused,
    because there was no memory for what these match.
    """

    #: The entries of the member and of the group.
    PARTITION_BYTES = 160

    def __init__(
        self, group_id: str, memory: GroupMemory | None = None, client: Hashable = NOBODY
    ) -> None:
        super().__init__(group_id, memory, client)
        self.has_partition_metadata = False
        self.static_members: dict[str, str] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        self.partition_epochs: dict[bytes, dict[int, int]] = {}
        self.topics: dict[str, Subscribers] = {}
        self.regexes: Counter[str] = Counter()
        self.resolved: dict[str, ResolvedRegex] = {}
        self.assignors: Counter[str] = Counter()
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        # Soft state: lost when the coordinator moves.
        self.is_resolving = False
        self.resolved_generation = 0
        self.resolved_ms = 0
        self.refused_until_ms = 0

    # Required of all kinds of groups (kinds.py)

    kind = "consumer"
    protocol_type = "consumer"
    keeps_offsets = True

    def validate_commit(self, sender: CommitSender) -> ErrorCode:
        """Check a member's epoch. Source: ConsumerGroup.validateOffsetCommit; KIP-1251."""
        if sender.generation_id < 0 and not self.members:
            return ErrorCode.NONE
        is_nobody = (
            sender.generation_id == -1 and not sender.member_id and sender.instance_id is None
        )
        if sender.transactional and is_nobody:
            return ErrorCode.NONE
        member = self.members.get(sender.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_old = not sender.transactional and 0 <= sender.version < FIRST_VERSION_WITH_EPOCHS
        if member.classic is None and is_old:
            return ErrorCode.UNSUPPORTED_VERSION
        if sender.generation_id > member.member_epoch:
            return _stale(member, sender.transactional)
        return ErrorCode.NONE

    def partition_check(self, sender: CommitSender) -> PartitionCheck | None:
        """Allow a member with an older epoch to commit for partitions that it has had since that epoch."""
        member = self.members.get(sender.member_id)
        epoch = sender.generation_id
        if member is None or epoch == member.member_epoch:
            return None
        stale = _stale(member, sender.transactional)

        def check(topic_id: bytes | None, partition: int) -> ErrorCode:
            since = None if topic_id is None else member.assignment_epoch(topic_id, partition)
            return stale if since is None or epoch < since else ErrorCode.NONE

        return check

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check a member's epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch != member.member_epoch:
            return _stale(member, False)
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.topics

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions that no member reads and whose offsets have expired."""
        return self.offsets.expired(now_ms, retention_ms, subscribed_topics=frozenset(self.topics))

    # Derived values

    @property
    def state(self) -> ConsumerGroupState:
        """The state.

        Cost: proportional to the number of members.
        """
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member that has an instance id."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """The target of a member; for one that takes over an instance id, the target of its predecessor."""
        holder = self.static_members.get(member.instance_id or "", member.member_id)
        return self.target.get(holder, NO_PARTITIONS)

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has a partition; -1 if no member has it."""
        return self.partition_epochs.get(topic_id, {}).get(partition, -1)

    def subscription(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics that a member reads, by name or because its regular expression matches them."""
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def is_waiting_for_partitions(self, member: ConsumerGroupMember) -> bool:
        """Whether other members still have partitions of a member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.partition_epoch(topic_id, partition) != -1
            for topic_id, partitions in self.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions
        )

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members name, with one member replaced; None if no member names one.

        Shape: in a tie, the one that no other member names, or else `uniform`. This follows from the order of Apache
        Kafka's tables, which decides there.
        """
        counts = Counter(
            {name: self.assignors[name] for name in sorted(self.assignors, reverse=True)}
        )
        _count(counts, None if old is None else old.server_assignor, -1)
        wanted = None if new is None else new.server_assignor
        if wanted and wanted not in counts:
            counts = Counter({wanted: 0, **counts})
        _count(counts, wanted, 1)
        return max(counts, key=counts.__getitem__, default=None)

    def topics_with(self, old: ConsumerGroupMember, new: ConsumerGroupMember) -> Topics:
        """The subscribed topics after `new` replaces `old`."""
        if old.subscribed_topic_names == new.subscribed_topic_names and (
            old.subscribed_topic_regex == new.subscribed_topic_regex
        ):
            return self.topics
        topics = dict(self.topics)
        _subscribe(topics, old.subscribed_topic_names, by_name=-1)
        _subscribe(topics, new.subscribed_topic_names, by_name=1)
        regex = old.subscribed_topic_regex
        if regex and regex != new.subscribed_topic_regex and self.regexes[regex] == 1:
            self._unresolve(topics, regex)
        return topics

    def topics_without(
        self, members: Iterable[ConsumerGroupMember], regexes: Iterable[str]
    ) -> Topics:
        """The subscribed topics without some members, and without the expressions that only these have."""
        topics = dict(self.topics)
        for member in members:
            _subscribe(topics, member.subscribed_topic_names, by_name=-1)
        for regex in regexes:
            self._unresolve(topics, regex)
        return topics

    def _unresolve(self, topics: dict[str, Subscribers], regex: str) -> None:
        resolved = self.resolved.get(regex)
        if resolved is not None:
            _subscribe(topics, resolved.topics, by_regex=-1)

    def subscription_type(
        self, topics: Topics, old: ConsumerGroupMember, new: ConsumerGroupMember
    ) -> SubscriptionType:
        """Whether all members read the same `topics` after `new` replaces `old`."""
        regexes = Counter(self.regexes)
        if old.subscribed_topic_regex != new.subscribed_topic_regex:
            _count(regexes, old.subscribed_topic_regex, -1)
            _count(regexes, new.subscribed_topic_regex, 1)
        members = len(self.members)
        if new.member_id not in self.members and new.instance_id not in self.static_members:
            members += 1
        return subscription_type(regexes, topics, members)

    # Replay

    def put_member(self, member: ConsumerGroupMember) -> None:
        """Set a member."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        # There may be thousands of names, and most changes do not affect them.
        names = old is None or old.subscribed_topic_names != member.subscribed_topic_names
        self._count_member(old, -1, names=names)
        self._count_member(member, 1, names=names)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def put_current(self, member: ConsumerGroupMember) -> None:
        """Set the epochs and partitions of a known member; its other fields stay."""
        self._count_partitions(self.members[member.member_id], -1)
        self.members[member.member_id] = member
        self._count_partitions(member, 1)

    def remove_member(self, member_id: str) -> None:
        """Remove a member."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._count_member(old, -1)
        if old.instance_id is not None:
            self.static_members.pop(old.instance_id, None)

    def _count_member(
        self, member: ConsumerGroupMember | None, change: int, *, names: bool = True
    ) -> None:
        if member is None:
            return
        self.hold(change * member_bytes(member, names=names))
        if names:
            _subscribe(self.topics, member.subscribed_topic_names, by_name=change)
        _count(self.regexes, member.subscribed_topic_regex, change)
        _count(self.assignors, member.server_assignor, change)
        if member.classic is not None:
            self.classic_members += change
            for name, _ in member.classic.protocols:
                _count(self.classic_protocols, name, change)
        self._count_partitions(member, change)

    def _count_partitions(self, member: ConsumerGroupMember, change: int) -> None:
        count = self._take if change > 0 else self._release
        for partitions in (member.assigned, member.revoking):
            if partitions:
                self.count_partitions(0, change * partition_count(partitions))
                count(partitions, member.member_epoch)

    def _take(self, partitions: PartitionEpochs, epoch: int) -> None:
        for topic_id, some in partitions.items():
            epochs = self.partition_epochs.setdefault(topic_id, {})
            for partition in some:
                # A late release by an earlier owner does not affect the present one.
                if epochs.get(partition, epoch - 1) < epoch:
                    epochs[partition] = epoch

    def _release(self, partitions: PartitionEpochs, epoch: int) -> None:
        for topic_id, some in partitions.items():
            epochs = self.partition_epochs.get(topic_id)
            if epochs is None:
                continue
            for partition in some:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                del self.partition_epochs[topic_id]

    def put_target(self, member_id: str, partitions: Partitions | None) -> None:
        """Set the target of a member; None removes it."""
        old = self.target.pop(member_id, NO_PARTITIONS)
        more = 0
        for topic_id, some in old.items():
            more -= len(some)
            owners = self.owners.get(topic_id, {})
            for partition in some:
                # The record of the next owner may have been written first.
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)
        if partitions is not None:
            self.target[member_id] = partitions
            for topic_id, some in partitions.items():
                more += len(some)
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(some, member_id))
        self.count_partitions(more, 0)

    def put_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that a regular expression matches; None removes it."""
        self._unresolve(self.topics, regex)
        old = self.resolved.pop(regex, None)
        self.hold(resolved_bytes(resolved) - resolved_bytes(old))
        if resolved is not None:
            self.resolved[regex] = resolved
            _subscribe(self.topics, resolved.topics, by_regex=1)


def _stale(member: ConsumerGroupMember, transactional: bool) -> ErrorCode:
    """The error for a stale epoch."""
    if transactional or member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def subscription_type(regexes: Mapping[str, int], topics: Topics, members: int) -> SubscriptionType:
    """Whether all members read the same topics: the same names, or only the same regular expression."""
    if regexes:
        if next(iter(regexes.values())) != members:
            return SubscriptionType.HETEROGENEOUS
        alike = all(count.by_regex == 1 and not count.by_name for count in topics.values())
    else:
        alike = all(count.by_name == members for count in topics.values())
    return SubscriptionType.HOMOGENEOUS if alike else SubscriptionType.HETEROGENEOUS


def resolved_bytes(resolved: ResolvedRegex | None) -> int:
    """The memory of the names that an expression matches."""
    if resolved is None:
        return 0
    return NAME_BYTES * len(resolved.topics) + sum(map(getsizeof, resolved.topics))


def member_bytes(member: ConsumerGroupMember, *, names: bool = True) -> int:
    """The memory of a member without its partitions and, if requested, without the names of its topics."""
    named = member.subscribed_topic_names if names else ()
    classic = () if member.classic is None else member.classic.protocols
    return (
        MEMBER_BYTES
        + getsizeof(member.member_id)
        + getsizeof(member.instance_id)
        + getsizeof(member.rack_id)
        + getsizeof(member.client_id)
        + getsizeof(member.subscribed_topic_regex)
        + NAME_BYTES * len(named)
        + sum(map(getsizeof, named))
        + sum(getsizeof(name) + getsizeof(metadata) for name, metadata in classic)
    )


def _count(counts: Counter[str], name: str | None, change: int) -> None:
    if name:
        counts[name] += change
        if counts[name] <= 0:
            del counts[name]


def _subscribe(
    topics: dict[str, Subscribers], names: Iterable[str], *, by_name: int = 0, by_regex: int = 0
) -> None:
    after: dict[Subscribers, Subscribers] = {}  # there are few different ones
    for name in names:
        old = topics.get(name, NO_SUBSCRIBERS)
        new = after.get(old)
        if new is None:
            new = Subscribers(max(old.by_name + by_name, 0), max(old.by_regex + by_regex, 0))
            after[old] = new
        if new != NO_SUBSCRIBERS:
            topics[name] = new
        else:
            topics.pop(name, None)
