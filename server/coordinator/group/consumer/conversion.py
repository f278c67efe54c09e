"""Converts a classic group to a consumer group and back, without losing assignments.

Source: GroupMetadataManager.validateOnlineUpgrade, convertToConsumerGroup, validateOnlineDowngrade...,
convertToClassicGroup, ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from kwire.errors import ErrorCode

from ..memory import GroupMemory
from ..modern.context import GroupContext
from ..modern.members import NO_PARTITIONS
from ..modern.refusal import GroupRefusal
from ..records import GroupRecord, group_record
from ..state import CONSUMER_PROTOCOL_TYPE, Group, GroupState, Member
from .classic_protocol import (
    Malformed,
    assignment_bytes,
    by_id,
    read_assignment,
    read_subscription,
)
from .current_assignment import Owned
from .draft import ConsumerDraft
from .group import ConsumerGroup
from .heartbeat_steps import count_subscription, move
from .member import ClassicMember, ConsumerGroupMember, with_epoch
from .membership import fence_members
from .records import (
    ConsumerGroupRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    tombstones,
)
from .replay import replay

log = logging.getLogger(__name__)

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")


# To a consumer group


def upgrade(context: GroupContext, classic: Group, draft: ConsumerDraft) -> ConsumerGroup:
    """Write the records that convert a classic group to a consumer group, and return the consumer group.

    Shape: members keep their last assignment; waiting members are told to rejoin.
    Errors: GROUP_ID_NOT_FOUND if the group cannot be converted.
    """
    _check_upgrade(context, classic)
    group_id = classic.group_id
    try:
        members = [
            _upgraded_member(context, classic, member) for member in classic.members.values()
        ]
    except Malformed:
        raise _not_upgraded(
            group_id, "because the embedded consumer protocol is malformed."
        ) from None
    epoch = classic.generation_id
    group = ConsumerGroup(group_id, GroupMemory())
    records: list[ConsumerGroupRecord] = []
    records += (MemberRecord(group_id, each.member_id, each) for each in members)
    for record in records:
        replay(group, record)
    rest: list[ConsumerGroupRecord] = [
        EpochRecord(group_id, (epoch, context.hashes.of_group(group.topics, context.image))),
        *(
            TargetRecord(
                group_id,
                each.member_id,
                {topic: frozenset(some) for topic, some in each.assigned.items()},
            )
            for each in members
        ),
        TargetEpochRecord(group_id, (epoch, 0)),
        *(CurrentRecord(group_id, each.member_id, each) for each in members),
    ]
    for record in rest:
        replay(group, record)
    draft.records += [GroupRecord(group_id, None), *records, *rest]
    draft.upgraded = classic
    return group


def _check_upgrade(context: GroupContext, classic: Group) -> None:
    group_id = classic.group_id
    if context.config.consumer_migration_policy not in UPGRADES:
        raise _not_upgraded(group_id, "because online upgrade is disabled.")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(
            group_id, "because the group does not use the consumer embedded protocol."
        )
    if len(classic.members) > context.config.consumer_max_size:
        raise _not_upgraded(
            group_id, "because the group size exceeds the consumer group maximum size."
        )


def _not_upgraded(group_id: str, reason: str) -> GroupRefusal:
    log.info("group %s does not become a consumer group %s", group_id, reason)
    return GroupRefusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group {reason}",
    )


def _upgraded_member(context: GroupContext, classic: Group, member: Member) -> ConsumerGroupMember:
    """A member with its last assignment.

    Errors: Malformed.
    """
    assigned = NO_PARTITIONS
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _not_upgraded(
                classic.group_id,
                "because an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade.",
            )
        assigned = by_id(assignment.assigned_partitions, context.image)
    name = classic.protocol_name or member.protocols[0][0]
    subscription = read_subscription(member.metadata(name))
    epoch = classic.generation_id
    return ConsumerGroupMember(
        member.member_id,
        epoch,
        epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=with_epoch(assigned, epoch),
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols)),
    )


# To a classic group


def can_downgrade_for(
    context: GroupContext, group: ConsumerGroup, replaced: ConsumerGroupMember
) -> bool:
    """Whether the group is downgraded when a classic member replaces a static member."""
    return (
        replaced.classic is None
        and group.classic_members == len(group.members) - 1
        and context.config.consumer_migration_policy in DOWNGRADES
        and len(group.members) <= context.config.max_size
    )


def can_downgrade_without(
    context: GroupContext, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
) -> bool:
    """Whether the group is downgraded when members leave."""
    left = len(group.members) - len(leaving)
    classic = group.classic_members - sum(each.classic is not None for each in leaving)
    return (
        classic == left > 0
        and context.config.consumer_migration_policy in DOWNGRADES
        and left <= context.config.max_size
    )


def remove_members(
    context: GroupContext,
    group: ConsumerGroup,
    members: Sequence[ConsumerGroupMember],
    draft: ConsumerDraft,
) -> None:
    """Remove members; if all remaining members use the classic protocol, the group is downgraded."""
    if members and can_downgrade_without(context, group, members):
        _write_classic(context, group, {each.member_id for each in members}, None, draft)
        draft.downgraded = (
            f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        )
    else:
        fence_members(context, group, members, draft)


def downgrade(
    context: GroupContext,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    owned: Owned,
    changed: bool,
    draft: ConsumerDraft,
) -> ConsumerGroupMember:
    """Downgrade to a classic group in which `new` replaces the last member of the consumer protocol.

    Shape: returns `new` after its step; if its subscription differs, the classic group rebalances.
    """
    epoch, _ = count_subscription(context, group, old, new, changed, draft)
    rebalance = group.assignment_epoch < epoch
    if not rebalance:
        new = move(
            context,
            group,
            new,
            group.assignment_epoch,
            group.target_of(new),
            owned,
            subscription_changed=changed,
            draft=draft,
        )
    _write_classic(context, group, set(), new, draft)
    draft.downgraded = (
        f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
        if rebalance
        else ""
    )
    return new


def _write_classic(
    context: GroupContext,
    group: ConsumerGroup,
    leaving: Collection[str],
    joining: ConsumerGroupMember | None,
    draft: ConsumerDraft,
) -> None:
    """Write the tombstones of a consumer group, and the classic group that replaces it."""
    holder = None if joining is None else group.static_member(joining.instance_id)
    replaced = None if holder is None else holder.member_id
    ids = [
        joining.member_id if joining is not None and member_id == replaced else member_id
        for member_id in group.members
    ]
    classic = Group(group.group_id, context.now_ms, GroupState.STABLE, GroupMemory())
    classic.generation_id = group.group_epoch
    staying = [
        each
        for each in group.members.values()
        if each.member_id not in leaving and each.member_id != replaced
    ]
    if joining is not None:
        staying.append(joining)
    for member in staying:
        assert member.classic is not None
        added = Member(
            member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.classic.session_timeout_ms,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=list(member.classic.protocols),
        )
        classic.add(added, None)
    classic.protocol_name = classic.select_protocol()
    assignment = {}
    for member_id, each in classic.members.items():
        target_id = (
            replaced if joining is not None and member_id == joining.member_id else member_id
        )
        metadata = each.metadata(classic.protocol_name)
        try:
            target = group.target.get(target_id or "", NO_PARTITIONS)
            assignment[member_id] = assignment_bytes(target, metadata, context.image)
        except Malformed as error:
            raise GroupRefusal(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot downgrade the classic group {group.group_id}: {error}.",
            ) from None
    draft.records += tombstones(group, ids)
    draft.records.append(group_record(classic, assignment))
