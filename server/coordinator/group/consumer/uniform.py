"""The assignor `uniform`: distributes partitions evenly over members, which keep existing assignments if possible.

Source: UniformHomogeneousAssignmentBuilder; for members that read different topics, uniform_mixed.py.
"""

from __future__ import annotations

from ..modern.members import Partitions
from ..modern.order import partitions_in_order, topics_in_order
from .assignment_input import AssignmentInput, Steps
from .group import SubscriptionType
from .uniform_mixed import assign_uniform_mixed

#: The number of members that one step processes; each may have many partitions.
MEMBERS_IN_STEP = 16


def assign_uniform(given: AssignmentInput) -> Steps[dict[str, Partitions]]:
    """Assign the partitions."""
    if given.subscription_type is SubscriptionType.HOMOGENEOUS:
        return assign_uniform_alike(given)
    return assign_uniform_mixed(given)


def assign_uniform_alike(given: AssignmentInput) -> Steps[dict[str, Partitions]]:
    """Assign partitions to members that all read the same topics.

    Shape: each member gives up partitions beyond its quota; then free partitions go to members with room, in the order
    of members. Members that already have one more than the others keep it.
    """
    members = given.members
    if not members:
        return {}
    topics = topics_in_order(next(iter(members.values())).topics, presized=True)
    if not topics:
        return {}
    unassigned: list[tuple[bytes, int]] = []
    for topic_id in topics:
        yield
        owned = given.owners.get(topic_id, {})
        unassigned += [
            (topic_id, number)
            for number in range(given.partitions[topic_id])
            if number not in owned
        ]
    quota, extra = divmod(sum(given.partitions[topic_id] for topic_id in topics), len(members))
    subscribed = frozenset(topics)
    assignment: dict[str, dict[bytes, frozenset[int]]] = {}
    room: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(members.items()):
        if not index % MEMBERS_IN_STEP:
            yield
        left = quota + (extra > 0)
        has_extra = extra > 0
        kept = assignment[member_id] = {}
        has = member.assignment
        for topic_id in has if len(has) < 2 else topics_in_order(has):
            some = has[topic_id]
            if topic_id not in subscribed:
                continue
            if len(some) <= left:
                left -= len(some)
                kept[topic_id] = some
                continue
            numbers = partitions_in_order(some)
            if left:
                kept[topic_id] = frozenset(numbers[:left])
            unassigned += [(topic_id, number) for number in numbers[left:]]
            left = 0
        if left and has_extra and len(members) - index > extra:
            # Another member may have one more already; then the last members have to take the extra partitions.
            left -= 1
            has_extra = False
        if left:
            room.append((member_id, left))
        extra -= has_extra
    position = 0
    for member_id, left in room:
        yield
        coming: dict[bytes, set[int]] = {}
        for topic_id, number in unassigned[position : position + left]:
            coming.setdefault(topic_id, set()).add(number)
        kept = assignment[member_id]
        for topic_id, more in coming.items():
            kept[topic_id] = kept.get(topic_id, frozenset()) | more
        position += left
    return dict(assignment)
