"""How DescribeGroups and ListGroups show a group. Source: GroupMetadata.summary, overview."""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kwire.messages.list_groups import ListedGroup

from .state import Group, GroupState

CLASSIC_GROUP_TYPE = "classic"


def describe_group(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """Describe a group; metadata and assignments only while it is stable.

    Shape: a group that does not exist is "Dead" without an error, or from version 6 on
    GROUP_ID_NOT_FOUND (KIP-1043).
    """
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= 6:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
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
                member_assignment=b"" if protocol_name is None else member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_group(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_GROUP_TYPE,
    )
