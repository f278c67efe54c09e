"""BrokerRegistration (API key 62): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid


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


@message(api_key=ApiKey.BROKER_REGISTRATION, kind="request", versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    """A broker registers with the KRaft controller.

    Source: BrokerRegistrationRequest.json; KIP-631, KIP-866 (v1 migration), KIP-858 (v2 log
    directories).
    """

    broker_id: int = field(Int32)
    cluster_id: str = field(String)
    incarnation_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    features: list[Feature] = field(Array(Feature))
    rack: str | None = field(String, nullable="0+")
    is_migrating_zk_broker: bool = field(Bool, "1+")
    log_dirs: list[bytes] = field(Array(Uuid), "2+", ignorable=True)
    previous_broker_epoch: int = field(Int64, "3+", default=-1, ignorable=True)


@message(api_key=ApiKey.BROKER_REGISTRATION, kind="response", versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    """The broker's epoch. Source: BrokerRegistrationResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    broker_epoch: int = field(Int64, default=-1)
