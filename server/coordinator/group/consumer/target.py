"""The target assignment of a group: when it is made, of what, and what has changed in it.

Source: GroupMetadataManager.maybeUpdateTargetAssignment, TargetAssignmentBuilder; KIP-1263 (interval).
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.errors import ErrorCode

from ..modern.draft import AssignTarget
from ..modern.members import NO_PARTITIONS, Partitions
from ..modern.order import names_in_order
from ..modern.refusal import Refusal
from ..modern.surroundings import Surroundings
from .assignment_input import AssignedMember, AssignmentInput, Steps
from .draft import Draft
from .group import ConsumerGroup, SubscriptionType
from .member import ConsumerGroupMember
from .range_assignor import assign_range
from .records import TargetEpochRecord, TargetRecord
from .uniform import assign_uniform

ASSIGNORS = {"uniform": assign_uniform, "range": assign_range}

#: A target of more members and partitions is made in steps, and members get it with their next heartbeats.
AT_ONCE = 2_000


def update_target(
    near: Surroundings,
    group: ConsumerGroup,
    group_epoch: int,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscription_type: SubscriptionType,
    draft: Draft,
) -> tuple[int, Partitions]:
    """Make a new target if the group's epoch asks for one; return its epoch and what `new` is to have."""
    present = group.assignment_epoch, group.target_of(new)
    if group.assignment_epoch >= group_epoch or group.is_assigning:
        return present
    made_ms, interval_ms = group.assignment_timestamp_ms, near.settings.assignment_interval_ms
    if made_ms and interval_ms and near.now_ms < made_ms + interval_ms:
        return present
    name = group.preferred_assignor(old, new) or near.config.consumer_assignors[0]
    assign = ASSIGNORS.get(name)
    if assign is None:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    given = assignment_input(near, group, new, subscription_type)
    steps = assign(given)
    if len(given.members) + sum(given.partitions.values()) > AT_ONCE:
        draft.effects.append(AssignTarget(group.group_id, group_epoch, list(given.members), steps))
        return present
    found = _exhaust(steps)
    write_target(group, list(given.members), found, group_epoch, near.now_ms, draft)
    return group_epoch, found.get(new.member_id, NO_PARTITIONS)


def assignment_input(
    near: Surroundings,
    group: ConsumerGroup,
    new: ConsumerGroupMember,
    subscription_type: SubscriptionType,
) -> AssignmentInput:
    """Describe the group to an assignor, with `new` in the place of the member that it replaces."""
    topics = near.image.topics
    by_names: dict[frozenset[str], frozenset[bytes]] = {}
    partitions: dict[bytes, int] = {}

    def ids(names: frozenset[str]) -> frozenset[bytes]:
        known = by_names.get(names)
        if known is None:
            found = [topics[name] for name in names_in_order(names) if name in topics]
            partitions.update((topic.topic_id, len(topic.partitions)) for topic in found)
            known = by_names[names] = frozenset(topic.topic_id for topic in found)
        return known

    members = dict(group.members)
    members[new.member_id] = new
    replaced = group.static_members.get(new.instance_id or "") if new.instance_id else None
    if replaced is not None and replaced != new.member_id:
        members.pop(replaced, None)
    described = {}
    for member_id in names_in_order(members):
        member = members[member_id]
        target = group.target_of(member) if member is new else group.target.get(member_id)
        described[member_id] = AssignedMember(
            member.instance_id, ids(group.subscription(member)), target or NO_PARTITIONS
        )
    return AssignmentInput(described, subscription_type, partitions, group.owners)


def write_target(
    group: ConsumerGroup,
    member_ids: list[str],
    found: Mapping[str, Partitions],
    epoch: int,
    now_ms: int,
    draft: Draft,
) -> None:
    """Store what has changed, then the epoch."""
    for member_id in member_ids:
        target = found.get(member_id, NO_PARTITIONS)
        if group.target.get(member_id) != target:
            draft.write(TargetRecord(group.group_id, member_id, target))
    draft.write(TargetEpochRecord(group.group_id, (epoch, now_ms)))


def _exhaust(steps: Steps[dict[str, Partitions]]) -> dict[str, Partitions]:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: dict[str, Partitions] = end.value
        return found
