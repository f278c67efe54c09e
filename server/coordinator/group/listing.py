"""How DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and ListGroups show a group.

Source: GroupMetadata.summary and overview, ConsumerGroup.asDescribedGroup, ShareGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kwire.errors import ErrorCode
from kwire.messages import consumer_group_describe as described_consumer_group
from kwire.messages import share_group_describe as described_share_group
from kwire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kwire.messages.list_groups import ListedGroup

from ...metadata.image import MetadataImage
from .consumer.assignment_input import Steps
from .consumer.group import ConsumerGroup
from .consumer.member import ConsumerGroupMember
from .kinds import AnyGroup
from .share.group import ShareGroup
from .share.member import ShareGroupMember
from .share.simple import NAME as SIMPLE
from .state import Group, GroupState

#: The kinds of members in a ConsumerGroupDescribe.
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_group(
    group_id: str, group: AnyGroup | None, version: int, *, last_assignments: bool = False
) -> DescribedGroup:
    """Describe a classic group; metadata only while it is stable.

    Shape: `last_assignments` says whether assignments are also shown while the group rebalances, as in Apache Kafka 4.
    A group that does not exist, or is of another kind, is "Dead" without an error, or since version 6
    GROUP_ID_NOT_FOUND (KIP-1043).
    """
    if not isinstance(group, Group):
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= 6:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            found = "not found" if group is None else "is not a classic group"
            described.error_message = f"Group {group_id} {found}."
        return described
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
                member_assignment=(
                    member.assignment if last_assignments or protocol_name is not None else b""
                ),
            )
            for member in group.members.values()
        ],
    )


def list_group(group: AnyGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.kind,
    )


def describe_consumer_group(
    group_id: str, group: AnyGroup | None, default_assignor: str, image: MetadataImage
) -> Steps[described_consumer_group.DescribedGroup]:
    """Describe a consumer group, one member per step.

    Shape: the fields of the group are from the first step; each member is described as of its own step, unless it has
    left in the meantime.
    Errors: GROUP_ID_NOT_FOUND, also for a group of another kind.
    """
    if not isinstance(group, ConsumerGroup):
        found = "not found" if group is None else "is not a consumer group"
        return described_consumer_group.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {found}.",
        )
    described = described_consumer_group.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
    )
    for member_id in list(group.members):
        member = group.members.get(member_id)
        if member is not None:
            described.members.append(describe_member(group, member, image))
        yield
    return described


def describe_member(
    group: ConsumerGroup, member: ConsumerGroupMember, image: MetadataImage
) -> described_consumer_group.Member:
    """Describe a member; partitions that it has yet to give up still count as its own."""
    has: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, some in partitions.items():
            has.setdefault(topic_id, []).extend(some)
    return described_consumer_group.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(has, image),
        target_assignment=_assignment(group.target.get(member.member_id, {}), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], image: MetadataImage
) -> described_consumer_group.Assignment:
    """Partitions of the topics that exist."""
    return described_consumer_group.Assignment(
        topic_partitions=[
            described_consumer_group.TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics_by_id[topic_id].name,
                partitions=sorted(some),
            )
            for topic_id, some in partitions.items()
            if topic_id in image.topics_by_id
        ]
    )


def describe_share_group(
    group_id: str, group: AnyGroup | None, image: MetadataImage
) -> Steps[described_share_group.DescribedGroup]:
    """Describe a share group, one member per step; otherwise like describe_consumer_group."""
    if not isinstance(group, ShareGroup):
        found = "not found" if group is None else "is not a share group"
        return described_share_group.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {found}.",
        )
    described = described_share_group.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
    )
    for member_id in list(group.members):
        member = group.members.get(member_id)
        if member is not None:
            described.members.append(_sharing_member(member, image))
        yield
    return described


def _sharing_member(member: ShareGroupMember, image: MetadataImage) -> described_share_group.Member:
    return described_share_group.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=described_share_group.Assignment(
            topic_partitions=[
                described_share_group.TopicPartitions(
                    topic_id=topic_id,
                    topic_name=image.topics_by_id[topic_id].name,
                    partitions=sorted(some),
                )
                for topic_id, some in member.assigned.items()
                if topic_id in image.topics_by_id
            ]
        ),
    )
