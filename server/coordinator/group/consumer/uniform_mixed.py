"""The assignor `uniform` for members that read different topics: first balance, then stickiness.

Members give up partitions of topics that they no longer read. Free partitions go to the least loaded readers, topic by
topic. Then partitions move from the most to the least loaded readers of a topic, until a round changes nothing or the
limit of rounds is reached. Source: UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from ..modern.members import Partitions
from .assignment_input import AssignmentInput, Steps

#: The maximum number of rounds over all topics. Where readers overlap, each round about halves the imbalance.
ROUNDS = 16

NOBODY = -1


def assign_uniform_mixed(given: AssignmentInput) -> Steps[dict[str, Partitions]]:
    """Assign the partitions."""
    work = _Balance(given)
    if not work.readers:
        return {}
    yield from work.keep()
    yield from work.fill()
    yield from work.balance()
    return (yield from work.result())


class _Balance:
    """The assignment of partitions to members, which are numbers here.

    Shape: `readers` maps a topic to its members, ascending; `owners` a topic to the owner of each partition; `loads`
    has each member's number of partitions.
    """

    def __init__(self, given: AssignmentInput) -> None:
        self.given = given
        self.members = list(given.members.items())
        self.loads = [0] * len(self.members)
        self.readers: dict[bytes, list[int]] = {}
        for index, (_, member) in enumerate(self.members):
            for topic_id in member.topics:
                self.readers.setdefault(topic_id, []).append(index)
        self.owners = {topic_id: [NOBODY] * given.partitions[topic_id] for topic_id in self.readers}

    def topics(self) -> list[bytes]:
        """The topics in order: most partitions per reader first, then fewest readers, then by id."""

        def rank(topic_id: bytes) -> tuple[float, int, int, int]:
            readers = len(self.readers[topic_id])
            high = int.from_bytes(topic_id[:8], "big", signed=True)
            low = int.from_bytes(topic_id[8:], "big", signed=True)
            return (-self.given.partitions[topic_id] / readers, readers, high, low)

        return sorted(self.readers, key=rank)

    def keep(self) -> Steps[None]:
        """Let members keep their partitions of topics that they still read."""
        for index, (_, member) in enumerate(self.members):
            yield
            for topic_id, some in member.assignment.items():
                if topic_id in member.topics:
                    owners = self.owners[topic_id]
                    for partition in some:
                        owners[partition] = index
                    self.loads[index] += len(some)

    def fill(self) -> Steps[None]:
        """Assign the free partitions."""
        for topic_id in self.topics():
            yield
            owners = self.owners[topic_id]
            free = [number for number, owner in enumerate(owners) if owner == NOBODY]
            if free:
                loads = _Loads(self.loads, self.readers[topic_id])
                for partition in free:
                    self.give(owners, partition, loads.next_least())

    def give(self, owners: list[int], partition: int, member: int) -> None:
        """Give a partition to a member, taking it from its owner, if any."""
        if owners[partition] != NOBODY:
            self.loads[owners[partition]] -= 1
        owners[partition] = member
        self.loads[member] += 1

    def balance(self) -> Steps[None]:
        """Move partitions between readers, until a whole round has moved none."""
        topics = [topic_id for topic_id in self.topics() if len(self.readers[topic_id]) > 1]
        last_moved = NOBODY
        for _ in range(ROUNDS):
            for index, topic_id in enumerate(topics):
                yield
                if index == last_moved:
                    return
                if self.balance_topic(topic_id) or last_moved == NOBODY:
                    last_moved = index

    def balance_topic(self, topic_id: bytes) -> int:
        """Move partitions of a topic from its most to its least loaded readers; return their number."""
        loads = _Loads(self.loads, self.readers[topic_id])
        if loads.difference() <= 1:
            return 0
        owners = self.owners[topic_id]
        by_owner: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            by_owner.setdefault(owner, []).append(partition)
        moved = 0
        while not loads.is_balanced():
            while (most := loads.next_most()) is not None and not by_owner.get(most):
                loads.exclude_last_most()
            if most is None:
                break
            partition = by_owner[most].pop()
            least = loads.next_least()
            if loads.is_balanced():
                break
            self.give(owners, partition, least)
            moved += 1
        return moved

    def result(self) -> Steps[dict[str, Partitions]]:
        assignment: list[dict[bytes, set[int]]] = [{} for _ in self.members]
        for topic_id, owners in self.owners.items():
            yield
            for partition, owner in enumerate(owners):
                assignment[owner].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(some) for topic_id, some in kept.items()}
            for (member_id, _), kept in zip(self.members, assignment, strict=True)
        }


class _Loads:
    """The readers of a topic by load, seen from both ends.

    Shape: `members` are sorted by their load at creation. Those before `least_end` receive partitions until they have
    the same load, `least`. Likewise, those from `most_start` up to `most_end` give partitions away until their load is
    `most`; those after them have none to give.
    """

    def __init__(self, loads: list[int], readers: list[int]) -> None:
        self.loads = loads
        self.members = sorted(readers, key=lambda member: (loads[member], member))
        self.least = loads[self.members[0]] - 1
        self.least_end = 0
        self.next_least_at = 0
        self.most = loads[self.members[-1]] + 1
        self.most_start = self.most_end = len(self.members)
        self.next_most_at = len(self.members) - 1

    def difference(self) -> int:
        return self.loads[self.members[-1]] - self.loads[self.members[0]]

    def is_balanced(self) -> bool:
        return self.most - self.least <= 1

    def next_least(self) -> int:
        """The member that gets the next partition."""
        members, loads = self.members, self.loads
        if self.next_least_at >= self.least_end:
            self.least += 1
            while self.least_end < len(members) and loads[members[self.least_end]] == self.least:
                self.least_end += 1
            self.next_least_at = 0
        member = members[self.next_least_at]
        self.next_least_at += 1
        return member

    def next_most(self) -> int | None:
        """The member that gives the next partition away; None if no member has any left."""
        members, loads = self.members, self.loads
        if self.next_most_at < self.most_start:
            if self.most_end <= self.most_start and self.most_start > 0:
                # All members with this load had no partition to give away.
                self.most = loads[members[self.most_start - 1]]
            else:
                self.most -= 1
            while self.most_start > 0 and loads[members[self.most_start - 1]] == self.most:
                self.most_start -= 1
            self.next_most_at = self.most_end - 1
        if self.next_most_at < 0:
            return None
        member = members[self.next_most_at]
        self.next_most_at -= 1
        return member

    def exclude_last_most(self) -> None:
        """Exclude the member that `next_most` returned last."""
        at, last = self.next_most_at + 1, self.most_end - 1
        members = self.members
        members[at], members[last] = members[last], members[at]
        self.most_end -= 1
