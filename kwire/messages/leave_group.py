"""LeaveGroup (API key 13): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@struct
class MemberIdentity:
    member_id: str = field(String)
    group_instance_id: str | None = field(String, nullable="3+", default=None)
    reason: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)


@message(api_key=ApiKey.LEAVE_GROUP, kind="request", versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Members leave a classic group.

    Source: LeaveGroupRequest.json; KIP-345 (v3 several members), KIP-800 (v5 reason).
    """

    group_id: str = field(String)
    member_id: str = field(String, "0-2")
    members: list[MemberIdentity] = field(Array(MemberIdentity), "3+")


@struct
class MemberResponse:
    member_id: str = field(String)
    group_instance_id: str | None = field(String, nullable="3+")
    error_code: int = field(Int16)


@message(api_key=ApiKey.LEAVE_GROUP, kind="response", versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """The outcome for each member. Source: LeaveGroupResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16)
    members: list[MemberResponse] = field(Array(MemberResponse), "3+")
