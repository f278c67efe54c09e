"""JoinGroup (API key 11): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol:
    name: str = field(String)
    metadata: bytes = field(Bytes)


@message(api_key=ApiKey.JOIN_GROUP, kind="request", versions="0-9", flexible="6+")
class JoinGroupRequest:
    """A member joins a classic group, or joins again once a rebalance has begun.

    Source: JoinGroupRequest.json; KIP-62 (v1 rebalance timeout), KIP-345 (v5 static members),
    KIP-394 (v4 member id required), KIP-559 (v7 protocol type), KIP-800 (v8 reason).
    """

    group_id: str = field(String)
    session_timeout_ms: int = field(Int32)
    # Before v1 the session timeout is used.
    rebalance_timeout_ms: int = field(Int32, "1+", default=-1, ignorable=True)
    member_id: str = field(String)  # "" until the coordinator has assigned one
    group_instance_id: str | None = field(String, "5+", nullable="5+", default=None)
    protocol_type: str = field(String)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(String, "8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = field(String)
    group_instance_id: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(Bytes)


@message(api_key=ApiKey.JOIN_GROUP, kind="response", versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation, and for the leader all members with their metadata.

    Source: JoinGroupResponse.json.
    """

    throttle_time_ms: int = field(Int32, "2+", ignorable=True)
    error_code: int = field(Int16)
    generation_id: int = field(Int32, default=-1)
    protocol_type: str | None = field(String, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(String, nullable="7+")
    leader: str = field(String)
    skip_assignment: bool = field(Bool, "9+")
    member_id: str = field(String)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))
