"""The committed state of a share group. Source: ShareGroup.

The hard state changes only through `put_*` and `remove_member`, which the replay of records calls. Derived values are
updated along with it, or cached until it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from sys import getsizeof

from kwire.errors import ErrorCode

from ....metadata.topic_partition import TopicPartition
from ....shares import NOBODY
from ..kinds import CommitSender, PartitionCheck
from ..memory import MEMBER_BYTES, GroupMemory
from ..modern.group import NAME_BYTES, ModernGroup, partition_count
from ..modern.members import NO_PARTITIONS, Partitions
from .member import ShareGroupMember
from .records import NamedPartitions, StatePartitions

#: A partition that has a state. Its share coordinator counts the state itself (kwire.group.offsets.max.bytes), but does not
#: know the client; with this number here, the groups of one client have fewer states than that limit allows.
STATE_BYTES = 128


class ShareGroupState(Enum):
    """The state of a share group; the value is Kafka's name on the wire.

    EMPTY: no members. STABLE: it has some. DEAD: it does not exist.
    """

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup(ModernGroup[ShareGroupMember]):
    """The hard state of one share group.

    Shape: `topics` counts the members that read a topic. `states` is None until a share partition gets a state. Soft
    state: `states_ms` is the time when `states` last changed; `complete_version` is the version of the image in which
    all partitions had a state.
    """

    kind = "share"
    protocol_type = "share"
    keeps_offsets = False

    def __init__(
        self, group_id: str, memory: GroupMemory | None = None, client: Hashable = NOBODY
    ) -> None:
        super().__init__(group_id, memory, client)
        self.topics: Counter[str] = Counter()
        self.states: StatePartitions | None = None
        # Soft state: lost when the coordinator moves.
        self.states_ms = 0
        self.complete_version = -1
        self._lacks_assignment: bool | None = None

    # Required of all kinds of groups (kinds.py)

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def validate_commit(self, sender: CommitSender) -> ErrorCode:
        """Refuse all commits: a share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def partition_check(self, sender: CommitSender) -> PartitionCheck | None:
        """Never called, because no commit is valid."""
        return None

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Refuse to return offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.topics

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Nothing expires."""
        return []

    # Derived values

    def target_of(self, member_id: str) -> Partitions:
        """The target assignment of a member."""
        return self.target.get(member_id, NO_PARTITIONS)

    def topics_with(self, old: ShareGroupMember, new: ShareGroupMember | None) -> Counter[str]:
        """The subscribed topics after `new` replaces `old`, or after `old` is removed."""
        names = frozenset() if new is None else new.subscribed_topic_names
        if names == old.subscribed_topic_names:
            return self.topics
        topics = Counter(self.topics)
        if old.member_id in self.members:
            _count(topics, old.subscribed_topic_names, -1)
        _count(topics, names, 1)
        return topics

    @property
    def initialized(self) -> Mapping[bytes, NamedPartitions]:
        """The partitions that have a state; only these are assigned."""
        return {} if self.states is None else self.states.initialized

    @property
    def lacks_assignment(self) -> bool:
        """Whether the assigned partitions differ from the partitions of subscribed topics that have a state.

        Cost: proportional to the target, once after each change.
        """
        if self._lacks_assignment is None:
            self._lacks_assignment = self._look_for_unassigned()
        return self._lacks_assignment

    def _look_for_unassigned(self) -> bool:
        if not self.topics or not self.initialized:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic_id, some in target.items():
                assigned.setdefault(topic_id, set()).update(some)
        return any(
            topic_id not in assigned or assigned[topic_id] ^ partitions
            for topic_id, (name, partitions) in self.initialized.items()
            if name in self.topics
        )

    # Replay

    def _changed(self) -> None:
        """Drop the derived values."""
        self._lacks_assignment = None
        self.complete_version = -1

    def put_member(self, member: ShareGroupMember) -> None:
        """Set a member."""
        self.remove_member(member.member_id, keep_place=True)
        self.members[member.member_id] = member
        self.hold(member_bytes(member))
        self.count_partitions(0, partition_count(member.assigned))
        _count(self.topics, member.subscribed_topic_names, 1)

    def remove_member(self, member_id: str, *, keep_place: bool = False) -> None:
        """Remove a member."""
        self._changed()
        old = self.members.get(member_id)
        if old is None:
            return
        self.hold(-member_bytes(old))
        self.count_partitions(0, -partition_count(old.assigned))
        _count(self.topics, old.subscribed_topic_names, -1)
        if not keep_place:
            del self.members[member_id]

    def put_target(self, member_id: str, partitions: Partitions | None) -> None:
        """Set the target assignment of a member; None removes it."""
        self._changed()
        old = self.target.pop(member_id, NO_PARTITIONS)
        if partitions is not None:
            self.target[member_id] = partitions
        self.count_partitions(
            partition_count(partitions or NO_PARTITIONS) - partition_count(old), 0
        )

    def put_states(self, states: StatePartitions | None) -> None:
        """Set the share partitions that have a state."""
        self._changed()
        old = self.states
        self.states = states
        self.hold(_states_bytes(states) - _states_bytes(old))


def member_bytes(member: ShareGroupMember) -> int:
    """The memory of a member, without its partitions."""
    return (
        MEMBER_BYTES
        + getsizeof(member.member_id)
        + getsizeof(member.rack_id)
        + getsizeof(member.client_id)
        + sum(NAME_BYTES + getsizeof(name) for name in member.subscribed_topic_names)
    )


def _states_bytes(states: StatePartitions | None) -> int:
    if states is None:
        return 0
    return (
        topics_bytes(states.initializing)
        + topics_bytes(states.initialized)
        + sum(NAME_BYTES + getsizeof(name) for name in states.deleting.values())
    )


def topics_bytes(topics: Mapping[bytes, NamedPartitions]) -> int:
    """The memory of partitions that have a state."""
    return sum(
        NAME_BYTES + getsizeof(name) + STATE_BYTES * len(partitions)
        for name, partitions in topics.values()
    )


def _count(topics: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        topics[name] += change
        if topics[name] <= 0:
            del topics[name]
