"""The assignor `simple`: distributes partitions evenly over members that share them, and keeps existing assignments if
possible.

If there are more members than partitions, each partition has several members. Decisions are made in the order of Apache
Kafka's tables (order.py), so that both compute the same assignment. If all members read the same topics, these are
assigned together; otherwise each topic is assigned by itself. In that case, a topic that no member reads any more keeps
its assignment, but members are not told of it.
Source: SimpleAssignor, SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from ....steps import Steps
from ..modern.members import Partitions
from ..modern.order import (
    JavaHashMap,
    buckets_for,
    hash_of_int,
    hash_of_uuid,
    partitions_in_order,
    topics_in_order,
)

#: A partition of a topic.
Key = tuple[bytes, int]

NAME = "simple"


class SharingMember(NamedTuple):
    """A member: the existing topics that it reads, in Kafka's order, and its present target."""

    topics: Sequence[bytes]
    assignment: Partitions


class SharingInput(NamedTuple):
    """A group, as input of the assignor.

    Shape: `members` are in the order in which they are served; `alike` says that all read the same topics. `partitions`
    maps a topic to its assignable partitions, in ascending order.
    """

    members: Mapping[str, SharingMember]
    alike: bool
    partitions: Mapping[bytes, Sequence[int]]

    @property
    def work(self) -> int:
        """The number of members and partitions to process."""
        times = 1 if self.alike else max(len(self.partitions), 1)
        return len(self.members) * times + sum(map(len, self.partitions.values()))


def assign_simple(given: SharingInput) -> Steps[dict[str, Partitions]]:
    """Assign the partitions; members that are not in the result get none."""
    members = list(given.members.values())
    if not members:
        return {}
    if given.alike:
        topics = members[0].topics
        if not topics:
            return {}
        sharing = _Sharing(members)
        sharing.drop_others(topics)
        everybody = range(len(members))
        yield from sharing.assign(topics, everybody, given.partitions, hash_of_key)
    else:
        readers: dict[bytes, list[int]] = {}
        for index, member in enumerate(members):
            yield
            for topic_id in member.topics:
                readers.setdefault(topic_id, []).append(index)
        if not readers:
            return {}
        sharing = _Sharing(members)
        for topic_id in topics_in_order(readers):
            yield from sharing.assign(
                [topic_id], readers[topic_id], given.partitions, _hash_of_partition
            )
    return {member_id: sharing.assignment(index) for index, member_id in enumerate(given.members)}


def hash_of_key(key: Key) -> int:
    """Hash a TopicIdPartition, which is a Java record."""
    return 31 * hash_of_uuid(key[0]) + key[1]


def _hash_of_partition(key: Key) -> int:
    """Hash a partition of a known topic."""
    return key[1]


def sized(expected: int) -> int:
    """The buckets of a table made for that many keys, as AssignorHelpers does."""
    return buckets_for(int((expected + 1) / 0.75) + 1)


class _Sharing:
    """An assignment being computed; members are known by their index.

    Shape: `changed` has the assignments that may differ from the present ones.
    """

    def __init__(self, members: Sequence[SharingMember]) -> None:
        self.members = members
        self.changed: dict[int, dict[bytes, set[int]]] = {}

    def assignment(self, index: int) -> Partitions:
        changed = self.changed.get(index)
        if changed is None:
            return self.members[index].assignment
        return {topic_id: frozenset(some) for topic_id, some in changed.items()}

    def change(self, index: int) -> dict[bytes, set[int]]:
        """Return a member's assignment for modification."""
        changed = self.changed.get(index)
        if changed is None:
            present = self.members[index].assignment
            changed = {topic_id: set(some) for topic_id, some in present.items()}
            self.changed[index] = changed
        return changed

    def drop_others(self, topics: Collection[bytes]) -> None:
        """Remove topics that no member reads any more."""
        for index, member in enumerate(self.members):
            for topic_id in member.assignment:
                if topic_id not in topics:
                    del self.change(index)[topic_id]

    def assign(
        self,
        topics: Sequence[bytes],
        readers: Sequence[int],
        assignable: Mapping[bytes, Sequence[int]],
        hash_of: Callable[[Key], int],
    ) -> Steps[None]:
        """Assign the partitions of topics to their readers."""
        targets = [(topic_id, number) for topic_id in topics for number in assignable[topic_id]]
        per_partition = -(-len(readers) // len(targets)) if targets else 0
        wanted = dict.fromkeys(range(len(self.members)), 0)
        share = per_partition * len(targets) / len(readers)
        for rank, index in enumerate(readers):
            wanted[index] = ceil(share * (rank + 1)) - ceil(share * rank)

        def no_members() -> JavaHashMap[int, bool]:
            return JavaHashMap(hash_of_int)

        held: dict[int, JavaHashMap[Key, bool]] = {}
        holders: JavaHashMap[Key, JavaHashMap[int, bool]] = JavaHashMap(
            hash_of, sized(len(targets))
        )
        among = frozenset(topics)
        for index, member in enumerate(self.members):
            yield
            mine = held[index] = JavaHashMap(hash_of)
            for topic_id in topics_in_order(member.assignment):
                if topic_id in among:
                    for number in partitions_in_order(member.assignment[topic_id]):
                        key = topic_id, number
                        holders.get(key, no_members).get(index, bool)
                        mine.get(key, bool)
        for index, mine in held.items():
            yield
            if len(mine) > wanted[index]:
                for topic_id, number in mine.in_order()[: len(mine) - wanted[index]]:
                    self.change(index)[topic_id].discard(number)
                    holders.entries[topic_id, number].remove(index)
                    mine.remove((topic_id, number))
        for key in (yield from holders.in_order_in_steps()):
            yield
            having = holders.entries[key]
            for index in having.in_order()[: max(len(having) - per_partition, 0)]:
                self.change(index)[key[0]].discard(key[1])
                having.remove(index)
                held[index].remove(key)
        for key in targets:
            holders.get(key, no_members)
        yield from self._fill(holders, held, wanted, per_partition)

    def _fill(
        self,
        holders: JavaHashMap[Key, JavaHashMap[int, bool]],
        held: Mapping[int, JavaHashMap[Key, bool]],
        wanted: Mapping[int, int],
        per_partition: int,
    ) -> Steps[None]:
        """Assign partitions with too few members to the members with too few partitions, one after the other."""
        room = dict.fromkeys(index for index, mine in held.items() if len(mine) < wanted[index])
        round = iter(list(room))
        given = False
        for topic_id, number in (yield from holders.in_order_in_steps()):
            yield
            having = holders.entries[topic_id, number]
            missing = per_partition - len(having)
            while missing > 0:
                index = next(round, None)
                if index is None:
                    if not given or not room:
                        break
                    round = iter(list(room))
                    given = False
                    continue
                if index in having:
                    continue
                self.change(index).setdefault(topic_id, set()).add(number)
                held[index].get((topic_id, number), bool)
                missing -= 1
                given = True
                if len(held[index]) >= wanted[index]:
                    del room[index]
            if not room:
                break
