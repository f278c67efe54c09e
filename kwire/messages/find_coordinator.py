"""FindCoordinator (API key 10): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@message(api_key=ApiKey.FIND_COORDINATOR, kind="request", versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Asks which broker coordinates a group, transactional id or share partition.

    Source: FindCoordinatorRequest.json; KIP-98 (v1 transactions), KIP-699 (v4 several keys),
    KIP-932 (v6 share groups).
    """

    key: str = field(String, "0-3")
    key_type: int = field(Int8, "1+")  # 0 group, 1 transaction, 2 share
    coordinator_keys: list[str] = field(Array(String), "4+")


@struct
class Coordinator:
    key: str = field(String)
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="4+", ignorable=True)


@message(api_key=ApiKey.FIND_COORDINATOR, kind="response", versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator of each key. Source: FindCoordinatorResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16, "0-3")
    error_message: str | None = field(String, "1-3", nullable="1-3", ignorable=True)
    node_id: int = field(Int32, "0-3")
    host: str = field(String, "0-3")
    port: int = field(Int32, "0-3")
    coordinators: list[Coordinator] = field(Array(Coordinator), "4+")
