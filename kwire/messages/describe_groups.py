"""DescribeGroups (API key 15): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Bytes, Int16, Int32, String


@message(api_key=ApiKey.DESCRIBE_GROUPS, kind="request", versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Asks for state and members of classic groups.

    Source: DescribeGroupsRequest.json; KIP-430 (v3 authorized operations), KIP-345 (v4 static
    members), KIP-1043 (v6 error messages).
    """

    groups: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool, "3+")


@struct
class DescribedGroupMember:
    member_id: str = field(String)
    group_instance_id: str | None = field(String, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    member_metadata: bytes = field(Bytes)
    member_assignment: bytes = field(Bytes)


@struct
class DescribedGroup:
    error_code: int = field(Int16)
    error_message: str | None = field(String, "6+", nullable="6+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    protocol_type: str = field(String)
    protocol_data: str = field(String)
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(Int32, "3+", default=-2147483648)


@message(api_key=ApiKey.DESCRIBE_GROUPS, kind="response", versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """State and members of each group. Source: DescribeGroupsResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
