"""The target assignment of a group: when it is computed, from what, and which assignments have changed.

Source: GroupMetadataManager.maybeUpdateTargetAssignment, TargetAssignmentBuilder; KIP-1263 (interval).
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire.errors import ErrorCode

from ....steps import exhaust
from ..modern.context import GroupContext
from ..modern.draft import AssignTarget
from ..modern.members import NO_PARTITIONS, Partitions
from ..modern.order import hash_of_name, names_in_order
from ..modern.refusal import GroupRefusal
from .assignment_input import AssignedMember, AssignmentInput, Steps
from .draft import ConsumerDraft
from .group import ConsumerGroup, SubscriptionType
from .member import ConsumerGroupMember
from .range_assignor import assign_range
from .records import EncodedTarget, TargetEpochRecord, TargetRecord
from .uniform import assign_uniform

ASSIGNORS = {"uniform": assign_uniform, "range": assign_range}

#: A target for more members and partitions is computed in steps, and members get it with their next heartbeats.
AT_ONCE = 5_000

#: The number of members that are described to an assignor in one step.
DESCRIBED_IN_STEP = 64


def update_target(
    context: GroupContext,
    group: ConsumerGroup,
    group_epoch: int,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscription_type: SubscriptionType,
    draft: ConsumerDraft,
) -> tuple[int, Partitions]:
    """Compute a new target if the group's epoch requires one; return its epoch and the target of `new`.

    Errors: COORDINATOR_LOAD_IN_PROGRESS if there is no memory for the target, and `new` has no partitions.
    """
    present = group.assignment_epoch, group.target_of(new)
    if group.assignment_epoch >= group_epoch or group.is_assigning:
        return present
    if not context.may_assign(group.assignment_timestamp_ms):
        return present
    name = group.preferred_assignor(old, new) or context.config.consumer_assignors[0]
    if name not in ASSIGNORS:
        raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    partitions = _partitions(context, group, new)
    more = group.more_for(partitions)
    error = context.memory.refuses_assignment(context.config, group.client, group.held_bytes, more)
    if error is not ErrorCode.NONE:
        if new.assigned:
            return present  # it keeps what it has until there is room
        raise GroupRefusal(error)
    steps = assign_in_steps(context, group, new, subscription_type, name)
    if len(group.members) + partitions > AT_ONCE:
        instances = {member_id: each for each, member_id in group.static_members.items()}
        if new.instance_id is not None:
            instances[new.member_id] = new.instance_id
        encoded = _encode_in_steps(group.group_id, steps)
        effect = AssignTarget(group.group_id, group_epoch, [], encoded, instances, more_bytes=more)
        draft.effects.append(effect)
        return present
    found = exhaust(steps)
    known = group.target
    changed = [
        TargetRecord(group.group_id, member_id, partitions)
        for member_id, partitions in found.items()
        if known.get(member_id) != partitions
    ]
    write_target(group, changed, group_epoch, context.now_ms, draft)
    return group_epoch, found[new.member_id]


def _partitions(context: GroupContext, group: ConsumerGroup, new: ConsumerGroupMember) -> int:
    """The number of partitions of the topics that the members read."""
    topics = context.image.topics
    names = group.topics.keys() | new.subscribed_topic_names
    return sum(len(topics[name].partitions) for name in names if name in topics)


def assign_in_steps(
    context: GroupContext,
    group: ConsumerGroup,
    new: ConsumerGroupMember,
    subscription_type: SubscriptionType,
    assignor: str,
) -> Steps[dict[str, Partitions]]:
    """Compute a target in steps; return the target of each member."""
    given = yield from assignment_input(context, group, new, subscription_type)
    found = yield from ASSIGNORS[assignor](given)
    return {member_id: found.get(member_id, NO_PARTITIONS) for member_id in given.members}


def _encode_in_steps(
    group_id: str, steps: Steps[dict[str, Partitions]]
) -> Steps[list[EncodedTarget]]:
    """Encode the records of a target in steps, so that writing them together takes little time."""
    found = yield from steps
    records = []
    for member_id, partitions in found.items():
        yield
        records.append(EncodedTarget.of(group_id, member_id, partitions))
    return records


def assignment_input(
    context: GroupContext,
    group: ConsumerGroup,
    new: ConsumerGroupMember,
    subscription_type: SubscriptionType,
) -> Steps[AssignmentInput]:
    """Describe the group to an assignor, with `new` in the place of the member that it replaces.

    Shape: members and their targets are those at the first step.
    """
    topics = context.image.topics
    by_names: dict[frozenset[str], frozenset[bytes]] = {}
    partitions: dict[bytes, int] = {}
    members, targets = dict(group.members), dict(group.target)
    targets[new.member_id] = group.target_of(new)
    members[new.member_id] = new
    replaced = group.static_members.get(new.instance_id or "") if new.instance_id else None
    if replaced is not None and replaced != new.member_id:
        members.pop(replaced, None)
    for number, member_id in enumerate(members):
        if not number % DESCRIBED_IN_STEP:
            yield
        hash_of_name(member_id)  # cached, so that ordering takes little time
    described = {}
    for number, member_id in enumerate(names_in_order(members)):
        if not number % DESCRIBED_IN_STEP:
            yield
        member = members[member_id]
        names = group.subscription(member) if group.resolved else member.subscribed_topic_names
        ids = by_names.get(names)
        if ids is None:
            read = [topics[name] for name in names if name in topics]
            partitions.update((topic.topic_id, len(topic.partitions)) for topic in read)
            ids = by_names[names] = frozenset(topic.topic_id for topic in read)
        described[member_id] = AssignedMember(
            member.instance_id, ids, targets.get(member_id, NO_PARTITIONS)
        )
    return AssignmentInput(described, subscription_type, partitions, group.owners)


def write_target(
    group: ConsumerGroup,
    changed: Iterable[TargetRecord],
    epoch: int,
    now_ms: int,
    draft: ConsumerDraft,
) -> None:
    """Store the changed assignments, then the epoch."""
    draft.records += changed
    draft.write(TargetEpochRecord(group.group_id, (epoch, now_ms)))
