"""The target assignment of a share group: when it is computed, from what, and which assignments have changed.

Source: GroupMetadataManager.maybeUpdateTargetAssignment, TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kwire.errors import ErrorCode

from ....steps import exhaust
from ..modern.context import GroupContext
from ..modern.draft import AssignTarget, Draft
from ..modern.members import NO_PARTITIONS, Partitions
from ..modern.order import names_in_order
from ..modern.refusal import GroupRefusal
from .group import ShareGroup
from .member import ShareGroupMember
from .records import ShareTargetEpochRecord, ShareTargetRecord
from .simple import SharingInput, SharingMember, assign_simple

#: A target that takes more work than this is computed in steps, and members get it with their next heartbeats.
AT_ONCE = 2_000


def update_target(
    context: GroupContext,
    group: ShareGroup,
    group_epoch: int,
    new: ShareGroupMember,
    topics: Counter[str],
    draft: Draft,
) -> tuple[int, Partitions]:
    """Compute a new target if the group's epoch requires one; return its epoch and the target of `new`.

    Errors: COORDINATOR_LOAD_IN_PROGRESS if there is no memory for the target, and `new` has no partitions.
    """
    present = group.assignment_epoch, group.target_of(new.member_id)
    if group.assignment_epoch >= group_epoch or group.is_assigning:
        return present
    if not context.may_assign(group.assignment_timestamp_ms):
        return present
    given = sharing_input(context, group, new, topics)
    # Each partition has a member, and each member a partition: of all topics, or of each.
    shared = len(given.members) if given.alike else sum(topics.values())
    more = group.more_for(sum(map(len, given.partitions.values())) + shared)
    error = context.memory.refuses_assignment(context.config, group.client, group.held_bytes, more)
    if error is not ErrorCode.NONE:
        if new.assigned:
            return present  # it keeps what it has until there is room
        raise GroupRefusal(error)
    steps = assign_simple(given)
    if given.work > AT_ONCE:
        draft.effects.append(
            AssignTarget(group.group_id, group_epoch, list(given.members), steps, more_bytes=more)
        )
        return present
    found = exhaust(steps)
    write_target(group, list(given.members), found, group_epoch, context.now_ms, draft)
    return group_epoch, found.get(new.member_id, NO_PARTITIONS)


def sharing_input(
    context: GroupContext, group: ShareGroup, new: ShareGroupMember, topics: Counter[str]
) -> SharingInput:
    """Describe the group to the assignor, with `new` as one of its members."""
    known = context.image.topics
    partitions: dict[bytes, list[int]] = {}
    by_names: dict[frozenset[str], list[bytes]] = {}

    def ids(names: frozenset[str]) -> list[bytes]:
        found = by_names.get(names)
        if found is None:
            existing = [
                known[name]
                for name in names_in_order(sorted(names), presized=True)
                if name in known
            ]
            for topic in existing:
                has_state = group.initialized.get(topic.topic_id)
                partitions[topic.topic_id] = (
                    []
                    if has_state is None
                    else sorted(
                        each for each in has_state.partitions if each < len(topic.partitions)
                    )
                )
            found = by_names[names] = [topic.topic_id for topic in existing]
        return found

    members = dict(group.members)
    members[new.member_id] = new
    described = {
        member_id: SharingMember(
            ids(members[member_id].subscribed_topic_names), group.target_of(member_id)
        )
        for member_id in names_in_order(members)
    }
    alike = all(count == len(members) for count in topics.values())
    return SharingInput(described, alike, partitions)


def write_target(
    group: ShareGroup,
    member_ids: list[str],
    found: Mapping[str, Partitions],
    epoch: int,
    now_ms: int,
    draft: Draft,
) -> None:
    """Store the changed assignments, then the epoch."""
    for member_id in member_ids:
        target = found.get(member_id, NO_PARTITIONS)
        if group.target.get(member_id) != target:
            draft.records.append(ShareTargetRecord(group.group_id, member_id, target))
    draft.records.append(ShareTargetEpochRecord(group.group_id, (epoch, now_ms)))
