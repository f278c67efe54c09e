"""Heartbeat (API key 12): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Int16, Int32, String


@message(api_key=ApiKey.HEARTBEAT, kind="request", versions="0-4", flexible="4+")
class HeartbeatRequest:
    """A member of a classic group reports that it is alive.

    Source: HeartbeatRequest.json; KIP-345 (v3 static members).
    """

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, "3+", nullable="3+", default=None)


@message(api_key=ApiKey.HEARTBEAT, kind="response", versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Whether the member is still part of the generation. Source: HeartbeatResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16)
