"""SyncGroup (API key 14): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment:
    member_id: str = field(String)
    assignment: bytes = field(Bytes)


@message(api_key=ApiKey.SYNC_GROUP, kind="request", versions="0-5", flexible="4+")
class SyncGroupRequest:
    """The leader sends the assignments of a generation, the others request theirs.

    Source: SyncGroupRequest.json; KIP-345 (v3 static members), KIP-559 (v5 protocol type).
    """

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


@message(api_key=ApiKey.SYNC_GROUP, kind="response", versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's assignment. Source: SyncGroupResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16)
    protocol_type: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = field(Bytes)
