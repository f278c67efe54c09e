"""ControllerRegistration (API key 70): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)
    security_protocol: int = field(Int16)


@struct
class Feature:
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api_key=ApiKey.CONTROLLER_REGISTRATION, kind="request", versions="0", flexible="0+")
class ControllerRegistrationRequest:
    """A controller registers with the active controller.

    Source: ControllerRegistrationRequest.json; KIP-919.
    """

    controller_id: int = field(Int32)
    incarnation_id: bytes = field(Uuid)
    zk_migration_ready: bool = field(Bool)
    listeners: list[Listener] = field(Array(Listener))
    features: list[Feature] = field(Array(Feature))


@message(api_key=ApiKey.CONTROLLER_REGISTRATION, kind="response", versions="0", flexible="0+")
class ControllerRegistrationResponse:
    """Whether the controller was registered. Source: ControllerRegistrationResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
