"""Moves a member from its current assignment to its target.

A member gets a partition only when no other member has it, and has to give up partitions before it gets new ones.
Source: CurrentAssignmentBuilder; KIP-848, KIP-1251 (epochs of single partitions).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kwire.errors import ErrorCode

from ..modern.members import MemberState, Partitions
from ..modern.refusal import GroupRefusal
from .member import ConsumerGroupMember, PartitionEpochs

#: The partitions that a member reports, by topic id; None if it reports none.
Owned = Iterable[tuple[bytes, Iterable[int]]] | None


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    subscribed: Collection[bytes],
    owned: Owned,
    current_epoch: Callable[[bytes, int], int],
    *,
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """Return the member's next state, or the member itself if its state does not change.

    Shape: `subscribed` are the ids of the existing topics that it reads; `current_epoch` returns the epoch at which a
    member has a partition, -1 if no member has it.
    Errors: FENCED_MEMBER_EPOCH if its stored state is that of a later release and it still owns partitions.
    """
    state = member.state
    if state is MemberState.STABLE and member.member_epoch == target_epoch:
        return shrink(member, subscribed, owned) if subscription_changed else member
    if state is MemberState.UNREVOKED_PARTITIONS and still_owns(owned, member.revoking):
        return shrink(member, subscribed, owned) if subscription_changed else member
    member_epoch = member.member_epoch
    if state is MemberState.UNKNOWN:
        owned = None if owned is None else [(topic, list(some)) for topic, some in owned]
        if owned is None or owned:
            raise GroupRefusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        member_epoch = target_epoch
    return advance(member, member_epoch, target_epoch, target, subscribed, owned, current_epoch)


def still_owns(owned: Owned, revoking: PartitionEpochs) -> bool:
    """Whether a member still has, or may have, a partition that it was asked to give up."""
    if owned is None:
        return True
    return any(
        partition in revoking[topic_id]
        for topic_id, partitions in owned
        if topic_id in revoking
        for partition in partitions
    )


def shrink(
    member: ConsumerGroupMember, subscribed: Collection[bytes], owned: Owned
) -> ConsumerGroupMember:
    """Revoke the topics that the member no longer reads; the other changes follow with the next target."""
    gone = {topic: some for topic, some in member.assigned.items() if topic not in subscribed}
    if not gone:
        return member
    assigned = {topic: some for topic, some in member.assigned.items() if topic not in gone}
    revoking = dict(member.revoking)
    for topic_id, some in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **some}
    if still_owns(owned, revoking):
        return _moved(
            member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking
        )
    return _moved(member, member.member_epoch, member.state, assigned, member.revoking)


def advance(
    member: ConsumerGroupMember,
    member_epoch: int,
    target_epoch: int,
    target: Partitions,
    subscribed: Collection[bytes],
    owned: Owned,
    current_epoch: Callable[[bytes, int], int],
) -> ConsumerGroupMember:
    """Take the next step toward the target: first revoke partitions, then assign free ones."""
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    coming: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        has = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in has.items() if partition in wanted}
        given_up = {partition: epoch for partition, epoch in has.items() if partition not in wanted}
        # Partitions that the member itself is giving up are not owned by another member.
        own = member.revoking.get(topic_id, {})
        free = []
        for partition in sorted(wanted):
            if partition in kept:
                continue
            if current_epoch(topic_id, partition) == -1 or partition in own:
                free.append(partition)
            else:
                unreleased = True
        if kept:
            assigned[topic_id] = kept
        if given_up:
            revoking[topic_id] = given_up
        if free:
            coming[topic_id] = free
    if revoking and still_owns(owned, revoking):
        return _moved(member, member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, partitions in coming.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, target_epoch, state, assigned, {})


def _moved(
    member: ConsumerGroupMember,
    epoch: int,
    state: MemberState,
    assigned: PartitionEpochs,
    revoking: PartitionEpochs,
) -> ConsumerGroupMember:
    return member._replace(
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
