"""BrokerHeartbeat (API key 63): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Array, Bool, Int16, Int32, Int64, Uuid


@message(api_key=ApiKey.BROKER_HEARTBEAT, kind="request", versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    """A broker reports to the KRaft controller that it is alive.

    Source: BrokerHeartbeatRequest.json; KIP-631, KIP-858 (v1 offline directories).
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    current_metadata_offset: int = field(Int64)
    want_fence: bool = field(Bool)
    want_shut_down: bool = field(Bool)
    offline_log_dirs: list[bytes] = field(Array(Uuid), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(
        Array(Uuid), "2+", nullable="2+", tag=1, default=None
    )


@message(api_key=ApiKey.BROKER_HEARTBEAT, kind="response", versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    """The controller's instructions to the broker. Source: BrokerHeartbeatResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    is_caught_up: bool = field(Bool)
    is_fenced: bool = field(Bool, default=True)
    should_shut_down: bool = field(Bool)
