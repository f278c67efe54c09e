"""The assignor `range`: each member gets a range of the partitions of each topic.

If all members read the same topics, a member gets the same range of each topic. Source: RangeAssignor.
"""

from __future__ import annotations

from ..modern.members import Partitions
from .assignment_input import AssignmentInput, Steps


class _Topic:
    """A topic in progress: `next` is the next partition to assign, `extra` the number of members that get one more."""

    __slots__ = ("count", "extra", "next", "quota")

    def __init__(self, count: int, members: int) -> None:
        self.count = count
        self.quota, self.extra = divmod(count, members)
        self.next = 0

    def take(self) -> frozenset[int]:
        first = self.next
        self.next = min(first + self.quota + (self.extra > 0), self.count)
        self.extra = max(self.extra - 1, 0)
        return frozenset(range(first, self.next))


def assign_range(given: AssignmentInput) -> Steps[dict[str, Partitions]]:
    """Assign the partitions: static members come first, by instance id, then the others by member id."""
    members = given.members
    readers: dict[bytes, int] = {}
    for member in members.values():
        yield
        for topic_id in member.topics:
            readers[topic_id] = readers.get(topic_id, 0) + 1
    topics = {
        topic_id: _Topic(given.partitions[topic_id], count) for topic_id, count in readers.items()
    }

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    assignment: dict[str, Partitions] = {}
    for member_id in sorted(members, key=rank):
        yield
        ranges = {topic_id: topics[topic_id].take() for topic_id in members[member_id].topics}
        assignment[member_id] = {topic_id: some for topic_id, some in ranges.items() if some}
    return assignment
